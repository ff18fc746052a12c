"""The CUDA device against a driver without a GPU, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fake_cuda
from metal_device.operations import NAMES

# What the driver says of the codes that the tests let it return.
ERROR_TEXTS = {
    2: "CUDA_ERROR_OUT_OF_MEMORY, out of memory",
    719: "CUDA_ERROR_LAUNCH_FAILED, unspecified launch failure",
    999: "error 999",
}

TESTS = Path(__file__).resolve().parents[1]

SETUP = """
import gc, os, sys, threading
import numpy as np
import mlxops as mo
from mlxops.testing import assert_bits_equal
from fake_cuda import Control
from metal_device.operations import NAMES, assert_works, operations
from q4_0_data import normal_input, random_blocks

control = Control()
rng = np.random.default_rng(3)

def matrix(N, K):
    return mo.Q4_0Matrix.from_blocks(random_blocks(rng, N, K), (N, K))

def check(w, x):
    y = mo.mul_mv_q4_0(w, x, device="cuda")
    assert_bits_equal(y, mo.mul_mv_q4_0(w, x, device="cpu"))
    return y

def free():
    gc.collect()
    mo.clear_cache()
"""


def run(code: str, *arguments: str, machine: str = "") -> list[str]:
    """The lines that a piece of Python prints, which breaks no rule of the driver."""
    code = f"{SETUP}\n{code}\ncontrol.check()\n"
    return fake_cuda.run(code, *arguments, machine=machine).splitlines()


# ---- Which GPU is offered ------------------------------------------------------------------------


def test_the_gpu_comes_first() -> None:
    code = """
devices = mo.devices()
print(*[device.name for device in devices], mo.default_device().name, devices.missing)
print(devices[0].description)
"""
    assert run(code) == ["cuda cpu cuda {}", "Fake GPU, compute capability 9.0, 1.0 GiB"]


def test_the_driver_is_asked_as_late_as_possible() -> None:
    code = """
from fake_cuda import Control
import mlxops as mo
import numpy as np
w = mo.Q4_0Matrix.quantize(np.ones((2, 32)))
mo.mul_mv_q4_0(w, np.ones(32, np.float32), device="cpu")
mo.set_default_device("cpu")
mo.mul_mv_q4_0(w, np.ones(32, np.float32))
assert "libcuda" not in open("/proc/self/maps").read()
mo.devices()
control = Control()
assert control.calls("cuInit") == 1 and control.held() == (0, 0, 0)
mo.mul_mv_q4_0(w, np.ones(32, np.float32), device="cuda")
assert control.calls("cuInit") == 1 and control.held()[2] == 1
control.check()
"""
    fake_cuda.run(code)


TUNED = """
file = Path(sys.argv[1])
os.environ["MLXOPS_TUNING"] = str(file)
tuning = Tuning("cuda", sys.argv[2], [Choice(1, 2048, "plain_m1", {})])
_tuning.write(file, [tuning])
if sys.argv[3:]:
    file.write_text(file.read_text()[:-9])
w, x = matrix(4, 64), normal_input(rng, 1, 64)
before = _core.projection_choice("cuda", 1, 8)
mo.mul_mv_q4_0(w, x, device="cpu")
assert _core.projection_choice("cuda", 1, 8) == before != "plain_m1"
check(w, x)
print(_core.projection_choice("cuda", 1, 8) == "plain_m1")
_tuning.write(file, [])
_core.set_projection_choice("cuda", 1, 8, "s4_r1_m1_d1_g8")
_tuning.write(file, [tuning])
check(w, x)
assert _core.projection_choice("cuda", 1, 8) == "s4_r1_m1_d1_g8", "it is read once"
"""


@pytest.mark.parametrize(
    ("gpu", "extra", "used"),
    [
        ("Fake GPU, compute capability 9.0, 1.0 GiB", (), "True"),
        ("another GPU", (), "False"),
        ("Fake GPU, compute capability 9.0, 1.0 GiB", ("damaged",), "False"),
    ],
    ids=["this GPU", "another GPU", "damaged"],
)
def test_what_tune_found_is_used_from_the_first_operation_on(
    gpu: str, extra: tuple[str, ...], used: str, tmp_path: Path
) -> None:
    code = "from pathlib import Path\nfrom mlxops import _core, _tuning\n"
    code += "from mlxops._tuning import Choice, Tuning\n" + TUNED
    assert run(code, str(tmp_path / "tuning.json"), gpu, *extra) == [used]


NO_GPU = """
print(*[device.name for device in mo.devices()], mo.default_device().name)
print(mo.devices().missing["cuda"])
w = mo.Q4_0Matrix.quantize(np.ones((2, 32)))
assert mo.mul_mv_q4_0(w, np.ones(32, np.float32)).tolist() == [32, 32]
try:
    mo.mul_mv_q4_0(w, np.ones(32, np.float32), device="cuda")
except mo.DeviceError as error:
    print(error)
"""

MACHINES = {
    "version=11040": "too old, for CUDA 11.4; CUDA 11.8, driver 520 or later is needed",
    "cuDriverGetVersion=3": "CUDA_ERROR_NOT_INITIALIZED",
    "init=100": "cuInit failed: CUDA_ERROR_NO_DEVICE, no CUDA-capable device is detected",
    "init=803": "cuInit failed: error 803",
    "count=0": "shows no GPU",
    "major=7,minor=0": "Fake GPU has compute capability 7.0; 7.5 or later is needed",
    "major=6,minor=9": "compute capability 6.9",
    "cuDeviceGetCount=3": "cuDeviceGetCount failed: CUDA_ERROR_NOT_INITIALIZED",
    "cuDeviceGet=101": "cuDeviceGet failed: CUDA_ERROR_INVALID_DEVICE",
    "cuDeviceGetName=101": "cuDeviceGetName failed",
    "cuDeviceGetAttribute=101": "cuDeviceGetAttribute failed",
    "cuDeviceTotalMem=101": "cuDeviceTotalMem failed",
}


@pytest.mark.parametrize(("machine", "reason"), MACHINES.items())
def test_without_a_gpu_the_cpu_is_the_default(machine: str, reason: str) -> None:
    names, missing, error = run(NO_GPU + "assert control.held() == (0, 0, 0)\n", machine=machine)
    assert names == "cpu cpu"
    assert reason in missing
    assert error == f"device 'cuda' cannot be used: {missing}"


@pytest.mark.parametrize("machine", ["major=7,minor=5", "major=12,minor=1", "version=13000"])
def test_gpus_and_drivers_that_will_do(machine: str) -> None:
    code = """
print(mo.default_device().name)
for operation in operations().values():
    assert_works(operation, "cuda")
"""
    assert run(code, machine=machine) == ["cuda"]


def test_without_a_driver(tmp_path: Path) -> None:
    """What is no library, in the place of one that the machine may have."""
    (tmp_path / "libcuda.so.1").write_bytes(b"no library")
    code = "import numpy as np, mlxops as mo\n" + NO_GPU
    names, missing, error = fake_cuda.run(code, folder=tmp_path).splitlines()
    assert names == "cpu cpu"
    assert missing.startswith("there is no NVIDIA driver (")
    assert "libcuda.so.1" in missing
    assert missing in error


def test_a_driver_that_lacks_a_function() -> None:
    folder = fake_cuda.build("-DcuMemHostUnregister=cuMemHostUnregister_of_later")
    code = "import numpy as np, mlxops as mo\n" + NO_GPU
    names, missing, _ = fake_cuda.run(code, folder=folder).splitlines()
    assert names == "cpu cpu"
    assert "too old" in missing
    assert "cuMemHostUnregister" in missing


# ---- Results -------------------------------------------------------------------------------------

SUITES = [
    "test_encoder.py",
    "test_shared_arrays.py",
    *("test_same_bits.py", "test_canonical_order.py", "test_qkv_split.py", "test_q4_0_matrix.py"),
    *("test_out.py", "test_inputs.py", "test_errors.py", "test_devices.py", "test_selftest.py"),
    *("test_threads.py", "test_hostile_python.py"),
]


def test_the_suites() -> None:
    """Every test that takes a device runs on this one, as on a machine with a GPU."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "obeys_cuda", "-p", "no:cacheprovider"]
    process = subprocess.run(
        [*command, "-k", "cuda", *(str(TESTS / name) for name in SUITES)],
        env={**os.environ, **fake_cuda.environment()},
        capture_output=True,
        text=True,
        timeout=600,
        cwd=TESTS.parent,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    passed = int(process.stdout.splitlines()[-1].split(" passed")[0].split()[-1])
    assert passed > 500, process.stdout


def test_a_grid_that_is_too_long_for_one_axis() -> None:
    """CUDA has 65,535 blocks along y: the rest go along z."""
    code = """
for seq in (65535, 65536, 65537, 140000):
    for spans in ((1, 1, 2), (4, 8, 4)):
        qkv = rng.standard_normal((seq, sum(spans)), np.float32)
        parts = mo.qkv_split(qkv, *spans, device="cuda")
        for part, expected in zip(parts, np.split(qkv, np.cumsum(spans)[:2], axis=1)):
            assert_bits_equal(part, np.ascontiguousarray(expected))
    check(matrix(1, 32), normal_input(rng, seq, 32))
"""
    run(code)


# ---- Memory --------------------------------------------------------------------------------------


def test_a_matrix_goes_to_the_gpu_once() -> None:
    code = """
a, b = matrix(33, 96), matrix(33, 96)
x = normal_input(rng, 2, 96)
for i in range(3):
    mo.fused_dual_proj_q4_0(a, b, x, device="cuda")
    weights = [f">{a.nbytes}", f">{b.nbytes}"] if i == 0 else []
    assert control.transfers() == [*weights, f">{x.nbytes}", f"<{2 * 33 * 4}", f"<{2 * 33 * 4}"]
check(a, x)
assert f">{a.nbytes}" not in control.transfers()

# A slice is a part of the copy that is there already.
check(a[5:9], x)
assert control.transfers() == [f">{x.nbytes}", f"<{2 * 4 * 4}"]

# A slice that comes first is all that goes there; the whole takes its place.
c = matrix(1000, 96)
before = control.allocated()
check(c[1:3], x)
assert f">{c[1:3].nbytes}" in control.transfers()
check(c, x)
assert f">{c.nbytes}" in control.transfers()
assert c.nbytes <= control.allocated() - before < c.nbytes + 256
del c
assert control.allocated() == before

# They go with the matrices; and the memory of a freed matrix serves another with other contents.
del a, b
free()
assert control.allocated() == 0
for _ in range(3):
    check(matrix(33, 96), x)
"""
    run(code)


def test_only_what_is_used_of_a_mapped_file_goes_to_the_gpu() -> None:
    code = """
from metal_device.memory import mapped
from mlxops import _core
count, N, K = 40, 1000, 96
stride = -(-matrix(N, K).nbytes // 32) * 32
memory = mapped(count * stride)
blocks = [random_blocks(rng, N, K) for _ in range(count)]
for i, each in enumerate(blocks):
    memory[i * stride : i * stride + each.nbytes] = each.tobytes()
buffer = _core.Buffer(memory)
matrices = [_core.Q4_0Matrix._from_buffer(buffer, i * stride, (N, K)) for i in range(count)]
x = normal_input(rng, 2, K)
free()
before = control.allocated()
for i in (7, 3, 39, 7, 3):
    check(matrices[i], x)
free()
assert 3 * blocks[0].nbytes <= control.allocated() - before < 3 * (blocks[0].nbytes + 256)
assert control.registered() == 0  # the file's pages are not the library's
assert control.transfers().count(f">{blocks[0].nbytes}") == 3
del buffer, matrices
free()
assert control.allocated() == before
"""
    run(code)


def test_results_are_in_registered_memory_that_is_used_again() -> None:
    code = """
w, x = matrix(33, 96), normal_input(rng, 2, 96)
free()
y = check(w, x)
registered = control.registered()
assert registered >= y.nbytes
for _ in range(5):
    del y
    y = check(w, x)
assert control.registered() == registered and control.calls("cuMemHostRegister") == 1
held = y.copy()
free()
assert control.registered() == registered  # y is in use
assert_bits_equal(y, held)
del y
free()
assert control.registered() == 0
"""
    run(code)


def test_memory_that_cannot_be_registered() -> None:
    code = """
w, x = matrix(33, 96), normal_input(rng, 2, 96)
control.fail("cuMemHostRegister", 1, 801)
y = check(w, x)
assert control.failed() == "cuMemHostRegister" and control.registered() == 0
z = check(w, x)
assert control.registered() > 0
"""
    run(code)


def test_memory_that_cannot_be_unregistered_stays_where_it_is() -> None:
    code = """
w, x = matrix(33, 96), normal_input(rng, 2, 96)
y = check(w, x)
registered = control.registered()
del y
control.fail("cuMemHostUnregister", 1, 719)
free()
assert control.failed() == "cuMemHostUnregister" and control.registered() == registered
for _ in range(20):
    check(w, x)
    free()
"""
    run(code)


def test_copies_that_were_not_used_for_longest_make_room() -> None:
    """Of a MiB three quarters are for copies: seven matrices of 108,000 bytes."""
    code = """
w = [matrix(2000, 96) for _ in range(10)]
x = normal_input(rng, 1, 96)
def is_there(i):
    control.transfers()
    check(w[i], x)
    return f">{w[i].nbytes}" not in control.transfers()
for i in range(10):
    assert not is_there(i)
    assert control.allocated() <= 3 * 2**18 + 2**17
for i in (3, 4, 5, 6, 7, 8, 9):
    assert is_there(i)
assert is_there(3)
assert not is_there(0)  # in the place of 4
assert is_there(3) and not is_there(4) and not is_there(5)
"""
    run(code, machine="memory=1048576")


def test_a_single_call_may_need_more_than_is_kept() -> None:
    code = """
a, b = matrix(8000, 96), matrix(8000, 96)
x = normal_input(rng, 1, 96)
assert 2 * a.nbytes > 0.75 * 2**20
for _ in range(3):
    for result, w in zip(mo.fused_dual_proj_q4_0(a, b, x, device="cuda"), (a, b)):
        assert_bits_equal(result, mo.mul_mv_q4_0(w, x, device="cpu"))
"""
    run(code, machine="memory=1048576")


def test_a_device_that_is_full() -> None:
    code = """
x = normal_input(rng, 1, 96)
small, large, wide = matrix(2000, 96), matrix(30000, 96), matrix(100, 96)
check(small, x)
check(wide, x)
free()
before = control.held()
for call in (lambda: check(large, x),
             lambda: check(wide, normal_input(rng, 5000, 96)),
             lambda: mo.qkv_split(normal_input(rng, 5000, 96), 32, 32, 32, device="cuda")):
    try:
        call()
    except MemoryError as error:
        assert "CUDA" in str(error) and "CUDA_ERROR_OUT_OF_MEMORY" in str(error), error
        assert "bytes" in str(error)
    else:
        raise AssertionError("there is not that much memory")
    control.check()
    check(small, x)
    check(wide, x)
    free()
    assert control.held() == before
check(large[:1000], x)
"""
    run(code, machine="memory=1048576")


def test_other_peoples_memory_makes_copies_go() -> None:
    """The GPU has less than it says: the others have it."""
    code = """
w = [matrix(2000, 96) for _ in range(3)]
x = normal_input(rng, 1, 96)
for each in w:
    check(each, x)
free()
before = control.allocated()
control.fail("cuMemAlloc", 1, 2)
check(matrix(10, 96), x)  # its copy goes with it
assert control.failed() == "cuMemAlloc"
free()
assert control.allocated() < before
for each in w:
    check(each, x)
"""
    run(code)


# ---- Failures ------------------------------------------------------------------------------------

EVERY_CALL = """
operation = operations()[sys.argv[1]]
code = int(sys.argv[2])
operation("cpu")
mo.devices()

def attempt(n, name=""):
    free()
    control.fail(name, n, code)
    try:
        results = operation("cuda")
        error = None
    except (mo.DeviceError, MemoryError) as caught:
        error = caught
    failed = control.failed()
    control.fail("", 0, 0)
    control.check()
    if failed:
        print(failed, "|", type(error).__name__, "|", error)
    else:
        assert error is None, error
    return bool(failed)

# In the order of the first use, which is as far as each attempt comes.
for name, n in (("cuDevicePrimaryCtxRetain", 1), ("cuCtxPushCurrent", 1), ("cuStreamCreate", 1),
                ("cuCtxPushCurrent", 2), ("cuModuleLoadDataEx", 1), ("cuModuleGetFunction", 1)):
    assert attempt(n, name), name
    assert control.held()[2] == (name[:8] == "cuModule" or n == 2), name
assert_works(operation, "cuda")

# Everything that stays has been made. From here on nothing is left over, whatever fails.
free()
before = control.held()
for n in range(1, 200):
    if not attempt(n):
        break
    free()
    assert control.held() == before, (n, control.held(), before)
    assert_works(operation, "cuda")
assert n > 8, "hardly anything failed"
"""

# Of a call that fails without harm.
TOLERATED = {"cuMemHostRegister", "cuCtxPopCurrent", "cuMemFree"}


@pytest.mark.parametrize("code", ERROR_TEXTS)
@pytest.mark.parametrize("name", NAMES)
def test_every_call_fails_once(name: str, code: int) -> None:
    lines = run(EVERY_CALL, name, str(code))
    failed = {line.split(" | ")[0] for line in lines}
    assert failed >= {
        *("cuDevicePrimaryCtxRetain", "cuStreamCreate", "cuModuleLoadDataEx", "cuCtxPushCurrent"),
        *("cuModuleGetFunction", "cuMemAlloc", "cuMemHostRegister", "cuMemcpyHtoDAsync"),
        *("cuLaunchKernel", "cuMemcpyDtoHAsync", "cuStreamSynchronize", "cuCtxPopCurrent"),
    } - ({"cuMemHostRegister"} if name.endswith(" out") else set())
    for line in lines:
        call, exception, message = line.split(" | ")
        if call in TOLERATED or (call, code) == ("cuMemAlloc", 2):
            assert exception == "NoneType" or call == "cuMemAlloc", line
        else:
            assert exception == ("MemoryError" if code == 2 else "DeviceError"), line
            assert message.startswith("CUDA: "), line
            assert call in message, line
            assert ERROR_TEXTS[code] in message, line


def test_a_lost_device_says_so_each_time() -> None:
    code = """
w, x = matrix(33, 96), normal_input(rng, 2, 96)
y = check(w, x)
control.fail("cuStreamSynchronize", 1, 700, for_good=True)
for _ in range(3):
    for call in (lambda: mo.mul_mv_q4_0(w, x, device="cuda"),
                 lambda: mo.mul_mv_q4_0(matrix(3, 32), x[:, :32], device="cuda"),
                 lambda: mo.qkv_split(x, 1, 1, 94, device="cuda")):
        try:
            call()
        except mo.DeviceError as error:
            assert "CUDA_ERROR_ILLEGAL_ADDRESS, an illegal memory access" in str(error), error
        else:
            raise AssertionError("the device is lost")
mo.mul_mv_q4_0(w, x, device="cpu")
assert y.shape == (2, 33)
del w, x, y
free()
"""
    run(code)


def test_a_kernel_that_fails_while_it_runs() -> None:
    code = """
w, x = matrix(33, 96), normal_input(rng, 2, 96)
control.fail("cuLaunchKernel", 1, 719)
try:
    mo.mul_mv_q4_0(w, x, device="cuda")
except mo.DeviceError as error:
    print(error)
check(w, x)
"""
    (line,) = run(code)
    assert "kernel_mul_mv_q4_0_f32" in line
    assert "CUDA_ERROR_LAUNCH_FAILED" in line


def test_the_log_of_a_compiler_that_refuses() -> None:
    code = """
w, x = matrix(33, 96), normal_input(rng, 2, 96)
control.fail("cuModuleLoadDataEx", 1, 218)
try:
    mo.mul_mv_q4_0(w, x, device="cuda")
except mo.DeviceError as error:
    print(error)
check(w, x)
"""
    (line,) = run(code)
    for text in ("mul_mv_q4_0", "CUDA_ERROR_INVALID_PTX", "ptxas fatal: what the fake says"):
        assert text in line


# ---- Threads, forks and the end ------------------------------------------------------------------


@pytest.mark.parametrize("machine", ["", "memory=2097152"], ids=["roomy", "crowded"])
def test_many_threads(machine: str) -> None:
    """Also where they take each other's copies away."""
    code = """
x = normal_input(rng, 3, 96)
w = [matrix(1500, 96) for _ in range(12)]
expected = [mo.mul_mv_q4_0(each, x, device="cpu") for each in w]
wrong = []

def work(seed):
    order = np.random.default_rng(seed).integers(0, len(w), 60)
    try:
        for i in order:
            assert_bits_equal(mo.mul_mv_q4_0(w[i], x, device="cuda"), expected[i])
            part = mo.mul_mv_q4_0(w[i][100:200], x, device="cuda")
            assert_bits_equal(part, np.ascontiguousarray(expected[i][:, 100:200]))
            own = mo.Q4_0Matrix.from_blocks(w[i].blocks, (1500, 96))
            assert_bits_equal(mo.mul_mv_q4_0(own, x, device="cuda"), expected[i])
            if i == 0:
                mo.clear_cache()
    except BaseException as error:
        wrong.append(error)

threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not wrong, wrong
del w
free()
assert control.allocated() == 0
"""
    run(code, machine=machine)


FORK = """
w, other, x = matrix(33, 96), matrix(33, 96), normal_input(rng, 2, 96)
y = check(w, x)
kept = y.copy()
held = control.held()
child = os.fork()
if child == 0:
    status = 1
    try:
        assert mo.default_device().name == "cpu"
        assert_bits_equal(y, kept)
        assert_bits_equal(mo.mul_mv_q4_0(w, x), kept)
        for call in (lambda: mo.mul_mv_q4_0(w, x, device="cuda"),
                     lambda: mo.mul_mv_q4_0(other, y[:, :32].copy(), device="cuda"),
                     lambda: mo.qkv_split(x, 1, 1, 94, device="cuda")):
            try:
                call()
            except mo.DeviceError as error:
                assert "fork" in str(error) and "spawn" in str(error), error
            except ValueError:
                pass
            else:
                raise AssertionError("not refused")
        assert [device.name for device in mo.devices()] == ["cuda", "cpu"]
        assert mo.devices()[0].description.startswith("Fake GPU")
        del w, other, x, y
        free()  # a call of the driver would abort this process
        status = 0
    finally:
        os._exit(status)
assert os.waitpid(child, 0)[1] == 0
assert control.held() == held
assert_bits_equal(y, kept)
check(w, x)
del w, other, x, y
free()
assert control.held()[:2] == (0, 0)
"""


def test_a_forked_child_refuses_cuda_and_uses_the_cpu() -> None:
    run(FORK)


def test_a_child_forked_before_the_first_use_refuses_cuda() -> None:
    code = """
child = os.fork()
if child == 0:
    names = [device.name for device in mo.devices()]
    os._exit(0 if names == ["cpu"] and "fork" in mo.devices().missing["cuda"] else 1)
assert os.waitpid(child, 0)[1] == 0
print(mo.default_device().name)
"""
    assert run(code) == ["cuda"]


def test_forks_while_threads_use_the_gpu() -> None:
    code = """
x = normal_input(rng, 2, 96)
stop = threading.Event()
def work():
    while not stop.is_set():
        check(matrix(50, 96), x)
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
for _ in range(30):
    child = os.fork()
    if child == 0:
        w = mo.Q4_0Matrix.quantize(np.ones((2, 32)))
        y = mo.mul_mv_q4_0(w, np.ones(32, np.float32)).tolist()
        del w
        mo.clear_cache()
        os._exit(0 if y == [32, 32] else 1)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
for thread in threads:
    thread.join()
"""
    run(code)


def test_the_driver_ends_before_the_buffers_do() -> None:
    code = """
w, x = matrix(33, 96), normal_input(rng, 2, 96)
y = check(w, x)
kept = y.copy()
control.deinitialise()
try:
    mo.mul_mv_q4_0(w, x, device="cuda")
except mo.DeviceError as error:
    print(error)
assert_bits_equal(y, kept)
del w, y
free()
"""
    code = code + "os._exit(0 if control.reports() == '' else 1)\n"
    (line,) = fake_cuda.run(SETUP + code).splitlines() or [""]
    assert "CUDA_ERROR_DEINITIALIZED, driver shutting down" in line


def test_the_interpreter_ends_while_everything_is_in_use() -> None:
    code = """
w, x = matrix(33, 96), normal_input(rng, 2, 96)
y = check(w, x)
def work():
    while True:
        mo.mul_mv_q4_0(w, x, device="cuda")
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
class AtTheEnd:
    def __init__(self, *kept):
        self.kept = kept
    def __del__(self):
        self.kept = None
sys.modules["kept until the end"] = AtTheEnd(w, x, y)
print("end")
"""
    assert fake_cuda.run(SETUP + code) == "end\n"


def test_importing_loads_no_driver() -> None:
    code = "import mlxops; print('libcuda' in open('/proc/self/maps').read())"
    assert fake_cuda.run(code) == "False\n"

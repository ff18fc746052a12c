"""Time the kernels on an NVIDIA GPU, on operands in its memory, and whole calls beside them.

    python benchmarks/cuda.py

A kernel's time is that of many launches in one CUDA graph, each with another copy of the weights:
so many that they come from memory. "of read" is the rate at which the weights come, by that of a
kernel that only reads a gigabyte, measured in the same run. A whole call goes from NumPy arrays to
NumPy arrays. All are medians. Needs the driver, and nothing else of CUDA.
"""

from __future__ import annotations

import ctypes
import re
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

import mlxops as mo
from mlxops import _core
from mlxops.bench.measuring import Walk
from mlxops.bench.projections import activations
from mlxops.bench.weights import Weights

PTX = Path(__file__).resolve().parents[1] / "shaders" / "ptx"

SHAPES = [(4096, 4096), (12288, 5120), (8192, 2048), (2048, 4096), (1024, 4096)]
ROWS = [1, 2, 4, 8]
SPLIT = (4106, 256, 256, 2048)

COLD_BYTES = 1 << 29
READ_BYTES = 1 << 30
CALLS_SECONDS = 0.1
RUNS = 9
LAUNCHES = 40

THREADS = 256

# Every thread reads 16 bytes at a time, four times in turn, a grid apart.
READ = """
.version 7.8
.target sm_75
.address_size 64
.visible .entry read(.param .u64 memory, .param .u64 n, .param .u64 sink) {
    .reg .pred %p;
    .reg .b32 %t, %c, %s, %g, %a<16>;
    .reg .b64 %i, %n, %m, %d, %w, %o<4>;
    mov.u32 %t, %tid.x;
    mov.u32 %c, %ctaid.x;
    mov.u32 %s, %ntid.x;
    mov.u32 %g, %nctaid.x;
    mad.lo.u32 %t, %c, %s, %t;
    mul.lo.u32 %g, %g, %s;
    ld.param.u64 %m, [memory];
    ld.param.u64 %n, [n];
    ld.param.u64 %w, [sink];
    mul.wide.u32 %i, %t, 16;
    mul.wide.u32 %d, %g, 16;
    mov.u32 %s, 0;
next:
    add.u64 %o0, %m, %i;
    add.u64 %o1, %o0, %d;
    add.u64 %o2, %o1, %d;
    add.u64 %o3, %o2, %d;
    ld.global.nc.v4.u32 {%a0, %a1, %a2, %a3}, [%o0];
    ld.global.nc.v4.u32 {%a4, %a5, %a6, %a7}, [%o1];
    ld.global.nc.v4.u32 {%a8, %a9, %a10, %a11}, [%o2];
    ld.global.nc.v4.u32 {%a12, %a13, %a14, %a15}, [%o3];
    lop3.b32 %a0, %a0, %a1, %a2, 0x96;
    lop3.b32 %a3, %a3, %a4, %a5, 0x96;
    lop3.b32 %a6, %a6, %a7, %a8, 0x96;
    lop3.b32 %a9, %a9, %a10, %a11, 0x96;
    lop3.b32 %a12, %a12, %a13, %a14, 0x96;
    lop3.b32 %a0, %a0, %a3, %a6, 0x96;
    lop3.b32 %a9, %a9, %a12, %a15, 0x96;
    lop3.b32 %s, %s, %a0, %a9, 0x96;
    mad.lo.u64 %i, %d, 4, %i;
    setp.lt.u64 %p, %i, %n;
    @%p bra next;
    setp.eq.u32 %p, %s, 123456789;
    @%p st.global.u32 [%w], %s;
    ret;
}
"""


class Parameters(ctypes.Structure):
    """proj_q4_0_params."""

    _fields_ = [
        *(
            (name, ctypes.c_int64)
            for name in ("ne00", "ne01", "ne02", "ne10", "ne12", "ne0", "ne1")
        ),
        ("r2", ctypes.c_uint32),
        ("r3", ctypes.c_uint32),
    ]


class SplitParameters(ctypes.Structure):
    """qkv_split_params."""

    _fields_ = [(name, ctypes.c_uint32) for name in ("seq", "q_sp", "k_sp", "v_sp", "qkv_ch")]


class Gpu:
    """The driver, the first GPU and a stream on it."""

    def __init__(self) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._do("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._do("cuDeviceGet", ctypes.byref(device), 0)
        self._do("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._do("cuCtxSetCurrent", context)
        self._stream, self._start, self._end = (ctypes.c_void_p() for _ in range(3))
        self._do("cuStreamCreate", ctypes.byref(self._stream), 1)
        self._do("cuEventCreate", ctypes.byref(self._start), 0)
        self._do("cuEventCreate", ctypes.byref(self._end), 0)

    def _do(self, function: str, *arguments: object) -> None:
        status = getattr(self._cuda, function)(*arguments)
        if status != 0:
            raise RuntimeError(f"{function}: error {status}")

    def memory(self, nbytes: int, contents: bytes = b"") -> int:
        """An address in the GPU's memory, which lives as long as the process."""
        address = ctypes.c_uint64()
        self._do("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(nbytes))
        if contents:
            size = ctypes.c_size_t(len(contents))
            self._do("cuMemcpyHtoD_v2", address, ctypes.c_char_p(contents), size)
        return address.value

    def kernel(self, ptx: str, name: str) -> ctypes.c_void_p:
        """A kernel of a text of PTX."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._do("cuModuleLoadData", ctypes.byref(module), ptx.encode())
        self._do("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        return function

    def launch(
        self,
        kernel: ctypes.c_void_p,
        grid: Sequence[int],
        block: Sequence[int],
        arguments: Sequence[object],
    ) -> None:
        """Start a kernel with addresses and structures as arguments."""
        values = [ctypes.c_uint64(each) if isinstance(each, int) else each for each in arguments]
        pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))  # type: ignore[arg-type]
        sizes = [ctypes.c_uint(each) for each in (*grid, *block, 0)]
        self._do("cuLaunchKernel", kernel, *sizes, self._stream, pointers, None)

    def copy(self, to: int, source: int, nbytes: int) -> None:
        """Start a copy within the GPU's memory."""
        size = ctypes.c_size_t(nbytes)
        self._do(
            "cuMemcpyDtoDAsync_v2", ctypes.c_uint64(to), ctypes.c_uint64(source), size, self._stream
        )

    def seconds(self, starts: Sequence[Callable[[], None]]) -> float:
        """What one of these takes when they run one after the other."""
        graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
        self._do("cuStreamBeginCapture_v2", self._stream, 0)
        for start in starts:
            start()
        self._do("cuStreamEndCapture", self._stream, ctypes.byref(graph))
        zero = ctypes.c_uint64(0)
        self._do("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, zero)
        samples = [self._run(executable) / len(starts) for _ in range(RUNS + 1)]
        self._do("cuGraphExecDestroy", executable)
        self._do("cuGraphDestroy", graph)
        return statistics.median(samples[1:])

    def _run(self, graph: ctypes.c_void_p) -> float:
        self._do("cuEventRecord", self._start, self._stream)
        self._do("cuGraphLaunch", graph, self._stream)
        self._do("cuEventRecord", self._end, self._stream)
        self._do("cuEventSynchronize", self._end)
        milliseconds = ctypes.c_float()
        self._do("cuEventElapsedTime", ctypes.byref(milliseconds), self._start, self._end)
        return milliseconds.value / 1e3


def read_bandwidth(gpu: Gpu) -> float:
    """Bytes per second of a kernel that only reads."""
    memory, sink = gpu.memory(READ_BYTES), gpu.memory(4)
    read = partial(
        gpu.launch,
        gpu.kernel(READ, "read"),
        (1024, 1, 1),
        (THREADS, 1, 1),
        (memory, READ_BYTES, sink),
    )
    return READ_BYTES / gpu.seconds([read] * 4)


class Projection:
    """The dual projection of one shape, cold, with the kernel that the device uses for m."""

    def __init__(self, gpu: Gpu, N: int, K: int) -> None:
        self._gpu, self.N, self.K = gpu, N, K
        self.weights = Weights(N, K, COLD_BYTES)
        pair = self.weights.blocks.tobytes()
        self._copies = [gpu.memory(len(pair), pair) for _ in self.weights.q4_0]
        self._results = [gpu.memory(max(ROWS) * N * 4) for _ in range(2)]
        self._x = gpu.memory(max(ROWS) * K * 4, activations(max(ROWS), K).tobytes())

    def kernel_seconds(self, m: int) -> float:
        """What one launch takes."""
        name = _core.projection_choice("cuda", m, 2 * self.N)
        found = re.fullmatch(r"s(\d)_r(\d)_m(\d)_d\d_g(\d)", name)
        if found is None:
            raise ValueError(f"the kernel {name} keeps no input in threadgroup memory")
        S, R, M, G = map(int, found.groups())
        ptx = (PTX / "fused_dual_proj_q4_0_staged.ptx").read_text()
        kernel = self._gpu.kernel(ptx, f"kernel_fused_dual_proj_q4_0_f32_{name}")
        parameters = Parameters(self.K, self.N, 1, self.K, 1, self.N, m, 1, 1)
        grid = (-(-self.N // (S * R * G // 2)), -(-m // M), 1)
        pair = self.weights.pair_bytes
        starts = [
            partial(
                self._gpu.launch,
                kernel,
                grid,
                (32, G, 1),
                (weight, weight + pair // 2, self._x, *self._results, parameters),
            )
            for weight in self._copies
        ]
        return self._gpu.seconds(starts * -(-LAUNCHES // len(starts)))

    def call_seconds(self, m: int) -> float:
        """What a call of the public function takes, with arrays in host memory."""
        x = activations(m, self.K)
        function = partial(mo.fused_dual_proj_q4_0, device="cuda")
        calls = [partial(function, a, b, x) for a, b in self.weights.q4_0]
        for call in calls:  # the first one with a matrix takes it to the GPU
            call()
        walk = Walk(calls)
        walk.burst(CALLS_SECONDS)
        return walk.seconds


def print_projections(gpu: Gpu, bandwidth: float) -> None:
    """A line for every shape and m."""
    print(
        f"\n{'N':>6} {'K':>6} {'m':>2}  {'kernel':16} {'time':>9} {'of read':>8} {'whole call':>11}"
    )
    for N, K in SHAPES:
        projection = Projection(gpu, N, K)
        for m in ROWS:
            kernel = projection.kernel_seconds(m)
            share = projection.weights.pair_bytes / kernel / bandwidth
            name = _core.projection_choice("cuda", m, 2 * N)
            call = projection.call_seconds(m)
            times = f"{kernel * 1e6:6.1f} us {share:8.0%} {call * 1e6:8.1f} us"
            print(f"{N:6} {K:6} {m:2}  {name:16} {times}")


def print_split(gpu: Gpu) -> None:
    """The QKV split, and a copy of as many bytes."""
    seq, *spans = SPLIT
    channels = sum(spans)
    nbytes = seq * channels * 4
    copies = range(COLD_BYTES // nbytes + 1)
    inputs = [gpu.memory(nbytes) for _ in copies]
    parts = [[gpu.memory(seq * span * 4) for span in spans] for _ in copies]
    kernel = gpu.kernel((PTX / "qkv_split.ptx").read_text(), "qkv_split_f32x4")
    grid = (-(-(channels // 4) // THREADS), seq, 1)
    parameters = SplitParameters(seq, *spans, channels)
    split = gpu.seconds(
        [
            partial(gpu.launch, kernel, grid, (THREADS, 1, 1), (qkv, *outputs, parameters))
            for qkv, outputs in zip(inputs, parts, strict=True)
        ]
    )
    targets = [gpu.memory(nbytes) for _ in copies]
    copy = gpu.seconds(
        [partial(gpu.copy, to, qkv, nbytes) for to, qkv in zip(targets, inputs, strict=True)]
    )
    print(f"\nqkv_split, seq {seq}, {' | '.join(map(str, spans))}: {split * 1e6:.1f} us")
    print(f"a copy of as many bytes: {copy * 1e6:.1f} us, {copy / split:.0%}")


def main() -> None:
    """Print it all."""
    gpu = Gpu()
    described = {device.name: device.description for device in mo.devices()}["cuda"]
    mo.mul_mv_q4_0(mo.Q4_0Matrix.quantize(np.ones((1, 32))), np.ones(32, np.float32), device="cuda")
    bandwidth = read_bandwidth(gpu)
    print(f"{described}; a large read: {bandwidth / 1e12:.2f} TB/s")
    print_projections(gpu, bandwidth)
    print_split(gpu)


if __name__ == "__main__":
    main()

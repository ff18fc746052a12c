"""What is wrong is refused before anything is dispatched: by type, by name, outputs untouched."""

import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fresh_python
import mlxops as mo
from foreign_arrays import DLPackArrayOnGpu, DLPackArrayWithGradient, DLPackBfloat16
from guarded import GuardedArray
from raising import raises, shape, word

N, K, M = 12, 96, 4
SPANS = (3, 4, 6)
CHANNELS = sum(SPANS)

Operation = Callable[[Any, Sequence[GuardedArray], str], Any]


@pytest.fixture
def weight() -> mo.Q4_0Matrix:
    return mo.Q4_0Matrix.from_blocks(bytes(N * K // 32 * 18), (N, K))


@pytest.fixture
def outs() -> list[GuardedArray]:
    """Two results of a projection."""
    return [GuardedArray((M, N)), GuardedArray((M, N))]


@pytest.fixture
def split_outs() -> list[GuardedArray]:
    """Three results of a split."""
    return [GuardedArray((M, span)) for span in SPANS]


@contextmanager
def refused(
    exception: type[Exception] | tuple[type[Exception], ...],
    *patterns: str,
    outs: Sequence[GuardedArray],
) -> Iterator[None]:
    """The block raises, its message has the patterns, and nothing was written."""
    with raises(exception, *patterns):
        yield
    for out in outs:
        out.assert_untouched()


def single(weight: Any, x: Any, outs: Sequence[GuardedArray], device: str) -> None:
    mo.mul_mv_q4_0(weight, x, out=outs[0].array, device=device)


def fused(weight: Any, x: Any, outs: Sequence[GuardedArray], device: str) -> None:
    mo.fused_dual_proj_q4_0(weight, weight, x, out=(outs[0].array, outs[1].array), device=device)


def split(qkv: Any, *spans: Any, outs: Sequence[GuardedArray], device: str, **heads: Any) -> None:
    arrays = tuple(out.array for out in outs)
    mo.qkv_split(qkv, *spans, **heads, out=arrays, device=device)


both_projections = pytest.mark.parametrize("project", [single, fused])


# An extent that is zero, negative or too large


# A number of rows that no memory holds, and one whose size in bytes as float32 overflows.
TOO_MANY = 2**40
OVERFLOWING = 2**61


@both_projections
@pytest.mark.parametrize("size", [(0, K), (2, 0, K), (0, 2, K)], ids=str)
def test_no_row_of_x(
    project: Callable[..., None],
    size: tuple[int, ...],
    device: str,
    weight: mo.Q4_0Matrix,
    outs: list[GuardedArray],
) -> None:
    with refused(ValueError, word("m"), outs=outs):
        project(weight, np.zeros(size, np.float32), outs, device)


@pytest.mark.parametrize("size", [(0, CHANNELS), (2, 0, CHANNELS)], ids=str)
def test_no_row_of_qkv(size: tuple[int, ...], device: str, split_outs: list[GuardedArray]) -> None:
    with refused(ValueError, word("seq"), outs=split_outs):
        split(np.zeros(size, np.float32), *SPANS, outs=split_outs, device=device)


@pytest.mark.parametrize("value", [0, -1, -(2**31)])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_span_that_is_not_positive(
    place: int, value: int, device: str, split_outs: list[GuardedArray]
) -> None:
    spans = list(SPANS)
    spans[place] = value
    qkv = np.zeros((M, CHANNELS), np.float32)
    with refused(ValueError, word(("q_sp", "k_sp", "v_sp")[place]), outs=split_outs):
        split(qkv, *spans, outs=split_outs, device=device)


@pytest.mark.parametrize("value", [0, -1])
@pytest.mark.parametrize("name", ["n_k_heads", "d_k", "n_v_heads", "d_v"])
def test_a_head_count_or_size_that_is_not_positive(
    name: str, value: int, device: str, split_outs: list[GuardedArray]
) -> None:
    heads = {"n_k_heads": 1, "d_k": 3, "n_v_heads": 1, "d_v": 7} | {name: value}
    qkv = np.zeros((M, CHANNELS), np.float32)
    with refused(ValueError, word(name), outs=split_outs):
        split(qkv, **heads, outs=split_outs, device=device)


def test_negative_heads_of_negative_size(device: str, split_outs: list[GuardedArray]) -> None:
    qkv = np.zeros((M, CHANNELS), np.float32)
    with refused(ValueError, word("n_k_heads"), outs=split_outs):
        split(qkv, n_k_heads=-1, d_k=-3, n_v_heads=1, d_v=7, outs=split_outs, device=device)


@pytest.mark.parametrize(
    "spans",
    [
        (2**31 - 1, 1, 1),
        (1, 1, 2**31 - 1),
        (2**31 - 2, 1, 1),
        (2**31, 2**31, 2**31),
        (2**32 + 3, 4, 6),
        (2**62, 2**62, 2**63 - 1),
        (2**63, 1, 1),
        (2**64 + 3, 4, 6),
    ],
    ids=str,
)
def test_spans_beyond_the_limit(
    spans: tuple[int, int, int], device: str, split_outs: list[GuardedArray]
) -> None:
    qkv = np.zeros((M, CHANNELS), np.float32)
    with refused((ValueError, OverflowError), outs=split_outs):
        split(qkv, *spans, outs=split_outs, device=device)


@pytest.mark.parametrize(
    "heads", [(2**16, 2**16, 1, 1), (1, 3, 2**32, 2**32), (2**63, 2, 1, 7), (1, 3, 7, 2**64 + 1)]
)
def test_heads_beyond_the_limit(
    heads: tuple[int, int, int, int], device: str, split_outs: list[GuardedArray]
) -> None:
    qkv = np.zeros((M, CHANNELS), np.float32)
    named = dict(zip(("n_k_heads", "d_k", "n_v_heads", "d_v"), heads, strict=True))
    with refused((ValueError, OverflowError), outs=split_outs):
        split(qkv, **named, outs=split_outs, device=device)


# Where the system promises any memory that is asked for, a conversion would begin to fill it.
promises_all = Path("/proc/sys/vm/overcommit_memory")
needs_honest_memory = pytest.mark.skipif(
    promises_all.exists() and promises_all.read_text().strip() == "1",
    reason="this system promises more memory than it has (vm.overcommit_memory is 1)",
)


@needs_honest_memory
@both_projections
@pytest.mark.parametrize(
    ("m", "exception"), [(TOO_MANY, (MemoryError, ValueError)), (OVERFLOWING // K + 1, ValueError)]
)
def test_more_rows_of_x_than_there_can_be(
    project: Callable[..., None],
    m: int,
    exception: type[Exception] | tuple[type[Exception], ...],
    device: str,
    weight: mo.Q4_0Matrix,
    outs: list[GuardedArray],
) -> None:
    x = np.broadcast_to(np.float16(0), (m, K))
    with refused(exception, outs=outs):
        project(weight, x, outs, device)


@needs_honest_memory
@pytest.mark.parametrize(
    ("seq", "exception"),
    [(TOO_MANY, (MemoryError, ValueError)), (OVERFLOWING // CHANNELS + 1, ValueError)],
)
def test_more_rows_of_qkv_than_there_can_be(
    seq: int,
    exception: type[Exception] | tuple[type[Exception], ...],
    device: str,
    split_outs: list[GuardedArray],
) -> None:
    qkv = np.broadcast_to(np.float16(0), (seq, CHANNELS))
    with refused(exception, outs=split_outs):
        split(qkv, *SPANS, outs=split_outs, device=device)


# Shapes that do not fit each other


@both_projections
@pytest.mark.parametrize(
    "size",
    [(K + 1,), (K - 1,), (N,), (M, K + 32), (M, N), (K, M), (2, 2, 32), (M, 0), (0,)],
    ids=str,
)
def test_x_of_another_width(
    project: Callable[..., None],
    size: tuple[int, ...],
    device: str,
    weight: mo.Q4_0Matrix,
    outs: list[GuardedArray],
) -> None:
    with refused(ValueError, shape(size), shape((N, K)), outs=outs):
        project(weight, np.zeros(size, np.float32), outs, device)


@pytest.mark.parametrize("width", [CHANNELS - 1, CHANNELS + 1, 1, 2 * CHANNELS])
@pytest.mark.parametrize("leading", [(), (M,), (2, 2)], ids=str)
def test_qkv_of_another_width(
    leading: tuple[int, ...], width: int, device: str, split_outs: list[GuardedArray]
) -> None:
    qkv = np.zeros((*leading, width), np.float32)
    with refused(ValueError, shape(qkv.shape), rf"\b{CHANNELS}\b", outs=split_outs):
        split(qkv, *SPANS, outs=split_outs, device=device)


@pytest.mark.parametrize("other", [(N + 1, K), (N - 1, K), (N, K + 32), (N, 32)], ids=str)
def test_weights_that_differ_in_shape(
    other: tuple[int, int], device: str, weight: mo.Q4_0Matrix, outs: list[GuardedArray]
) -> None:
    weight_b = mo.Q4_0Matrix.from_blocks(bytes(other[0] * other[1] // 32 * 18), other)
    x = np.zeros((M, K), np.float32)
    results = (outs[0].array, outs[1].array)
    for pair in [(weight, weight_b), (weight_b, weight)]:
        with refused(ValueError, shape((N, K)), shape(other), outs=outs):
            mo.fused_dual_proj_q4_0(*pair, x, out=results, device=device)


@both_projections
def test_x_without_a_dimension(
    project: Callable[..., None], device: str, weight: mo.Q4_0Matrix, outs: list[GuardedArray]
) -> None:
    with refused(ValueError, outs=outs):
        project(weight, np.float32(1), outs, device)


def test_qkv_without_a_dimension(device: str, split_outs: list[GuardedArray]) -> None:
    with refused(ValueError, outs=split_outs):
        split(np.float32(1), *SPANS, outs=split_outs, device=device)


@both_projections
def test_nested_lists_that_are_ragged(
    project: Callable[..., None], device: str, weight: mo.Q4_0Matrix, outs: list[GuardedArray]
) -> None:
    with refused(ValueError, outs=outs):
        project(weight, [[0.0] * K, [0.0]], outs, device)


# Arguments of the wrong kind


@both_projections
@pytest.mark.parametrize(
    "wrong",
    [None, 3, b"\0" * (N * 54), np.zeros((N, K), np.float32), np.zeros((N, 54), np.uint8), [[0.0]]],
    ids=lambda wrong: type(wrong).__name__,
)
def test_a_weight_that_is_no_matrix(
    project: Callable[..., None], wrong: Any, device: str, outs: list[GuardedArray]
) -> None:
    with refused(TypeError, "Q4_0Matrix", outs=outs):
        project(wrong, np.zeros((M, K), np.float32), outs, device)


def test_a_second_weight_that_is_no_matrix(
    device: str, weight: mo.Q4_0Matrix, outs: list[GuardedArray]
) -> None:
    x = np.zeros((M, K), np.float32)
    wrong: Any = np.zeros((N, K), np.float32)
    results = (outs[0].array, outs[1].array)
    with refused(TypeError, "Q4_0Matrix", outs=outs):
        mo.fused_dual_proj_q4_0(weight, wrong, x, out=results, device=device)


@pytest.mark.parametrize(
    ("spans", "heads"),
    [
        ((), {}),
        ((3,), {}),
        ((3, 4), {}),
        ((3, 4, 6, 7), {}),
        ((), {"n_k_heads": 1}),
        ((), {"n_k_heads": 1, "d_k": 3}),
        ((), {"n_k_heads": 1, "d_k": 3, "n_v_heads": 1}),
        ((), {"d_k": 3, "n_v_heads": 1, "d_v": 7}),
        (SPANS, {"n_k_heads": 1, "d_k": 3, "n_v_heads": 1, "d_v": 7}),
        (SPANS, {"d_v": 7}),
        ((3,), {"n_k_heads": 1, "d_k": 3, "n_v_heads": 1, "d_v": 7}),
        (SPANS, {"q_sp": 3}),
        (SPANS, {"unknown": 3}),
    ],
    ids=str,
)
def test_spans_and_heads_that_are_not_one_of_either(
    spans: tuple[int, ...], heads: dict[str, int], device: str, split_outs: list[GuardedArray]
) -> None:
    qkv = np.zeros((M, CHANNELS), np.float32)
    with refused(TypeError, outs=split_outs):
        split(qkv, *spans, **heads, outs=split_outs, device=device)


@pytest.mark.parametrize("value", [3.0, np.float32(3), "3", None, (3,)], ids=repr)
def test_a_span_that_is_no_integer(value: Any, device: str, split_outs: list[GuardedArray]) -> None:
    qkv = np.zeros((M, CHANNELS), np.float32)
    with refused(TypeError, outs=split_outs):
        split(qkv, value, 4, 6, outs=split_outs, device=device)


def test_out_and_device_are_keywords(weight: mo.Q4_0Matrix, outs: list[GuardedArray]) -> None:
    x = np.zeros((M, K), np.float32)
    single_call: Any = mo.mul_mv_q4_0
    fused_call: Any = mo.fused_dual_proj_q4_0
    with refused(TypeError, outs=outs):
        single_call(weight, x, outs[0].array)
    with refused(TypeError, outs=outs):
        fused_call(weight, weight, x, (outs[0].array, outs[1].array))
    with refused(TypeError, outs=outs):
        single_call(weight, x, output=outs[0].array)
    with refused(TypeError, outs=outs):
        single_call(weight, out=outs[0].array)


# Types of data

CONVERTIBLE = ["float64", "int8", "uint8", "int32", "int64", "uint64", "bool", ">f8", "longdouble"]
OTHERS = ["complex64", "complex128", "object", "U3", "S4", "datetime64[s]", "f4,f4", "V4"]


def every_operation(
    data: Callable[[tuple[int, int]], Any],
    weight: mo.Q4_0Matrix,
    outs: Sequence[GuardedArray],
    split_outs: Sequence[GuardedArray],
    device: str,
) -> list[Callable[[], None]]:
    """Calls of the three operations on inputs made for their shapes."""
    x, qkv = data((M, K)), data((M, CHANNELS))
    return [
        lambda: single(weight, x, outs, device),
        lambda: fused(weight, x, outs, device),
        lambda: split(qkv, *SPANS, outs=split_outs, device=device),
    ]


@pytest.mark.parametrize("operation", [0, 1, 2], ids=["single", "fused", "split"])
class TestTypesOfData:
    @pytest.mark.parametrize("dtype", CONVERTIBLE)
    def test_a_type_that_can_be_converted(
        self,
        operation: int,
        dtype: str,
        device: str,
        weight: mo.Q4_0Matrix,
        outs: list[GuardedArray],
        split_outs: list[GuardedArray],
    ) -> None:
        calls = every_operation(
            lambda size: np.zeros(size, dtype), weight, outs, split_outs, device
        )
        name = word(str(np.dtype(dtype)))
        with refused(TypeError, name, "astype", "float32", outs=outs + split_outs):
            calls[operation]()

    @pytest.mark.parametrize("dtype", OTHERS)
    def test_any_other_type(
        self,
        operation: int,
        dtype: str,
        device: str,
        weight: mo.Q4_0Matrix,
        outs: list[GuardedArray],
        split_outs: list[GuardedArray],
    ) -> None:
        calls = every_operation(
            lambda size: np.zeros(size, dtype), weight, outs, split_outs, device
        )
        named = np.dtype(dtype).name if dtype.isalnum() and dtype.islower() else ""
        with refused(TypeError, named, "float32", outs=outs + split_outs):
            calls[operation]()

    def test_a_masked_array(
        self,
        operation: int,
        device: str,
        weight: mo.Q4_0Matrix,
        outs: list[GuardedArray],
        split_outs: list[GuardedArray],
    ) -> None:
        calls = every_operation(
            lambda size: np.ma.zeros(size, np.float32), weight, outs, split_outs, device
        )
        with refused(TypeError, "(?i)masked", "filled", outs=outs + split_outs):
            calls[operation]()

    def test_bfloat16(
        self,
        operation: int,
        device: str,
        weight: mo.Q4_0Matrix,
        outs: list[GuardedArray],
        split_outs: list[GuardedArray],
    ) -> None:
        calls = every_operation(DLPackBfloat16, weight, outs, split_outs, device)
        with refused(TypeError, "bfloat16", r"float\(\)|float32", outs=outs + split_outs):
            calls[operation]()

    def test_memory_of_another_device(
        self,
        operation: int,
        device: str,
        weight: mo.Q4_0Matrix,
        outs: list[GuardedArray],
        split_outs: list[GuardedArray],
    ) -> None:
        calls = every_operation(
            lambda size: DLPackArrayOnGpu(np.zeros(size, np.float32)),
            weight,
            outs,
            split_outs,
            device,
        )
        with refused(TypeError, r"(?i)\bcpu\b", outs=outs + split_outs):
            calls[operation]()

    def test_a_tensor_that_requires_a_gradient(
        self,
        operation: int,
        device: str,
        weight: mo.Q4_0Matrix,
        outs: list[GuardedArray],
        split_outs: list[GuardedArray],
    ) -> None:
        calls = every_operation(
            lambda size: DLPackArrayWithGradient(np.zeros(size, np.float32)),
            weight,
            outs,
            split_outs,
            device,
        )
        with refused(TypeError, r"detach\(\)", outs=outs + split_outs):
            calls[operation]()

    @pytest.mark.parametrize(
        "wrong", [None, "text", object(), {}], ids=lambda wrong: type(wrong).__name__
    )
    def test_something_that_is_no_array(
        self,
        operation: int,
        wrong: Any,
        device: str,
        weight: mo.Q4_0Matrix,
        outs: list[GuardedArray],
        split_outs: list[GuardedArray],
    ) -> None:
        calls = every_operation(lambda size: wrong, weight, outs, split_outs, device)
        with refused(TypeError, outs=outs + split_outs):
            calls[operation]()


# Devices


def test_a_device_error_is_a_runtime_error() -> None:
    assert issubclass(mo.DeviceError, RuntimeError)


@pytest.mark.parametrize("name", ["", "cpu ", "CPU", "no such device", "cpu\0"])
def test_no_such_device(
    name: str, weight: mo.Q4_0Matrix, outs: list[GuardedArray], split_outs: list[GuardedArray]
) -> None:
    x, qkv = np.zeros((M, K), np.float32), np.zeros((M, CHANNELS), np.float32)
    with refused(mo.DeviceError, "cpu", outs=outs):
        single(weight, x, outs, name)
    with refused(mo.DeviceError, "cpu", outs=outs):
        fused(weight, x, outs, name)
    with refused(mo.DeviceError, "cpu", outs=split_outs):
        split(qkv, *SPANS, outs=split_outs, device=name)


def test_a_message_names_the_unknown_device(weight: mo.Q4_0Matrix) -> None:
    with raises(mo.DeviceError, "tpu"):
        mo.mul_mv_q4_0(weight, np.zeros(K, np.float32), device="tpu")


@pytest.mark.parametrize("wrong", [3, b"cpu", 1.5, ["cpu"]])
def test_a_device_that_is_no_name(
    wrong: Any, weight: mo.Q4_0Matrix, outs: list[GuardedArray]
) -> None:
    with refused(TypeError, outs=outs):
        single(weight, np.zeros((M, K), np.float32), outs, wrong)


# Memory and references


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS does not enforce RLIMIT_AS")
@pytest.mark.parametrize(
    "call",
    [
        "mo.mul_mv_q4_0(weight, x)",
        "mo.mul_mv_q4_0(weight, large_x)",
        "mo.fused_dual_proj_q4_0(weight, weight, x)",
        "mo.qkv_split(large_x, 8, 8, 16)",
        "mo.Q4_0Matrix.quantize(large_x)",
        "mo.Q4_0Matrix.concat([weight] * 4000)",
        "large.dequantize()",
    ],
)
def test_out_of_memory(call: str, device: str) -> None:
    printed = fresh_python.run(
        f"""
        import resource

        import mlxops as mo
        import numpy as np

        mo.set_default_device({device!r})
        N = 2**14
        weight = mo.Q4_0Matrix.from_blocks(bytes(N * 18), (N, 32))
        large = mo.Q4_0Matrix.from_blocks(bytes(2**23 * 18), (2**23, 32))
        x = np.zeros((2**15, 32), np.float32)
        large_x = np.broadcast_to(np.float16(0), (2**25, 32))
        small = mo.mul_mv_q4_0(weight, x[0])
        pages = int(open("/proc/self/statm").read().split()[0])
        limit = pages * resource.getpagesize() + 2**28
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        try:
            {call}
        except MemoryError:
            assert (mo.mul_mv_q4_0(weight, x[0]) == small).all()
            print("MemoryError, and the next call works")
        """
    )
    assert printed == "MemoryError, and the next call works\n"


def test_an_error_keeps_no_reference(device: str, weight: mo.Q4_0Matrix) -> None:
    x, wide = np.zeros((M, K), np.float32), np.zeros((M, K + 1), np.float32)
    double, out, qkv = x.astype(np.float64), np.zeros((M, N + 1), np.float32), wide[:, :14]
    objects = (weight, x, wide, double, out, qkv)
    calls: list[Callable[[], object]] = [
        lambda: mo.mul_mv_q4_0(weight, wide, device=device),
        lambda: mo.mul_mv_q4_0(weight, double, device=device),
        lambda: mo.mul_mv_q4_0(weight, x, out=out, device=device),
        lambda: mo.fused_dual_proj_q4_0(weight, weight, x, out=(out, out), device=device),
        lambda: mo.fused_dual_proj_q4_0(weight, weight[1:], x, device=device),
        lambda: mo.qkv_split(qkv, *SPANS, device=device),
        lambda: mo.mul_mv_q4_0(weight, x, device="no such device"),
    ]
    before = [sys.getrefcount(item) for item in objects]
    for call in calls * 50:
        with pytest.raises((ValueError, TypeError, mo.DeviceError)):
            call()
    gc.collect()
    assert [sys.getrefcount(item) for item in objects] == before

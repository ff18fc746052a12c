"""The package as a whole: its names, signatures, documentation and types."""

import inspect
import re
from pathlib import Path

import pytest

import fresh_python
import mlxops as mo

PACKAGE = Path(mo.__file__).parent

SIGNATURES = {
    "mul_mv_q4_0": "(weight, x, *, out=None, device=None)",
    "fused_dual_proj_q4_0": "(weight_a, weight_b, x, *, out=None, device=None)",
}

NAMES = [
    *("mul_mv_q4_0", "fused_dual_proj_q4_0", "qkv_split", "Q4_0Matrix", "gguf", "DeviceError"),
    *("devices", "default_device", "set_default_device", "set_num_threads", "get_num_threads"),
    "__version__",
]


@pytest.mark.parametrize("name", NAMES)
def test_names(name: str) -> None:
    assert hasattr(mo, name)
    assert name in dir(mo)


@pytest.mark.parametrize(("name", "expected"), SIGNATURES.items())
def test_signatures(name: str, expected: str) -> None:
    parameters = inspect.signature(getattr(mo, name)).parameters.values()
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
    assert str(inspect.Signature(bare)) == expected


def test_the_version() -> None:
    assert re.fullmatch(r"\d+(\.\d+)+([a-z]+\d+)?(\.dev\d+)?", mo.__version__)


@pytest.mark.parametrize("name", ["mul_mv_q4_0", "fused_dual_proj_q4_0", "qkv_split"])
def test_the_operations_document_shapes_types_and_errors(name: str) -> None:
    documentation = inspect.getdoc(getattr(mo, name)) or ""
    for word in ("float32", "ValueError", "TypeError", "DeviceError", "out", "device"):
        assert word in documentation, word


def test_everything_public_is_documented() -> None:
    public = [getattr(mo, name) for name in NAMES if not name.startswith("__")]
    methods = [
        getattr(mo.Q4_0Matrix, name)
        for name in ("quantize", "from_blocks", "dequantize", "concat", "shape", "nbytes", "blocks")
    ]
    tensors = [mo.gguf.load, mo.gguf.GGUFTensor]
    for item in (*public, *methods, *tensors):
        assert inspect.getdoc(item), item


def test_the_types_are_shipped() -> None:
    assert (PACKAGE / "py.typed").exists()
    assert list(PACKAGE.glob("*.pyi"))


def test_importing_needs_nothing_but_numpy() -> None:
    printed = fresh_python.run(
        """
        import sys

        for name in ("gguf", "torch", "mlx", "tokenizers", "rich"):
            sys.modules[name] = None
        import mlxops as mo

        matrix = mo.Q4_0Matrix.from_blocks(bytes(18), (1, 32))
        print(mo.mul_mv_q4_0(matrix, [1.0] * 32))
        """
    )
    assert printed == "[0.]\n"

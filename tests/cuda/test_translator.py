"""The translator from the Metal Shading Language to CUDA C++: what each rule does, that lines keep
their numbers, and that what it does not know is an error that says where."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import make_ptx
from embed_shaders import inline_includes
from msl_to_cuda import PRELUDE, TranslationError, Translator, translate, translate_shader


def translated(source: str) -> str:
    """The translation without the library before it."""
    return Translator(source).translate()


def words(source: str) -> str:
    """The translation with all white space as one blank each."""
    return " ".join(translated(source).split())


KERNEL = """\
template <typename T, int N>
kernel void scale(device const T *x [[buffer(1)]],
                  device float *y [[buffer(0)]],
                  constant scale_params &params [[buffer(2)]],
                  uint2 position [[thread_position_in_grid]],
                  ushort lane [[thread_index_in_simdgroup]]) {
    y[position.x] = x[position.x] * N;
}

template [[host_name("scale_f32")]] kernel decltype(scale<float, 4>)
    scale<float, 4>;
template [[host_name("scale_u32")]] kernel decltype(scale<uint, 8>) scale<uint, 8>;
"""


def test_kernel_becomes_a_function() -> None:
    assert (
        "template <typename T, int N> inline void scale(const T * x, float * y, "
        "const scale_params &params, uint2 position, ushort lane) {"
    ) in words(KERNEL)


def test_instance_becomes_an_entry_with_buffers_in_order() -> None:
    entries = re.findall(r'extern "C" [^{]*\{[^}]*\}', words(KERNEL))
    assert entries == [
        'extern "C" __global__ void __launch_bounds__(256) scale_f32('
        "float * __restrict__ y, const float * __restrict__ x, "
        "const __grid_constant__ scale_params params) "
        "{ scale<float, 4>(x, y, params, uint2(thread_position_in_grid()), "
        "ushort(thread_index_in_simdgroup())); }",
        'extern "C" __global__ void __launch_bounds__(256) scale_u32('
        "float * __restrict__ y, const uint * __restrict__ x, "
        "const __grid_constant__ scale_params params) "
        "{ scale<uint, 8>(x, y, params, uint2(thread_position_in_grid()), "
        "ushort(thread_index_in_simdgroup())); }",
    ]


@pytest.mark.parametrize(
    ("msl", "cuda"),
    [
        ("void f(device const float *p, thread int &n) {}", "void f( const float *p, int &n) {}"),
        ("void f(constant params &p) {}", "void f(const params &p) {}"),
        ("void f(threadgroup const float4 *p) {}", "void f( const float4 *p) {}"),
        ("q = (device const uint *)p + 1;", "q = ( const uint *)p + 1;"),
        ("device const float *rows[NW][NR];", "const float *rows[NW][NR];"),
        ("threadgroup float4 staged[N * 8];", "__shared__ float4 staged[N * 8];"),
        ("threadgroup float total;", "__shared__ float total;"),
        ("constant int ne12 [[function_constant(NE12)]];", "enum : int { ne12 };"),
        ("constant uint n [[function_constant(3)]];", "enum : uint { n };"),
        (
            "x = y[a[i]] < 1.5e+3f ? 1 : .5f; // device",
            "x = y[a[i]] < 1.5e+3f ? 1 : .5f; // device",
        ),
        ('s = "kernel device"; /* kernel */', 's = "kernel device"; /* kernel */'),
        ("#include <metal_stdlib>\nusing namespace metal;", "using namespace metal;"),
        ("#pragma METAL fp contract(off)\nfloat x;", "float x;"),
        (
            '#define UNROLL _Pragma("clang loop unroll(full)")',
            '#define UNROLL _Pragma("unroll")',
        ),
        ("#define TWICE(x) \\\n    ((x) * 2)", "#define TWICE(x) \\ ((x) * 2)"),
        ("template <int N> struct s { int v[N]; };", "template <int N> struct s { int v[N]; };"),
    ],
)
def test_rule(msl: str, cuda: str) -> None:
    assert words(msl) == " ".join(cuda.split())


WITHOUT_TRANSLATION = {
    "kernel without a template": "\nkernel void f(device float *x [[buffer(0)]]) {}",
    "gap in the indices": "\ntemplate <int N> kernel void f(device float *x [[buffer(1)]]) {}",
    "index twice": "\ntemplate <int N> kernel void f(device float *x [[buffer(0)]], "
    "device float *y [[buffer(0)]]) {}",
    "parameter without an attribute": "\ntemplate <int N> kernel void f(device float *x) {}",
    "unknown attribute": "\ntemplate <int N> kernel void f(uint n [[threads_per_grid]]) {}",
    "threadgroup argument": "\ntemplate <int N> kernel void "
    "f(threadgroup float *x [[threadgroup(0)]]) {}",
    "texture": "\ntemplate <int N> kernel void f(texture2d<float> t [[texture(0)]]) {}",
    "constant pointer": "\ntemplate <int N> kernel void f(constant float *x [[buffer(0)]]) {}",
    "device reference": "\ntemplate <int N> kernel void f(device float &x [[buffer(0)]]) {}",
    "no void": "\ntemplate <int N> kernel int f() {}",
    "default of a template": "\ntemplate <int N = 3> kernel void f() {}",
    "instance of no template": '\ntemplate [[host_name("g")]] kernel decltype(f<1>) f<1>;',
    "instance of another form": '\ntemplate [[host_name("g")]] kernel void f<1>();',
    "attribute of a function": "\n[[max_total_threads_per_threadgroup(64)]] void f() {}",
    "attribute of a variable": "\nint n [[unused]];",
    "program-scope constant": "\nconstant float table[2] = {1, 2};",
    "threadgroup variable with a value": "\nthreadgroup float x = 3;",
    "pragma": "\n#pragma METAL fp contract(fast)",
    "another pragma": "\n#pragma unroll",
    "pragma in a line": '\n_Pragma("unroll") for (;;) {}',
    "another include": "\n#include <metal_atomic>",
    "include of a file": '\n#include "a.h"',
    "macro of an address space": "\n#define GLOBAL device",
    "macro of an attribute": "\n#define FIRST [[buffer(0)]]",
    "macro of a pragma": '\n#define ONCE _Pragma("clang loop unroll(disable)")',
    "end within a kernel": "\ntemplate <int N> kernel void f(device float",
    "end within a template": "\ntemplate <int N",
}


@pytest.mark.parametrize("source", WITHOUT_TRANSLATION.values(), ids=WITHOUT_TRANSLATION)
def test_what_has_no_translation_is_an_error(source: str) -> None:
    with pytest.raises(TranslationError, match=r"^a\.metal:7: "):
        translate(f'#line 7 "a.metal"{source}')


def test_an_error_names_the_header(tmp_path: Path) -> None:
    (tmp_path / "a.h").write_text("\n\nint x [[unknown]];\n")
    (tmp_path / "b.metal").write_text('\n#include "a.h"\n')
    with pytest.raises(TranslationError, match=r"^a\.h:3: .*'\[\['"):
        translate_shader(tmp_path / "b.metal")


@pytest.mark.parametrize("shader", make_ptx.shaders(), ids=lambda path: path.stem)
def test_every_line_keeps_its_number(shader: Path) -> None:
    source = "\n".join(inline_includes(shader, set()))
    lines, kept = source.splitlines(), translated(source).splitlines()
    assert len(lines) == len(kept)
    plain = [
        (line, other)
        for line, other in zip(lines, kept, strict=True)
        if re.match(r"\s+(for|if|const \w+ \w+ =|return)\b", line)
    ]
    assert plain
    for line, other in plain:
        assert line == other


def test_the_library_comes_first() -> None:
    text = translate('#line 1 "a.metal"\nint x;\n')
    assert text.startswith(f'#line 1 "{PRELUDE.name}"\n{PRELUDE.read_text()}')
    assert text.endswith('namespace metal {\n#line 1 "a.metal"\nint x;\n\n}\n')


def test_command_line() -> None:
    shader = make_ptx.SHADERS / "qkv_split.metal"
    command = [sys.executable, "tools/msl_to_cuda.py", str(shader)]
    root = make_ptx.SHADERS.parent
    run = subprocess.run(command, capture_output=True, text=True, cwd=root, check=True)
    assert run.stdout == translate_shader(shader)

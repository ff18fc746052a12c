"""Translate the shaders from the Metal Shading Language to CUDA C++, as NVRTC compiles it.

The language of `shaders/` differs from CUDA C++ in a few words. These are exchanged in place and
every line keeps its number, so that a compiler's message points into `shaders/`. What is the same
in both languages is left alone, what the two libraries name alike stands in metal_stdlib.cuh, and
what this file does not know is an error. The rules:

- `device`, `thread` and `constant` before a pointer or reference go, as does `threadgroup`; a
  threadgroup variable is `__shared__`, `constant T` is `const T`.
- A kernel is a template, instantiated under a host_name. The template becomes a function, each
  instance a `__global__` function of the host_name. Its parameters are the buffers, in the order of
  their indices: pointers, and by value what is a reference. The function is given the positions and
  indices of its thread.
- Function constants are not defined.

    python tools/msl_to_cuda.py shaders/NAME.metal
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from embed_shaders import inline_includes

PRELUDE = Path(__file__).with_name("metal_stdlib.cuh")

TOKEN = re.compile(
    r"""
    (?P<space>(?:\s|//[^\n]*|/\*.*?\*/)*)
    (?P<text>
        (?P<directive>\#(?:[^\n\\]|\\.)*)
      | "(?:[^"\\]|\\.)*"
      | '(?:[^'\\]|\\.)*'
      | \.?\d(?:[eEpP][+-]|[\w.])*
      | (?P<word>[A-Za-z_]\w*)
      | \[\[ | \]\] | ::
      | .
      | $
    )""",
    re.DOTALL | re.VERBOSE,
)

LINE = re.compile(r'#line (\d+) "([^"]+)"')

# What the attribute of a parameter stands for. Each is a function of metal_stdlib.cuh.
THREAD_ATTRIBUTES = {
    "thread_position_in_grid",
    "threadgroup_position_in_grid",
    "thread_index_in_threadgroup",
    "thread_index_in_simdgroup",
    "simdgroup_index_in_threadgroup",
}

ADDRESS_SPACES = {"device", "thread", "constant", "threadgroup"}

# Directives that MSL and CUDA spell differently.
DROPPED_DIRECTIVES = {"#include <metal_stdlib>", "#pragma METAL fp contract(off)"}
UNROLL = ('_Pragma("clang loop unroll(full)")', '_Pragma("unroll")')

# At most so many threads has a threadgroup.
MAX_THREADS_PER_THREADGROUP = 256


class TranslationError(Exception):
    """Something in a shader that has no translation; the message begins with FILE:LINE."""


@dataclass(frozen=True)
class Token:
    """A word, number, string, directive or sign, and the white space and comments before it."""

    space: str
    text: str
    file: str
    line: int
    is_word: bool
    is_directive: bool


def tokens(source: str) -> Iterator[Token]:
    """All of a source with #line directives; the last token is empty."""
    file, line = "shader", 1
    for match in TOKEN.finditer(source):
        text = match["text"]
        line += match["space"].count("\n")
        is_directive = match["directive"] is not None
        yield Token(match["space"], text, file, line, match["word"] is not None, is_directive)
        line += text.count("\n")
        position = LINE.match(text)
        if position:
            line, file = int(position[1]) - 1, position[2]
        if not text:
            return


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel."""

    name: str
    type: tuple[str, ...]  # without address spaces
    is_reference: bool
    attribute: str
    index: int  # of a buffer

    def declaration(self, in_entry: bool, arguments: dict[str, str]) -> str:
        """As C++, with the template's arguments in place of its parameters.

        Entry functions take structs by value, and no two pointers to one memory.
        """
        words = " ".join(arguments.get(word, word) for word in self.type)
        if not in_entry:
            return f"{words} {'&' if self.is_reference else ''}{self.name}"
        if self.is_reference:
            return f"const __grid_constant__ {words.removeprefix('const ')} {self.name}"
        return f"{words} __restrict__ {self.name}"


@dataclass(frozen=True)
class Kernel:
    """The template of a kernel."""

    template_parameters: tuple[str, ...]
    parameters: tuple[Parameter, ...]


class Translator:
    """Reads tokens from first to last and writes their translation."""

    def __init__(self, source: str) -> None:
        self._tokens = list(tokens(source))
        self._next = 0
        self._output: list[str] = []
        self._kernels: dict[str, Kernel] = {}
        self._template_parameters: tuple[str, ...] = ()

    def translate(self) -> str:
        """The whole translation."""
        while self._peek().text:
            token = self._peek()
            if token.is_directive:
                self._directive()
            elif token.text == "template":
                self._template()
            elif token.text == "kernel":
                self._kernel()
            elif token.text in ADDRESS_SPACES:
                self._address_space()
            elif token.text in {"[[", "_Pragma"}:
                raise self._error(token, "this has no translation")
            else:
                self._copy()
        self._copy()
        return "".join(self._output)

    # ---- reading and writing ----

    def _error(self, token: Token, message: str) -> TranslationError:
        return TranslationError(f"{token.file}:{token.line}: {message}: {token.text!r}")

    def _peek(self, ahead: int = 0) -> Token:
        return self._tokens[min(self._next + ahead, len(self._tokens) - 1)]

    def _copy(self) -> Token:
        token = self._peek()
        self._next += 1
        self._output.append(token.space + token.text)
        return token

    def _replace(self, text: str) -> None:
        """Write other text in a token's place."""
        self._output.append(self._peek().space + text)
        self._next += 1

    def _drop(self, expected: str | None = None) -> Token:
        """Skip a token; only the ends of its lines are written."""
        token = self._peek()
        if expected is not None and token.text != expected:
            raise self._error(token, f"expected {expected!r} here")
        if not token.text:
            raise self._error(token, "the shader ends too early")
        self._next += 1
        self._output.append("\n" * (token.space + token.text).count("\n"))
        return token

    def _drop_group(self, opening: str, closing: str) -> list[Token]:
        """Skip a pair of brackets; return what is between them."""
        self._drop(opening)
        depth = 1
        inside: list[Token] = []
        while True:
            token = self._drop()
            depth += (token.text == opening) - (token.text == closing)
            if depth == 0:
                return inside
            inside.append(token)

    # ---- the rules ----

    def _directive(self) -> None:
        token = self._peek()
        text = token.text.rstrip()
        if text in DROPPED_DIRECTIVES:
            self._drop()
            return
        text = text.replace(*UNROLL)
        words = set(re.findall(r"\w+", text))
        is_known = text.startswith(("#line ", "#define ", "#if", "#else", "#endif"))
        if text.startswith("#include <") and not text.startswith("#include <metal"):
            is_known = True  # of the host's side: `#ifndef __METAL_VERSION__`
        has_msl = words & {"METAL", "clang", "kernel", *ADDRESS_SPACES} or "[[" in text
        if not is_known or has_msl:
            raise self._error(token, "this directive has no translation")
        self._replace(text)

    def _template(self) -> None:
        if self._peek(1).text == "[[":
            self._instance()
            return
        self._copy()
        names, depth = [], 0
        if self._peek().text != "<":
            raise self._error(self._peek(), "expected the parameters of a template here")
        while True:
            token = self._copy()
            depth += (token.text == "<") - (token.text == ">")
            if depth == 0:
                break
            if token.text in {"=", ""}:
                raise self._error(token, "these template parameters have no translation")
            if depth == 1 and self._peek().text in {",", ">"}:
                names.append(token.text)
        self._template_parameters = tuple(names)
        if self._peek().text == "kernel":
            self._kernel()
        self._template_parameters = ()

    def _kernel(self) -> None:
        """`kernel void NAME(PARAMETERS)` after `template <...>`."""
        kernel = self._drop("kernel")
        if not self._template_parameters:
            raise self._error(kernel, "a kernel must be a template with instances of a host_name")
        self._drop("void")
        name = self._drop()
        parameters = tuple(self._parameters(self._drop_group("(", ")")))
        buffers = [p.index for p in parameters if p.attribute == "buffer"]
        if sorted(buffers) != list(range(len(buffers))):
            raise self._error(name, "buffers must have the indices 0, 1, 2 and so on")
        self._kernels[name.text] = Kernel(self._template_parameters, parameters)
        declarations = ", ".join(p.declaration(False, {}) for p in parameters)
        self._output.append(f" inline void {name.text}({declarations})")

    def _parameters(self, inside: list[Token]) -> Iterator[Parameter]:
        start, depth = 0, 0
        for i, token in enumerate(inside):
            depth += (token.text in {"(", "<", "[["}) - (token.text in {")", ">", "]]"})
            if token.text == "," and depth == 0:
                yield self._parameter(inside[start:i])
                start = i + 1
        if inside:
            yield self._parameter(inside[start:])

    def _parameter(self, inside: list[Token]) -> Parameter:
        words = [token.text for token in inside]
        if "[[" not in words or words[-1] != "]]":
            raise self._error(inside[-1], "a kernel's parameter must end in an attribute")
        at = words.index("[[")
        declared, attribute = words[: at - 1], words[at + 1 : -1]
        spaces = ADDRESS_SPACES.intersection(declared)
        is_pointer = declared[-1] in {"*", "&"}
        is_buffer = attribute[0] == "buffer" and len(attribute) == 4 and attribute[2].isdigit()
        is_of_thread = len(attribute) == 1 and attribute[0] in THREAD_ATTRIBUTES
        if is_buffer == is_of_thread or is_buffer != is_pointer:
            raise self._error(inside[at + 1], "this parameter has no translation")
        wanted = {"*": {"device"}, "&": {"constant"}}.get(declared[-1], set())
        if spaces != wanted:
            raise self._error(inside[at - 1], "a buffer is `device T *` or `constant T &`")
        kept = [w for w in declared if w not in {"device", "constant", "&"}]
        if "const" in kept or "constant" in spaces:
            kept = ["const", *(word for word in kept if word != "const")]
        index = int(attribute[2]) if is_buffer else 0
        return Parameter(words[at - 1], tuple(kept), declared[-1] == "&", attribute[0], index)

    def _instance(self) -> None:
        """`template [[host_name("HOST")]] kernel decltype(NAME<ARGUMENTS>) NAME<ARGUMENTS>;`."""
        self._drop("template")
        for expected in ("[[", "host_name", "("):
            self._drop(expected)
        host_name = self._drop().text.strip('"')
        for expected in (")", "]]", "kernel", "decltype"):
            self._drop(expected)
        self._drop_group("(", ")")
        name = self._drop()
        if name.text not in self._kernels:
            raise self._error(name, "there is no kernel template of this name before")
        kernel = self._kernels[name.text]
        given = "".join(token.text for token in self._drop_group("<", ">")).split(",")
        self._drop(";")
        # (One argument may be a macro that stands for several.)
        arguments = dict(zip(kernel.template_parameters, given, strict=False))
        buffers = [p for p in kernel.parameters if p.attribute == "buffer"]
        buffers.sort(key=lambda p: p.index)
        declarations = ", ".join(p.declaration(True, arguments) for p in buffers)
        passed = ", ".join(
            p.name if p.attribute == "buffer" else f"{' '.join(p.type)}({p.attribute}())"
            for p in kernel.parameters
        )
        self._output.append(
            f' extern "C" __global__ void __launch_bounds__({MAX_THREADS_PER_THREADGROUP}) '
            f"{host_name}({declarations}) {{ {name.text}<{', '.join(given)}>({passed}); }}"
        )

    def _address_space(self) -> None:
        """Of a pointer, a reference or a variable: whichever comes first after it."""
        space, ahead = self._peek(), 1
        while self._peek(ahead).text not in {"*", "&", ";", "=", "[", "[[", "(", ")", ""}:
            ahead += 1
        ending = self._peek(ahead).text
        if ending in {"*", "&"}:
            self._replace("const" if space.text == "constant" else "")
        elif space.text == "threadgroup" and ending in {"[", ";"}:
            self._replace("__shared__")
        elif space.text == "constant" and ending == "[[":
            self._function_constant(ahead)
        else:
            raise self._error(space, "this address space has no translation here")

    def _function_constant(self, ahead: int) -> None:
        """`constant T NAME [[function_constant(INDEX)]];`, T an integer type: a name of 0."""
        self._replace("enum :")
        for _ in range(ahead - 2):
            self._copy()
        self._replace(f"{{ {self._peek().text}")
        self._drop("[[")
        self._drop("function_constant")
        self._drop_group("(", ")")
        self._drop("]]")
        self._output.append(" }")


def translate(source: str) -> str:
    """CUDA C++ of an MSL source with its own includes in place."""
    prelude = PRELUDE.read_text()
    body = Translator(source).translate()
    return f'#line 1 "{PRELUDE.name}"\n{prelude}\nnamespace metal {{\n{body}\n}}\n'


def translate_shader(path: Path) -> str:
    """CUDA C++ of a shader."""
    return translate("\n".join(inline_includes(path, set())) + "\n")


if __name__ == "__main__":
    sys.stdout.write(translate_shader(Path(sys.argv[1])))

"""Write the C file that embeds the shaders.

Each `shaders/NAME.metal` becomes one string in which every `#include "..."` is replaced by the
text of that file, once. `#line` directives keep the file names and line numbers of the originals,
so that a compiler's message points into `shaders/`. The PTX of the same shaders, `ptx/NAME.ptx`,
becomes another string, for Linux.

    python tools/embed_shaders.py shaders OUTPUT.c
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

INCLUDE = re.compile(r'#include "([^"]+)"')


def inline_includes(path: Path, seen: set[Path]) -> list[str]:
    """The lines of a shader with its own headers in place, the system's left alone."""
    lines = [f'#line 1 "{path.name}"']
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        include = INCLUDE.match(line)
        if include is None:
            lines.append(line)
            continue
        header = path.parent / include[1]
        if header not in seen:
            seen.add(header)
            lines += inline_includes(header, seen)
        lines.append(f'#line {number + 1} "{path.name}"')
    return lines


def c_string(line: str) -> str:
    """A line of text as a C string literal."""
    escaped = line.replace("\\", "\\\\").replace('"', '\\"')
    return f'     "{escaped}\\n"'


def ptx_lines(path: Path) -> list[str]:
    """The lines of a PTX file that mean something."""
    lines = (line.strip() for line in path.read_text().splitlines())
    return [line for line in lines if line and not line.startswith("//")]


def string_by_name(function: str, strings: dict[str, list[str]]) -> list[str]:
    """A C function that returns the string of a shader, NULL for a name that it does not know."""
    output = [f"const char *{function}(const char *shader)", "{"]
    for name, lines in strings.items():
        output.append(f'    if (strcmp(shader, "{name}") == 0)')
        output.append("        return")
        output += [c_string(line) for line in lines]
        output.append("        ;")
    return [*output, "    (void)shader;", "    return NULL;", "}"]


def embed(shaders: Path) -> str:
    """The C file for all shaders of a folder."""
    paths = sorted(shaders.glob("*.metal"))
    sources = {path.stem: inline_includes(path, set()) for path in paths}
    ptx = {path.stem: ptx_lines(shaders / "ptx" / f"{path.stem}.ptx") for path in paths}
    output = [
        "// Written by tools/embed_shaders.py.",
        '#include "registry.h"',
        "#include <string.h>",
        *string_by_name("mo_shader_source", sources),
        "#ifdef __linux__",
        *string_by_name("mo_shader_ptx", ptx),
        "#else",
        *string_by_name("mo_shader_ptx", {}),
        "#endif",
    ]
    return "\n".join(output) + "\n"


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(embed(Path(sys.argv[1])))

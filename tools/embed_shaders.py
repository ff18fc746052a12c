"""Write the C file that embeds the shaders.

Each `shaders/NAME.metal` becomes one string in which every `#include "..."` is replaced by the
text of that file, once. `#line` directives keep the file names and line numbers of the originals,
so that a compiler's message points into `shaders/`.

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


def embed(shaders: Path) -> str:
    """The C file for all shaders of a folder."""
    output = [
        "// Written by tools/embed_shaders.py.",
        '#include "registry.h"',
        "#include <string.h>",
        "static const struct { const char *name, *source; } shaders[] = {",
    ]
    for path in sorted(shaders.glob("*.metal")):
        output.append(f'    {{"{path.stem}",')
        output += [c_string(line) for line in inline_includes(path, set())]
        output.append("    },")
    output += [
        "};",
        "const char *mo_shader_source(const char *shader)",
        "{",
        "    for (size_t i = 0; i < sizeof shaders / sizeof *shaders; i++)",
        "        if (strcmp(shaders[i].name, shader) == 0)",
        "            return shaders[i].source;",
        "    return NULL;",
        "}",
    ]
    return "\n".join(output) + "\n"


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(embed(Path(sys.argv[1])))

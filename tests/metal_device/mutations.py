"""Breaks the shaders and the Metal backend, one way after the other: the tests see each.

    python tests/metal_device/mutations.py [TEXT]

With TEXT only the mutations whose names contain it. Exit status 1 if a mutation survives.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PROJECTION = "shaders/proj_q4_0.h"
STAGED = "shaders/proj_q4_0_staged.h"
DUAL_STAGED = "shaders/fused_dual_proj_q4_0_staged.metal"
VARIANTS = "csrc/ops/projection_variants.c"
SPLIT = "shaders/qkv_split.metal"
DUAL = "shaders/fused_dual_proj_q4_0.metal"
BACKEND = "csrc/metal/metal_device.m"


@dataclass(frozen=True)
class Mutation:
    """One way to break the code: `old`, wherever it stands in the file, becomes `new`."""

    name: str
    file: str
    old: str
    new: str


MUTATIONS = [
    Mutation("no guard for the weight's tail", PROJECTION, "row_0 + r < params.ne01 && ", ""),
    Mutation("no guard for the input's tail", PROJECTION, " && input_0 + i < params.ne1", ""),
    Mutation(
        "rows read past the end of the weight",
        PROJECTION,
        "min(row_0 + r, long(params.ne01) - 1)",
        "row_0 + r",
    ),
    Mutation(
        "rows read past the end of the input",
        PROJECTION,
        "min(input_0 + i, long(params.ne1) - 1)",
        "(input_0 + i)",
    ),
    Mutation("wrong offset in the input", PROJECTION, "il + j + 16]", "il + j + 15]"),
    Mutation("wrong offset of the nibbles", PROJECTION, "qs[il + j]", "qs[j]"),
    Mutation(
        "wrong stride of the result",
        PROJECTION,
        ") * params.ne0 + row_0",
        ") * params.ne00 + row_0",
    ),
    Mutation("swapped results", PROJECTION, "w == 0 ? dst_a : dst_b", "w == 0 ? dst_b : dst_a"),
    Mutation(
        "swapped weights",
        DUAL,
        "project<2, NR, NI>(weight_a, weight_b",
        "project<2, NR, NI>(weight_b, weight_a",
    ),
    Mutation("another lane order", PROJECTION, "lane % 2 * 8", "lane / 16 * 8"),
    Mutation(
        "blocks in another order",
        PROJECTION,
        "b = lane / 2; b < blocks_per_row; b += 16",
        "b = lane / 2 * ((blocks_per_row + 15) / 16); b < min(blocks_per_row, (lane / 2 + 1) * ((blocks_per_row + 15) / 16)); b++",
    ),
    Mutation(
        "another order of the butterfly",
        PROJECTION,
        "ushort s = 16; s > 0; s /= 2",
        "ushort s = 1; s < 32; s *= 2",
    ),
    Mutation(
        "the sum left to the driver",
        PROJECTION,
        "const float total = simd_sum_in_order(",
        "const float total = simd_sum(",
    ),
    Mutation(
        "no fma",
        PROJECTION,
        "fma(lo[i], float(q & 15) - 8.0f, acc[w][r][i])",
        "lo[i] * (float(q & 15) - 8.0f) + acc[w][r][i]",
    ),
    Mutation(
        "the scale without fma",
        PROJECTION,
        "fma(d, acc[w][r][i], sum[w][r][i])",
        "d * acc[w][r][i] + sum[w][r][i]",
    ),
    Mutation("wrong zero point", PROJECTION, "float(q >> 4) - 8.0f", "float(q >> 4) - 7.0f"),
    Mutation("swapped nibbles", PROJECTION, "float(q & 15)", "float((q >> 4) & 15)"),
    Mutation("blocks from K / 32 on", PROJECTION, "b < blocks_per_row;", "b <= blocks_per_row;"),
    Mutation(
        "32-bit offset of the weight",
        PROJECTION,
        " + row * blocks_per_row;",
        " + int(uint(row * blocks_per_row * 18)) / 18;",
    ),
    Mutation(
        "32-bit offset of the input",
        PROJECTION,
        "(z * params.ne1 + min(input_0 + i, long(params.ne1) - 1)) * params.ne10;",
        "uint((z * params.ne1 + min(input_0 + i, long(params.ne1) - 1)) * params.ne10);",
    ),
    Mutation(
        "32-bit offset of the result",
        PROJECTION,
        "dst[(z * params.ne1 + input_0 + i) * params.ne0 + row_0 + r]",
        "dst[uint((z * params.ne1 + input_0 + i) * params.ne0 + row_0 + r)]",
    ),
    Mutation(
        "wrong buffer index",
        DUAL,
        "device float *dst_a [[buffer(3)]],",
        "device float *dst_a [[buffer(4)]],",
    ),
    Mutation(
        "staged: no barrier before the input",
        STAGED,
        "threadgroup_barrier(mem_flags::mem_threadgroup);\n                store_inputs",
        "store_inputs",
    ),
    Mutation(
        "staged: no barrier after the input",
        STAGED,
        "t, staged);\n                threadgroup_barrier(mem_flags::mem_threadgroup);",
        "t, staged);",
    ),
    Mutation(
        "staged: the input of a step too early",
        STAGED,
        "step + 16 * staged_steps<S, M>(), t, copied)",
        "step, t, copied)",
    ),
    Mutation(
        "staged: words loaded before their last use",
        STAGED,
        "end = 2 * v + 2 + v / 2",
        "end = 2 * v + 3 + v / 2",
    ),
    Mutation(
        "staged: words that are never loaded",
        STAGED,
        "begin = 2 * v + v / 3",
        "begin = 2 * v + v / 2",
    ),
    Mutation("staged: the scale of the next block", STAGED, "if (v % 2 == 0) {", "if (true) {"),
    Mutation("staged: no guard for the weight's tail", STAGED, "r < n_rows && ", ""),
    Mutation("staged: no guard for the input's tail", STAGED, " && i < n_inputs", ""),
    Mutation(
        "staged: rows read past the end of the weight",
        STAGED,
        "min(row_0 + r, long(params.ne01) - 1)",
        "row_0 + r",
    ),
    Mutation(
        "staged: rows read past the end of the input",
        STAGED,
        "uint(min(i, last))",
        "uint(i)",
    ),
    Mutation(
        "staged: input read past the end of its row",
        STAGED,
        "first + j / 8 < blocks_per_row ?",
        "true ?",
    ),
    Mutation(
        "staged: blocks from K / 32 on",
        STAGED,
        "if (step + block_0 < blocks_per_row)",
        "if (step + block_0 < blocks_per_row + 16)",
    ),
    Mutation(
        "staged: shares from K / 32 on",
        STAGED,
        "ahead + block_0 < blocks_per_row",
        "ahead + block_0 < blocks_per_row + 16",
    ),
    Mutation(
        "staged: another order of the butterfly",
        STAGED,
        "ushort s = 16; s >= S; s /= 2",
        "ushort s = S; s <= 16; s *= 2",
    ),
    Mutation("staged: wrong half of a block", STAGED, "v % 2 * 2 + c", "v / 2 * 2 + c"),
    Mutation("staged: wrong zero point", STAGED, "-32776.0f", "-32775.0f"),
    Mutation("staged: no fma", STAGED, "fma(lo.y, w[2], sum)", "(lo.y * w[2] + sum)"),
    Mutation(
        "staged: the scale without fma",
        STAGED,
        "fma(d[r], acc[r][i], sums.of[v][r][i])",
        "d[r] * acc[r][i] + sums.of[v][r][i]",
    ),
    Mutation(
        "staged: swapped results",
        DUAL_STAGED,
        "is_b ? dst_b : dst_a",
        "is_b ? dst_a : dst_b",
    ),
    Mutation(
        "staged: too few threadgroups",
        VARIANTS,
        ".rows = {S * R * G, S * R * G / 2}",
        ".rows = {S * R * G, S * R * G}",
    ),
    Mutation(
        "staged: used where x is not aligned", VARIANTS, ".x_alignment = 16", ".x_alignment = 4"
    ),
    Mutation(
        "staged: used where K is no multiple of 64",
        VARIANTS,
        "S == 4 ? 64 : 32",
        "32",
    ),
    Mutation(
        "split: wrong boundary of k", SPLIT, "channel - q_sp < k_sp", "channel - q_sp <= k_sp"
    ),
    Mutation("split: wrong stride of v", SPLIT, "v[row * v_sp", "v[row * k_sp"),
    Mutation(
        "split: 32-bit offset", SPLIT, "const ulong row = position.y", "const uint row = position.y"
    ),
    Mutation(
        "split: NaNs are made quiet",
        SPLIT,
        "const T value = qkv[row * qkv_ch + channel];",
        "const T value = qkv[row * qkv_ch + channel] | T(0x400000);",
    ),
    Mutation(
        "fast mathematics on macOS 15",
        BACKEND,
        "[options setMathMode:MTLMathModeSafe];",
        "(void)options;",
    ),
    Mutation(
        "fast mathematics before", BACKEND, "[options setFastMathEnabled:NO];", "(void)options;"
    ),
    Mutation("API without a guard", BACKEND, "if (@available(macOS 15.0, *))", "if (1)"),
    Mutation("a function that is not released", BACKEND, "    [function release];\n", ""),
    Mutation("a command buffer that is not released", BACKEND, "    [w->submitted release];\n", ""),
    Mutation(
        "a wrapper that is not released",
        BACKEND,
        "[(id<MTLBuffer>)wrapper release];",
        "(void)wrapper;",
    ),
    Mutation("a part that is not released", BACKEND, "    [s->part release];\n", ""),
    Mutation(
        "a part that is released twice",
        BACKEND,
        "    [s->part release];\n",
        "    [s->part release];\n    [s->part release];\n",
    ),
    Mutation(
        "a command buffer that is released too often",
        BACKEND,
        "w->submitted = [buffer retain];",
        "w->submitted = buffer;",
    ),
    Mutation(
        "no autorelease pool around the commit",
        BACKEND,
        "    @autoreleasepool {\n        status = prepare(w);",
        "    {\n        status = prepare(w);",
    ),
    Mutation(
        "no autorelease pool around the pipeline",
        BACKEND,
        "    @autoreleasepool {\n        id<MTLLibrary> library = nil;",
        "    {\n        id<MTLLibrary> library = nil;",
    ),
    Mutation("an encoder that is not ended", BACKEND, "    [encoder endEncoding];\n", ""),
    Mutation("no wait", BACKEND, "    [w->submitted waitUntilCompleted];\n", ""),
    Mutation(
        "a failed command buffer is not noticed",
        BACKEND,
        "[w->submitted status] == MTLCommandBufferStatusCompleted",
        "[w->submitted status] >= MTLCommandBufferStatusCompleted",
    ),
    Mutation(
        "no offset of a buffer", BACKEND, "offset:offset atIndex:index", "offset:0 atIndex:index"
    ),
    Mutation(
        "arguments in reverse",
        BACKEND,
        "bind(w, encoder, &dispatch->arguments[i], i);",
        "bind(w, encoder, &dispatch->arguments[i], n_arguments(dispatch) - 1 - i);",
    ),
    Mutation(
        "threads for threadgroups",
        BACKEND,
        "if (dispatch->by_threadgroups)",
        "if (!dispatch->by_threadgroups)",
    ),
    Mutation(
        "no pipeline set",
        BACKEND,
        "    [encoder setComputePipelineState:(id<MTLComputePipelineState>)dispatch->pipeline->state];\n",
        "",
    ),
    Mutation(
        "function constants of the wrong type", BACKEND, "MTLDataTypeInt ", "MTLDataTypeFloat "
    ),
    Mutation(
        "inputs that are not copied",
        BACKEND,
        "argument.kind == MO_ARGUMENT_INPUT",
        "argument.kind == MO_ARGUMENT_OUTPUT",
    ),
    Mutation(
        "results that are not copied back",
        BACKEND,
        "if (status == MO_OK && !discard)\n            copy_back",
        "if (status == MO_OK && discard)\n            copy_back",
    ),
    Mutation("wrong offset of a part", BACKEND, " + offset) % MO_PAGE;", ") % MO_PAGE;"),
    Mutation("pages not whole", BACKEND, "(size + MO_PAGE - 1) / MO_PAGE * MO_PAGE", "size"),
    Mutation(
        "maxBufferLength ignored",
        BACKEND,
        "if (size > [gpu maxBufferLength]) // in",
        "if (size == 0) // in",
    ),
    Mutation(
        "memory wrapped that is not aligned",
        BACKEND,
        "(uintptr_t)memory % MO_PAGE == 0",
        "memory != NULL",
    ),
    Mutation("old GPUs offered", BACKEND, "MTLGPUFamilyApple7", "MTLGPUFamilyApple5"),
    Mutation("a device that is not released", BACKEND, "            [device release];\n", ""),
    Mutation(
        "Metal after fork",
        BACKEND,
        "    if (mo_in_forked_child())\n        return mo_fail",
        "    if (0)\n        return mo_fail",
    ),
    Mutation(
        "Metal freed after fork",
        BACKEND,
        "    if (mo_in_forked_child()) // the driver is the parent's; so is what it holds\n        return true;\n",
        "",
    ),
    Mutation(
        "work dropped after the first command buffer",
        BACKEND,
        "status == MO_OK && w->next < w->n && !discard",
        "status == MO_OK && w->next > w->n && !discard",
    ),
    Mutation("interrupts ignored", BACKEND, "if (mo_interrupted())", "if (0)"),
    Mutation("a library for each kernel", BACKEND, "    compiled_shaders = shader;\n", ""),
]


def outcome(mutation: Mutation) -> str:
    """What becomes of a mutation: "caught", "SURVIVES", or why it is none."""
    with tempfile.TemporaryDirectory() as directory:
        sources = Path(directory)
        for folder in ("csrc", "shaders", "python", "tools"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(REPOSITORY / folder, sources / folder, ignore=ignored)
        text = (sources / mutation.file).read_text()
        if mutation.old not in text:
            return "NOT FOUND in the file"
        (sources / mutation.file).write_text(text.replace(mutation.old, mutation.new))
        environment = {
            **os.environ,
            "MLXOPS_TEST_BUILD": "simulated",
            "MLXOPS_TEST_SOURCES": directory,
        }
        pytest = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        is_of_variant = mutation.file in (STAGED, DUAL_STAGED, VARIANTS)
        tests = "tests/test_projection_variants.py" if is_of_variant else "tests/metal_device"
        command = [*pytest, tests]
        run = subprocess.run(
            command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=600
        )
    if run.returncode == 0:
        return "SURVIVES"
    if re.search(r"\.(metal|h|m|c):\d+:\d+: error: ", run.stdout + run.stderr):
        return "DOES NOT COMPILE"
    # A test has failed, or the process has crashed.
    return "caught" if run.returncode in (1, 134, 139) or run.returncode < 0 else "NOT RUN"


def main() -> int:
    """Try all mutations, or those that are asked for."""
    chosen = [m for m in MUTATIONS if len(sys.argv) < 2 or sys.argv[1] in m.name]
    bad = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for mutation, result in zip(chosen, pool.map(outcome, chosen), strict=True):
            print(f"{result:16} {mutation.name}", flush=True)
            bad += result != "caught"
    print(f"{len(chosen) - bad} caught, {bad} not")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

"""Stages of GEMM for few rows or columns, which are limited by reading the operand that is large."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...model.arrays import Array
from ...model.dtypes import FP32, dtype_of
from ...model.launch import Argument, Launch, Plan, ceil_div
from .fastest import MOST_IN_CLUSTER, MOST_ROWS, Few, at_once, line_groups, sharing, vectors_of
from .operation import GEMM, left_for_the_last
from .problem import GemmProblem, alone, plain


def _along_a_vector(p: GemmProblem) -> str | None:
    few = Few.of(p)
    if reason := alone(p):
        return reason
    if few.vectors != 1:
        return "neither m nor n is 1"
    return None if few.along_k else f"k does not lie along the rows of {few.large}"


def _one_vector(p: GemmProblem, size: Mapping[str, int]) -> dict[str, int]:
    chosen = line_groups(p, size)
    blocks = chosen.pop("BLOCKS")
    return {**chosen, "SHARED": int(blocks > 1)}


@GEMM.stage(
    "one_vector",
    after="naive",
    idea="for one row or column: the large operand is used as it was read, and the vector is shifted to match",
    supports=_along_a_vector,
    parameters={"THREADS": 256, "UNROLL": 4, "RESIDENT": 1024},
    sizes=_one_vector,
    edge_cases=(
        GemmProblem(m=1, n=9, k=3 * 1024 + 200, dtype="bf16"),
        GemmProblem(m=70, n=1, k=3, dtype="fp16", out="fp16", pad_c=2),
        GemmProblem(m=1, n=33, k=601, dtype="fp16", pad_b=2),
        GemmProblem(m=9, n=1, k=2501, dtype="fp32", layout="nn", pad_a=1, pad_c=1),
        GemmProblem(m=1, n=2, k=140_001, dtype="fp32"),
        GemmProblem(m=9, n=1, k=2501, dtype="fp32", layout="nn", pad_b=24),
        GemmProblem(m=300, n=1, k=70, dtype="bf16", layout="nn", pad_a=2, pad_b=1),
        GemmProblem(m=1, n=70, k=90, dtype="bf16", layout="tt", pad_a=2),
    ),
    alignment=16,
)
def one_vector(p: GemmProblem, size: Mapping[str, int]) -> Plan:
    few, chosen = Few.of(p), line_groups(p, size)
    blocks, threads = chosen["BLOCKS"], chosen["THREADS"]
    scratch, handed = left_for_the_last(blocks > 1, (few.lines, blocks), (few.lines,))
    launches, vector = [], few.other
    if few.x_k != 1:
        vector = "gathered"
        scratch[vector] = Array((p.k,), dtype_of(p.dtype), output=True)
        numbers = (np.int32(p.k), np.int32(few.x_k))
        gather = (ceil_div(p.k, threads), 1, 1)
        launches.append(Launch("gemm_gathered", gather, (threads, 1, 1), (few.other, vector, *numbers)))
    grid = (ceil_div(few.lines, threads // chosen["GROUP"]) * blocks, 1, 1)
    sizes = (few.lines, p.k, few.stride, few.c_line, blocks, ceil_div(vectors_of(p, few)[0], blocks))
    arguments: tuple[Argument, ...] = (few.large, vector, "C", *handed, *(np.int32(x) for x in sizes))
    return Plan((*launches, Launch("gemm_one_vector", grid, (threads, 1, 1), arguments)), scratch)


def _few_rows(p: GemmProblem) -> str | None:
    if reason := plain(p):
        return reason
    if p.trans_b:
        return "B is transposed"
    return None if p.m <= MOST_ROWS else f"A has more than {MOST_ROWS} rows"


def _thread_columns(p: GemmProblem, size: Mapping[str, int]) -> dict[str, int]:
    vectors = 1 << (p.m - 1).bit_length()
    columns = 2 if p.dtype != FP32.name and p.ldb % 2 == 0 else 1
    unroll = max(4, min(size["IN_FLIGHT"], 2 * size["IN_FLIGHT"] // vectors))  # a k-iteration has registers for A, too
    wanted = min(ceil_div(size["WANTED"], ceil_div(p.n, 32 * columns)), ceil_div(p.k, unroll))
    parts = 1 << max(0, wanted.bit_length() - 1)
    share = min(parts, size["WARPS"])
    return {
        "VECTORS": vectors,
        "COLUMNS": columns,
        "UNROLL": unroll,
        "SHARE": share,
        "SPLIT": min(parts // share, MOST_IN_CLUSTER),
    }


@GEMM.stage(
    "thread_columns",
    after="naive",
    idea="for few rows of A: a thread has a column of B, so that rows of B may begin anywhere",
    supports=_few_rows,
    parameters={"WARPS": 8, "RESIDENT": 1024, "IN_FLIGHT": 16, "WANTED": 8448},
    sizes=_thread_columns,
    edge_cases=(
        GemmProblem(m=1, n=33, k=16 * 64 * 2 + 5, dtype="fp32", layout="nn", pad_a=1, pad_b=2),
        GemmProblem(m=3, n=31, k=700, dtype="bf16", layout="nn", pad_b=1),
        GemmProblem(m=8, n=65, k=4 * 64 + 3, dtype="fp16", out="fp16", layout="nn", pad_b=2, pad_c=1),
        GemmProblem(m=7, n=1, k=1, dtype="fp32", layout="nn"),
    ),
    architecture=90,
    alignment=16,
)
def thread_columns(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    columns = 32 * size["COLUMNS"] * size["WARPS"] // size["SHARE"]
    return Launch(
        "gemm_thread_columns",
        (ceil_div(p.n, columns) * size["SPLIT"], 1, 1),
        (32 * size["WARPS"], 1, 1),
        ("A", "B", "C", *(np.int32(x) for x in (p.m, p.n, p.k, p.lda, p.ldb, p.ldc))),
        cluster=(size["SPLIT"], 1, 1),
    )


def _few_vectors(p: GemmProblem, size: Mapping[str, int]) -> dict[str, int]:
    few, item = Few.of(p), dtype_of(p.dtype).itemsize
    lines, k, vectors = at_once(p, few)
    width = 16 // item
    aligned = few.stride * item % 16 == 0
    # what has to be shifted takes twice the registers, and so do the sums of fp32 and what they are made of
    registers = (1 if aligned else 2) * (2 if p.dtype == FP32.name and vectors > 4 else 1)
    share, split = sharing(p, size, few)
    steps_each = ceil_div(ceil_div(p.k, k), share * split)
    return {
        "ALONG_K": int(few.along_k),
        "K_EVEN": int(p.k % width == 0),
        "S_ALIGNED": int(aligned),
        "S_EVEN": int(aligned and (p.k if few.along_k else few.lines) % width == 0),
        "X_ALIGNED": int(few.x_k == 1 and (few.x_vector * item % 16 == 0 or few.vectors == 1)),
        "READ_ONCE": int(aligned and few.lines >= lines and few.vectors <= vectors),
        "VECTORS": vectors,
        "UNROLL": max(1, min(size["IN_FLIGHT"] // registers, 1 << (steps_each - 1).bit_length())),
        "SPLIT": split,
    }


@GEMM.stage(
    "few_vectors",
    track="skinny",
    idea="for few rows or columns: enough warps to fill the device read the large operand once, into registers",
    supports=alone,
    parameters={"WARPS": 8, "RESIDENT": 256, "IN_FLIGHT": 4, "START": 6},
    sizes=_few_vectors,
    edge_cases=(  # so long that a warp of 64 has several steps, and as many as are in flight
        GemmProblem(m=3, n=20, k=17001, dtype="bf16", pad_b=7),
        GemmProblem(m=1, n=8, k=32 * 64 * 5, dtype="bf16"),  # five steps: one is left over, and none is partial
        GemmProblem(m=70, n=9, k=8512, dtype="fp16", out="fp16", layout="nn", pad_a=1),
        GemmProblem(m=2, n=135, k=8704, dtype="bf16", layout="nn", pad_b=1),
        GemmProblem(m=1, n=32, k=8512, dtype="fp32", layout="nn", pad_b=1),
        GemmProblem(m=40, n=5, k=8500, dtype="fp32"),
        GemmProblem(m=33, n=2, k=4201, dtype="fp32", layout="nn", pad_a=3, pad_c=2),
        GemmProblem(m=300, n=13, k=530, dtype="fp32", layout="nn"),
        GemmProblem(m=20, n=34, k=300, dtype="bf16", out="bf16", layout="nn"),
        GemmProblem(m=135, n=2, k=8704, dtype="bf16", layout="tn", pad_a=1),
        GemmProblem(m=3, n=300, k=530, dtype="fp32", layout="tt"),
    ),
    architecture=90,
)
def few_vectors(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    few = Few.of(p)
    share, split = sharing(p, size, few)
    lines, bits = at_once(p, few)[0] * size["WARPS"] // share, share.bit_length() - 1
    numbers = (few.lines, few.vectors, p.k, few.stride, few.x_vector, few.x_k, few.c_line, few.c_vector, bits)
    return Launch(
        "gemm_few_vectors",
        (ceil_div(few.lines, lines) * ceil_div(few.vectors, size["VECTORS"]) * split, 1, 1),
        (32 * size["WARPS"], 1, 1),
        (few.large, few.other, "C", *(np.int32(x) for x in numbers)),
        cluster=(split, 1, 1),
    )

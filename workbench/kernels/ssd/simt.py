"""Stages of the chunked scan on CUDA cores."""

from __future__ import annotations

from collections.abc import Mapping

from ...model.launch import Launch, ceil_div
from .operation import EDGE_CASES, SSD, counts, steps
from .problem import COLUMNS, SsdProblem

ARGUMENTS = ("x", "log_a", "b", "c", "h0", "y", "h")


@SSD.stage(
    "naive",
    track="simt",
    idea="the recurrence: a block takes a head, a thread a column of its state",
    sizes=lambda p, size: {"DSTATE": p.dstate},
    edge_cases=EDGE_CASES,
    alignment=2,
)
def naive(p: SsdProblem, size: Mapping[str, int]) -> Launch:
    return Launch("ssd_naive", (p.heads, p.batch, 1), (p.headdim, 1, 1), (*ARGUMENTS, *steps(p), *counts(p)))


def column_tiles(p: SsdProblem) -> int:
    """Blocks that share a head."""
    return ceil_div(p.headdim, COLUMNS)


@SSD.stage(
    "chunked",
    after=naive,
    idea="products of matrices: within a chunk like causal attention, between chunks through the state",
    parameters={"CHUNK": 32},
    sizes=lambda p, size: {"DSTATE": p.dstate},
    space={"CHUNK": (16, 32, 64)},
)
def chunked(p: SsdProblem, size: Mapping[str, int]) -> Launch:
    chunk = size["CHUNK"]
    floats = 2 * chunk * (p.dstate + 1) + chunk * COLUMNS + chunk * (chunk + 1) + p.dstate * COLUMNS + chunk
    return Launch(
        "ssd_chunked",
        (column_tiles(p) * p.heads, p.batch, 1),
        (256, 1, 1),
        (*ARGUMENTS, *steps(p), *counts(p)),
        shared_bytes=4 * floats,
    )

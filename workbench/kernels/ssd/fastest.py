"""Which stage of the chunked scan is preferred for a problem."""

from __future__ import annotations

from ...model.launch import ceil_div
from .problem import SsdProblem

ENOUGH = 200
"""Blocks that keep an H100 or H200 of 132 multiprocessors busy."""


def fastest(p: SsdProblem) -> tuple[str, ...]:
    """The stages that are preferred for a problem that is in no table of what is fastest, best first. Of few heads
    sequences are cut."""
    few = ceil_div(p.headdim, 64) * p.heads * p.batch < ENOUGH and p.length > 128
    computes = p.group > 1 and p.dstate > 64  # rather than waits for memory: heads that are in step wait for each other
    best = ("specialised",) if computes else ("paired", "specialised")
    return *best, *(("parallel", "tensor_core") if few else ("tensor_core",))

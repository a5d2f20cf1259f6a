"""How often each number comes in a list: integers, two kernels a stage, atomics, an exact tier and no other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from workbench import Launch, Plan, Size, Tier, ceil_div, simple_operation


def numbers(p: Any, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Mostly of the bins, many of them in one bin; some are in none."""
    found = rng.integers(-2, p.bins + 2, p.n)
    found[rng.random(p.n) < 0.3] = rng.integers(0, p.bins)
    return {"x": found.astype(np.int32)}


def off_the_end(p: Any, inputs: Any, expected: Any) -> Any:
    """What numbers beyond the last bin make of it where nobody asks whether they are in one."""
    wrong = expected["counts"].copy()
    wrong[-1] += np.count_nonzero(inputs["x"] >= p.bins)
    return {"numbers of no bin counted in the last": {"counts": wrong}}


@simple_operation(
    "histogram",
    "x: n int32 -> counts: bins int32",
    tiers=(Tier.EXACT,),
    draw=numbers,
    controls=off_the_end,
    suite=("268435456x256", "268435456x65536"),
    emulator_size=Size(extent=3_000, work=100_000),
)
def histogram(x: Any, *, bins: int) -> Any:
    """Counts of the numbers 0, 1, ... in a list; others are left out."""
    return np.bincount(x[(x >= 0) & (x < bins)], minlength=bins)


@histogram.stage(
    "naive",
    source="histogram/1_naive.cu",
    idea="one thread adds one to the bin of one number, after a kernel that clears the bins",
    parameters={"THREADS": 256},
)
def naive(p: Any, size: Mapping[str, int]) -> Plan:
    threads = size["THREADS"]
    n, bins = np.int64(p.n), np.int32(p.bins)
    clear = Launch("histogram_clear", (ceil_div(p.bins, threads), 1, 1), (threads, 1, 1), ("counts", bins))
    count = Launch("histogram_count", (ceil_div(p.n, threads), 1, 1), (threads, 1, 1), ("x", "counts", n, bins))
    return Plan((clear, count))


@histogram.baseline("PyTorch", requires="torch", vendor=True)
def pytorch(p: Any, x: Any) -> Any:
    import torch

    inside = x[(x >= 0) & (x < p.bins)]
    return torch.bincount(inside, minlength=p.bins).to(torch.int32)

"""What a kernel is worth to a program that learns to write kernels: more with every step, without a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..model.results import Verdict

COMPILES, RUNS, SAFE, RIGHT, FAST = 0.1, 0.1, 0.2, 0.4, 0.2
"""What each step is worth. They add up to 1. A wrong kernel gets less than RIGHT for its right answers."""

WORTHLESS = (Verdict.COMPILE_ERROR, Verdict.OPERATION_ERROR, Verdict.TAMPERING, Verdict.UNSUPPORTED, Verdict.WEAK_CHECK)
UNLAUNCHED = (Verdict.LAUNCH_ERROR, Verdict.CRASH, Verdict.TIMEOUT, Verdict.OUT_OF_MEMORY)
ANSWERED = (Verdict.MISMATCH, Verdict.NOT_DETERMINISTIC, Verdict.STALE)
"""Verdicts about an answer: nothing else was found wrong."""


@dataclass(frozen=True)
class Reward:
    """The parts of a reward, each at most what its step is worth."""

    compiles: float = 0.0
    runs: float = 0.0
    safe: float = 0.0
    right: float = 0.0
    fast: float = 0.0

    @property
    def total(self) -> float:
        """The reward, from 0 to 1."""
        return round(float(sum(asdict(self).values())), 6)


def dense(verdict: Mapping[str, Any], examples: int) -> Reward:
    """The reward of one of the `verdicts` of a document, of a verification on so many `examples`.

    A source that compiles, a launch that ends, no hazard, right answers on random problems, speed. A wrong kernel is
    paid half of RIGHT for the share of problems that it solved before its first wrong answer. A right one is paid for
    the share of problems that it does not refuse, and half of RIGHT where it is `untested`. `fast` is the vendor's time
    divided by the kernel's, at most 1, where a GPU has timed both; without a GPU it is 0 for all."""
    code = Verdict(verdict["code"])
    if code in WORTHLESS:
        return Reward()
    if code is Verdict.UNTESTED:  # what was tried is right
        return Reward(COMPILES, RUNS, SAFE, RIGHT / 2)
    if code in UNLAUNCHED:
        return Reward(COMPILES)
    share = min(1.0, verdict["problems"] / max(examples, 1))
    if code in ANSWERED:
        return Reward(COMPILES, RUNS, SAFE, RIGHT / 2 * share)
    if code is not Verdict.PASS:  # a hazard
        return Reward(COMPILES, RUNS)
    taken, ratio = 1.0 - verdict["refused"], verdict["speed_ratio"] or 0.0
    return Reward(COMPILES, RUNS, SAFE, RIGHT * taken, FAST * min(1.0, ratio) * taken)

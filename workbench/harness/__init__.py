"""Verifies a stage on a device: random problems, two tiers, the smallest failure. Timing comes after, never before."""

from ..judge.case import BadBound, Case
from .agreement import agree
from .ahead import Ahead
from .drawing import drawn
from .failures import tampering
from .launching import solve
from .repeats import REPEAT_EVERY
from .solving import Judgement, run_case, run_problem
from .verification import verify

__all__ = [
    "REPEAT_EVERY",
    "Ahead",
    "BadBound",
    "Case",
    "Judgement",
    "agree",
    "drawn",
    "run_case",
    "run_problem",
    "solve",
    "tampering",
    "verify",
]

"""Answers that nobody wrote, or that are kept from another launch."""

from __future__ import annotations

import dataclasses

import numpy as np

from .evidence import Evidence
from .places import place


def never_written(e: Evidence) -> str | None:
    """Nothing but what was in memory before."""
    held = "NaN" if np.isnan(e.got[e.bad]).any() else "what was there before"
    if e.unwritten.all():
        return f"never written: every element still holds {held}"
    if e.unwritten[e.bad].all():
        return f"partly not written: {held} is left {place(e.bad) or 'in the wrong elements'}"
    return None


def all_zeros(e: Evidence) -> str | None:
    """Zeros everywhere."""
    return "all zeros: nothing that is computed reaches the output" if not e.got.any() else None


UNSTABLE = "it differs from run to run: a race, or memory that was never written"


def right_this_time(e: Evidence) -> str | None:
    """Wrong before, and now right."""
    return None if e.bad.any() else UNSTABLE


def unstable(e: Evidence) -> str | None:
    """Another answer to the same inputs."""
    return None if np.array_equal(e.output(e.case), e.got, equal_nan=True) else UNSTABLE


def stale(e: Evidence) -> str | None:
    """The same answer to other inputs."""
    other = type(e.case).of(dataclasses.replace(e.case.problem, seed=e.case.problem.seed + 1))
    if np.array_equal(other.expected[e.name].reshape(e.got.shape), e.expected):
        return None
    if np.array_equal(e.output(other), e.got, equal_nan=True):
        return "it does not depend on the inputs: others of the same shape give the same output"
    return None

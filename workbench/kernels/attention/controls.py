"""Answers of broken attention kernels, which have to be rejected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from ... import reference
from ...model.arrays import Arrays
from ..shared import noticeable

Values = np.ndarray[Any, Any]
Solver = Callable[[Values, Values, Values, Values, float], tuple[Values, Values]]


class Heads(Protocol):
    """What is asked of a problem, whichever way its sequences lie."""

    @property
    def causal(self) -> bool: ...
    @property
    def group(self) -> int: ...
    @property
    def keys(self) -> int: ...
    @property
    def key_heads(self) -> int: ...
    @property
    def factor(self) -> float: ...


class Solved(Heads, Protocol):
    """A problem that can be solved in other ways."""

    def solved(self, inputs: Arrays, solver: Solver, kind: Any, scale: float | None = None) -> Arrays: ...


LOG2_E = 1.4426950408889634

KEY_TILE = 8
"""Keys to a multiple of which a broken kernel sees: those behind the last are 0, as they would be in shared memory."""


def controls(p: Solved, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
    """What broken kernels answer to a problem, by what is wrong with them."""
    finite = np.isfinite(expected["lse"])
    base_2 = np.where(finite, expected["lse"] * LOG2_E, expected["lse"])
    wrong = {
        "scale applied twice": p.solved(inputs, reference.attention, np.float64, p.factor**2),
        "scale forgotten": p.solved(inputs, reference.attention, np.float64, 1.0),
        "lse in base 2": {**expected, "lse": base_2},
        "sum not divided by": {**expected, "o": expected["o"] * _sums(p, inputs)[..., None]},
    }
    if p.keys % KEY_TILE:
        wrong["tail keys not masked"] = p.solved(inputs, _tail_seen, np.float64)
    if p.keys > 1:
        wrong["not rescaled when the maximum grows"] = p.solved(inputs, _not_rescaled, np.float64)
        wrong["maximum of the other half of the keys"] = p.solved(inputs, _other_maximum, np.float64)
        wrong["last key not seen"] = p.solved(inputs, _without_last, np.float64)
    if p.causal and p.keys > 1:
        wrong["mask off by one"] = p.solved(inputs, _off_by_one, np.float64)
        wrong["mask forgotten"] = p.solved(inputs, _unmasked, np.float64)
    if p.group > 1 and p.key_heads > 1:
        other = {**inputs, "k": np.roll(inputs["k"], 1, axis=1), "v": np.roll(inputs["v"], 1, axis=1)}
        wrong["keys of another head"] = p.solved(other, reference.attention, np.float64)
    return {name: answer for name, answer in wrong.items() if noticeable(answer, expected, {"o": 0.05, "lse": 1e-3})}


def _sums(p: Solved, inputs: Arrays) -> Values:
    """What rows are divided by: sums of exponentials relative to the maximum; 1 for rows that see nothing."""

    def solver(q: Values, k: Values, v: Values, mask: Values, scale: float) -> tuple[Values, Values]:
        logits = _logits(q, k, mask, scale)
        top = logits.max(axis=1)
        with np.errstate(invalid="ignore"):
            return np.zeros(q.shape), np.where(mask.any(axis=1), np.exp(reference.log_sum_exp(logits) - top), 1.0)

    found = p.solved(inputs, solver, np.float64)["lse"]
    return np.where(np.isfinite(found), found, 1.0)  # of a sequence without keys nothing is asked


def _logits(q: Values, k: Values, mask: Values, scale: float) -> Values:
    return np.where(mask, q.astype(np.float64) @ k.astype(np.float64).T * scale, -np.inf)


def _halves(q: Values, k: Values, v: Values, mask: Values, scale: float, swapped: bool) -> tuple[Values, Values]:
    """Each half of the keys relative to its own maximum, or that of the other half; added up as if it were the same."""
    logits, half = _logits(q, k, mask, scale), len(k) // 2
    parts = [logits[:, :half], logits[:, half:]]
    tops = [part.max(axis=1, keepdims=True, initial=-1e300) for part in parts]
    with np.errstate(over="ignore", invalid="ignore"):
        pairs = zip(parts, tops[:: -1 if swapped else 1], strict=True)
        weights = np.concatenate([np.exp(np.minimum(part - top, 700)) for part, top in pairs], axis=1)
        weights = np.where(np.isfinite(logits), weights, 0.0)
        total = weights.sum(axis=1)
        last = tops[1][:, 0]
        lse = np.where(total > 0, np.log(np.where(total > 0, total, 1)) + np.where(last > -1e299, last, 0), -np.inf)
    return weights @ v.astype(np.float64) / np.where(total > 0, total, 1)[:, None], lse


def _not_rescaled(q: Values, k: Values, v: Values, mask: Values, scale: float) -> tuple[Values, Values]:
    return _halves(q, k, v, mask, scale, swapped=False)


def _other_maximum(q: Values, k: Values, v: Values, mask: Values, scale: float) -> tuple[Values, Values]:
    return _halves(q, k, v, mask, scale, swapped=True)


def _tail_seen(q: Values, k: Values, v: Values, mask: Values, scale: float) -> tuple[Values, Values]:
    more = ((0, -len(k) % KEY_TILE), (0, 0))
    seen = np.pad(mask, ((0, 0), more[0]), constant_values=True)
    return reference.attention(q, np.pad(k, more), np.pad(v, more), seen, scale)


def _without_last(q: Values, k: Values, v: Values, mask: Values, scale: float) -> tuple[Values, Values]:
    return reference.attention(q, k, v, mask & (np.arange(len(k)) < len(k) - 1), scale)


def _off_by_one(q: Values, k: Values, v: Values, mask: Values, scale: float) -> tuple[Values, Values]:
    return reference.attention(q, k, v, np.roll(mask, 1, axis=1) | (np.arange(len(k)) == 0), scale)


def _unmasked(q: Values, k: Values, v: Values, mask: Values, scale: float) -> tuple[Values, Values]:
    return reference.attention(q, k, v, np.ones_like(mask), scale)

"""Answers of broken kernels, which have to be rejected."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ... import reference
from ...model.arrays import Arrays
from ..attention.controls import KEY_TILE, LOG2_E

Values = np.ndarray[Any, Any]

NOTICEABLE = 0.1
"""By what part of the size of its terms an answer has to differ: that of rounding is below 2^-7."""


class Solved(Protocol):
    """What is asked of a problem."""

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
    def gradients(self, inputs: Arrays, solver: Any, kind: Any, scale: float | None = None) -> Arrays: ...


def controls(p: Solved, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
    """What broken kernels answer to a problem, by what is wrong with them."""

    def solved(solver: Any = reference.attention_backward, **changed: Values) -> Arrays:
        with np.errstate(over="ignore", invalid="ignore"):
            return p.gradients({**inputs, **changed}, solver, np.float64)

    wrong = {
        "scale missing on dq": {**expected, "dq": expected["dq"] / p.factor},
        "scale missing on dk": {**expected, "dk": expected["dk"] / p.factor},
        "rowsum of do o forgotten": solved(o=np.zeros_like(inputs["o"])),
        "lse in base 2": solved(lse=inputs["lse"] * np.float32(LOG2_E)),
    }
    if p.keys > 1:
        wrong["last key not seen"] = solved(_without_last)
    if p.keys % KEY_TILE:
        wrong["tail keys not masked"] = {**expected, "dq": solved(_tail_seen)["dq"]}
    if p.causal and p.keys > 1:
        wrong["mask off by one"] = solved(_off_by_one)
        wrong["mask forgotten"] = solved(_unmasked)
    if p.group > 1:
        wrong["dk and dv of one head of the group"] = _one_of_group(p, inputs, expected)
    if p.group > 1 and p.key_heads > 1:
        other = {name: np.roll(inputs[name], 1, axis=1) for name in ("k", "v")}
        wrong["keys of another head"] = solved(**other)
    squares = solved(_squares)
    return {name: answer for name, answer in wrong.items() if _noticeable(answer, expected, squares)}


def _noticeable(answer: Arrays, expected: Arrays, squares: Arrays) -> bool:
    """Whether an answer differs by more than rounding may, of the size of a row's terms, or of a typical row's where
    that is larger. Where gradients cancel, they are much less than their terms, and what is wrong with them may be less
    than what is rounded."""
    for name, right in expected.items():
        rows = np.sqrt(squares[name].max(axis=-1, keepdims=True))
        size = np.maximum(rows, np.median(rows[rows > 0])) if rows.any() else np.ones_like(rows)
        if not np.isfinite(answer[name]).all() or (np.abs(answer[name] - right) > NOTICEABLE * size).any():
            return True
    return False


def _squares(
    q: Values, k: Values, v: Values, o: Values, lse: Values, do: Values, mask: Values, scale: float
) -> tuple[Values, Values, Values]:
    """Sums of the squares of all terms, which have signs by chance."""
    q, k, v, o, do = (x.astype(np.float64) for x in (q, k, v, o, do))
    sees = np.isfinite(lse)[:, None]
    p = np.exp(2 * np.where(mask & sees, q @ k.T * scale - np.where(sees, lse[:, None], 0.0), -np.inf))
    ds = p * (do**2 @ (v**2).T + (do**2 * o**2).sum(axis=1, keepdims=True))
    return scale**2 * (ds @ k**2), scale**2 * (ds.T @ q**2), p.T @ do**2


def _one_of_group(p: Solved, inputs: Arrays, expected: Arrays) -> Arrays:
    """dk and dv of the last head of each group alone."""
    others = np.arange(p.key_heads * p.group) % p.group < p.group - 1
    lse = np.where(others[:, None], np.float32(-np.inf), inputs["lse"])
    alone = p.gradients({**inputs, "lse": lse}, reference.attention_backward, np.float64)
    return {"dq": expected["dq"], "dk": alone["dk"], "dv": alone["dv"]}


def _without_last(
    q: Values, k: Values, v: Values, o: Values, lse: Values, do: Values, mask: Values, scale: float
) -> Any:
    return reference.attention_backward(q, k, v, o, lse, do, mask & (np.arange(len(k)) < len(k) - 1), scale)


def _tail_seen(q: Values, k: Values, v: Values, o: Values, lse: Values, do: Values, mask: Values, scale: float) -> Any:
    """Keys behind the last repeat the first, as if their memory had not been cleared."""
    more = -len(k) % KEY_TILE
    k, v = (np.concatenate([x, np.repeat(x[:1], more, axis=0)]) for x in (k, v))
    seen = np.pad(mask, ((0, 0), (0, more)), constant_values=True)
    dq, dk, dv = reference.attention_backward(q, k, v, o, lse, do, seen, scale)
    return dq, dk[: len(k) - more], dv[: len(k) - more]


def _off_by_one(q: Values, k: Values, v: Values, o: Values, lse: Values, do: Values, mask: Values, scale: float) -> Any:
    shifted = np.roll(mask, 1, axis=1) | (np.arange(len(k)) == 0)
    return reference.attention_backward(q, k, v, o, lse, do, shifted, scale)


def _unmasked(q: Values, k: Values, v: Values, o: Values, lse: Values, do: Values, mask: Values, scale: float) -> Any:
    return reference.attention_backward(q, k, v, o, lse, do, np.ones_like(mask), scale)

"""Answers of kernels that get lengths wrong, which have to be rejected; and those of broken kernels of attention."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ... import reference
from ...model.arrays import Arrays
from ..attention import controls as forward
from ..attention.controls import KEY_TILE, Solver, Values
from ..shared import noticeable

Part = tuple[slice, slice, bool]
"""Rows, keys and mask of a sequence: where they lie in the packed arrays, and whether the mask is causal."""


class Solved(Protocol):
    """What is asked of a problem."""

    @property
    def causal(self) -> bool: ...
    @property
    def group(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def keys(self) -> int: ...
    @property
    def key_heads(self) -> int: ...
    @property
    def factor(self) -> float: ...
    def parts(self, inputs: Arrays) -> list[Part]: ...
    def alone(self, rows: int, keys: int, causal: bool) -> Any: ...
    def answered(
        self, inputs: Arrays, solver: Solver, scale: float | None = None, parts: Iterable[Part] | None = None
    ) -> Arrays: ...


def _by_head(answer: Arrays) -> Arrays:
    """With o as (heads, rows, dim), like lse; and back."""
    return {**answer, "o": answer["o"].swapaxes(0, 1)}


@dataclass(frozen=True)
class _ByHead:
    """The problem as the controls of attention ask it: o is (heads, rows, dim), and the keys those of one sequence."""

    p: Solved
    keys: int

    @property
    def causal(self) -> bool:
        return self.p.causal

    @property
    def group(self) -> int:
        return self.p.group

    @property
    def key_heads(self) -> int:
        return self.p.key_heads

    @property
    def factor(self) -> float:
        return self.p.factor

    def solved(self, inputs: Arrays, solver: Solver, kind: Any, scale: float | None = None) -> Arrays:
        return _by_head(self.p.answered(inputs, solver, scale))


def controls(p: Solved, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
    """What broken kernels answer to a problem, by what is wrong with them."""
    parts = p.parts(inputs)
    lengths = [keys.stop - keys.start for _, keys, _ in parts]
    telling = next((n for n in lengths if n > 1 and n % KEY_TILE), max(lengths))
    of_attention = forward.controls(_ByHead(p, telling), inputs, _by_head(expected))
    wrong = {
        "keys of the next sequence seen": _next_seen(p, inputs, expected, parts),
        "offsets of q used for k": p.answered(
            inputs, reference.attention, parts=[(q, _within(q, p.keys), c) for q, _, c in parts]
        ),
        "offsets of k used for q": p.answered(
            inputs, reference.attention, parts=[(_within(k, p.rows), k, c) for _, k, c in parts]
        ),
        "one sequence of all": p.answered(
            inputs, reference.attention, parts=[(slice(0, p.rows), slice(0, p.keys), p.causal)]
        ),
        "lse in the order of o": {**expected, "lse": expected["lse"].T.reshape(expected["lse"].shape)},
        "last row of a sequence not stored": _without_last_rows(expected, parts),
    }
    if p.causal:
        wrong["mask counted from the top left"] = p.answered(inputs, reference.attention, parts=_top_left(parts))
    told = {n: answer for n, answer in wrong.items() if noticeable(answer, expected, {"o": 0.05, "lse": 1e-3})}
    return {n: _by_head(answer) for n, answer in of_attention.items()} | told


def _within(at: slice, total: int) -> slice:
    return slice(min(at.start, total), min(at.stop, total))


def _next_seen(p: Solved, inputs: Arrays, expected: Arrays, parts: list[Part]) -> Arrays:
    """The last tile of a sequence is read to its end, and what lies there is not masked."""

    def solver(q: Values, k: Values, v: Values, mask: Values, scale: float) -> tuple[Values, Values]:
        beyond = ((0, 0), (0, len(k) - mask.shape[1]))
        return reference.attention(q, k, v, np.pad(mask, beyond, constant_values=True), scale)

    found = {name: values.copy() for name, values in expected.items()}
    for rows, keys, causal in parts:
        n, m = rows.stop - rows.start, keys.stop - keys.start
        if min(n, m) > 0:
            more = slice(keys.start, min(p.keys, keys.stop + -m % KEY_TILE))
            given = {name: inputs[name][rows if name == "q" else more].swapaxes(0, 1)[None] for name in "qkv"}
            answer = p.alone(n, m, causal).solved(given, solver, np.float64)
            found["o"][rows], found["lse"][:, rows] = answer["o"][0].swapaxes(0, 1), answer["lse"][0]
    return found


def _without_last_rows(expected: Arrays, parts: list[Part]) -> Arrays:
    o = expected["o"].copy()
    for rows, _, _ in parts:
        if rows.stop > rows.start:
            o[rows.stop - 1] = 0
    return {**expected, "o": o}


def _top_left(parts: list[Part]) -> list[Part]:
    """Row i sees the keys up to i: as many rows as keys, and rows behind them that see all."""
    found = []
    for rows, keys, _ in parts:
        both = min(rows.stop - rows.start, keys.stop - keys.start)
        found += [
            (slice(rows.start, rows.start + both), slice(keys.start, keys.start + both), True),
            (slice(rows.start + both, rows.stop), keys, False),
        ]
    return found

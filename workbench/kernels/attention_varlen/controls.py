"""Wrong answers and invariants of attention_varlen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ... import reference
from ...model.arrays import Arrays
from ...model.dtypes import dtype_of
from ...model.problem import Invariant
from ..attention import controls as forward
from ..attention.controls import KEY_TILE, Heads, Solver, Values
from ..shared import noticeable

Part = tuple[slice, slice, bool]
"""Rows, keys and mask of a sequence: where they lie in the packed arrays, and whether the mask is causal."""


class Solved(Heads, Protocol):
    """A problem whose sequences can be solved in other ways."""

    @property
    def rows(self) -> int: ...
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


# ----------------------------------------------------------------------------------------------------------- invariants


class Packed(Protocol):
    """What is asked of a problem."""

    @property
    def causal(self) -> bool: ...
    @property
    def batch(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def dtype(self) -> str: ...
    @property
    def keys(self) -> int: ...
    def offsets(self) -> tuple[Values, Values]: ...
    def parts(self, inputs: Arrays) -> list[Part]: ...


def invariants(p: Packed) -> tuple[Invariant, ...]:
    """Those of attention, and where there are several sequences one of three that are about them, as each takes another
    launch: which one depends on the seed."""
    of_sequences = (_neighbours, _order_of_sequences, _others)
    found = (_sums(p), _causality(p) if p.causal else _order(p))
    return found if p.batch == 1 else (*found, of_sequences[p.seed % len(of_sequences)](p))


def _parts(p: Packed) -> list[Part]:
    offsets_q, offsets_k = p.offsets()
    return p.parts({"offsets_q": offsets_q, "offsets_k": offsets_k})


def _same(first: Arrays, other: Arrays, rows: Any) -> bool:
    """Whether answers are the same of these rows."""
    return np.array_equal(first["o"][rows], other["o"][rows]) and np.array_equal(
        first["lse"][:, rows], other["lse"][:, rows]
    )


def _near(first: Arrays, other: Arrays, bound: Arrays, rows: Any = slice(None)) -> bool:
    """Whether answers are within rounding of each other."""
    finite = np.isfinite(first["lse"][:, rows])
    if not np.array_equal(finite, np.isfinite(other["lse"][:, rows])):
        return False
    away = np.subtract(first["lse"][:, rows], other["lse"][:, rows], where=finite, out=np.zeros(finite.shape))
    near = np.abs(first["o"] - other["o"])[rows] <= 2 * bound["o"][rows]
    return bool((np.abs(away) <= 2 * bound["lse"][:, rows]).all() and near.all())


def _sums(p: Packed) -> Invariant:
    dtype = dtype_of(p.dtype)

    def ones(inputs: Arrays) -> Arrays:
        return {**inputs, "v": np.ones_like(inputs["v"])}

    def holds(first: Arrays, of_ones: Arrays, bound: Arrays) -> bool:
        # weights are rounded, the result once more; of fp16 the small ones lose bits
        allowed = 3 * dtype.unit_roundoff + p.keys * dtype.smallest
        sees = np.isfinite(first["lse"]).T[..., None]
        return bool((np.abs(of_ones["o"] - sees) <= allowed).all())

    return Invariant("weights sum to 1", holds, ones)


def _causality(p: Packed) -> Invariant:
    """Of every sequence the last row alone sees the last key."""
    parts = _parts(p)
    last_keys = [keys.stop - 1 for _, keys, _ in parts if keys.stop > keys.start]
    last_rows = [rows.stop - 1 for rows, _, _ in parts if rows.stop > rows.start]

    def later_changed(inputs: Arrays) -> Arrays:
        k, v = inputs["k"].copy(), inputs["v"].copy()
        k[last_keys], v[last_keys] = 3, 7
        return {**inputs, "k": k, "v": v}

    def holds(first: Arrays, other: Arrays, bound: Arrays) -> bool:
        return _same(first, other, np.setdiff1d(np.arange(len(first["o"])), last_rows))

    return Invariant("a changed later key changes nothing", holds, later_changed)


def _order(p: Packed) -> Invariant:
    parts = _parts(p)

    def reversed_keys(inputs: Arrays) -> Arrays:
        order = np.concatenate([np.arange(keys.start, keys.stop)[::-1] for _, keys, _ in parts])
        return {**inputs, "k": inputs["k"][order], "v": inputs["v"][order]}

    return Invariant("any order of keys", _near, reversed_keys)


def _neighbours(p: Packed) -> Invariant:
    """Every other sequence becomes NaN: nothing of it may reach those between."""
    parts = _parts(p)

    def changed(inputs: Arrays) -> Arrays:
        found = {name: inputs[name].copy() for name in ("q", "k", "v")}
        for rows, keys, _ in parts[1::2]:
            found["q"][rows], found["k"][keys], found["v"][keys] = np.nan, np.nan, np.nan
        return {**inputs, **found}

    def holds(first: Arrays, other: Arrays, bound: Arrays) -> bool:
        return all(_same(first, other, rows) for rows, _, _ in parts[::2])

    return Invariant("a changed neighbour changes nothing", holds, changed)


def _offsets(lengths: list[int]) -> Values:
    return np.cumsum([0, *lengths], dtype=np.int32)


def _order_of_sequences(p: Packed) -> Invariant:
    parts = _parts(p)
    rows = np.concatenate([np.arange(rows.start, rows.stop) for rows, _, _ in parts[::-1]])
    keys = np.concatenate([np.arange(keys.start, keys.stop) for _, keys, _ in parts[::-1]])

    def backwards(inputs: Arrays) -> Arrays:
        lengths = {n: np.diff(inputs[n])[::-1].tolist() for n in ("offsets_q", "offsets_k")}
        moved = {"q": inputs["q"][rows], "k": inputs["k"][keys], "v": inputs["v"][keys]}
        return {**inputs, **moved, **{n: _offsets(of) for n, of in lengths.items()}}

    def holds(first: Arrays, other: Arrays, bound: Arrays) -> bool:
        back = np.argsort(rows)
        return _near(first, {"o": other["o"][back], "lse": other["lse"][:, back]}, bound)

    return Invariant("any order of sequences", holds, backwards)


def _others(p: Packed) -> Invariant:
    """Those before and behind a sequence are put together: it is the same at another place of the batch."""
    parts = _parts(p)
    chosen = p.seed // 3 % p.batch
    rows, keys, _ = parts[chosen]

    def together(inputs: Arrays) -> Arrays:
        found = {}
        for name, at in (("offsets_q", rows), ("offsets_k", keys)):
            offsets = np.zeros_like(inputs[name])
            place = min(1, chosen)
            offsets[place], offsets[place + 1 :] = at.start, at.stop
            offsets[-1] = inputs[name][-1] if chosen < p.batch - 1 else at.stop
            found[name] = offsets
        return {**inputs, **found}

    def holds(first: Arrays, other: Arrays, bound: Arrays) -> bool:
        return _near(first, other, bound, rows)

    return Invariant("a sequence is the same among others", holds, together)

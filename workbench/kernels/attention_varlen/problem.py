"""Problems of attention with variable lengths: sequences packed one behind the other, and how long each of them is."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

import numpy as np

from ... import reference
from ...model.arrays import Array, Arrays, element_bytes
from ...model.distributions import drawn, drawn_gap, drawn_pad, st
from ...model.dtypes import FP32, INT32, dtype_of
from ...model.problem import Cost, Invariant, Size, Tier, draw_values, extents
from ..attention import problem as forward
from ..attention.problem import (
    DIMS,
    KEY_TILE,
    KEY_TILES,
    AttentionProblem,
    GroupedHeads,
    Kind,
    Layout,
    Solver,
    Values,
    of_kind,
)
from ..shared import group_sizes, noticeable


class Lengths(StrEnum):
    """How rows and keys are divided among sequences.

    EVEN: equally. UNIFORM: by a uniform distribution from 1/64 of the longest to the longest. LOGNORMAL: by a lognormal
    distribution (sigma 1). ONE_LONG: one sequence has half of all. EMPTY: as UNIFORM, but a third of the sequences has
    no rows, and a third has no keys. DECODE: seven in eight sequences have one row each, and the rest share all other
    rows. Each sequence has keys for its rows, and also keys for rows that came before; these are divided as in UNIFORM.
    """

    EVEN = "even"
    UNIFORM = "uniform"
    LOGNORMAL = "lognormal"
    ONE_LONG = "one_long"
    EMPTY = "empty"
    DECODE = "decode"


@dataclass(frozen=True)
class AttentionVarlenProblem(GroupedHeads):
    """q, o: (rows, heads, dim); k, v: (keys, heads / group, dim); offsets_q, offsets_k: (batch + 1,) int32; lse:
    (heads, rows) fp32.

    Sequence i has the rows offsets_q[i] to offsets_q[i + 1] of q and the keys offsets_k[i] to offsets_k[i + 1]; each is
    a problem of attention by itself: o = softmax(scale q k^T) v. `group` heads of q share one of k and v. `scale` 0
    stands for 1 / sqrt(dim). With `causal`, row i of a sequence sees its keys up to i + keys - rows. A row that sees no
    key has o = 0 and lse = -inf. Offsets begin with 0, never decrease and end with `rows` and `keys`, the lengths of
    all sequences together. `lengths` and `seed` determine the offsets. Where there are as many rows as keys, both have
    the same offsets, except with EMPTY. A launch may depend only on `rows` and `keys`, not on single lengths. Heads of
    q (k and v) are `pad_q` (`pad_kv`) elements apart, and `gap_q` (`gap_kv`) more follow the heads of a place; o has
    none. An input that is not finite only affects the results of its own sequence."""

    batch: int = 1
    heads: int = 1
    rows: int = 1
    keys: int = 1
    dim: int = 1
    group: int = 1
    causal: bool = False
    scale: float = 0.0
    lengths: Lengths = Lengths.EVEN
    dtype: str = "bf16"
    values: Kind = Kind.NORMAL
    pad_q: int = 0
    gap_q: int = 0
    pad_kv: int = 0
    gap_kv: int = 0
    tier: Tier = Tier.COMPARATIVE

    drawn_by: ClassVar[tuple[str, ...]] = ("values", "lengths")

    @property
    def label(self) -> str:
        shared = f"/{self.group}" if self.group > 1 else ""
        keys = "" if self.keys == self.rows else f"x{self.keys}"
        size = f"b{self.batch} {self.lengths} h{self.heads}{shared} s{self.rows}{keys} d{self.dim}"
        return f"{size} {self.dtype} {'causal' if self.causal else 'full'}"

    def _array(self, length: int, heads: int, pad: int = 0, gap: int = 0, output: bool = False) -> Array:
        head = self.dim + pad
        strides = (heads * head + gap, head, 1)
        return Array((length, heads, self.dim), dtype_of(self.dtype), strides=strides, output=output)

    def arrays(self) -> dict[str, Array]:
        kv = self._array(self.keys, self.key_heads, self.pad_kv, self.gap_kv)
        offsets = Array((self.batch + 1,), INT32)
        return {
            "q": self._array(self.rows, self.heads, self.pad_q, self.gap_q),
            "k": kv,
            "v": kv,
            "offsets_q": offsets,
            "offsets_k": offsets,
            "o": self._array(self.rows, self.heads, output=True),
            "lse": Array((self.heads, self.rows), FP32, output=True),
        }

    def offsets(self) -> tuple[Values, Values]:
        """offsets_q and offsets_k, (batch + 1,) int32."""
        rng = np.random.default_rng([self.seed, 36])
        shares = _shares(self.lengths, self.batch, rng)
        offsets_q = _divided(shares, self.rows)
        if self.lengths is Lengths.DECODE and self.rows >= self.batch:
            some = np.where(rng.permutation(self.batch) % 8 == 0, shares, 0.0)
            offsets_q = np.arange(self.batch + 1) + _divided(some, self.rows - self.batch)
        others = _shares(self.lengths, self.batch, rng)
        if self.lengths is Lengths.DECODE and self.keys >= self.rows:
            offsets_k = offsets_q + _divided(others, self.keys - self.rows)
        elif self.keys == self.rows and self.lengths is not Lengths.EMPTY:
            offsets_k = offsets_q
        else:
            offsets_k = _divided(others, self.keys)
        return offsets_q.astype(np.int32), offsets_k.astype(np.int32)

    def lengths_of(self) -> tuple[list[int], list[int]]:
        """Rows and keys of every sequence."""
        rows, keys = (np.diff(offsets).tolist() for offsets in self.offsets())
        return rows, keys

    def inputs(self) -> Arrays:
        rng, dtype, arrays = self.rng(), dtype_of(self.dtype), self.arrays()
        drawn = {n: draw_values(rng, self.tier, arrays[n].shape, dtype) for n in ("q", "k", "v")}
        drawn["offsets_q"], drawn["offsets_k"] = self.offsets()
        for rows, keys, _ in self.parts(drawn):
            q, k = (drawn[n][at].swapaxes(0, 1) for n, at in (("q", rows), ("k", keys)))
            q[...], k[...] = of_kind(self.values, q, k, dtype, self.factor)
        return drawn

    def parts(self, inputs: Arrays) -> list[Part]:
        """The sequences of a batch."""
        ends = (itertools.pairwise(inputs[n].tolist()) for n in ("offsets_q", "offsets_k"))
        return [(slice(*rows), slice(*keys), self.causal) for rows, keys in zip(*ends, strict=True)]

    def alone(self, rows: int, keys: int, causal: bool) -> AttentionProblem:
        """A sequence as a problem of attention."""
        given = {n: getattr(self, n) for n in ("heads", "group", "dim", "scale", "dtype", "values")}
        return AttentionProblem(rows=rows, keys=keys, causal=causal, layout=Layout.BSHD, **given)

    def solved(
        self,
        inputs: Arrays,
        solve: Callable[[AttentionProblem, Arrays], Arrays],
        kind: Any,
        parts: Iterable[Part] | None = None,
    ) -> Arrays:
        """o and lse of type `kind`: of every sequence what `solve` gives, which is given it as a problem of attention
        with q, k and v; 0 and -inf without keys. `parts` are others than the sequences."""
        o = np.zeros((self.rows, self.heads, self.dim), kind)
        lse = np.full((self.heads, self.rows), -np.inf, kind)
        for rows, keys, causal in self.parts(inputs) if parts is None else parts:
            n, m = rows.stop - rows.start, keys.stop - keys.start
            if min(n, m) > 0:
                given = {name: inputs[name][rows if name == "q" else keys].swapaxes(0, 1)[None] for name in "qkv"}
                found = solve(self.alone(n, m, causal), given)
                o[rows], lse[:, rows] = found["o"][0].swapaxes(0, 1), found["lse"][0]
        return {"o": o, "lse": lse}

    def answered(
        self, inputs: Arrays, solver: Solver, scale: float | None = None, parts: Iterable[Part] | None = None
    ) -> Arrays:
        """o and lse in float64 by a solver of some rows of a head, as `AttentionProblem.solved` is given one."""
        return self.solved(inputs, lambda p, given: p.solved(given, solver, np.float64, scale), np.float64, parts)

    def reference(self, inputs: Arrays) -> Arrays:
        return self.answered(inputs, reference.attention)

    def model(self, inputs: Arrays, *, backwards: bool = False) -> Arrays:
        return self.solved(inputs, lambda p, given: p.model(given, backwards=backwards), np.float32)

    def magnitudes(self, inputs: Arrays, expected: Arrays) -> Arrays:
        def alone(p: AttentionProblem, given: Arrays) -> Arrays:
            return {**p.magnitudes(given, {}), "lse": np.zeros((1, p.heads, p.rows), np.float32)}

        return {"o": self.solved(inputs, alone, np.float32)["o"]}

    def invariants(self) -> tuple[Invariant, ...]:
        return invariants(self)

    def negative_controls(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        return super().negative_controls(inputs, expected) | controls(self, inputs, expected)

    @property
    def seen(self) -> int:
        """Pairs of a row and a key that it sees, of one head."""
        rows, keys = self.lengths_of()
        both = zip(rows, keys, strict=True)
        return sum(self.alone(n, m, self.causal).seen for n, m in both if min(n, m) > 0)

    @property
    def cost(self) -> Cost:
        return Cost(4 * self.heads * self.seen * self.dim, element_bytes(self.arrays().values()))


def _shares(lengths: Lengths, batch: int, rng: np.random.Generator) -> Values:
    """What part of all each sequence has, up to a factor."""
    if lengths is Lengths.EVEN:
        return np.ones(batch)
    if lengths is Lengths.LOGNORMAL:
        return rng.lognormal(size=batch)
    shares = rng.uniform(1 / 64, 1, batch)
    if lengths is Lengths.ONE_LONG:
        shares[rng.integers(batch)] = shares.sum()
    if lengths is Lengths.EMPTY:
        shares *= rng.permutation(batch) % 3 > 0
    return shares


def _divided(shares: Values, total: int) -> Values:
    """Offsets of sequences that have these parts of `total`."""
    ends = np.cumsum(shares)
    if ends[-1] == 0:  # all to the last
        return np.where(np.arange(len(shares) + 1) < len(shares), 0, total)
    return np.concatenate([[0], np.rint(ends * (total / ends[-1]))]).astype(np.int64)


@drawn
def problems(d: st.DrawFn, size: Size, edges: tuple[int, ...]) -> AttentionVarlenProblem:
    """Few heads of some short sequences; as many rows as keys, fewer or more."""
    edges = tuple(sorted({*edges, *KEY_TILES}))
    dim = d(st.sampled_from([n for n in DIMS if n <= size.extent]))
    left = max(1, size.work // dim)
    rows = d(extents(Size(min(size.extent, left), size.work), edges))
    keys = rows if d(st.booleans()) else d(extents(Size(size.extent, size.work), edges))
    keys = min(keys, max(1, left // rows))
    left = max(1, left // (rows * keys))
    group = d(group_sizes(left))
    heads = group * d(st.integers(1, max(1, min(3, left // group))))
    aligned = d(st.sampled_from([True, True, False]))
    pads = [drawn_pad(d, dim, 8, aligned, 1) for _ in range(2)]
    return AttentionVarlenProblem(
        batch=d(st.one_of(st.integers(1, min(8, size.extent)), st.integers(1, min(40, size.extent)))),
        heads=heads,
        rows=rows,
        keys=keys,
        dim=dim,
        group=group,
        causal=d(st.booleans()),
        scale=d(st.sampled_from([0.0, 0.0, 0.125, 0.5, 1.5])),
        lengths=d(st.sampled_from(Lengths)),
        dtype=d(st.sampled_from(AttentionVarlenProblem.choices["dtype"])),
        values=d(st.sampled_from(Kind)),
        pad_q=pads[0],
        gap_q=drawn_gap(d, 8, aligned),
        pad_kv=pads[1],
        gap_kv=drawn_gap(d, 8, aligned),
        seed=d(st.integers(0, 2**16)),
    )


_P = AttentionVarlenProblem

SUITE = (
    _P(batch=16, heads=16, rows=66560, keys=66560, dim=128, causal=True, lengths=Lengths.UNIFORM),
    _P(batch=16, heads=16, rows=66560, keys=66560, dim=128, lengths=Lengths.UNIFORM),
    _P(batch=64, heads=32, group=4, rows=65536, keys=65536, dim=128, causal=True, lengths=Lengths.LOGNORMAL),
    _P(batch=64, heads=16, rows=32768, keys=32768, dim=128, causal=True, lengths=Lengths.ONE_LONG),
    _P(batch=64, heads=32, group=4, rows=4096, keys=131072, dim=128, causal=True, lengths=Lengths.DECODE),
    _P(batch=16, heads=32, rows=66560, keys=66560, dim=64, causal=True, lengths=Lengths.UNIFORM),
    _P(batch=16, heads=8, rows=66560, keys=66560, dim=256, causal=True, lengths=Lengths.UNIFORM),
    _P(batch=256, heads=16, rows=65536, keys=65536, dim=64, lengths=Lengths.UNIFORM),
)
"""Training and prefill with lengths of 128 to 8192; many and few lengths; one long sequence; prefill beside decoding;
short texts, each of which sees all of itself."""


def tensor_maps(p: AttentionVarlenProblem) -> str | None:
    """Why an input can have no tensor map, or None where all can."""
    arrays = p.arrays()
    for name in ("q", "k"):
        steps = zip(arrays[name].element_strides[:2], arrays[name].shape, strict=False)
        if any(step * 2 % 16 for step, extent in steps if extent > 1):
            return f"a tensor map needs rows and heads of {name} a multiple of 16 bytes apart"
    return None


# -------------------------------------------------------------------- wrong answers and invariants of attention_varlen


Part = tuple[slice, slice, bool]
"""Rows, keys and mask of a sequence: where they lie in the packed arrays, and whether the mask is causal."""


def _by_head(answer: Arrays) -> Arrays:
    """With o as (heads, rows, dim), like lse; and back."""
    return {**answer, "o": answer["o"].swapaxes(0, 1)}


def controls(p: AttentionVarlenProblem, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
    """What broken kernels answer to a problem, by what is wrong with them."""
    parts = p.parts(inputs)
    lengths = [keys.stop - keys.start for _, keys, _ in parts]
    telling = next((n for n in lengths if n > 1 and n % KEY_TILE), max(lengths))

    def solved(inputs: Arrays, solver: Solver, scale: float | None = None) -> Arrays:
        return _by_head(p.answered(inputs, solver, scale))

    of_attention = forward.controls(p, telling, solved, inputs, _by_head(expected))
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


def _next_seen(p: AttentionVarlenProblem, inputs: Arrays, expected: Arrays, parts: list[Part]) -> Arrays:
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


def invariants(p: AttentionVarlenProblem) -> tuple[Invariant, ...]:
    """Those of attention, and where there are several sequences one of three that are about them, as each takes another
    launch: which one depends on the seed."""
    of_sequences = (_neighbours, _order_of_sequences, _others)
    found = (_sums(p), _causality(p) if p.causal else _order(p))
    return found if p.batch == 1 else (*found, of_sequences[p.seed % len(of_sequences)](p))


def _parts(p: AttentionVarlenProblem) -> list[Part]:
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


def _sums(p: AttentionVarlenProblem) -> Invariant:
    dtype = dtype_of(p.dtype)

    def ones(inputs: Arrays) -> Arrays:
        return {**inputs, "v": np.ones_like(inputs["v"])}

    def holds(first: Arrays, of_ones: Arrays, bound: Arrays) -> bool:
        # weights are rounded, the result once more; of fp16 the small ones lose bits
        allowed = 3 * dtype.unit_roundoff + p.keys * dtype.smallest
        sees = np.isfinite(first["lse"]).T[..., None]
        return bool((np.abs(of_ones["o"] - sees) <= allowed).all())

    return Invariant("weights sum to 1", holds, ones)


def _causality(p: AttentionVarlenProblem) -> Invariant:
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


def _order(p: AttentionVarlenProblem) -> Invariant:
    parts = _parts(p)

    def reversed_keys(inputs: Arrays) -> Arrays:
        order = np.concatenate([np.arange(keys.start, keys.stop)[::-1] for _, keys, _ in parts])
        return {**inputs, "k": inputs["k"][order], "v": inputs["v"][order]}

    return Invariant("any order of keys", _near, reversed_keys)


def _neighbours(p: AttentionVarlenProblem) -> Invariant:
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


def _order_of_sequences(p: AttentionVarlenProblem) -> Invariant:
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


def _others(p: AttentionVarlenProblem) -> Invariant:
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

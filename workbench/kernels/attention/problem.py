"""Problems of attention: heads that share keys, layouts, masks, kinds of logits, and how exact the result has to be."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, ClassVar

import numpy as np

from ... import reference
from ...model.arrays import Array, Arrays, element_bytes
from ...model.distributions import NonFinite, drawn, drawn_gap, drawn_pad, st
from ...model.dtypes import BF16, FP16, FP32, DType, dtype_of
from ...model.launch import ceil_div
from ...model.parts import LEAST_ELEMENTS, Part
from ...model.problem import Cost, Invariant, Problem, Size, Tier, draw_values, extents
from ..shared import group_sizes, noticeable, tensor_core_product

Values = np.ndarray[Any, Any]
Solver = Callable[[Values, Values, Values, Values, float], tuple[Values, Values]]

LOG2_E = 1.4426950408889634

KEY_TILE = 8
"""Keys to a multiple of which a broken kernel sees: those behind the last are 0, as they would be in shared memory."""


class Layout(StrEnum):
    """The order in which arrays lie in memory: b batch, h head, s place in the sequence, d element."""

    BHSD = "bhsd"
    BSHD = "bshd"


class Kind(StrEnum):
    """What the inputs are.

    NORMAL: normally distributed numbers. LARGE: queries so large that logits have a standard deviation of 30. EQUAL:
    all keys are the same, so all logits of a row are equal. STEPS: keys are multiples of 1/16, to which 2 can be added
    without an error."""

    NORMAL = "normal"
    LARGE = "large"
    EQUAL = "equal"
    STEPS = "steps"


LARGE = 30.0
SHIFT = 2.0


def of_kind(kind: Kind, q: Values, k: Values, dtype: DType, factor: float) -> tuple[Values, Values]:
    """Queries and keys that make logits of this kind, of normal ones. q: (..., rows, dim), k: (..., keys, dim)."""
    if kind is Kind.LARGE:
        q = dtype.rounded(q.astype(np.float32) * np.float32(LARGE / (factor * q.shape[-1] ** 0.5)))
    elif kind is Kind.EQUAL:
        k = np.ascontiguousarray(np.broadcast_to(k[..., :1, :], k.shape))
    elif kind is Kind.STEPS:
        k = dtype.rounded(np.clip(np.rint(k.astype(np.float32) * 16) / 16, -5, 5))
    return q, k


EXP2_ERROR = np.float32(1 + 2**-22)
"""exp2f of CUDA is right within 2 units in the last place (CUDA C++ Programming Guide, mathematical functions)."""

LOG2_ERROR = np.float32(1 + 2**-22)
"""lg2.approx is off by 2^-22 of its result (PTX ISA), and by as much where that is near 0."""


def least_weight(dtype: DType) -> np.float32:
    """The weight whose rounding to the type errs by as much as one below it may be off: ex2.approx.ftz gives 0 for what
    is subnormal in fp32 (PTX ISA), and what is subnormal in the type has fewer bits there."""
    return np.float32(max(dtype.smallest_normal, FP32.smallest_normal / dtype.unit_roundoff))


CHUNK = 512
"""Rows that are solved at once on the host: of long sequences not all logits fit into memory."""

MOST_PARTS = 128
"""Drawn parts of a large problem, each of which needs the keys of a head."""


class GroupedHeads(Problem):
    """What problems of attention have in common, whichever way their sequences lie: `group` heads of q share one of k
    and v, and products are multiplied with `scale`, or with 1 / sqrt(dim) where that is 0."""

    heads: int
    group: int
    dim: int
    causal: bool
    scale: float

    tiers: ClassVar[tuple[Tier, ...]] = (Tier.COMPARATIVE,)
    not_exact: ClassVar[str] = "an exponential is rounded"
    non_finite: ClassVar[NonFinite | str] = NonFinite.UNDEFINED
    distributed: ClassVar[tuple[str, ...]] = ("v",)  # of q and k `values` has the kinds that logits are made of
    drawn_by: ClassVar[tuple[str, ...]] = ("values",)
    elementwise: ClassVar[tuple[str, ...]] = ("lse",)
    extents: ClassVar[tuple[str, ...]] = ("batch", "heads", "rows", "keys", "dim")
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"dim": (1, 256), "group": (1, 2**31), "scale": (0, 1e6)}
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"dtype": (BF16.name, FP16.name)}

    def check(self) -> str | None:
        if self.heads % self.group:
            return f"{self.heads} heads cannot be divided into groups of {self.group}; group has to divide heads"
        return None

    @property
    def factor(self) -> float:
        """What products of queries and keys are multiplied with."""
        return self.scale or self.dim**-0.5

    @property
    def key_heads(self) -> int:
        """Heads of k and v."""
        return self.heads // self.group


@dataclass(frozen=True)
class AttentionProblem(GroupedHeads):
    """q, o: (batch, heads, rows, dim); k, v: (batch, heads / group, keys, dim); lse: (batch, heads, rows) fp32.

    o = softmax(scale q k^T) v; `group` heads of q share one of k and v. `scale` is positive, 0 stands for
    1 / sqrt(dim). With `causal`, row i sees the keys up to i + keys - rows; a row that sees none has o = 0. lse is the
    natural logarithm of the sum of a row's exponentials, -inf for such a row. In memory q, k, v and o lie in the order
    of `layout`, with `pad_q` (`pad_kv`) elements between rows of dim and `gap_q` (`gap_kv`) more after the rows of a
    head, or of a place in bshd; o and lse have none. What is not finite in q reaches its own row, in k or v any row
    of its heads, also one that does not see the key."""

    batch: int = 1
    heads: int = 1
    rows: int = 1
    keys: int = 1
    dim: int = 1
    group: int = 1
    causal: bool = False
    scale: float = 0.0
    layout: Layout = Layout.BHSD
    dtype: str = "bf16"
    values: Kind = Kind.NORMAL
    pad_q: int = 0
    gap_q: int = 0
    pad_kv: int = 0
    gap_kv: int = 0
    tier: Tier = Tier.COMPARATIVE

    @property
    def label(self) -> str:
        shared = f"/{self.group}" if self.group > 1 else ""
        keys = "" if self.keys == self.rows else f"x{self.keys}"
        size = f"b{self.batch} h{self.heads}{shared} s{self.rows}{keys} d{self.dim}"
        return f"{size} {self.dtype} {self.layout} {'causal' if self.causal else 'full'}"

    @property
    def seen(self) -> int:
        """Pairs of a row and a key that it sees, of one head."""
        if not self.causal:
            return self.rows * self.keys
        whole = max(0, self.keys - self.rows)  # keys that every row sees
        steps = min(self.rows, self.keys)
        return self.rows * whole + steps * (steps + 1) // 2

    def _array(self, heads: int, length: int, pad: int = 0, gap: int = 0, output: bool = False) -> Array:
        row = self.dim + pad
        if self.layout is Layout.BHSD:
            head = length * row + gap
            strides = (heads * head, head, row, 1)
        else:
            place = heads * row + gap
            strides = (length * place, row, place, 1)
        return Array((self.batch, heads, length, self.dim), dtype_of(self.dtype), strides=strides, output=output)

    def arrays(self) -> dict[str, Array]:
        kv = self._array(self.key_heads, self.keys, self.pad_kv, self.gap_kv)
        return {
            "q": self._array(self.heads, self.rows, self.pad_q, self.gap_q),
            "k": kv,
            "v": kv,
            "o": self._array(self.heads, self.rows, output=True),
            "lse": Array((self.batch, self.heads, self.rows), FP32, output=True),
        }

    def inputs(self) -> Arrays:
        rng, dtype = self.rng(), dtype_of(self.dtype)
        arrays = self.arrays()
        q, k, v = (draw_values(rng, self.tier, arrays[name].shape, dtype) for name in ("q", "k", "v"))
        q, k = of_kind(self.values, q, k, dtype, self.factor)
        return {"q": q, "k": k, "v": v}

    def visible(self, first: int = 0, rows: int | None = None, like: Values | None = None) -> Values:
        """Which keys some rows see, (rows, keys) bool: all, or those up to a row's own place counted from the end. It
        lies where `like` does."""
        count = self.rows - first if rows is None else rows
        if not self.causal:
            return ~np.zeros((count, self.keys), bool, like=like)
        places = np.arange(first, first + count, like=like)[:, None] + (self.keys - self.rows)
        return np.arange(self.keys, like=like) <= places

    def solved(self, inputs: Arrays, solver: Solver, kind: Any, scale: float | None = None) -> Arrays:
        """o and lse of type `kind`, some rows of one head at a time, where there is much to do on several threads.

        `solver` is given q, k, v, the mask and the scale, as `reference.attention` is."""
        like = inputs["q"]
        o = np.empty((self.batch, self.heads, self.rows, self.dim), kind, like=like)
        lse = np.empty(o.shape[:3], kind, like=like)
        factor = self.factor if scale is None else scale

        def solve(batch: int, head: int, first: int) -> None:
            rows = slice(first, min(first + CHUNK, self.rows))
            q, k, v = inputs["q"][batch, head, rows], inputs["k"], inputs["v"]
            shared = (batch, head // self.group)
            mask = self.visible(first, len(q), like)
            o[batch, head, rows], lse[batch, head, rows] = solver(q, k[shared], v[shared], mask, factor)

        parts = [(b, h, r * CHUNK) for b, h, r in np.ndindex(self.batch, self.heads, ceil_div(self.rows, CHUNK))]
        if self.batch * self.heads * self.seen < 2**24 or not isinstance(like, np.ndarray):
            for part in parts:
                solve(*part)
        else:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                list(pool.map(lambda part: solve(*part), parts))
        return {"o": o, "lse": lse}

    def drawn_parts(self, rng: np.random.Generator, stratum: int) -> list[Part]:
        """Neighbouring rows of heads that share keys: some of each tile, and of each of those heads."""
        tiles, units = ceil_div(self.rows, 2 * stratum), self.batch * self.key_heads
        count = min(max(tiles, units), MOST_PARTS)
        least = ceil_div(LEAST_ELEMENTS, count * self.group * self.dim)
        length = min(self.rows, max(1, least))
        order, last = rng.permutation(units), self.rows - length
        found = []
        for number in range(count):
            tile = number % tiles if count < MOST_PARTS else number * tiles // count
            first = tile * 2 * stratum + int(rng.integers(2 * stratum))
            first = 0 if tile == 0 else last if tile == tiles - 1 else min(first, last)
            batch, shared = divmod(int(order[number % units]), self.key_heads)
            found.append(self._part(batch, shared, max(first, self.rows - self.keys - length + 1), length))
        return found

    def _part(self, batch: int, shared: int, first: int, length: int) -> Part:
        """So many rows of the heads that share keys, with the keys that they see."""
        keys = self.keys - self.rows + first + length if self.causal else self.keys
        alone = replace(self, batch=1, heads=self.group, rows=length, keys=keys)
        one, heads = slice(batch, batch + 1), slice(shared * self.group, (shared + 1) * self.group)
        rows = (one, heads, slice(first, first + length))
        seen = (one, slice(shared, shared + 1), slice(0, keys))
        return Part(alone, {"q": rows, "o": rows, "lse": rows, "k": seen, "v": seen})

    def reference(self, inputs: Arrays) -> Arrays:
        return self.solved(inputs, reference.attention, np.float64)

    def model(self, inputs: Arrays, *, backwards: bool = False) -> Arrays:
        dtype = dtype_of(self.dtype)

        def solver(q: Values, k: Values, v: Values, mask: Values, scale: float) -> tuple[Values, Values]:
            q, k, v = (x.astype(np.float32) for x in (q, k, v))
            logits = np.where(mask, tensor_core_product(q, k.T, 8, backwards), np.float32(-np.inf))
            top = logits.max(axis=1, keepdims=True)
            top = np.where(np.isfinite(top), top, np.float32(0))
            factor = np.float32(scale * LOG2_E)
            # in fp32, as an instruction has the base 2, which is off by as much, also of the largest logit
            weights = np.exp2(logits * factor - top * factor)
            weights *= EXP2_ERROR
            total = weights[:, :: -1 if backwards else 1].cumsum(axis=1)[:, -1]  # as a thread adds up
            # tensor cores take weights in the type of the values. divided before, as equal ones would have exact sums
            weights = dtype.rounded(weights).astype(np.float32) / np.where(total > 0, total, np.float32(1))[:, None]
            o = tensor_core_product(weights, v, max(16, len(v) // 256), backwards)
            with np.errstate(divide="ignore"):
                lse = top[:, 0] * np.float32(scale) + np.log(total) * LOG2_ERROR
            return o, lse

        return self.solved(inputs, solver, np.float32)

    def magnitudes(self, inputs: Arrays, expected: Arrays) -> Arrays:
        """That of sums over keys, whose terms cancel, and have errors that are as good as independent: the result, and
        the root of the sum of the squares of its terms. A weight is as large as a number whose rounding errs as much:
        itself, or the fp32 sums in its logit, or the least weight. Of lse the result is as good."""
        dtype = dtype_of(self.dtype)
        least = least_weight(dtype)
        of_sums = np.float32(4 * FP32.unit_roundoff / dtype.unit_roundoff)

        def solver(q: Values, k: Values, v: Values, mask: Values, scale: float) -> tuple[Values, Values]:
            q, k, v = (x.astype(np.float32) for x in (q, k, v))
            factor, most = np.float32(scale), np.abs(v).max() or np.float32(1)  # squares of v / most do not overflow
            logits = np.where(mask, q @ k.T * factor, np.float32(-np.inf))
            top = logits.max(axis=1, keepdims=True)
            weights = np.exp(logits - np.where(np.isfinite(top), top, np.float32(0)))
            total = np.maximum(weights.sum(axis=1, keepdims=True), np.float32(1))  # 0 where nothing is seen
            terms = weights * (1 + of_sums * factor * (np.abs(q) @ np.abs(k).T)) + least
            terms = np.where(mask, terms, np.float32(0)) / total
            root = np.sqrt(terms.astype(np.float64) ** 2 @ (v / most) ** 2)  # the least weight's square is 0 in fp32
            return (np.abs(weights / total @ (v / most)) + root) * most, np.zeros(len(q), np.float32, like=q)

        return {"o": self.solved(inputs, solver, np.float32)["o"]}

    def invariants(self) -> tuple[Invariant, ...]:
        dtype = dtype_of(self.dtype)
        sees_one = np.any(self.visible(), axis=1, keepdims=True)

        def ones(inputs: Arrays) -> Arrays:
            return {**inputs, "v": np.ones_like(inputs["v"])}

        def sums(first: Arrays, of_ones: Arrays, bound: Arrays) -> bool:
            # weights are rounded, the result once more; of fp16 the small ones lose bits
            allowed = 3 * dtype.unit_roundoff + self.keys * dtype.smallest
            return bool((np.abs(of_ones["o"] - sees_one) <= allowed).all())

        found = [Invariant("weights sum to 1", sums, ones)]
        found.append(self._causality() if self.causal else self._order())
        if self.values is Kind.STEPS:
            found.append(self._shift())
        return tuple(found)

    def _causality(self) -> Invariant:
        def later_changed(inputs: Arrays) -> Arrays:
            k, v = inputs["k"].copy(), inputs["v"].copy()
            k[..., -1, :], v[..., -1, :] = 3, 7
            return {**inputs, "k": k, "v": v}

        def same(first: Arrays, other: Arrays, bound: Arrays) -> bool:  # the last row alone sees the last key
            return np.array_equal(first["o"][..., :-1, :], other["o"][..., :-1, :]) and np.array_equal(
                first["lse"][..., :-1], other["lse"][..., :-1]
            )

        return Invariant("a changed later key changes nothing", same, later_changed)

    def _order(self) -> Invariant:
        def reversed_keys(inputs: Arrays) -> Arrays:
            return {**inputs, "k": inputs["k"][..., ::-1, :], "v": inputs["v"][..., ::-1, :]}

        def near(first: Arrays, other: Arrays, bound: Arrays) -> bool:
            return all(bool((np.abs(first[name] - other[name]) <= 2 * bound[name]).all()) for name in first)

        return Invariant("any order of keys", near, reversed_keys)

    def _shift(self) -> Invariant:
        """With 2 added to every element of the keys all logits of a row are shifted by the same: o stays."""
        q, v = (self.given()[name].astype(np.float64) for name in ("q", "v"))
        by = SHIFT * self.factor * q.sum(axis=-1)
        # of a logit that is made of so much larger terms
        size = self.factor * (5 + SHIFT) * np.abs(q).sum(axis=-1)
        allowed = 4 * self.dim**0.5 * FP32.unit_roundoff * size

        def shifted(inputs: Arrays) -> Arrays:
            return {**inputs, "k": (inputs["k"].astype(np.float32) + np.float32(SHIFT)).astype(inputs["k"].dtype)}

        def holds(first: Arrays, other: Arrays, bound: Arrays) -> bool:
            sees = np.isfinite(first["lse"])
            moved = np.where(sees, other["lse"], 0) - np.where(sees, first["lse"] + by, 0)
            weights = 4 * np.maximum(allowed, dtype_of(self.dtype).unit_roundoff)[..., None]
            largest = np.abs(first["o"]).max(axis=-1, keepdims=True) + max(8, np.abs(v).max())
            near = np.abs(other["o"] - first["o"]) <= 2 * bound["o"] + weights * largest
            same = np.abs(moved) <= allowed + 2 * np.where(sees, bound["lse"], 0)
            return bool(np.all(same) and np.all(near))

        return Invariant("a shift of all logits of a row", holds, shifted)

    def negative_controls(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        def solved(inputs: Arrays, solver: Solver, scale: float | None = None) -> Arrays:
            return self.solved(inputs, solver, np.float64, scale)

        return super().negative_controls(inputs, expected) | controls(self, self.keys, solved, inputs, expected)

    @property
    def cost(self) -> Cost:
        return Cost(4 * self.batch * self.heads * self.seen * self.dim, element_bytes(self.arrays().values()))


DIMS = (64, 128, 256, 64, 128, 80, 96, 192, 8, 16, 33, 1, 200)
"""The usual ones, those that are padded to them, and odd ones."""

KEY_TILES = (48, 64, 80, 112, 128, 176)
"""Keys of the tiles of some stage."""


@drawn
def problems(d: st.DrawFn, size: Size, edges: tuple[int, ...]) -> AttentionProblem:
    """Few heads of short sequences; as many rows as keys, fewer or more."""
    edges = tuple(sorted({*edges, *KEY_TILES}))
    dim = d(st.sampled_from([n for n in DIMS if n <= size.extent]))
    left = max(1, size.work // dim)
    causal = d(st.booleans())
    rows = d(extents(Size(min(size.extent, left), size.work), edges))
    keys = rows if d(st.booleans()) else d(extents(Size(size.extent, size.work), edges))
    keys = min(keys, max(1, left // rows))
    left = max(1, left // (rows * keys))
    group = d(group_sizes(left))
    heads = group * d(st.integers(1, max(1, min(3, left // group))))
    batch = d(st.integers(1, max(1, min(3, left // heads))))
    aligned = d(st.sampled_from([True, True, False]))
    pads = [drawn_pad(d, dim, 8, aligned, 1) for _ in range(2)]
    return AttentionProblem(
        batch=batch,
        heads=heads,
        rows=rows,
        keys=keys,
        dim=dim,
        group=group,
        causal=causal,
        scale=d(st.sampled_from([0.0, 0.0, 0.125, 0.5, 1.5])),
        layout=d(st.sampled_from(Layout)),
        dtype=d(st.sampled_from(AttentionProblem.choices["dtype"])),
        values=d(st.sampled_from(Kind)),
        pad_q=pads[0],
        gap_q=drawn_gap(d, 8, aligned),
        pad_kv=pads[1],
        gap_kv=drawn_gap(d, 8, aligned),
        seed=d(st.integers(0, 2**16)),
    )


SHAPES = (
    (4, 16, 4096, 128),
    (1, 16, 16384, 128),
    (4, 32, 4096, 64),
    (1, 32, 16384, 64),
    (4, 8, 4096, 256),
    (1, 8, 16384, 256),
    (16, 16, 1024, 128),
    (32, 16, 512, 128),
)
"""Batch, heads, rows, dim of what is timed."""

DECODE = tuple(
    AttentionProblem(batch=b, heads=32, group=4, rows=1, keys=s, dim=128, layout=Layout.BSHD)
    for b, s in ((8, 8192), (64, 4096), (1, 131072))
)
"""One row of queries each, and many keys."""

SUITE = (
    *(
        AttentionProblem(batch=b, heads=h, rows=s, keys=s, dim=d, causal=causal, layout=Layout.BSHD)
        for b, h, s, d in SHAPES
        for causal in (False, True)
    ),
    *DECODE,
)


def tensor_maps(p: GroupedHeads) -> str | None:
    """Why an input can have no tensor map, or None where all can."""
    for name in ("q", "k", "v"):
        strides = p.arrays()[name].element_strides
        if any(step * 2 % 16 for step, extent in zip(strides[:-1], p.arrays()[name].shape, strict=False) if extent > 1):
            return f"a tensor map needs rows, heads and batches of {name} a multiple of 16 bytes apart"
    return None


def whole_chunks(p: GroupedHeads) -> str | None:
    """Why an input can have no tensor map, or TMA not store o, or None where it can."""
    if p.dim % 8:
        return "TMA stores whole 16 bytes: dim has to be a multiple of 8"
    return tensor_maps(p)


def padded_dim(p: GroupedHeads) -> int:
    """The dim of a head in shared memory: whole panels of 64 elements."""
    return 64 * math.ceil(p.dim / 64)


# --------------------------------------------------------------------------------------- answers of broken kernels


def controls(
    p: GroupedHeads, keys: int, solved: Callable[..., Arrays], inputs: Arrays, expected: Arrays
) -> dict[str, Arrays]:
    """What broken kernels answer to a problem that has so many keys, by what is wrong with them: what it is `solved` to
    by a solver, with a scale of its own perhaps."""
    finite = np.isfinite(expected["lse"])
    base_2 = np.where(finite, expected["lse"] * LOG2_E, expected["lse"])
    wrong = {
        "scale applied twice": solved(inputs, reference.attention, p.factor**2),
        "scale forgotten": solved(inputs, reference.attention, 1.0),
        "lse in base 2": {**expected, "lse": base_2},
        "sum not divided by": {**expected, "o": expected["o"] * _sums(solved, inputs)[..., None]},
    }
    if keys % KEY_TILE:
        wrong["tail keys not masked"] = solved(inputs, _tail_seen)
    if keys > 1:
        wrong["not rescaled when the maximum grows"] = solved(inputs, _not_rescaled)
        wrong["maximum of the other half of the keys"] = solved(inputs, _other_maximum)
        wrong["last key not seen"] = solved(inputs, _without_last)
    if p.causal and keys > 1:
        wrong["mask off by one"] = solved(inputs, _off_by_one)
        wrong["mask forgotten"] = solved(inputs, _unmasked)
    if p.group > 1 and p.key_heads > 1:
        other = {**inputs, "k": np.roll(inputs["k"], 1, axis=1), "v": np.roll(inputs["v"], 1, axis=1)}
        wrong["keys of another head"] = solved(other, reference.attention)
    return {name: answer for name, answer in wrong.items() if noticeable(answer, expected, {"o": 0.05, "lse": 1e-3})}


def _sums(solved: Callable[..., Arrays], inputs: Arrays) -> Values:
    """What rows are divided by: sums of exponentials relative to the maximum; 1 for rows that see nothing."""

    def solver(q: Values, k: Values, v: Values, mask: Values, scale: float) -> tuple[Values, Values]:
        logits = _logits(q, k, mask, scale)
        top = logits.max(axis=1)
        with np.errstate(invalid="ignore"):
            return np.zeros(q.shape), np.where(mask.any(axis=1), np.exp(reference.log_sum_exp(logits) - top), 1.0)

    found = solved(inputs, solver)["lse"]
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

"""Problems of attention's gradients: those of attention, with its results and the gradient of o as inputs."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from threadpoolctl import threadpool_limits

from ... import reference
from ...model.arrays import Array, Arrays, element_bytes
from ...model.distributions import Distribution, st
from ...model.dtypes import BF16, FP16, FP32, dtype_of
from ...model.parts import Axis, Part, parts_of_axes
from ...model.problem import Cost, Invariant, Size, draw_values
from ..attention import problem as forward
from ..attention.problem import CHUNK, KEY_TILE, LOG2_E, SHIFT, AttentionProblem, Kind, Layout, least_weight
from ..shared import tensor_core_product

Values = np.ndarray[Any, Any]
Solver = Callable[[Values, Values, Values, Values, Values, Values, Values, float], tuple[Values, Values, Values]]

INPUTS = ("q", "k", "v", "o", "lse", "do")


@dataclass(frozen=True)
class AttentionBackwardProblem(AttentionProblem):
    """q, o, do, dq: (batch, heads, rows, dim); k, v, dk, dv: (batch, heads / group, keys, dim); lse: (batch, heads,
    rows) fp32.

    dq, dk, dv are the gradients of attention for q, k and v, where do is that of its result o. dk and dv are sums over
    the heads that share them. A row with lse = -inf sees no key: its dq is 0. In memory q, k and v lie as in attention;
    o, do and the gradients lie in the order of `layout` without gaps. What is not finite in an input reaches any
    gradient of its heads."""

    elementwise: ClassVar[tuple[str, ...]] = ()

    def check(self) -> str | None:
        if self.values is Kind.EQUAL:
            return "values is equal; with equal keys dq is 0 but for rounding: take a small scale for equal logits"
        return super().check()

    def distributed_inputs(self) -> tuple[str, ...]:
        """o and lse go with q, k and v; and in fp16 gradients that are much smaller than others are lost."""
        return ("do",) if self.dtype == BF16.name else ()

    def arrays(self) -> dict[str, Array]:
        of_forward = super().arrays()
        q = self._array(self.heads, self.rows)
        dq, dk = (dataclasses.replace(a, output=True) for a in (q, self._array(self.key_heads, self.keys)))
        lse = Array((self.batch, self.heads, self.rows), FP32)
        return {n: of_forward[n] for n in ("q", "k", "v")} | {"o": q, "lse": lse, "do": q, "dq": dq, "dk": dk, "dv": dk}

    def inputs(self) -> Arrays:
        """o is that of attention but for a unit in the last place of every element, as a kernel may be off by: where a
        row sees one key, gradients would be 0 without that, and nothing to measure an error by."""
        dtype, found = dtype_of(self.dtype), AttentionProblem.inputs(self)
        solved = AttentionProblem.solved(self, found, _forward, np.float32)
        rng = self.generator(self.seed, 77)
        o = np.ascontiguousarray(dtype.rounded(solved["o"]))
        bits = o.view(np.int16)
        off = rng.integers(0, 2, o.size, np.int8).reshape(o.shape) * np.int16(2) - np.int16(1)
        o = np.where(o == 0, o, (bits + off).view(o.dtype))
        return {**found, "o": o, "lse": solved["lse"], "do": draw_values(rng, self.tier, o.shape, dtype)}

    def axes(self) -> tuple[Axis, ...]:
        of_heads = dict.fromkeys(("q", "o", "lse", "do", "dq"), 1)
        heads = Axis("heads", of_heads, self.group, dict.fromkeys(("k", "v", "dk", "dv"), 1))
        return heads, Axis("batch", dict.fromkeys(self.arrays(), 0))

    def drawn_parts(self, rng: np.random.Generator, stratum: int) -> list[Part]:
        return parts_of_axes(self, self.axes(), rng, stratum)[:1]

    def gradients(self, inputs: Arrays, solver: Solver, kind: Any, scale: float | None = None) -> Arrays:
        """dq, dk and dv of type `kind`, some rows of one head at a time, where there is much to do on several threads.

        `solver` is given what `reference.attention_backward` is."""
        like = inputs["q"]
        dq = np.empty((self.batch, self.heads, self.rows, self.dim), kind, like=like)
        dk, dv = (np.zeros((self.batch, self.key_heads, self.keys, self.dim), kind, like=like) for _ in range(2))
        factor = self.factor if scale is None else scale

        def chunk(batch: int, shared: int, head: int, first: int) -> list[Values]:
            at = (batch, head, slice(first, first + CHUNK))
            q, o, lse, do = (inputs[name][at] for name in ("q", "o", "lse", "do"))
            k, v = (inputs[name][batch, shared] for name in ("k", "v"))
            dq[at], *others = solver(q, k, v, o, lse, do, self.visible(first, len(q), like), factor)
            return others

        def solve(batch: int, shared: int, several: Callable[..., Iterable[list[Values]]] = map) -> None:
            heads = range(shared * self.group, (shared + 1) * self.group)
            places = [(head, first) for head in heads for first in range(0, self.rows, CHUNK)]
            for others in several(lambda place: chunk(batch, shared, *place), places):
                for total, part in zip((dk, dv), others, strict=True):
                    total[batch, shared] += part

        parts = list(np.ndindex(self.batch, self.key_heads))
        if self.batch * self.heads * self.seen < 2**24 or not isinstance(like, np.ndarray):
            for part in parts:
                solve(*part)
        elif len(parts) < 4:
            with threadpool_limits(1), ThreadPoolExecutor(os.cpu_count()) as pool:
                for batch, shared in parts:
                    solve(batch, shared, pool.map)
        else:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                list(pool.map(lambda part: solve(*part), parts))
        return {"dq": dq, "dk": dk, "dv": dv}

    def reference(self, inputs: Arrays) -> Arrays:
        return self.gradients(inputs, reference.attention_backward, np.float64)

    def model(self, inputs: Arrays, *, backwards: bool = False) -> Arrays:
        dtype = dtype_of(self.dtype)

        def rounded(x: Values) -> Values:
            return dtype.rounded(x).astype(np.float32)

        def solver(
            q: Values, k: Values, v: Values, o: Values, lse: Values, do: Values, mask: Values, scale: float
        ) -> tuple[Values, Values, Values]:
            q, k, v, o, do = (x.astype(np.float32) for x in (q, k, v, o, do))
            factor, sees = np.float32(scale * LOG2_E), np.isfinite(lse)[:, None]
            base = np.where(sees, lse[:, None] * np.float32(LOG2_E), np.float32(0))
            logits = tensor_core_product(q, k.T, 8, backwards) * factor - base
            p = np.exp2(np.where(mask & sees, logits, np.float32(-np.inf)))  # as an instruction has the base 2
            products = (do * o)[:, :: -1 if backwards else 1]
            delta = products.cumsum(axis=1, dtype=np.float32)[:, -1:]
            # tensor cores take both in the type of the inputs, and so may warps that hand weights over
            p = rounded(p)
            ds = rounded(p * (tensor_core_product(do, v.T, 8, backwards) - delta))
            dq = tensor_core_product(ds, k, max(16, len(k) // 64), backwards)
            dk, dv = (tensor_core_product(a.T, b, 16, backwards) for a, b in ((ds, q), (p, do)))
            return dq * np.float32(scale), dk * np.float32(scale), dv

        return self.gradients(inputs, solver, np.float32)

    def magnitudes(self, inputs: Arrays, expected: Arrays) -> Arrays:
        """Those of sums over keys and over queries. The gradient of a logit is as large as a number whose rounding errs
        as much: itself, or the fp32 sums that cancel in it, or the least weight."""
        dtype = dtype_of(self.dtype)
        least = least_weight(dtype)
        of_sums = np.float32(4 * FP32.unit_roundoff / dtype.unit_roundoff)

        def solver(
            q: Values, k: Values, v: Values, o: Values, lse: Values, do: Values, mask: Values, scale: float
        ) -> tuple[Values, Values, Values]:
            q, k, v, o, do = (x.astype(np.float32) for x in (q, k, v, o, do))
            sees = mask & np.isfinite(lse)[:, None]
            logits = q @ k.T * np.float32(scale) - np.where(sees, lse[:, None], np.float32(0))
            p = np.exp(np.where(sees, logits, np.float32(-np.inf))) + least
            ds = p * np.abs(do @ v.T - (do * o).sum(axis=1, keepdims=True))
            q, k, v, o, do = (np.abs(x) for x in (q, k, v, o, do))
            ds += of_sums * p * (do @ v.T + (do * o).sum(axis=1, keepdims=True))
            p, ds = (np.where(sees, x, np.float32(0)) for x in (p, ds + least))
            factor = np.float32(abs(scale))
            return ds @ k * factor, ds.T @ q * factor, p.T @ do

        return self.gradients(inputs, solver, np.float32)

    def invariants(self) -> tuple[Invariant, ...]:
        found = [self._linear()] if self.distribution is Distribution.NORMAL else []
        found.append(self._causality() if self.causal else self._order())
        if self.values is Kind.STEPS:
            found.append(self._shift())
        return tuple(found)

    def _linear(self) -> Invariant:
        def scaled(inputs: Arrays) -> Arrays:
            return {**inputs, "do": dtype_of(self.dtype).rounded(inputs["do"].astype(np.float32) * -2)}

        def holds(first: Arrays, other: Arrays, bound: Arrays) -> bool:
            return all(bool((np.abs(other[n] + 2 * first[n]) <= 4 * bound[n]).all()) for n in first)

        return Invariant("linear in do", holds, scaled)

    def _causality(self) -> Invariant:
        def later_changed(inputs: Arrays) -> Arrays:
            k, v = inputs["k"].copy(), inputs["v"].copy()
            k[..., -1, :], v[..., -1, :] = k[..., max(0, self.keys - 2), :], 7
            return {**inputs, "k": k, "v": v}

        def same(first: Arrays, other: Arrays, bound: Arrays) -> bool:
            """The last row alone sees the last key, and the logarithms of others do not change."""
            near = np.abs(first["dq"] - other["dq"])[..., :-1, :] <= 2 * bound["dq"][..., :-1, :]
            same_keys = (np.array_equal(first[n][..., :-1, :], other[n][..., :-1, :]) for n in ("dk", "dv"))
            return bool(near.all()) and all(same_keys)

        return Invariant("a changed later key changes nothing", same, later_changed)

    def _order(self) -> Invariant:
        names = ("k", "v")

        def turned(arrays: Arrays, names: tuple[str, ...]) -> Arrays:
            return {n: a[..., ::-1, :] if n in names else a for n, a in arrays.items()}

        def near(first: Arrays, other: Arrays, bound: Arrays) -> bool:
            back = turned(other, ("dk", "dv"))
            return all(bool((np.abs(first[n] - back[n]) <= 2 * bound[n]).all()) for n in first)

        return Invariant("any order of keys", near, lambda inputs: turned(inputs, names))

    def _shift(self) -> Invariant:
        """Gradients of the logits of a row sum to 0: with 2 added to every element of the keys, and lse shifted as the
        logits are, dq stays. What is left of the sums: o is off by units in the last place, and the gradients are
        rounded before they are multiplied."""
        dtype, given = dtype_of(self.dtype), self.given()
        q, v, o, do = (given[n].astype(np.float64) for n in ("q", "v", "o", "do"))
        by = SHIFT * self.factor * q.sum(axis=-1)

        def shifted(inputs: Arrays) -> Arrays:
            k = (inputs["k"].astype(np.float32) + np.float32(SHIFT)).astype(inputs["k"].dtype)
            return {**inputs, "k": k, "lse": (inputs["lse"] + by).astype(np.float32)}

        def holds(first: Arrays, other: Arrays, bound: Arrays) -> bool:
            most = np.repeat(np.abs(v).max(axis=2, keepdims=True), self.group, axis=1)
            size = (np.abs(do) * (np.abs(o) + most)).sum(axis=-1, keepdims=True)
            logits = self.factor * (5 + SHIFT) * np.abs(q).sum(axis=-1, keepdims=True)
            relative = 4 * dtype.unit_roundoff + 4 * self.dim**0.5 * FP32.unit_roundoff * logits
            allowed = self.factor * ((5 + SHIFT) * size * relative + self.keys * dtype.smallest)
            return bool((np.abs(other["dq"] - first["dq"]) <= 2 * bound["dq"] + allowed).all())

        return Invariant("gradients of a row's logits sum to 0", holds, shifted)

    def negative_controls(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        return super(AttentionProblem, self).negative_controls(inputs, expected) | controls(self, inputs, expected)

    @property
    def cost(self) -> Cost:
        return Cost(10 * self.batch * self.heads * self.seen * self.dim, element_bytes(self.arrays().values()))


def _forward(q: Values, k: Values, v: Values, mask: Values, scale: float) -> tuple[Values, Values]:
    """Attention in fp32: what makes o and lse need be no more exact."""
    q, k, v = (x.astype(np.float32) for x in (q, k, v))
    p = q @ k.T
    p *= np.float32(scale)
    p[~mask] = -np.inf
    top = p.max(axis=1, keepdims=True)
    p -= np.where(np.isfinite(top), top, np.float32(0))
    np.exp(p, out=p)
    total = p.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (top + np.log(total))[:, 0]
    return p @ v / np.where(total > 0, total, np.float32(1)), lse


EQUAL_SCALE = 2.0**-10
"""With which all logits of a row are nearly equal."""

LEAST_LARGE = 8
"""The dim from which on logits may be large: of the products of single elements next to none is in any sum."""


def problems(size: Size, edges: tuple[int, ...]) -> st.SearchStrategy[AttentionBackwardProblem]:
    """Those of attention. In fp16 logits are of a size at which most weights are normal numbers."""
    less = Size(size.extent, max(1, size.work // 3))

    def backward(p: AttentionProblem) -> AttentionBackwardProblem:
        given = {f.name: getattr(p, f.name) for f in dataclasses.fields(p)}
        if p.values is Kind.EQUAL:
            given |= {"values": Kind.NORMAL, "scale": EQUAL_SCALE}
        elif p.values is Kind.LARGE and p.dim >= LEAST_LARGE:
            given["dtype"] = BF16.name
        elif p.values is Kind.LARGE:
            given["values"] = Kind.NORMAL
        elif p.dtype == FP16.name and p.factor * p.dim**0.5 > 2:
            given["scale"] = 0.0
        return AttentionBackwardProblem(**given)

    return forward.problems(less, edges).map(backward)


SHAPES = ((4, 16, 4096, 128), (1, 16, 16384, 128), (4, 32, 4096, 64), (4, 8, 4096, 256))
"""Batch, heads, rows, dim of what is timed."""

SUITE = tuple(
    AttentionBackwardProblem(batch=b, heads=h, rows=s, keys=s, dim=d, causal=causal, layout=Layout.BSHD)
    for b, h, s, d in SHAPES
    for causal in (False, True)
)


def tensor_maps(p: AttentionBackwardProblem) -> str | None:
    """Why an input can have no tensor map, or None where all can."""
    if p.dim % 8:
        return "a tensor map needs rows of do a multiple of 16 bytes apart"
    return forward.tensor_maps(p)


def padded_dim(p: AttentionBackwardProblem) -> int:
    """The dim of a head in shared memory: 64, 128 or 256."""
    return next(dim for dim in (64, 128, 256) if dim >= p.dim)


# ---------------------------------------------------------------------------------------------------- negative controls


NOTICEABLE = 0.1
"""By what part of the size of its terms an answer has to differ: that of rounding is below 2^-7."""


def controls(p: AttentionBackwardProblem, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
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


def _one_of_group(p: AttentionBackwardProblem, inputs: Arrays, expected: Arrays) -> Arrays:
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

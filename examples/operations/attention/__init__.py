"""Attention, softmax(scale q k^T) v, by one naive kernel: the full form, four dimensions, a comparative tier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

import numpy as np
from hypothesis import strategies as st

from workbench import (
    FLOATS,
    Array,
    Arrays,
    Cost,
    Invariant,
    Launch,
    Operation,
    Problem,
    Size,
    Tier,
    dtype_of,
    extents,
)
from workbench.reference import ordered_product

from . import reference


class Layout(StrEnum):
    """The order in which an array lies in memory: b batch, h head, s place in the sequence, d element."""

    BHSD = "bhsd"
    BSHD = "bshd"


@dataclass(frozen=True)
class AttentionProblem(Problem):
    """q, o: (batch, heads, rows, dim); k, v: (batch, heads, keys, dim), all of type `dtype`, in the order of `layout`.

    With `causal`, row i sees the keys up to i + keys - rows; a row that sees none is 0.
    """

    batch: int = 1
    heads: int = 1
    rows: int = 1
    keys: int = 1
    dim: int = 1
    scale: float = 0.125
    causal: bool = False
    layout: Layout = Layout.BHSD
    dtype: str = "bf16"
    tier: Tier = Tier.COMPARATIVE

    tiers: ClassVar[tuple[Tier, ...]] = (Tier.COMPARATIVE,)
    not_exact: ClassVar[str] = "an exponential is rounded"
    extents: ClassVar[tuple[str, ...]] = ("batch", "heads", "rows", "keys", "dim")
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"dtype": tuple(FLOATS)}

    @property
    def label(self) -> str:
        size = f"{self.batch}x{self.heads}x{self.rows}x{self.keys}x{self.dim}"
        return f"{size} {self.dtype} {self.layout}{' causal' if self.causal else ''}"

    def _array(self, length: int, output: bool = False) -> Array:
        b, h, d = self.batch, self.heads, self.dim
        strides = (h * length * d, length * d, d, 1) if self.layout is Layout.BHSD else (length * h * d, d, h * d, 1)
        return Array((b, h, length, d), dtype_of(self.dtype), strides=strides, output=output)

    def arrays(self) -> dict[str, Array]:
        q, kv = self._array(self.rows), self._array(self.keys)
        return {"q": q, "k": kv, "v": kv, "o": self._array(self.rows, output=True)}

    def _solved(self, inputs: Arrays, dtype: Any, product: Any = np.matmul) -> Arrays:
        mask = reference.visible(self.rows, self.keys, self.causal)
        given = {name: values.astype(dtype) for name, values in inputs.items()}
        return {"o": reference.attention(**given, scale=self.scale, mask=mask, product=product)}

    def reference(self, inputs: Arrays) -> Arrays:
        return self._solved(inputs, np.float64)

    def model(self, inputs: Arrays, *, backwards: bool = False) -> Arrays:
        dtype = dtype_of(self.dtype)

        def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            # tensor cores take both factors in the type of the inputs: so weights may be rounded
            return ordered_product(dtype.rounded(a).astype(np.float32), b, backwards=backwards)

        return self._solved(inputs, np.float32, product)

    def invariants(self) -> tuple[Invariant, ...]:
        def ones(inputs: Arrays) -> Arrays:
            return {**inputs, "v": np.ones_like(inputs["v"])}

        def later_changed(inputs: Arrays) -> Arrays:
            k, v = inputs["k"].copy(), inputs["v"].copy()
            k[..., -1, :], v[..., -1, :] = 3, 7
            return {**inputs, "k": k, "v": v}

        def permuted(inputs: Arrays) -> Arrays:
            return {**inputs, "k": inputs["k"][..., ::-1, :], "v": inputs["v"][..., ::-1, :]}

        sees_one = reference.visible(self.rows, self.keys, self.causal).any(axis=-1)[:, None]
        u = dtype_of(self.dtype).unit_roundoff

        def sums(o: Arrays, of_ones: Arrays, bound: Arrays) -> bool:
            return bool((abs(of_ones["o"] - sees_one) <= 4 * u * self.keys**0.5).all())

        def earlier_rows_are_the_same(o: Arrays, other: Arrays, bound: Arrays) -> bool:
            return np.array_equal(o["o"][..., :-1, :], other["o"][..., :-1, :])

        def near(o: Arrays, other: Arrays, bound: Arrays) -> bool:
            return bool((abs(o["o"] - other["o"]) <= 2 * bound["o"]).all())

        order = Invariant("any order of keys", near, permuted)
        causality = Invariant("causality", earlier_rows_are_the_same, later_changed)  # the last row sees the last key
        return Invariant("weights sum to 1", sums, ones), causality if self.causal else order

    def negative_controls(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        given = {name: values.astype(np.float64) for name, values in inputs.items()}
        mask = reference.visible(self.rows, self.keys, self.causal)

        def answer(scale: float, mask: np.ndarray) -> Arrays:
            return {"o": reference.attention(**given, scale=scale, mask=mask)}

        shifted = np.roll(mask, 1, axis=1)
        shifted[:, 0] = True
        wrong = {
            "not scaled": answer(1.0, mask),
            "scaled twice": answer(self.scale**2, mask),
            "last key not seen": answer(self.scale, mask & (np.arange(self.keys) < self.keys - 1)),
        }
        if self.causal:
            wrong["mask off by one"] = answer(self.scale, shifted)
            wrong["mask forgotten"] = answer(self.scale, np.ones_like(mask))
        return super().negative_controls(inputs, expected) | wrong

    @property
    def cost(self) -> Cost:
        seen = int(reference.visible(self.rows, self.keys, self.causal).sum()) if self.causal else self.rows * self.keys
        moved = sum(array.size * array.dtype.itemsize for array in self.arrays().values())
        return Cost(4 * self.batch * self.heads * seen * self.dim, moved)


def problems(size: Size, edges: tuple[int, ...]) -> st.SearchStrategy[AttentionProblem]:
    """Few heads of short sequences; as many rows as keys, fewer or more."""

    @st.composite
    def draw(d: st.DrawFn) -> AttentionProblem:
        batch, heads, dim = d(st.integers(1, 3)), d(st.integers(1, 3)), d(st.sampled_from([1, 7, 8, 16, 32, 33, 64]))
        left = max(1, size.work // (batch * heads * dim))
        rows = d(extents(Size(min(size.extent, left), size.work), edges))
        keys = rows if d(st.booleans()) else d(extents(Size(size.extent, size.work), edges))
        keys = min(keys, max(1, left // rows))
        return AttentionProblem(
            batch=batch,
            heads=heads,
            rows=rows,
            keys=keys,
            dim=dim,
            scale=d(st.sampled_from([0.125, 0.5, 2.0])),
            causal=d(st.booleans()),
            layout=d(st.sampled_from(Layout)),
            dtype=d(st.sampled_from(tuple(FLOATS))),
            seed=d(st.integers(0, 2**16)),
        )

    return draw()


ATTENTION = Operation(
    name="attention",
    summary="attention of every row to the keys, causal or not",
    problem=AttentionProblem,
    problems=problems,
    suite=(
        AttentionProblem(batch=4, heads=16, rows=1024, keys=1024, dim=64),
        AttentionProblem(batch=4, heads=16, rows=1024, keys=1024, dim=64, causal=True, layout=Layout.BSHD),
    ),
    defines=lambda p: {"IN": dtype_of(p.dtype).cuda},
    emulator_size=Size(extent=150, work=60_000),
    cuda_size=Size(extent=1000, work=4_000_000),
)

MOST_KEYS = 50_000
"""Their logits are in shared memory."""


@ATTENTION.stage(
    "naive",
    source="attention/1_naive.cu",
    idea="one block takes one row: its logits lie in shared memory",
    supports=lambda p: None if p.keys <= MOST_KEYS else f"shared memory holds the logits of {MOST_KEYS:,} keys",
    parameters={"THREADS": 64},
    edge_cases=(
        AttentionProblem(rows=5, keys=3, dim=8, causal=True),  # two rows see nothing
        AttentionProblem(rows=3, keys=70, dim=65, dtype="fp32", causal=True, layout=Layout.BSHD),
        AttentionProblem(batch=2, rows=100, keys=65, dim=8, scale=2.0, dtype="fp32"),  # the first thread has two keys
    ),
)
def naive(p: AttentionProblem, size: Mapping[str, int]) -> Launch:
    arrays = p.arrays()
    strides = [np.int64(step) for name in ("q", "k") for step in arrays[name].element_strides[:3]]
    counts = [np.int32(n) for n in (p.rows, p.keys, p.dim)]
    arguments = ("q", "k", "v", "o", *strides, *counts, np.float32(p.scale), np.int32(p.causal))
    return Launch("attention_naive", (p.rows, p.heads, p.batch), (size["THREADS"], 1, 1), arguments, 4 * p.keys)


def _sees_nothing(p: AttentionProblem) -> str | None:
    return "a row that sees no key is NaN there" if p.causal and p.rows > p.keys else None


@ATTENTION.baseline("PyTorch", requires="torch", vendor=True, refuses=_sees_nothing)
def pytorch(p: AttentionProblem, q: Any, k: Any, v: Any) -> Any:
    import torch

    mask = torch.ones(p.rows, p.keys, dtype=torch.bool, device=q.device).tril(p.keys - p.rows) if p.causal else None
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=p.scale)

"""Problems of rotary position embedding: layouts of heads, kinds of pairs, and how exact a rotation is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from hypothesis import strategies as st

from ... import reference
from ...model.arrays import Array, Arrays, NonFinite, element_bytes
from ...model.dtypes import FP32, dtype_of
from ...model.problem import Cost, Problem, Size, Tier, draw_values, extents
from ..rows.problem import FLOATS

BASE = 10_000.0
"""Of the angles: position / BASE^(2 i / dim)."""


@dataclass(frozen=True)
class RotaryProblem(Problem):
    """x, y: (batch, heads, seq, 2 half) where `layout` is bhsd, (batch, seq, heads, 2 half) where it is bshd, with
    `pad_x` and `pad_y` elements between rows of 2 half. In x, `gap_x` more elements follow the rows of a head, or in
    bshd those of a position, so heads of queries may lie beside those of keys. cos, sin: (seq, half). All of one type.

    `pairs` says which elements are rotated together: neighbours, or those that are half a row apart. NaN and infinities
    do what arithmetic with them does, and only to their own pair.
    """

    batch: int = 1
    heads: int = 1
    seq: int = 1
    half: int = 1
    dtype: str = "bf16"
    pairs: str = "half"
    layout: str = "bhsd"
    pad_x: int = 0
    gap_x: int = 0
    pad_y: int = 0

    extents: ClassVar[tuple[str, ...]] = ("batch", "heads", "seq", "half")
    non_finite: ClassVar[NonFinite | str] = NonFinite.PROPAGATE
    distributed: ClassVar[tuple[str, ...]] = ("x", "cos", "sin")
    scales: ClassVar[tuple[int, int]] = (-40, 40)
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "dtype": FLOATS,
        "pairs": ("half", "interleaved"),
        "layout": ("bhsd", "bshd"),
    }

    @property
    def label(self) -> str:
        return f"b{self.batch} h{self.heads} s{self.seq} d{2 * self.half} {self.dtype} {self.pairs} {self.layout}"

    @property
    def shape(self) -> tuple[int, ...]:
        """Of x and y."""
        inner = (self.heads, self.seq) if self.layout == "bhsd" else (self.seq, self.heads)
        return (self.batch, *inner, 2 * self.half)

    def arrays(self) -> dict[str, Array]:
        dtype, row, angles = dtype_of(self.dtype), 2 * self.half, (self.seq, self.half)
        return {
            "x": Array(self.shape, dtype, strides=(*self._outer(), row + self.pad_x, 1)),
            "cos": Array(angles, dtype),
            "sin": Array(angles, dtype),
            "y": Array(self.shape, dtype, row + self.pad_y, output=True),
        }

    def _outer(self) -> tuple[int, int]:
        """Elements of x from one batch to the next, and from one head or, in bshd, position to the next."""
        middle = self.shape[2] * (2 * self.half + self.pad_x) + self.gap_x
        return self.shape[1] * middle, middle

    def strides(self, name: str) -> tuple[int, int, int]:
        """Elements of x or y from one batch, head and position to the next."""
        batch, middle, row, _ = self.arrays()[name].element_strides
        return (batch, middle, row) if self.layout == "bhsd" else (batch, row, middle)

    def inputs(self) -> Arrays:
        rng, dtype = self.rng(), dtype_of(self.dtype)
        angles = (self.seq, self.half)
        x = draw_values(rng, self.tier, self.shape, dtype)
        if self.tier is Tier.EXACT:
            return {"x": x} | {name: draw_values(rng, self.tier, angles, dtype) for name in ("cos", "sin")}
        angle = np.arange(self.seq)[:, None] / BASE ** (np.arange(self.half) / self.half)
        angle += rng.uniform(0, 2 * np.pi)  # else the first position is not rotated
        return {"x": x, "cos": np.cos(angle).astype(dtype.numpy), "sin": np.sin(angle).astype(dtype.numpy)}

    def _solved(
        self, x: np.ndarray[Any, Any], cos: np.ndarray[Any, Any], sin: np.ndarray[Any, Any], pairs: str
    ) -> Arrays:
        heads_first = x if self.layout == "bhsd" else x.swapaxes(1, 2)
        y = reference.rotary(heads_first, cos, sin, interleaved=pairs == "interleaved")
        return {"y": y if self.layout == "bhsd" else y.swapaxes(1, 2)}

    def reference(self, inputs: Arrays) -> Arrays:
        return self._solved(inputs["x"], inputs["cos"], inputs["sin"], self.pairs)

    def bound(self, inputs: Arrays, expected: Arrays) -> Arrays:
        # two products and a sum, each rounded to fp32: at most 2 u (|u cos| + |v sin|), then the rounding of the result
        u, dtype = FP32.unit_roundoff, dtype_of(self.dtype)
        x, cos, sin = (np.abs(inputs[name].astype(np.float64)) for name in ("x", "cos", "sin"))
        sums = self._solved(x, cos, -sin, self.pairs)["y"], self._solved(x, cos, sin, self.pairs)["y"]
        size = np.maximum(*sums)  # of a pair, |u| cos + |v| sin and |u| sin + |v| cos
        return {"y": dtype.unit_roundoff * np.abs(expected["y"]) + 3 * u * size + dtype.smallest}

    def negative_controls(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        x, cos, sin, y = inputs["x"], inputs["cos"], inputs["sin"], expected["y"]
        other = "half" if self.pairs == "interleaved" else "interleaved"
        last = y.copy()
        last.reshape(-1, y.shape[-1])[-1] = 0.0
        return {
            "all zeros": {"y": np.zeros_like(y)},
            "cos and sin swapped": self._solved(x, sin, cos, self.pairs),
            "rotated backwards": self._solved(x, cos, -sin, self.pairs),
            "pairs of the other kind": self._solved(x, cos, sin, other),
            "angles of the position before": self._solved(x, np.roll(cos, 1, 0), np.roll(sin, 1, 0), self.pairs),
            "last row missing": {"y": last},
            "not rotated": {"y": x.astype(np.float64)},
        }

    @property
    def cost(self) -> Cost:
        return Cost(6 * self.batch * self.heads * self.seq * self.half, element_bytes(self.arrays().values()))


def problems(size: Size, edges: tuple[int, ...]) -> st.SearchStrategy[RotaryProblem]:
    """Rows of any even length, half of them of the usual ones, and a multiple of 16 bytes apart."""

    @st.composite
    def draw(d: st.DrawFn) -> RotaryProblem:
        half = d(st.sampled_from([8, 16, 32, 64])) if d(st.booleans()) else d(st.integers(1, 70))
        left = max(1, size.work // (2 * half))
        heads, batch = d(st.integers(1, min(9, left))), d(st.integers(1, 3))
        seq = d(extents(Size(max(1, min(size.extent, left // (heads * batch))), size.work), ()))
        aligned = d(st.booleans())
        pads = [-2 * half % 8 + 8 * d(st.integers(0, 2)) if aligned else d(st.integers(0, 5)) for _ in range(2)]
        return RotaryProblem(
            batch=batch,
            heads=heads,
            seq=seq,
            half=half,
            dtype=d(st.sampled_from(FLOATS)),
            pairs=d(st.sampled_from(RotaryProblem.choices["pairs"])),
            layout=d(st.sampled_from(RotaryProblem.choices["layout"])),
            pad_x=pads[0],
            gap_x=d(st.sampled_from([0, 0, 8, 3])),
            pad_y=pads[1],
            seed=d(st.integers(0, 2**16)),
        )

    return draw()

"""Rotary position embedding: pairs of the elements of each head are rotated by the angles of their position."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .. import reference
from ..model.arrays import Array, Arrays, element_bytes
from ..model.calls import Call
from ..model.distributions import NonFinite, drawn, drawn_pad, st
from ..model.dtypes import FP32, dtype_of
from ..model.launch import Launch, ceil_div
from ..model.operation import Operation
from ..model.parts import Axis
from ..model.problem import Cost, Problem, Size, Tier, draw_values, extents
from .rows import groups
from .rows.baselines import beside, beside_liger
from .rows.ladder import THREADS
from .rows.problem import FLOATS
from .shared import common_dtype, head_strides, row_of_rows

BASE = 10_000.0
"""Of the angles: position / BASE^(2 i / dim)."""


@dataclass(frozen=True)
class RotaryProblem(Problem):
    """x, y: (batch, heads, seq, 2 half) where `layout` is bhsd, (batch, seq, heads, 2 half) where it is bshd, with
    `pad_x` and `pad_y` elements between rows of 2 half. In x, `gap_x` more elements follow the rows of a head, or in
    bshd those of a position, so heads of queries may lie beside those of keys. cos, sin: (seq, half). All of one type.

    `pairs` says which elements are rotated together: neighbours, or those that are half a row apart. NaN and infinities
    do what arithmetic with them does, and only to their own pair."""

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

    def axes(self) -> tuple[Axis, ...]:
        heads, places = (1, 2) if self.layout == "bhsd" else (2, 1)
        return (
            Axis("seq", {"x": places, "y": places, "cos": 0, "sin": 0}),
            Axis("heads", {"x": heads, "y": heads}),
            Axis("batch", {"x": 0, "y": 0}),
        )

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


@drawn
def problems(d: st.DrawFn, size: Size, edges: tuple[int, ...]) -> RotaryProblem:
    """Rows of any even length, half of them of the usual ones, and a multiple of 16 bytes apart."""
    half = d(st.sampled_from([8, 16, 32, 64])) if d(st.booleans()) else d(st.integers(1, 70))
    left = max(1, size.work // (2 * half))
    heads, batch = d(st.integers(1, min(9, left))), d(st.integers(1, 3))
    seq = d(extents(Size(max(1, min(size.extent, left // (heads * batch))), size.work), ()))
    aligned = d(st.booleans())
    pads = [drawn_pad(d, 2 * half, 8, aligned) for _ in range(2)]
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


# ----------------------------------------------------------------------------------------------------------- the stages


ROTARY = Operation(
    name="rotary",
    summary="rotary position embedding of the heads of queries or keys",
    problem=RotaryProblem,
    problems=problems,
    suite=tuple(
        RotaryProblem(batch=16, heads=16, seq=4096, half=half, dtype=dtype, pairs=pairs, layout=layout)
        for half in (32, 64)
        for dtype, pairs, layout in (
            ("bf16", "half", "bhsd"),
            ("bf16", "interleaved", "bhsd"),
            ("bf16", "half", "bshd"),
            ("fp32", "half", "bhsd"),
        )
    ),
    defines=lambda p: {
        "IN": dtype_of(p.dtype).cuda,
        "INTERLEAVED": int(p.pairs == "interleaved"),
        "EVEN": groups.even(_width(p), p.half, *p.strides("x"), *p.strides("y")),
    },
    emulator_size=Size(extent=2000, work=20_000),
    cuda_size=Size(extent=20_000, work=4_000_000),
    metric="GB/s",
    fastest=("vectorized", "naive"),
)


def _launch(kernel: str, p: RotaryProblem, size: Mapping[str, int], heads: int, pairs: int) -> Launch:
    """A thread takes `pairs` pairs of `heads` heads."""
    sizes = tuple(np.int32(n) for n in (p.batch, p.heads, p.seq, p.half))
    strides = tuple(np.int64(n) for name in ("x", "y") for n in p.strides(name))
    threads = p.batch * ceil_div(p.heads, heads) * p.seq * ceil_div(p.half, pairs)
    grid = (ceil_div(threads, size["THREADS"]), 1, 1)
    return Launch(kernel, grid, (size["THREADS"], 1, 1), ("x", "cos", "sin", "y", *sizes, *strides))


def _width(p: RotaryProblem) -> int:
    """Elements in 16 bytes."""
    return 16 // dtype_of(p.dtype).itemsize


@ROTARY.stage(
    "naive", idea="one thread takes one pair", parameters={"THREADS": 256}, space={"THREADS": THREADS}, alignment=1
)
def naive(p: RotaryProblem, size: Mapping[str, int]) -> Launch:
    return _launch("rotary_naive", p, size, 1, 1)


@ROTARY.stage("vectorized", after=naive, idea="one thread takes the pairs of two vectors of 16 bytes", alignment=16)
def vectorized(p: RotaryProblem, size: Mapping[str, int]) -> Launch:
    return _launch("rotary_vectorized", p, size, 1, _width(p))


@ROTARY.stage(
    "several_heads",
    after=vectorized,
    idea="one thread takes several heads: their angles are loaded once",
    edge_cases=(
        RotaryProblem(batch=3, heads=8, seq=70, half=32),
        RotaryProblem(batch=2, heads=7, seq=70, half=32, layout="bshd", pairs="interleaved"),
    ),
    parameters={"THREADS": 256, "HEADS": 4},
    space={"THREADS": THREADS, "HEADS": (1, 2, 4)},
)
def several_heads(p: RotaryProblem, size: Mapping[str, int]) -> Launch:
    return _launch("rotary_several_heads", p, size, size["HEADS"], _width(p))


# ---------------------------------------------------------------------------------------------- as a function on arrays


@ROTARY.function
def rotary(x: Any, cos: Any, sin: Any, *, interleaved: bool = False, layout: str = "bhsd") -> Call:
    """Rotary position embedding: pairs (u, v) of the last axis become (u cos - v sin, u sin + v cos).

    x: (batch, heads, seq, dim), or (batch, seq, heads, dim) with `layout` bshd, whose rows of dim elements, and whose
    heads (positions, with bshd), may be any distance apart; cos, sin: (seq, dim / 2), contiguous. A pair is
    (2i, 2i + 1), `interleaved`, or (i, i + dim / 2)."""
    dtype = common_dtype("rotary", x=x, cos=cos, sin=sin)
    if layout not in RotaryProblem.choices["layout"]:
        raise ValueError(f"rotary: layout is {layout!r}; it has to be bhsd or bshd")
    if x.ndim != 4 or 0 in x.shape or x.shape[-1] % 2:
        raise ValueError(f"rotary: x has shape {x.shape}; it has to have four dimensions, the last one even")
    seq = x.shape[2 if layout == "bhsd" else 1]
    angles = (seq, x.shape[-1] // 2)
    for name, array in (("cos", cos), ("sin", sin)):
        if array.shape != angles:
            raise ValueError(f"rotary: {name} has shape {array.shape}; it has to be {angles}")
        row_of_rows("rotary", name, array, angles[1])
    row, middle = head_strides("rotary", "x", x)
    problem = RotaryProblem(
        batch=x.shape[0],
        heads=x.shape[1 if layout == "bhsd" else 2],
        seq=seq,
        half=angles[1],
        dtype=dtype.name,
        pairs="interleaved" if interleaved else "half",
        layout=layout,
        pad_x=row - x.shape[3],
        gap_x=middle - x.shape[2] * row,
    )
    return Call(problem, {"x": x, "cos": cos, "sin": sin})


# --------------------------------------------------------------------------------- what the stages are measured against


def _torch(p: Any, x: Any, cos: Any, sin: Any) -> Any:
    import torch

    kind = x.dtype
    x, cos, sin = x.float(), cos.float(), sin.float()
    if p.layout == "bshd":
        cos, sin = cos[:, None], sin[:, None]
    if p.pairs == "interleaved":
        u, v = x[..., 0::2], x[..., 1::2]
        y = torch.stack((u * cos - v * sin, u * sin + v * cos), -1).flatten(-2)
    else:
        u, v = x.chunk(2, -1)
        y = torch.cat((u * cos - v * sin, u * sin + v * cos), -1)
    return y.to(kind)


def _numpy(p: Any, x: Any, cos: Any, sin: Any) -> Any:
    if p.layout == "bshd":
        cos, sin = cos[:, None], sin[:, None]
    y, half = np.empty_like(x), x.shape[-1] // 2
    first, second = (
        (slice(0, None, 2), slice(1, None, 2)) if p.pairs == "interleaved" else (slice(half), slice(half, None))
    )
    y[..., first] = x[..., first] * cos - x[..., second] * sin
    y[..., second] = x[..., first] * sin + x[..., second] * cos
    return y


beside(ROTARY, _torch, _numpy)


def _pairs(p: Any) -> str | None:
    return None if p.pairs == "half" else "it rotates elements half a row apart"


@beside_liger(ROTARY, prepares=True, refuses=_pairs)
def _liger(p: Any, x: Any, cos: Any, sin: Any) -> Callable[[], Any]:
    """It rotates queries and keys where they lie, as (batch, seq, heads, dim): the time has a copy of x, which stays as
    it is, and one head of keys. In fp32, which is the type of the angles."""
    import torch
    from liger_kernel.transformers.functional import liger_rope

    def other_order(heads: Any) -> Any:
        return heads.transpose(1, 2)

    rows = x if p.layout == "bshd" else other_order(x)
    copied = torch.empty(tuple(rows.shape), dtype=x.dtype, device=x.device)
    keys = torch.zeros_like(copied[:, :, :1])
    angles = [torch.cat((table, table), -1).float()[None] for table in (cos, sin)]

    def rotate() -> Any:
        copied.copy_(rows)
        y, _ = liger_rope(other_order(copied), other_order(keys), *angles)
        return other_order(y) if p.layout == "bshd" else y

    return rotate

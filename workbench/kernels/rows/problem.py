"""Problems over the rows of matrices: shapes, the numbers they are filled with, and the strategy that draws them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np

from ...model.arrays import Array, element_bytes
from ...model.distributions import NonFinite, drawn, drawn_pad, st
from ...model.dtypes import BF16, FP16, FP32, DType, dtype_of, wrong_output
from ...model.parts import Axis
from ...model.problem import DRAWN, Cost, Problem, Size, extents

FLOATS = (BF16.name, FP16.name, FP32.name)
"""The types of rows."""

VALUES = ("normal", "shifted")
"""What rows hold: zero-mean normal numbers; or those plus a number that is the same for a row."""

SUITE = ((131072, 128), (16384, 1024), (16384, 4096), (16384, 8192), (4096, 32768), (2048, 131072), (1, 2**26))
"""Rows and columns that are timed."""

ROWS = ("w", "b")
"""Inputs that are one row: weights, and a bias."""

SHIFTS = 64
"""Largest number that shifted rows are shifted by."""

HELD_BY_BLOCK, HELD_BY_CLUSTER = 512 * 8, 8 * 512 * 8
"""Vectors that the threads of a block hold, 8 each, and those of 8 blocks of a cluster."""


@dataclass(frozen=True)
class RowProblem(Problem):
    """x: (rows, columns) with `pad_x` elements between its rows; y, where there is one, with `pad_y` elements between
    its rows and of type `out`, which is `dtype` or fp32."""

    rows: int = 1
    columns: int = 1
    dtype: str = "bf16"
    out: str = "fp32"
    values: str = "normal"
    pad_x: int = 0
    pad_y: int = 0

    extents: ClassVar[tuple[str, ...]] = ("rows", "columns")
    non_finite: ClassVar[NonFinite | str] = NonFinite.PROPAGATE
    distributed: ClassVar[tuple[str, ...]] = ("x",)
    drawn_by: ClassVar[tuple[str, ...]] = ("values",)
    scales: ClassVar[tuple[int, int]] = (-20, 40)
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"dtype": FLOATS, "out": FLOATS, "values": VALUES}
    operations: ClassVar[int] = 1
    """Floating-point operations for each element of x."""
    taken: ClassVar[tuple[str, ...]] = ("x",)
    """Inputs: those in ROWS are (columns,), the others like x."""
    result: ClassVar[str] = "y"
    """The output that is like y."""
    most_narrow: ClassVar[int] = 0
    """Vectors of 8 bytes that stages hold of a row, where it is no whole number of 16 bytes; 0: none."""

    def check(self) -> str | None:
        return wrong_output(self.dtype, self.out) if "out" in self.choices else None

    @property
    def label(self) -> str:
        out = "" if self.out == self.dtype else f"->{self.out}"
        return f"{self.rows}x{self.columns} {self.dtype}{out}"

    @property
    def ldx(self) -> int:
        """Elements from one row of x to the next."""
        return self.columns + self.pad_x

    @property
    def ldy(self) -> int:
        """Elements from one row of y to the next."""
        return self.columns + self.pad_y

    @property
    def in_type(self) -> DType:
        """The type of x."""
        return dtype_of(self.dtype)

    @property
    def out_type(self) -> DType:
        """The type of y."""
        return dtype_of(self.out)

    @property
    def walked(self) -> tuple[int, ...]:
        """Elements between the rows that kernels walk along, whose beginnings say where vectors lie."""
        return (self.ldx,)

    @property
    def widest(self) -> int:
        """Bytes of an element of the larger type of those that rows are moved as."""
        return max(self.in_type.itemsize, self.out_type.itemsize)

    def arrays(self) -> dict[str, Array]:
        shape = (self.rows, self.columns)
        matrix, row = Array(shape, self.in_type, self.ldx), Array((self.columns,), self.in_type)
        inputs = {name: row if name in ROWS else matrix for name in self.taken}
        return inputs | {self.result: Array(shape, self.out_type, self.ldy, output=True)}

    def scalars(self) -> tuple[np.generic, ...]:
        """What the kernels get after their arrays."""
        return np.int32(self.rows), np.int32(self.columns), np.int64(self.ldx), np.int64(self.ldy)

    @property
    def cost(self) -> Cost:
        return Cost(self.operations * self.rows * self.columns, element_bytes(self.arrays().values()))

    def axes(self) -> tuple[Axis, ...]:
        """The rows, of all matrices and, by default, of nothing else."""
        return (Axis("rows", {name: 0 for name, array in self.arrays().items() if len(array.shape) == 2}),)

    def draw_rows(self, rng: np.random.Generator) -> np.ndarray[Any, Any]:
        """(rows, columns) numbers as `values` says, in `dtype`."""
        return draw_rows(rng, (self.rows, self.columns), self.in_type, self.values)


def draw_rows(
    rng: np.random.Generator, shape: tuple[int, int], dtype: DType, values: str = "normal"
) -> np.ndarray[Any, Any]:
    """Numbers rounded to `dtype`, as `values` says."""
    rows = shape[0]
    count = min(rows * shape[1], getattr(rng, "most", DRAWN))
    drawn = rng.standard_normal(count, dtype=np.float32)
    x = drawn.reshape(shape) if count == rows * shape[1] else np.resize(drawn, shape)
    if values == "shifted":
        x += (rng.choice([-1, 1], (rows, 1)) * rng.integers(SHIFTS // 4, SHIFTS + 1, (rows, 1))).astype(np.float32)
    rounded: np.ndarray[Any, Any] = x.astype(dtype.numpy)
    return rounded


R = TypeVar("R", bound=RowProblem)


def row_problems(problem: type[R], **more: Sequence[Any]) -> Callable[[Size, tuple[int, ...]], st.SearchStrategy[R]]:
    """The strategy of an operation on rows: few long rows, many short ones and anything between within the size; half
    of them with rows a multiple of 16 bytes apart. `more` are values of further fields."""

    @drawn
    def strategy(d: st.DrawFn, size: Size, edges: tuple[int, ...]) -> R:
        first = d(extents(size, edges))
        second = d(extents(Size(max(1, min(size.extent, size.work // first)), size.work), edges))
        rows, columns = (second, first) if d(st.booleans()) else (first, second)
        dtype = d(st.sampled_from(FLOATS))
        aligned = d(st.booleans())
        pads = [drawn_pad(d, columns, 8, aligned) for _ in range(2)]
        return problem(
            rows=rows,
            columns=columns,
            dtype=dtype,
            out=d(
                st.sampled_from([t for t in sorted({dtype, FP32.name}) if t in problem.choices.get("out", ["fp32"])])
            ),
            values=d(st.sampled_from(problem.choices["values"])),
            pad_x=pads[0],
            pad_y=pads[1],
            seed=d(st.integers(0, 2**16)),
            **{name: d(st.sampled_from(values)) for name, values in more.items()},
        )

    return strategy

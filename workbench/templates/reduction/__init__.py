"""y[r] = sum_c x[r, c]: replace it by what reduction computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from hypothesis import strategies as st

from workbench import FLOATS, Array, Cost, Operation, Problem, Size, dot_products, dtype_of, extents

from . import reference

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class ReductionProblem(Problem):
    """x: (rows, columns) of type `dtype`; y: (rows,) fp32."""

    rows: int = 1
    columns: int = 1
    dtype: str = "fp32"

    extents: ClassVar[tuple[str, ...]] = ("rows", "columns")
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"dtype": tuple(FLOATS)}

    @property
    def label(self) -> str:
        return f"{self.rows}x{self.columns} {self.dtype}"

    def arrays(self) -> dict[str, Array]:
        return {
            "x": Array((self.rows, self.columns), dtype_of(self.dtype)),
            "y": Array((self.rows,), dtype_of("fp32"), output=True),
        }

    def reference(self, inputs: Arrays) -> Arrays:
        return {"y": reference.reduction(inputs["x"])}

    def bound(self, inputs: Arrays, expected: Arrays) -> Arrays:
        # a sum of `columns` terms in fp32, and the rounding of the result
        magnitude = np.abs(inputs["x"].astype(np.float64)).sum(axis=1)
        return {"y": dot_products(expected["y"], magnitude, self.columns, dtype_of("fp32"))}

    def negative_controls(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        y = expected["y"]
        wrong = {
            "all zeros": np.zeros_like(y),
            "last column dropped": reference.reduction(inputs["x"][:, :-1]),
            "last row missing": np.concatenate([y[:-1], [0.0]]),
        }
        return {name: {"y": value} for name, value in wrong.items()}

    @property
    def cost(self) -> Cost:
        elements = self.rows * self.columns
        return Cost(elements, elements * dtype_of(self.dtype).itemsize + 4 * self.rows)


def problems(size: Size, edges: tuple[int, ...]) -> st.SearchStrategy[ReductionProblem]:
    """Matrices of up to `size.work` elements, long and short rows alike."""

    @st.composite
    def draw(d: st.DrawFn) -> ReductionProblem:
        first = d(extents(size, edges))
        second = d(extents(Size(max(1, min(size.extent, size.work // first)), size.work), edges))
        rows, columns = (first, second) if d(st.booleans()) else (second, first)
        return ReductionProblem(
            rows=rows, columns=columns, dtype=d(st.sampled_from(tuple(FLOATS))), seed=d(st.integers(0, 2**16))
        )

    return draw()


REDUCTION = Operation(
    name="reduction",
    summary="sums of the rows of a matrix",
    problem=ReductionProblem,
    problems=problems,
    suite=(
        ReductionProblem(rows=4096, columns=4096, dtype="fp32"),
        ReductionProblem(rows=65536, columns=1024, dtype="bf16"),
    ),
    defines=lambda p: {"IN": dtype_of(p.dtype).cuda},
    emulator_size=Size(extent=3000, work=20_000),
    cuda_size=Size(extent=20_000, work=4_000_000),
    metric="GB/s",
)

"""Elementwise sum c[i] = a[i] + b[i]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from hypothesis import strategies as st

from ... import reference
from ...model.arrays import Array, Arrays, NonFinite
from ...model.dtypes import FLOATS, dtype_of
from ...model.problem import Cost, Problem, Size, extents


@dataclass(frozen=True)
class VectorAddProblem(Problem):
    """a, b, c: (n,), all of type `dtype`."""

    n: int = 1
    dtype: str = "fp32"

    extents: ClassVar[tuple[str, ...]] = ("n",)
    non_finite: ClassVar[NonFinite | str] = NonFinite.PROPAGATE
    scales: ClassVar[tuple[int, int]] = (-120, 124)
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"dtype": tuple(FLOATS)}

    @property
    def label(self) -> str:
        return f"{self.n} {self.dtype}"

    def arrays(self) -> dict[str, Array]:
        dtype = dtype_of(self.dtype)
        return {
            "a": Array((self.n,), dtype),
            "b": Array((self.n,), dtype),
            "c": Array((self.n,), dtype, output=True),
        }

    def reference(self, inputs: Arrays) -> Arrays:
        return {"c": reference.vector_add(inputs["a"], inputs["b"])}

    def bound(self, inputs: Arrays, expected: Arrays) -> Arrays:
        dtype = dtype_of(self.dtype)
        return {"c": dtype.unit_roundoff * np.abs(expected["c"]) + dtype.smallest}

    def negative_controls(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        c = expected["c"]
        wrong = {
            "all zeros": np.zeros_like(c),
            "only a": inputs["a"].astype(np.float64),
            "shifted by one": np.roll(c, 1),
            "last element missing": np.concatenate([c[:-1], [0.0]]),
        }
        return {name: {"c": value} for name, value in wrong.items()}

    @property
    def cost(self) -> Cost:
        return Cost(self.n, 3 * self.n * dtype_of(self.dtype).itemsize)


def problems(size: Size, edges: tuple[int, ...]) -> st.SearchStrategy[VectorAddProblem]:
    """Vectors of up to `size.extent` elements."""
    return st.builds(
        VectorAddProblem,
        n=extents(size, edges),
        dtype=st.sampled_from(tuple(FLOATS)),
        seed=st.integers(0, 2**16),
    )

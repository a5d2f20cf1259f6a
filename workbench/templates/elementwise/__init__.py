"""y[i] = x[i]^2: replace it by what elementwise computes."""

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
class ElementwiseProblem(Problem):
    """x, y: (n,), both of type `dtype`."""

    n: int = 1
    dtype: str = "fp32"

    extents: ClassVar[tuple[str, ...]] = ("n",)
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"dtype": tuple(FLOATS)}

    @property
    def label(self) -> str:
        return f"{self.n} {self.dtype}"

    def arrays(self) -> dict[str, Array]:
        dtype = dtype_of(self.dtype)
        return {"x": Array((self.n,), dtype), "y": Array((self.n,), dtype, output=True)}

    def reference(self, inputs: Arrays) -> Arrays:
        return {"y": reference.elementwise(inputs["x"])}

    def bound(self, inputs: Arrays, expected: Arrays) -> Arrays:
        # one product, rounded in fp32, and the rounding of the result
        y = expected["y"]
        return {"y": dot_products(y, np.abs(y), 1, dtype_of(self.dtype))}

    def negative_controls(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        y = expected["y"]
        wrong = {
            "all zeros": np.zeros_like(y),
            "shifted by one": np.roll(y, 1),
            "last element missing": np.concatenate([y[:-1], [0.0]]),
        }
        return {name: {"y": value} for name, value in wrong.items()}

    @property
    def cost(self) -> Cost:
        return Cost(self.n, 2 * self.n * dtype_of(self.dtype).itemsize)


def problems(size: Size, edges: tuple[int, ...]) -> st.SearchStrategy[ElementwiseProblem]:
    """Vectors of up to `size.extent` elements."""
    dtypes = st.sampled_from(tuple(FLOATS))
    return st.builds(ElementwiseProblem, n=extents(size, edges), dtype=dtypes, seed=st.integers(0, 2**16))


ELEMENTWISE = Operation(
    name="elementwise",
    summary="y = x^2, element by element",
    problem=ElementwiseProblem,
    problems=problems,
    suite=(ElementwiseProblem(n=2**26, dtype="fp32"), ElementwiseProblem(n=2**26, dtype="bf16")),
    defines=lambda p: {"IN": dtype_of(p.dtype).cuda},
    emulator_size=Size(extent=20_000, work=20_000),
    cuda_size=Size(extent=5_000_000, work=5_000_000),
    metric="GB/s",
)

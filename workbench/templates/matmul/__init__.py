"""C[m, n] = sum_k A[m, k] B[k, n]: replace it by what matmul computes."""

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
class MatmulProblem(Problem):
    """A: (m, k), B: (k, n), C: (m, n), all of type `dtype`."""

    m: int = 1
    n: int = 1
    k: int = 1
    dtype: str = "fp32"

    extents: ClassVar[tuple[str, ...]] = ("m", "n", "k")
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"dtype": tuple(FLOATS)}

    @property
    def label(self) -> str:
        return f"{self.m}x{self.n}x{self.k} {self.dtype}"

    def arrays(self) -> dict[str, Array]:
        dtype = dtype_of(self.dtype)
        return {
            "A": Array((self.m, self.k), dtype),
            "B": Array((self.k, self.n), dtype),
            "C": Array((self.m, self.n), dtype, output=True),
        }

    def reference(self, inputs: Arrays) -> Arrays:
        return {"C": reference.matmul(inputs["A"], inputs["B"])}

    def bound(self, inputs: Arrays, expected: Arrays) -> Arrays:
        # sums of k products in fp32, and the rounding of the result
        magnitude = reference.matmul(np.abs(inputs["A"]), np.abs(inputs["B"]))
        return {"C": dot_products(expected["C"], magnitude, self.k, dtype_of(self.dtype))}

    def negative_controls(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        a, b, c = inputs["A"], inputs["B"], expected["C"]
        wrong = {
            "all zeros": np.zeros_like(c),
            "last k-term dropped": reference.matmul(a[:, :-1], b[:-1]),
            "last row missing": np.concatenate([c[:-1], np.zeros((1, self.n))]),
        }
        if self.m == self.n:
            wrong["transposed"] = c.T
        return {name: {"C": value} for name, value in wrong.items()}

    @property
    def cost(self) -> Cost:
        elements = self.m * self.k + self.k * self.n + self.m * self.n
        return Cost(2 * self.m * self.n * self.k, elements * dtype_of(self.dtype).itemsize)


def problems(size: Size, edges: tuple[int, ...]) -> st.SearchStrategy[MatmulProblem]:
    """Products of up to `size.work` steps, with any of the three extents the long one."""

    @st.composite
    def draw(d: st.DrawFn) -> MatmulProblem:
        left, drawn = size.work, []
        for _ in range(3):
            drawn.append(d(extents(Size(max(1, min(size.extent, left)), size.work), edges)))
            left //= drawn[-1]
        m, n, k = d(st.permutations(drawn))
        return MatmulProblem(m=m, n=n, k=k, dtype=d(st.sampled_from(tuple(FLOATS))), seed=d(st.integers(0, 2**16)))

    return draw()


MATMUL = Operation(
    name="matmul",
    summary="matrix product C = A B",
    problem=MatmulProblem,
    problems=problems,
    suite=(MatmulProblem(m=4096, n=4096, k=4096, dtype="bf16"), MatmulProblem(m=4096, n=4096, k=4096, dtype="fp32")),
    defines=lambda p: {"IN": dtype_of(p.dtype).cuda},
    emulator_size=Size(extent=300, work=200_000),
    cuda_size=Size(extent=2000, work=100_000_000),
)

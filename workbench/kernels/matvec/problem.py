"""Matrix-vector product c[n] = sum_k a[k] B[n, k]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from hypothesis import strategies as st

from ... import reference
from ...judge import bounds
from ...model.arrays import Array, Arrays, NonFinite, element_bytes
from ...model.dtypes import BF16, FP16, FP32, dtype_of
from ...model.parts import Axis
from ...model.problem import Cost, Problem, Size, extents


@dataclass(frozen=True)
class MatvecProblem(Problem):
    """a: (k,), B: (n, k) with `pad_b` elements between its rows, c: (n,) of type `out` (`dtype` or fp32)."""

    n: int = 1
    k: int = 1
    dtype: str = "bf16"
    out: str = "fp32"
    pad_b: int = 0

    extents: ClassVar[tuple[str, ...]] = ("n", "k")
    non_finite: ClassVar[NonFinite | str] = NonFinite.PROPAGATE
    scales: ClassVar[tuple[int, int]] = (-40, 40)
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "dtype": (BF16.name, FP16.name, FP32.name),
        "out": (BF16.name, FP16.name, FP32.name),
    }

    def check(self) -> str | None:
        if self.out in (self.dtype, FP32.name):
            return None
        allowed = " or ".join(dict.fromkeys((self.dtype, FP32.name)))
        return f"out is {self.out!r}; for dtype {self.dtype} it has to be {allowed}"

    @property
    def label(self) -> str:
        out = "" if self.out == self.dtype else f"->{self.out}"
        return f"{self.n}x{self.k} {self.dtype}{out}"

    @property
    def ldb(self) -> int:
        """Elements from one row of B to the next."""
        return self.k + self.pad_b

    def arrays(self) -> dict[str, Array]:
        dtype = dtype_of(self.dtype)
        return {
            "a": Array((self.k,), dtype),
            "B": Array((self.n, self.k), dtype, self.ldb),
            "c": Array((self.n,), dtype_of(self.out), output=True),
        }

    def axes(self) -> tuple[Axis, ...]:
        return (Axis("n", {"B": 0, "c": 0}),)

    def reference(self, inputs: Arrays) -> Arrays:
        return {"c": reference.matvec(inputs["a"], inputs["B"])}

    def bound(self, inputs: Arrays, expected: Arrays) -> Arrays:
        magnitude = reference.matvec(np.abs(inputs["a"]), np.abs(inputs["B"]))
        return {"c": bounds.dot_products(expected["c"], magnitude, self.k, dtype_of(self.out))}

    def negative_controls(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        a, b, c = inputs["a"].astype(np.float64), inputs["B"].astype(np.float64), expected["c"]
        wrong = {
            "all zeros": np.zeros_like(c),
            "last k-term dropped": b[:, :-1] @ a[:-1],
            "shifted by one row": np.roll(c, 1),
            "last row missing": np.concatenate([c[:-1], [0.0]]),
        }
        return {name: {"c": value} for name, value in wrong.items()}

    @property
    def terms(self) -> int:
        return self.k

    def probe(self, order: np.ndarray) -> Arrays:
        element = np.flatnonzero(order >= 0)
        b = np.zeros((self.n, self.k))
        b[element, order[element]] = 1
        dtype = dtype_of(self.dtype).numpy
        return {"a": np.ones(self.k, dtype), "B": b.astype(dtype)}

    @property
    def cost(self) -> Cost:
        return Cost(2 * self.n * self.k, element_bytes(self.arrays().values()))


def problems(size: Size, edges: tuple[int, ...]) -> st.SearchStrategy[MatvecProblem]:
    """Matrix-vector problems within `size`; half of them with rows a multiple of 16 bytes apart."""

    @st.composite
    def draw(d: st.DrawFn) -> MatvecProblem:
        # the first extent may be as long as any, the second what the work leaves: else long rows are never drawn
        first = d(extents(size, edges))
        second = d(extents(Size(max(1, min(size.extent, size.work // first)), size.work), edges))
        k, n = (first, second) if d(st.booleans()) else (second, first)
        dtype = d(st.sampled_from([BF16.name, FP16.name, FP32.name]))
        aligned = d(st.booleans())
        pad = -k % 8 + 8 * d(st.integers(0, 2)) if aligned else d(st.integers(0, 5))
        out = d(st.sampled_from(sorted({dtype, FP32.name})))
        return MatvecProblem(n=n, k=k, dtype=dtype, out=out, pad_b=pad, seed=d(st.integers(0, 2**16)))

    return draw()

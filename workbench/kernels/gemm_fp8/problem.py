"""Matrix product of 8-bit numbers with scales: C[m, n] = a_scale[m] b_scale[n] sum_k A[m, k] B[n, k]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from hypothesis import strategies as st

from ... import reference
from ...judge import bounds
from ...model.arrays import Array, Arrays, NonFinite, element_bytes
from ...model.dtypes import BF16, E4M3, FP32, dtype_of
from ...model.problem import Cost, Problem, Size, Tier
from ..gemm import drawn_extents

RUN = 128
"""Terms that stages let the tensor cores add up at most."""


@dataclass(frozen=True)
class ScaledGemmProblem(Problem):
    """A: (m, k) and B: (n, k) of e4m3, a_scale: (m,) and b_scale: (n,) fp32, C: (m, n) of type `out`: bf16 or fp32.

    `pad_*` elements lie between the rows of A, B and C.
    """

    m: int = 1
    n: int = 1
    k: int = 1
    out: str = "bf16"
    pad_a: int = 0
    pad_b: int = 0
    pad_c: int = 0

    extents: ClassVar[tuple[str, ...]] = ("m", "n", "k")
    non_finite: ClassVar[NonFinite | str] = NonFinite.PROPAGATE
    distributed: ClassVar[tuple[str, ...]] = ("A", "B")
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"out": (BF16.name, FP32.name)}
    dtype: ClassVar[str] = E4M3.name
    layout: ClassVar[str] = "nt"

    @property
    def label(self) -> str:
        return f"{self.m}x{self.n}x{self.k} {self.dtype}->{self.out}"

    @property
    def lda(self) -> int:
        """Elements from one row of A to the next."""
        return self.k + self.pad_a

    @property
    def ldb(self) -> int:
        """Elements from one row of B to the next."""
        return self.k + self.pad_b

    @property
    def ldc(self) -> int:
        """Elements from one row of C to the next."""
        return self.n + self.pad_c

    def arrays(self) -> dict[str, Array]:
        return {
            "A": Array((self.m, self.k), E4M3, self.lda),
            "B": Array((self.n, self.k), E4M3, self.ldb),
            "a_scale": Array((self.m,), FP32),
            "b_scale": Array((self.n,), FP32),
            "C": Array((self.m, self.n), dtype_of(self.out), self.ldc, output=True),
        }

    def inputs(self) -> Arrays:
        """Scales are positive: powers of two in the exact tier, else between 1/2 and 2. Numbers of the exact tier are
        mostly positive too: long sums then need more bits than half precision has, and those of a run 12 at most."""
        rng, drawn = self.rng(), super().inputs()
        if self.tier is Tier.EXACT:
            drawn |= {name: rng.integers(-1, 5, drawn[name].shape).astype(E4M3.numpy) for name in "AB"}
        for name in ("a_scale", "b_scale"):
            count = drawn[name].shape
            powers = rng.integers(-1, 2, count) if self.tier is Tier.EXACT else rng.uniform(-1, 1, count)
            drawn[name] = np.exp2(powers).astype(np.float32)
        return drawn

    def reference(self, inputs: Arrays) -> Arrays:
        return {"C": reference.scaled_gemm(**_lower(inputs))}

    def bound(self, inputs: Arrays, expected: Arrays) -> Arrays:
        lifted = _lower(inputs | {name: bounds.aligned_magnitudes(inputs[name], E4M3) for name in "AB"})
        squared = {name: np.square(values, dtype=np.float64) for name, values in lifted.items()}
        magnitude, squares = (reference.scaled_gemm(**values) for values in (lifted, squared))
        out = dtype_of(self.out)
        return {"C": bounds.scaled_fp8_products(expected["C"], magnitude, np.sqrt(squares), self.k, RUN, out)}

    def negative_controls(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        given, c = _lower(inputs), expected["C"]
        shorter = {**given, "a": given["a"][:, :-1], "b": given["b"][:, :-1]}
        wrong = {
            "all zeros": np.zeros_like(c),
            "last k-term dropped": reference.scaled_gemm(**shorter),
            "shifted by one column": np.roll(c, 1, axis=1),
            "last row missing": np.concatenate([c[:-1], np.zeros_like(c[-1:])]),
            "rows not scaled": reference.scaled_gemm(**{**given, "a_scale": np.ones(self.m)}),
            "columns not scaled": reference.scaled_gemm(**{**given, "b_scale": np.ones(self.n)}),
        }
        if self.m == self.n:
            wrong["transposed"] = c.T
        return {name: {"C": value} for name, value in wrong.items()}

    @property
    def terms(self) -> int:
        return self.k

    def probe(self, order: np.ndarray) -> Arrays:
        element = np.flatnonzero(order >= 0)
        a, b = np.zeros((self.m, self.k)), np.zeros((self.n, self.k))
        a[element // self.n, order[element]] = 1
        b[element % self.n, order[element]] = 1
        ones = {"a_scale": np.ones(self.m, np.float32), "b_scale": np.ones(self.n, np.float32)}
        return {"A": a.astype(E4M3.numpy), "B": b.astype(E4M3.numpy), **ones}

    @property
    def cost(self) -> Cost:
        return Cost(2 * self.m * self.n * self.k, element_bytes(self.arrays().values()))


def _lower(inputs: Arrays) -> dict[str, np.ndarray]:
    """The arrays as the reference names them."""
    return {name.lower(): values for name, values in inputs.items()}


def problems(size: Size, edges: tuple[int, ...]) -> st.SearchStrategy[ScaledGemmProblem]:
    """Problems within `size`; half of them with all leading dimensions a multiple of 16 elements, as TMA needs."""

    @st.composite
    def draw(d: st.DrawFn) -> ScaledGemmProblem:
        m, n, k = drawn_extents(d, size, edges)
        aligned = d(st.booleans())
        pads = [-row % 16 + 16 * d(st.integers(0, 2)) if aligned else d(st.integers(0, 5)) for row in (k, k, n)]
        return ScaledGemmProblem(
            m=m,
            n=n,
            k=k,
            out=d(st.sampled_from([BF16.name, FP32.name])),
            pad_a=pads[0],
            pad_b=pads[1],
            pad_c=pads[2],
            seed=d(st.integers(0, 2**16)),
        )

    return draw()

"""The problems of GEMM: C[m, n] = sum_k A[m, k] B[k, n] (layout `nn`) or B[n, k] (layout `nt`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from ... import reference
from ...judge import bounds
from ...model.arrays import Array, Arrays, NonFinite, element_bytes
from ...model.dtypes import BF16, FP16, FP32, dtype_of
from ...model.parts import Axis
from ...model.problem import Cost, Problem, Size, Tier, extents
from ...model.strategies import st
from ..shared import wrong_output


@dataclass(frozen=True)
class GemmProblem(Problem):
    """A: (m, k), B: (k, n) for `nn` or (n, k) for `nt`, C: (m, n); `pad_*` elements lie between the rows of each.

    A and B are of type `dtype`; C is of type `out`: `dtype` or fp32, which is also what accumulates.
    """

    m: int = 1
    n: int = 1
    k: int = 1
    dtype: str = "bf16"
    out: str = "fp32"
    layout: str = "nt"
    pad_a: int = 0
    pad_b: int = 0
    pad_c: int = 0

    extents: ClassVar[tuple[str, ...]] = ("m", "n", "k")
    non_finite: ClassVar[NonFinite | str] = NonFinite.PROPAGATE
    scales: ClassVar[tuple[int, int]] = (-40, 40)
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "dtype": (BF16.name, FP16.name, FP32.name),
        "out": (BF16.name, FP16.name, FP32.name),
        "layout": ("nn", "nt"),
    }

    def check(self) -> str | None:
        return wrong_output(self.dtype, self.out)

    @property
    def label(self) -> str:
        out = "" if self.out == self.dtype else f"->{self.out}"
        return f"{self.m}x{self.n}x{self.k} {self.dtype}{out} {self.layout}"

    @property
    def lda(self) -> int:
        """Elements from one row of A to the next."""
        return self.k + self.pad_a

    @property
    def ldb(self) -> int:
        """Elements from one row of B, as stored, to the next."""
        return (self.n if self.layout == "nn" else self.k) + self.pad_b

    @property
    def ldc(self) -> int:
        """Elements from one row of C to the next."""
        return self.n + self.pad_c

    @cached_property
    def unmapped(self) -> tuple[str, ...]:
        """The operands whose rows no tensor map takes: they are no multiple of 16 bytes apart."""
        item = dtype_of(self.dtype).itemsize
        return tuple(name for name, row in (("A", self.lda), ("B", self.ldb)) if row * item % 16)

    def arrays(self) -> dict[str, Array]:
        dtype = dtype_of(self.dtype)
        b_shape = (self.k, self.n) if self.layout == "nn" else (self.n, self.k)
        return {
            "A": Array((self.m, self.k), dtype, self.lda),
            "B": Array(b_shape, dtype, self.ldb),
            "C": Array((self.m, self.n), dtype_of(self.out), self.ldc, output=True),
        }

    def axes(self) -> tuple[Axis, ...]:
        columns = 1 if self.layout == "nn" else 0
        return Axis("m", {"A": 0, "C": 0}), Axis("n", {"B": columns, "C": 1})

    def reference(self, inputs: Arrays) -> Arrays:
        return {"C": reference.gemm(inputs["A"], inputs["B"], trans_b=self.layout == "nt")}

    def bound(self, inputs: Arrays, expected: Arrays) -> Arrays:
        a, b = (bounds.aligned_magnitudes(inputs[name], dtype_of(self.dtype)) for name in "AB")
        magnitude = reference.gemm(a, b, trans_b=self.layout == "nt")
        return {"C": bounds.dot_products(expected["C"], magnitude, self.k, dtype_of(self.out))}

    def negative_controls(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        a, b, c = inputs["A"].astype(np.float64), inputs["B"].astype(np.float64), expected["C"]
        b = b if self.layout == "nn" else b.T
        wrong = {
            "all zeros": np.zeros_like(c),
            "last k-term dropped": a[:, :-1] @ b[:-1],
            "shifted by one column": np.roll(c, 1, axis=1),
            "last row missing": np.concatenate([c[:-1], np.zeros_like(c[-1:])]),
        }
        if self.m == self.n:
            wrong["transposed"] = c.T
        if self.tier is Tier.BOUNDED and self.k >= 256:
            wrong["fp16 accumulator"] = _fp16_accumulated(a, b)
        return {name: {"C": value} for name, value in wrong.items()}

    @property
    def terms(self) -> int:
        return self.k

    def probe(self, order: np.ndarray) -> Arrays:
        element = np.flatnonzero(order >= 0)
        a, b = np.zeros((self.m, self.k)), np.zeros((self.k, self.n))
        a[element // self.n, order[element]] = 1
        b[order[element], element % self.n] = 1
        dtype = dtype_of(self.dtype).numpy
        return {"A": a.astype(dtype), "B": (b if self.layout == "nn" else b.T).astype(dtype)}

    @cached_property
    def cost(self) -> Cost:
        return Cost(2 * self.m * self.n * self.k, element_bytes(self.arrays().values()))


def _fp16_accumulated(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    total = np.zeros((a.shape[0], b.shape[1]), np.float16)
    for k in range(a.shape[1]):
        total += np.outer(a[:, k], b[k]).astype(np.float16)
    return total.astype(np.float64)


def drawn_extents(d: st.DrawFn, size: Size, edges: tuple[int, ...]) -> tuple[int, int, int]:
    """m, n and k of a random product within `size`."""
    m, n, k = (d(extents(size, edges)) for _ in range(3))
    while m * n * k > size.work:  # halve the largest extent: keeps small problems small and shrinks well
        m, n, k = (max(1, x // 2) if x == max(m, n, k) else x for x in (m, n, k))
    return m, n, k


def problems(size: Size, edges: tuple[int, ...]) -> st.SearchStrategy[GemmProblem]:
    """GEMM problems within `size`; half of them with all leading dimensions a multiple of 8 elements, as TMA needs."""

    @st.composite
    def draw(d: st.DrawFn) -> GemmProblem:
        m, n, k = drawn_extents(d, size, edges)
        dtype = d(st.sampled_from([BF16.name, FP16.name, FP32.name]))
        layout = d(st.sampled_from(["nn", "nt"]))
        aligned = d(st.booleans())
        pads = [0, 0, 0]
        for i, row in enumerate((k, n if layout == "nn" else k, n)):
            pads[i] = (-row % 8 + 8 * d(st.integers(0, 2))) if aligned else d(st.integers(0, 5))
        return GemmProblem(
            m=m,
            n=n,
            k=k,
            dtype=dtype,
            out=d(st.sampled_from(sorted({dtype, FP32.name}))),
            layout=layout,
            pad_a=pads[0],
            pad_b=pads[1],
            pad_c=pads[2],
            seed=d(st.integers(0, 2**16)),
        )

    return draw()


def suite() -> tuple[GemmProblem, ...]:
    shapes = [(1024,) * 3, (2048,) * 3, (4096,) * 3, (8192,) * 3]
    half = [
        GemmProblem(m=m, n=n, k=k, dtype="bf16", out="bf16", layout=layout)
        for m, n, k in shapes
        for layout in ("nt", "nn")
    ]
    half += [
        GemmProblem(m=m, n=n, k=k, dtype="bf16", out="bf16", layout="nt")
        for m, n, k in ((128, 8192, 8192), (4096, 4096, 512))
    ]
    single = [GemmProblem(m=s, n=s, k=s, dtype="fp32", out="fp32", layout="nn") for s in (1024, 4096)]
    return (*half, *single)


def half_only(p: GemmProblem) -> str | None:
    return None if p.dtype != "fp32" else "tensor cores multiply bf16 and fp16 here, not fp32"


def tensor_maps(p: GemmProblem) -> str | None:
    for name in p.unmapped:
        return f"a tensor map needs the rows of {name} a multiple of 16 bytes apart"
    return None


def tma_and_wgmma(p: GemmProblem) -> str | None:
    return half_only(p) or tensor_maps(p)

"""The problems of GEMM: C = activation(alpha A B + beta added), of matrices alone or in batches, each operand in either
layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ... import reference
from ...judge import bounds
from ...model.arrays import Array, Arrays, element_bytes
from ...model.distributions import NonFinite, drawn, drawn_pad, st
from ...model.dtypes import BF16, FP16, FP32, DType, dtype_of, from_numpy, wrong_output
from ...model.parts import Axis
from ...model.problem import Cost, Problem, Size, Tier, extents


class Activation(StrEnum):
    """What is applied to a sum; GELU is that with the error function."""

    NONE = "none"
    RELU = "relu"
    GELU = "gelu"
    SILU = "silu"


class Added(StrEnum):
    """What is added to the products: nothing, a row to each of their rows, or a matrix."""

    NONE = "none"
    ROW = "row"
    MATRIX = "matrix"


DENSE = -1
"""The step of a batch whose matrices follow each other without a gap."""


@dataclass(frozen=True)
class GemmProblem(Problem):
    """C = activation(alpha A B + beta added), C: (m, n), A: (m, k), B: (k, n). `layout` says how A and B are stored:
    `n` as they are, `t` transposed, as (k, m) and (n, k). `pad_*` elements lie between the rows of each, as stored.

    A and B are of type `dtype`; C and `added` are of type `out`: `dtype` or fp32, which is also what accumulates.
    `added` is a row of n elements, or a matrix like C. With a `batch` each array has so many matrices (0: matrices
    alone), `step_*` elements from one to the next: `DENSE` is without a gap, and with 0 there is one matrix for all. C
    is dense."""

    m: int = 1
    n: int = 1
    k: int = 1
    dtype: str = "bf16"
    out: str = "fp32"
    layout: str = "nt"
    pad_a: int = 0
    pad_b: int = 0
    pad_c: int = 0
    batch: int = 0
    step_a: int = DENSE
    step_b: int = DENSE
    added: Added = Added.NONE
    pad_added: int = 0
    step_added: int = DENSE
    alpha: float = 1.0
    beta: float = 1.0
    activation: Activation = Activation.NONE

    extents: ClassVar[tuple[str, ...]] = ("m", "n", "k")
    later: ClassVar[tuple[str, ...]] = ("added", "alpha", "beta", "activation")
    non_finite: ClassVar[NonFinite | str] = NonFinite.PROPAGATE
    scales: ClassVar[tuple[int, int]] = (-40, 40)
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "dtype": (BF16.name, FP16.name, FP32.name),
        "out": (BF16.name, FP16.name, FP32.name),
        "layout": ("nn", "nt", "tn", "tt"),
    }
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = dict.fromkeys(
        ("step_a", "step_b", "step_added"), (DENSE, 2**62)
    )

    def check(self) -> str | None:
        if reason := wrong_output(self.dtype, self.out):
            return reason
        if not self.batch and (self.step_a, self.step_b, self.step_added) != (DENSE,) * 3:
            return "steps are from one matrix of a batch to the next: there is no batch"
        if self.tier is Tier.EXACT and any(64 * x % 1 for x in (self.alpha, self.beta)):
            return "alpha and beta have to be multiples of 1/64 in the exact tier"
        try:
            self.arrays()
        except ValueError as error:
            return str(error)
        return None

    @property
    def label(self) -> str:
        out = "" if self.out == self.dtype else f"->{self.out}"
        more = [f"batch {self.batch}"] if self.batch else []
        more += [f"alpha {self.alpha:g}"] if self.alpha != 1 else []
        more += [f"+ {self.added}" if self.beta == 1 else f"+ {self.beta:g} {self.added}"] if self.has_added else []
        more += [self.activation] if self.activation is not Activation.NONE else []
        return " ".join([f"{self.m}x{self.n}x{self.k} {self.dtype}{out} {self.layout}", *more])

    @property
    def trans_a(self) -> bool:
        """Whether A is stored as (k, m)."""
        return self.layout[0] == "t"

    @property
    def trans_b(self) -> bool:
        """Whether B is stored as (n, k)."""
        return self.layout[1] == "t"

    @property
    def count(self) -> int:
        """Products."""
        return max(1, self.batch)

    @property
    def has_added(self) -> bool:
        """Whether something is added; what beta makes zero is not."""
        return self.added is not Added.NONE and self.beta != 0

    @property
    def has_epilogue(self) -> bool:
        """Whether something else than a sum is stored."""
        return self.alpha != 1 or self.has_added or self.activation is not Activation.NONE

    @property
    def lda(self) -> int:
        """Elements from one row of A, as stored, to the next."""
        return (self.m if self.trans_a else self.k) + self.pad_a

    @property
    def ldb(self) -> int:
        """Elements from one row of B, as stored, to the next."""
        return (self.k if self.trans_b else self.n) + self.pad_b

    @property
    def ldc(self) -> int:
        """Elements from one row of C to the next."""
        return self.n + self.pad_c

    @property
    def ld_added(self) -> int:
        """Elements from one row of what is added to the next: of a row alone 0."""
        return self.n + self.pad_added if self.added is Added.MATRIX else 0

    @cached_property
    def steps(self) -> dict[str, int]:
        """Elements from one matrix of a batch to the next, by array: 0 of one for all."""
        rows = {"A": self.k if self.trans_a else self.m, "B": self.n if self.trans_b else self.k}
        given = {"A": (self.step_a, rows["A"] * self.lda), "B": (self.step_b, rows["B"] * self.ldb)}
        given |= {"C": (DENSE, self.m * self.ldc), "added": (self.step_added, self.ld_added * self.m or self.n)}
        return {name: dense if step == DENSE else step for name, (step, dense) in given.items()}

    @cached_property
    def unmapped(self) -> tuple[str, ...]:
        """The operands whose rows no tensor map takes: they, or matrices of a batch, are no multiple of 16 bytes
        apart."""
        item, steps = dtype_of(self.dtype).itemsize, self.steps if self.batch > 1 else {"A": 0, "B": 0}
        return tuple(
            name for name, row in (("A", self.lda), ("B", self.ldb)) if row * item % 16 or steps[name] * item % 16
        )

    @property
    def copied(self) -> tuple[str, ...]:
        """The operands that have to be copied for kernels that take tensor maps of an A along k."""
        return tuple(name for name in "AB" if name in self.unmapped or (name == "A" and self.trans_a))

    def _array(self, name: str, rows: int, columns: int, dtype: str, leading: int, output: bool = False) -> Array:
        step = self.steps[name]
        if not self.batch or not step:
            return Array((rows, columns), dtype_of(dtype), leading, output=output)
        return Array((self.batch, rows, columns), dtype_of(dtype), strides=(step, leading, 1), output=output)

    def arrays(self) -> dict[str, Array]:
        a, b = (self.k, self.m) if self.trans_a else (self.m, self.k), (self.k, self.n)
        found = {
            "A": self._array("A", *a, self.dtype, self.lda),
            "B": self._array("B", *(b[::-1] if self.trans_b else b), self.dtype, self.ldb),
        }
        if self.has_added:
            rows, leading = (self.m, self.ld_added) if self.added is Added.MATRIX else (1, self.n)
            found["added"] = self._array("added", rows, self.n, self.out, leading)
        return found | {"C": self._array("C", self.m, self.n, self.out, self.ldc, output=True)}

    def axes(self) -> tuple[Axis, ...]:
        arrays = self.arrays()
        if (self.step_a, self.step_b, self.step_added) != (DENSE,) * 3:  # of a part matrices would overlap
            return ()
        last = {name: len(array.shape) - 1 for name, array in arrays.items()}
        rows = {"A": last["A"] - (not self.trans_a), "C": last["C"] - 1}
        columns = {"B": last["B"] - self.trans_b, "C": last["C"]}
        if self.has_added:
            columns["added"] = last["added"]
            rows |= {"added": last["added"] - 1} if self.added is Added.MATRIX else {}
        return Axis("m", rows), Axis("n", columns)

    def exact_steps(self) -> Mapping[str, int]:
        step = STEPS.get(self.activation)
        return {name: step for name in ("B", "added") if name in self.arrays()} if step else {}

    def _operands(self, inputs: Arrays) -> tuple[np.ndarray, np.ndarray]:
        """A as (..., m, k) and B as (..., k, n), float64."""
        a, b = (inputs[name].astype(np.float64) for name in "AB")
        return a.swapaxes(-1, -2) if self.trans_a else a, b.swapaxes(-1, -2) if self.trans_b else b

    def _finished(self, sums: np.ndarray, inputs: Arrays, **changed: Any) -> np.ndarray:
        """C of sums, float64, with other numbers than those of the problem where they are `changed`."""
        how = {"alpha": self.alpha, "beta": self.beta, "activation": self.activation.value} | changed
        sums = np.broadcast_to(sums, (self.batch, self.m, self.n), subok=True) if self.batch else sums
        added = inputs["added"] if self.has_added else None
        return reference.epilogue(sums, added, **how)

    def reference(self, inputs: Arrays) -> Arrays:
        a, b = self._operands(inputs)
        return {"C": self._finished(reference.gemm(a, b), inputs)}

    def bound(self, inputs: Arrays, expected: Arrays) -> Arrays:
        lifted = inputs | {name: bounds.aligned_magnitudes(inputs[name], dtype_of(self.dtype)) for name in "AB"}
        magnitude, out = reference.gemm(*self._operands(lifted)), dtype_of(self.out)
        if not self.has_epilogue:
            if self.batch:
                magnitude = np.broadcast_to(magnitude, expected["C"].shape)
            return {"C": bounds.dot_products(expected["C"], magnitude, self.k, out)}
        sums = np.abs(self._finished(reference.gemm(*self._operands(inputs)), inputs, beta=0.0, activation="none"))
        sizes = {name: np.abs(values) for name, values in inputs.items()}
        whole = self._finished(magnitude, sizes, alpha=abs(self.alpha), beta=abs(self.beta), activation="none")
        growth = GROWTH.get(self.activation, 1.0)
        return {"C": bounds.finished(expected["C"], sums, whole, self.k + 2, growth, out)}

    def negative_controls(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        c, (a, b) = expected["C"], self._operands(inputs)
        sums = reference.gemm(a, b)
        wrong = {
            "all zeros": np.zeros_like(c),
            "last k-term dropped": self._finished(a[..., :-1] @ b[..., :-1, :], inputs),
            "shifted by one column": np.roll(c, 1, axis=-1),
            "last row missing": np.concatenate([c[..., :-1, :], np.zeros_like(c[..., -1:, :])], axis=-2),
        }
        if self.m == self.n:
            wrong["transposed"] = c.swapaxes(-1, -2)
        if self.batch > 1:
            wrong["shifted by one product"] = np.roll(c, 1, axis=0)
            wrong["the first product for all"] = np.broadcast_to(c[:1], c.shape)
        if self.alpha != 1:
            wrong["alpha forgotten"] = self._finished(sums, inputs, alpha=1.0)
        if self.has_added:
            wrong["nothing added"] = self._finished(sums, inputs, beta=0.0)
        if self.activation is not Activation.NONE:
            wrong["activation forgotten"] = self._finished(sums, inputs, activation="none")
            other = "relu" if self.activation is Activation.GELU else "gelu"
            wrong["another activation"] = self._finished(sums, inputs, activation=other)
        if self.tier is Tier.BOUNDED and self.k >= 256 and not self.batch and not self.has_epilogue:
            wrong["fp16 accumulator"] = _fp16_accumulated(a, b)
        return {name: {"C": value} for name, value in wrong.items()}

    @property
    def terms(self) -> int:
        return 0 if self.has_epilogue else self.k

    def probe(self, order: np.ndarray) -> Arrays:
        element = np.flatnonzero(order >= 0)
        batch, row, column = np.unravel_index(element, (self.count, self.m, self.n))
        made: Arrays = {}
        for name, shape, at in (
            ("A", (self.m, self.k), (row, order[element])),
            ("B", (self.k, self.n), (order[element], column)),
        ):
            array = self.arrays()[name]
            several = len(array.shape) == 3
            values = np.zeros((*array.shape[:-2], *shape), array.dtype.numpy)
            values[(batch, *at) if several else at] = 1
            transposed = self.trans_a if name == "A" else self.trans_b
            made[name] = values.swapaxes(-1, -2) if transposed else values
        return made

    @cached_property
    def cost(self) -> Cost:
        return Cost(2 * self.count * self.m * self.n * self.k, element_bytes(self.arrays().values()))


STEPS = {Activation.GELU: 1024, Activation.SILU: 8192}
"""In the exact tier B and what is added are multiples of it: with an alpha and beta of 1/64 or more, GELU and SILU of a
positive sum are the sum, and of a negative one 0, to the last bit of every type."""

GROWTH = {Activation.GELU: 2.2, Activation.SILU: 2.2}
"""By how much an activation makes an error of a sum larger: slopes are at most 1.13 and 1.1, and the roundings of
either, some 4 u of the sum, are no more than what is accumulated."""


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


class ScaledProduct(Problem):
    """What problems of C = A B^T of numbers with scales have in common. A: (m, k), B: (n, k), a_scale, b_scale, C:
    (m, n) of type `out`: bf16 or fp32, with `pad_c` elements between its rows."""

    m: int
    n: int
    k: int
    out: str
    pad_c: int

    extents: ClassVar[tuple[str, ...]] = ("m", "n", "k")
    non_finite: ClassVar[NonFinite | str] = NonFinite.PROPAGATE
    distributed: ClassVar[tuple[str, ...]] = ("A", "B")
    layout: ClassVar[str] = "nt"

    @property
    def ldc(self) -> int:
        """Elements from one row of C to the next."""
        return self.n + self.pad_c

    @property
    def terms(self) -> int:
        return self.k

    def wrong_products(self, c: np.ndarray, shorter: np.ndarray) -> dict[str, np.ndarray]:
        """Answers that are wrong whatever the scales are: `c` is the right one, `shorter` that without the last term of
        every sum."""
        return {
            "all zeros": np.zeros_like(c),
            "last k-term dropped": shorter,
            "shifted by one column": np.roll(c, 1, axis=1),
            "last row missing": np.concatenate([c[:-1], np.zeros_like(c[-1:])]),
        }

    def probe(self, order: np.ndarray) -> Arrays:
        element, arrays = np.flatnonzero(order >= 0), self.arrays()
        filled = {"A": 0, "B": 0, "a_scale": 1, "b_scale": 1}
        made = {name: np.full(arrays[name].shape, value) for name, value in filled.items()}
        made["A"][element // self.n, order[element]] = 1
        made["B"][element % self.n, order[element]] = 1
        return {name: values.astype(np.float64).astype(arrays[name].dtype.numpy) for name, values in made.items()}

    @property
    def cost(self) -> Cost:
        return Cost(2 * self.m * self.n * self.k, element_bytes(self.arrays().values()))


def scaled_output(function: str, wanted: Any) -> DType:
    """The type that the caller wants the output of such a product in: bf16, or fp32. Raises TypeError."""
    out = BF16 if wanted is None else from_numpy(np.dtype(wanted))
    if out not in (BF16, FP32):
        raise TypeError(f"{function}: out_dtype is {wanted}; it has to be bfloat16 or float32")
    return out


@drawn
def problems(d: st.DrawFn, size: Size, edges: tuple[int, ...]) -> GemmProblem:
    """GEMM problems within `size`; half of them with all leading dimensions a multiple of 8 elements, as TMA needs, and
    half of them products alone: of matrices, and an A that is stored along k."""
    m, n, k = drawn_extents(d, size, edges)
    dtype = d(st.sampled_from([BF16.name, FP16.name, FP32.name]))
    layout = d(st.sampled_from(["nn", "nt"]))
    aligned = d(st.booleans())
    more = _more(d, 2 * size.work // (m * n * k), layout) if d(st.booleans()) else {}
    layout = more.pop("layout", layout)
    pads = [0, 0, 0, 0]
    for i, row in enumerate((m if layout[0] == "t" else k, k if layout[1] == "t" else n, n, n)):
        pads[i] = drawn_pad(d, row, 8, aligned)
    fields: dict[str, Any] = dict(zip(("pad_a", "pad_b", "pad_c"), pads, strict=False))
    made = GemmProblem(
        m=m,
        n=n,
        k=k,
        dtype=dtype,
        out=d(st.sampled_from(sorted({dtype, FP32.name}))),
        layout=layout,
        pad_added=pads[3] if more.get("added") is Added.MATRIX else 0,
        seed=d(st.integers(0, 2**16)),
        **fields,
        **{name: value for name, value in more.items() if not name.startswith("step_")},
    )
    return replace(made, **_steps(made, more)) if made.batch else made


def _more(d: st.DrawFn, most: int, layout: str) -> dict[str, Any]:
    """Fields of a random problem that is more than A B or A B^T, of at most so many products."""
    found: dict[str, Any] = {"layout": d(st.sampled_from([layout, "tn", "tt"]))}
    if d(st.booleans()):
        found["batch"] = max(1, min(most, d(st.sampled_from([1, 2, 2, 3, 5]))))
        for name in ("a", "b", "added"):
            found[f"step_{name}"] = d(st.sampled_from(["dense", "dense", "gap", "one", "rows"]))
    if d(st.booleans()):
        found["alpha"] = d(st.sampled_from([1.0, 1.0, 0.5, -1.0, 1.25]))
        found["added"] = d(st.sampled_from(Added))
        found["beta"] = d(st.sampled_from([1.0, 1.0, 0.0, -0.5, 2.0])) if found["added"] is not Added.NONE else 1.0
        found["activation"] = d(st.sampled_from(Activation))
    return found


def _steps(p: GemmProblem, more: Mapping[str, Any]) -> dict[str, Any]:
    """Fields that say how the matrices of a batch lie: without a gap, with one, row by row beside each other, or one
    for all."""
    found: dict[str, Any] = {}
    leading = {"a": p.lda, "b": p.ldb, "added": p.ld_added}
    for name, pad in (("a", p.pad_a), ("b", p.pad_b), ("added", p.pad_added)):
        kind, dense = more[f"step_{name}"], p.steps[name if name == "added" else name.upper()]
        if kind == "gap":
            found[f"step_{name}"] = dense + 8
        elif kind == "one":
            found[f"step_{name}"] = 0
        elif kind == "rows" and leading[name]:  # a row of each, then the next of each
            found |= {f"step_{name}": leading[name], f"pad_{name}": pad + (p.batch - 1) * leading[name]}
    return found if p.has_added else {name: value for name, value in found.items() if "added" not in name}


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


def defines(p: GemmProblem) -> dict[str, str | int]:
    """What a problem has beyond A B and A B^T is in `general.cuh`, whose defaults are those of the others."""
    found: dict[str, str | int] = {"IN": dtype_of(p.dtype).cuda, "OUT": dtype_of(p.out).cuda, "TRANS_B": int(p.trans_b)}
    found |= {"TRANS_A": 1} if p.trans_a else {}
    found |= {"BATCHED": 1} if p.batch else {}
    if p.has_epilogue:
        found |= {"EPILOGUE": 1, "ADDED": int(p.has_added), "ACTIVATION": tuple(Activation).index(p.activation)}
    return found


def alone(p: GemmProblem) -> str | None:
    """For stages that take neither batches nor an epilogue."""
    if p.batch:
        return "it takes matrices, not batches of them"
    return "it stores the sums as they are" if p.has_epilogue else None


def plain(p: GemmProblem) -> str | None:
    """For stages that take no more than A B and A B^T."""
    return alone(p) or ("A is stored transposed, its rows along m" if p.trans_a else None)


def half_types(p: GemmProblem) -> str | None:
    return None if p.dtype != "fp32" else "tensor cores multiply bf16 and fp16 here, not fp32"


def half_only(p: GemmProblem) -> str | None:
    return half_types(p) or plain(p)


def tensor_maps(p: GemmProblem) -> str | None:
    for name in p.unmapped:
        return f"a tensor map needs the rows of {name} a multiple of 16 bytes apart"
    return None


def tma_and_wgmma(p: GemmProblem) -> str | None:
    return half_only(p) or tensor_maps(p)

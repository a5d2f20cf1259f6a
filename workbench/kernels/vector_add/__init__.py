"""Elementwise sum c[i] = a[i] + b[i]."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ... import reference
from ...model.arrays import Array, Arrays
from ...model.calls import Call
from ...model.distributions import NonFinite, st
from ...model.dtypes import FLOATS, dtype_of
from ...model.launch import Launch, ceil_div
from ...model.operation import Operation
from ...model.parts import Axis
from ...model.problem import Cost, Problem, Size, extents
from ..shared import beside_triton, common_dtype, contiguous, copy_as_long


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
        return {"a": Array((self.n,), dtype), "b": Array((self.n,), dtype), "c": Array((self.n,), dtype, output=True)}

    def axes(self) -> tuple[Axis, ...]:
        return (Axis("n", dict.fromkeys(self.arrays(), 0)),)

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
        VectorAddProblem, n=extents(size, edges), dtype=st.sampled_from(tuple(FLOATS)), seed=st.integers(0, 2**16)
    )


# ----------------------------------------------------------------------------------------------------------- the stages


VECTOR_ADD = Operation(
    name="vector_add",
    summary="elementwise sum c = a + b",
    problem=VectorAddProblem,
    problems=problems,
    suite=(
        VectorAddProblem(n=2**20, dtype="fp32"),
        VectorAddProblem(n=2**26, dtype="bf16"),
        VectorAddProblem(n=2**28, dtype="fp32"),
    ),
    defines=lambda p: {"IN": dtype_of(p.dtype).cuda},
    emulator_size=Size(extent=20_000, work=20_000),
    cuda_size=Size(extent=1_000_000, work=1_000_000),
    metric="GB/s",
    fastest=("vectorized",),
)


def _launch(kernel: str, p: VectorAddProblem, blocks: int, threads: int) -> Launch:
    return Launch(kernel, (blocks, 1, 1), (threads, 1, 1), ("a", "b", "c", np.int64(p.n)))


def _width(p: VectorAddProblem) -> int:
    """Elements in 16 bytes."""
    return 16 // dtype_of(p.dtype).itemsize


@VECTOR_ADD.stage("naive", idea="one thread adds one element", parameters={"THREADS": 256}, alignment=1)
def naive(p: VectorAddProblem, size: Mapping[str, int]) -> Launch:
    return _launch("vector_add_naive", p, ceil_div(p.n, size["THREADS"]), size["THREADS"])


@VECTOR_ADD.stage(
    "vectorized",
    after=naive,
    idea="one thread adds 16 bytes",
    space={"THREADS": (64, 128, 256, 512, 1024)},
    alignment=16,
)
def vectorized(p: VectorAddProblem, size: Mapping[str, int]) -> Launch:
    blocks = ceil_div(p.n, size["THREADS"] * _width(p))
    return _launch("vector_add_vectorized", p, blocks, size["THREADS"])


@VECTOR_ADD.stage(
    "grid_stride",
    after=vectorized,
    idea="a grid of bounded size strides through the vectors",
    parameters={"THREADS": 256, "BLOCKS": 1024},
    edge_cases=(VectorAddProblem(n=4 * 256 * 1024 + 5), VectorAddProblem(n=8 * 256 * 1024 + 3, dtype="bf16")),
)
def grid_stride(p: VectorAddProblem, size: Mapping[str, int]) -> Launch:
    blocks = min(size["BLOCKS"], ceil_div(p.n, size["THREADS"] * _width(p)))
    return _launch("vector_add_grid_stride", p, blocks, size["THREADS"])


# ---------------------------------------------------------------------------------------------- as a function on arrays


@VECTOR_ADD.function
def vector_add(a: Any, b: Any) -> Call:
    """Elementwise sum on the GPU. a, b: (n,), contiguous arrays of one dtype; returns (n,) of that dtype.

    Raises TypeError and ValueError like `gemm`."""
    dtype = common_dtype("vector_add", a=a, b=b)
    if a.ndim != 1 or a.shape != b.shape or not a.shape[0]:
        raise ValueError(f"vector_add: a has shape {a.shape} and b {b.shape}; they have to be the same (n,), n >= 1")
    contiguous("vector_add", "a", a)
    contiguous("vector_add", "b", b)
    return Call(VectorAddProblem(n=a.shape[0], dtype=dtype.name), {"a": a, "b": b})


# --------------------------------------------------------------------------------- what the stages are measured against


@VECTOR_ADD.baseline("PyTorch", requires="torch", vendor=True)
def pytorch(p: VectorAddProblem, a: Any, b: Any, c: Any) -> None:
    import torch

    torch.add(a, b, out=c)


@VECTOR_ADD.baseline(
    "copy", requires="cupy", vendor=True, solves=False, prepares=True, version=lambda: "cudaMemcpyAsync"
)
def copy(p: VectorAddProblem) -> Callable[[], None]:
    return copy_as_long(p)


@VECTOR_ADD.baseline("torch.compile", requires="torch", compiled=True)
def compiled(p: VectorAddProblem, a: Any, b: Any) -> Any:
    return a + b


beside_triton(VECTOR_ADD, __package__)


@VECTOR_ADD.baseline("NumPy", requires="numpy")
def numpy(p: VectorAddProblem, a: Any, b: Any) -> Any:
    return a + b

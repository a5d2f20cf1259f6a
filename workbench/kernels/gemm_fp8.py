"""Matrix product of 8-bit numbers with scales: C[m, n] = a_scale[m] b_scale[n] sum_k A[m, k] B[n, k]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from .. import reference
from ..judge import bounds
from ..model.arrays import Array, Arrays
from ..model.calls import Call
from ..model.distributions import Distribution, drawn, drawn_pad, st
from ..model.dtypes import BF16, E4M3, FP32, dtype_of
from ..model.launch import Launch, ceil_div, scaled
from ..model.operation import Operation
from ..model.parts import Axis
from ..model.problem import Size, Tier
from .gemm import GROUPS, ScaledProduct, drawn_extents, scaled_output, tcgen05, tile_launch
from .shared import check_arrays, contiguous, row_stride

RUN = 128
"""Terms that stages let the tensor cores add up at most."""


@dataclass(frozen=True)
class ScaledGemmProblem(ScaledProduct):
    """A: (m, k) and B: (n, k) of e4m3, a_scale: (m,) and b_scale: (n,) fp32, C: (m, n) of type `out`: bf16 or fp32.

    `pad_*` elements lie between the rows of A, B and C."""

    m: int = 1
    n: int = 1
    k: int = 1
    out: str = "bf16"
    pad_a: int = 0
    pad_b: int = 0
    pad_c: int = 0

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"out": (BF16.name, FP32.name)}
    dtype: ClassVar[str] = E4M3.name

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

    def axes(self) -> tuple[Axis, ...]:
        return Axis("m", {"A": 0, "a_scale": 0, "C": 0}), Axis("n", {"B": 0, "b_scale": 0, "C": 1})

    def reference(self, inputs: Arrays) -> Arrays:
        return {"C": reference.scaled_gemm(**_lower(inputs))}

    def bound(self, inputs: Arrays, expected: Arrays) -> Arrays:
        lifted = _lower(inputs | {name: bounds.aligned_magnitudes(inputs[name], E4M3) for name in "AB"})
        squared = {name: np.square(values, dtype=np.float64) for name, values in lifted.items()}
        magnitude, squares = (reference.scaled_gemm(**values) for values in (lifted, squared))
        out = dtype_of(self.out)
        ordered = self.distribution is Distribution.SORTED
        return {"C": bounds.scaled_fp8_products(expected["C"], magnitude, np.sqrt(squares), self.k, RUN, out, ordered)}

    def negative_controls(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        given, c = _lower(inputs), expected["C"]
        shorter = {**given, "a": given["a"][:, :-1], "b": given["b"][:, :-1]}
        wrong = self.wrong_products(c, reference.scaled_gemm(**shorter)) | {
            "rows not scaled": reference.scaled_gemm(**{**given, "a_scale": np.ones(self.m)}),
            "columns not scaled": reference.scaled_gemm(**{**given, "b_scale": np.ones(self.n)}),
        }
        if self.m == self.n:
            wrong["transposed"] = c.T
        return {name: {"C": value} for name, value in wrong.items()}


def _lower(inputs: Arrays) -> dict[str, np.ndarray]:
    """The arrays as the reference names them."""
    return {name.lower(): values for name, values in inputs.items()}


@drawn
def problems(d: st.DrawFn, size: Size, edges: tuple[int, ...]) -> ScaledGemmProblem:
    """Problems within `size`; half of them with all leading dimensions a multiple of 16 elements, as TMA needs."""
    m, n, k = drawn_extents(d, size, edges)
    aligned = d(st.booleans())
    pads = [drawn_pad(d, row, 16, aligned) for row in (k, k, n)]
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


# ----------------------------------------------------------------------------------------------------------- the stages


GEMM_FP8 = Operation(
    name="gemm_fp8",
    summary="matrix product C = A B^T of 8-bit numbers, with a scale for each row of A and of B",
    problem=ScaledGemmProblem,
    problems=problems,
    suite=tuple(ScaledGemmProblem(m=s, n=s, k=s) for s in (1024, 2048, 4096, 8192)),
    # 5.0 and 5.1 us at 5x496x32 and 4168x16x16, `promoted_sums` 6.1 and 6.7 (H200)
    fastest=lambda p: ("naive",) if p.k <= 32 and p.m * p.n * p.k <= 2**21 else (),
    defines=lambda p: {"IN": E4M3.cuda, "OUT": dtype_of(p.out).cuda},
    emulator_size=Size(extent=300, work=96**3),
    cuda_size=Size(extent=1100, work=512**3),
)


@GEMM_FP8.stage(
    "naive",
    track="simt",
    idea="one thread computes one element of C",
    parameters={"BLOCK_X": 32, "BLOCK_Y": 8},
    alignment=1,
    architecture=89,
)
def naive(p: ScaledGemmProblem, size: Mapping[str, int]) -> Launch:
    x, y = size["BLOCK_X"], size["BLOCK_Y"]
    numbers = (np.int32(v) for v in (p.m, p.n, p.k, p.lda, p.ldb, p.ldc))
    grid = (ceil_div(p.n, x), ceil_div(p.m, y), 1)
    return Launch("gemm_fp8_naive", grid, (x, y, 1), ("A", "B", "a_scale", "b_scale", "C", *numbers))


def _tma(p: ScaledGemmProblem) -> str | None:
    odd = [name for name, stride in (("A", p.lda), ("B", p.ldb)) if stride % 16]
    return f"TMA needs rows that are multiples of 16 bytes apart; those of {' and '.join(odd)} are not" if odd else None


_DEEP = ScaledGemmProblem(m=70, n=136, k=128 * 13 + 1, out="fp32", pad_a=15, pad_b=15)
"""So many slices that a ring of them goes round, and sums too long for fewer bits than fp32 has."""

_WIDE = (
    ScaledGemmProblem(m=136, n=128 * 67, k=RUN * 5 + 16, out="fp32", pad_a=15, pad_b=15),
    ScaledGemmProblem(m=129, n=128 * 67 - 3, k=16, pad_c=3),
    ScaledGemmProblem(m=128 * 17 + 1, n=1000, k=16),
)
"""So many narrow tiles that wide ones are taken. Slices of the first go round the ring and begin again; the last has
more rows of pairs of tiles than are walked together."""


def _fitted(p: ScaledGemmProblem, size: Mapping[str, int]) -> dict[str, int]:
    """Columns of a tile, and blocks of a cluster one above the other: so that BLOCKS blocks at once have the fewest
    columns to compute, one after the other."""

    def columns(choice: tuple[int, int]) -> int:
        width, cluster = choice
        tiles = ceil_div(p.m, size["BLOCK_M"] * cluster) * cluster * ceil_div(p.n, width)
        return ceil_div(tiles, scaled(size["BLOCKS"])) * width

    width, cluster = min(((192, 2), (128, 1)), key=columns)  # the first of equals
    return {"BLOCK_N": width, "CLUSTER": cluster}


@GEMM_FP8.stage(
    "promoted_sums",
    track="wgmma",
    idea="wgmma of e4m3 adds up a k-tile, fp32 adds up the k-tiles; scales wait in shared memory",
    supports=_tma,
    parameters={"BLOCK_M": 128, "BLOCK_K": RUN, "GROUP_M": 8, "BUFFERS": 1, "BLOCKS": 132},
    space={"GROUP_M": GROUPS[:-1], "BUFFERS": (1, 2), "BLOCKS": (1, 132, 264)},
    architecture=90,
    specific=True,
    sizes=_fitted,
    edge_cases=(
        ScaledGemmProblem(m=130, n=257, k=80, pad_c=7),  # a TMA store would write beyond the columns of this C
        ScaledGemmProblem(m=70, n=200, k=80, pad_c=1),  # of this C no tensor map can be made
        _DEEP,
        ScaledGemmProblem(m=128 * 17 + 1, n=264, k=16, out="fp32"),  # more rows of tiles than are walked together
        *_WIDE,
    ),
)
def promoted_sums(p: ScaledGemmProblem, size: Mapping[str, int]) -> Launch:
    return tile_launch(p, size, "gemm_fp8_promoted_sums", sharing=size["CLUSTER"], more=("a_scale", "b_scale"))


@GEMM_FP8.stage(
    "tensor_memory",
    track="tcgen05",
    idea="tcgen05 adds up e4m3 in fp32, in tensor memory; warps scale and store a tile while the next is multiplied",
    supports=_tma,
    parameters={"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": RUN, "GROUP_M": 16, "STAGES": 4},
    space={"BLOCK_N": (64, 128, 256), "GROUP_M": GROUPS},
    architecture=100,
    specific=True,
    edge_cases=(
        ScaledGemmProblem(m=130, n=257, k=80, pad_c=7),
        ScaledGemmProblem(m=70, n=200, k=80, pad_c=1),
        _DEEP,
        ScaledGemmProblem(m=128 * 17 + 1, n=264, k=16, out="fp32"),
    ),
)
def tensor_memory(p: ScaledGemmProblem, size: Mapping[str, int]) -> Launch:
    shared = tcgen05.pipeline_bytes(p, size)
    launch = tcgen05.tile_launch(p, size, "gemm_fp8_tensor_memory", 6, shared, 1, ("a_scale", "b_scale"))
    return replace(launch, persistent=True)


# ---------------------------------------------------------------------------------------------- as a function on arrays


@GEMM_FP8.function
def gemm_fp8(a: Any, b: Any, a_scale: Any, b_scale: Any, *, out_dtype: Any = None) -> Call:
    """Matrix product of 8-bit numbers on the GPU: c[m, n] = a_scale[m] b_scale[n] sum_k a[m, k] b[n, k].

    a: (m, k), b: (n, k), arrays of uint8 that hold the bits of `ml_dtypes.float8_e4m3fn`, a type that CuPy
    does not have; rows contiguous, any distance between them. a_scale: (m,), b_scale: (n,), float32 and contiguous.
    Returns (m, n) of `out_dtype`: bfloat16 (default) or float32. Raises TypeError and ValueError like `gemm`."""
    check_arrays("gemm_fp8", [np.dtype(np.uint8)], a=a, b=b)
    check_arrays("gemm_fp8", [FP32.numpy], a_scale=a_scale, b_scale=b_scale)
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1] or 0 in a.shape or 0 in b.shape:
        raise ValueError(
            f"gemm_fp8: a has shape {a.shape} and b {b.shape}; they have to be (m, k) and (n, k), none of them 0"
        )
    for name, scales, rows in (("a_scale", a_scale, a.shape[0]), ("b_scale", b_scale, b.shape[0])):
        if scales.shape != (rows,):
            raise ValueError(f"gemm_fp8: {name} has shape {scales.shape}; it has to be ({rows},), a scale a row")
        contiguous("gemm_fp8", name, scales)
    out = scaled_output("gemm_fp8", out_dtype)
    problem = ScaledGemmProblem(
        m=a.shape[0],
        n=b.shape[0],
        k=a.shape[1],
        out=out.name,
        pad_a=row_stride("gemm_fp8", "a", a) - a.shape[1],
        pad_b=row_stride("gemm_fp8", "b", b) - b.shape[1],
    )
    return Call(problem, {"A": a, "B": b, "a_scale": a_scale, "b_scale": b_scale})


# --------------------------------------------------------------------------------- what the stages are measured against


def _refuses(p: ScaledGemmProblem) -> str | None:
    a, b, *_, c = p.arrays().values()
    if c.dtype is not BF16:
        return f"its scales a row come with C of bf16, not {c.dtype}"
    if any(extent % 16 for array in (a, b) for extent in (*array.shape[1:], array.row_stride)) or c.shape[1] % 16:
        return "its extents n and k and the distances of rows have to be multiples of 16"
    return None


def _scaled(A: Any, B: Any, a_scale: Any, b_scale: Any, C: Any, *, fast: bool) -> None:
    """PyTorch's product of 8-bit numbers with a scale a row: with sums as the tensor cores make them, `fast`, or
    promoted to fp32 on the way. On an H200 its kernels are cuBLASLt's (`nvjet_sm90_...`; torch 2.11, CUDA 13.0)."""
    import torch

    scales = {"scale_a": a_scale[:, None], "scale_b": b_scale[None, :]}
    torch._scaled_mm(A, B.t(), **scales, out_dtype=C.dtype, use_fast_accum=fast, out=C)


@GEMM_FP8.baseline("cuBLASLt", requires="torch", vendor=True, refuses=_refuses)
def cublaslt(p: ScaledGemmProblem, A: Any, B: Any, a_scale: Any, b_scale: Any, C: Any) -> None:
    _scaled(A, B, a_scale, b_scale, C, fast=False)


@GEMM_FP8.baseline("cuBLASLt, fast sums", requires="torch", refuses=_refuses)  # fewer bits of a sum than a stage keeps
def cublaslt_fast(p: ScaledGemmProblem, A: Any, B: Any, a_scale: Any, b_scale: Any, C: Any) -> None:
    _scaled(A, B, a_scale, b_scale, C, fast=True)


@GEMM_FP8.baseline("NumPy", requires="numpy")
def numpy(p: ScaledGemmProblem, A: Any, B: Any, a_scale: Any, b_scale: Any) -> Any:
    return a_scale[:, None] * (A @ B.T) * b_scale

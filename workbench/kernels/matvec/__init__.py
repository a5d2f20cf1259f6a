"""Matrix-vector product c[n] = sum_k a[k] B[n, k]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ... import reference
from ...judge import bounds
from ...model.arrays import Array, Arrays, element_bytes
from ...model.calls import Call
from ...model.distributions import NonFinite, drawn, drawn_pad, st
from ...model.dtypes import BF16, FP16, FP32, dtype_of, wrong_output
from ...model.launch import Argument, Launch, Plan, ceil_div, machine
from ...model.operation import Operation
from ...model.parts import Axis
from ...model.problem import Cost, Problem, Size, extents
from .. import shared
from ..rows import groups


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
        return wrong_output(self.dtype, self.out)

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


@drawn
def problems(d: st.DrawFn, size: Size, edges: tuple[int, ...]) -> MatvecProblem:
    """Matrix-vector problems within `size`; half of them with rows a multiple of 16 bytes apart."""
    # the first extent may be as long as any, the second what the work leaves: else long rows are never drawn
    first = d(extents(size, edges))
    second = d(extents(Size(max(1, min(size.extent, size.work // first)), size.work), edges))
    k, n = (first, second) if d(st.booleans()) else (second, first)
    dtype = d(st.sampled_from([BF16.name, FP16.name, FP32.name]))
    aligned = d(st.booleans())
    pad = drawn_pad(d, k, 8, aligned)
    out = d(st.sampled_from(sorted({dtype, FP32.name})))
    return MatvecProblem(n=n, k=k, dtype=dtype, out=out, pad_b=pad, seed=d(st.integers(0, 2**16)))


# ----------------------------------------------------------------------------------------------------------- the stages


SHORT, SHORT_OF_FEW, ONE_LOAD, LONG = 512, 256, 2048, 256 * 1024
"""Bytes of a row for which lanes of a warp have no vector, where rows are many, and where they are few; that a warp
loads at once, with 4 loads a lane; and that take one block long enough to have others help."""

FEW, MANY = 1024, 8192
"""Rows that leave multiprocessors idle with a warp each, and those that fill them with a warp
each (H200)."""


def fastest(p: MatvecProblem) -> tuple[str, ...]:
    """Few lanes take a row of a few vectors. As many threads as there are take rows that begin anywhere, that a warp
    loads at once, or of which few are long. Other rows are streamed; where they are many, by a warp each if the warps
    of a block would not have equal shares of a row."""
    row = p.k * dtype_of(p.dtype).itemsize
    if row < (SHORT_OF_FEW if p.n < FEW else SHORT):
        return "unaligned", "warp_parallel"
    if not _even(p)["EVEN"] or (p.n < machine().multiprocessors and row > LONG):
        return "shared_rows", "unaligned"
    if row % (ONE_LOAD * _streamed(p, STREAMED)["SHARE"]) == 0:
        return "streamed", "unaligned"
    if row < ONE_LOAD:
        return "shared_rows", "unaligned"
    return ("vectorized", "streamed") if p.n >= MANY else ("streamed", "unaligned")


MATVEC = Operation(
    name="matvec",
    summary="matrix-vector product c = B a",
    problem=MatvecProblem,
    problems=problems,
    suite=tuple(
        MatvecProblem(n=n, k=k, dtype=dtype, out=dtype)
        for dtype in ("bf16", "fp32")
        for n, k in ((4096, 4096), (16384, 16384), (28672, 8192), (1024, 65536), (65536, 1024))
    ),
    defines=lambda p: {"IN": dtype_of(p.dtype).cuda, "OUT": dtype_of(p.out).cuda},
    emulator_size=Size(extent=3000, work=100_000),
    cuda_size=Size(extent=20_000, work=4_000_000),
    metric="GB/s",
    fastest=fastest,
)

_LONG = (
    MatvecProblem(n=2, k=2 * 16384 + 200, dtype="bf16"),
    MatvecProblem(n=1, k=2 * 8192 + 100, dtype="fp32", out="fp32"),
)
"""Rows of more than twice what all warps of a block load at once."""

_EDGE_CASES = (
    MatvecProblem(n=9, k=3 * 1024 + 200, dtype="bf16"),
    MatvecProblem(n=5, k=3 * 512 + 100, dtype="fp32", out="fp32"),
    MatvecProblem(n=300, k=2 * 1024, dtype="fp16"),
    MatvecProblem(n=3, k=51, dtype="fp32"),
)
"""Rows of several times what a warp loads at once, more of them than one block of the second kernel adds up, and rows
that do not start at multiples of 16 bytes."""

THREADS, UNROLL, RESIDENT = (64, 128, 256, 512, 1024), (1, 2, 4, 8), (512, 1024, 2048)
"""Of a block; vectors that a lane has in flight; threads for which a multiprocessor is to have registers. What tuning
may choose."""


def _constraint(p: MatvecProblem, size: Mapping[str, int]) -> str | None:
    if size["THREADS"] > size["RESIDENT"]:
        return "a block is to have more threads than a multiprocessor"
    # 65,536 registers; a load of each operand takes 8 of a thread's, everything else some 14
    return "loads take more registers than that many threads have" if size["UNROLL"] * size["RESIDENT"] > 4096 else None


def _scalars(p: MatvecProblem) -> tuple[np.generic, ...]:
    return tuple(np.int32(x) for x in (p.n, p.k, p.ldb))


def _launch(kernel: str, p: MatvecProblem, rows_a_block: int, threads: int, *more: np.generic) -> Launch:
    return Launch(kernel, (ceil_div(p.n, rows_a_block), 1, 1), (threads, 1, 1), ("a", "B", "c", *_scalars(p), *more))


@MATVEC.stage("naive", idea="one thread computes one element of c", parameters={"THREADS": 128}, alignment=1)
def naive(p: MatvecProblem, size: Mapping[str, int]) -> Launch:
    return _launch("matvec_naive", p, size["THREADS"], size["THREADS"])


@MATVEC.stage(
    "warp_parallel",
    after=naive,
    idea="a warp shares a row: its lanes split k",
    parameters={"THREADS": 256},
    space={"THREADS": THREADS},
)
def warp_parallel(p: MatvecProblem, size: Mapping[str, int]) -> Launch:
    return _launch("matvec_warp_parallel", p, size["THREADS"] // 32, size["THREADS"])


@MATVEC.stage(
    "vectorized",
    after=warp_parallel,
    idea="each load reads 16 bytes, and several loads are in flight",
    parameters={"THREADS": 256, "UNROLL": 4, "RESIDENT": 1024},
    space={"THREADS": THREADS, "UNROLL": UNROLL, "RESIDENT": RESIDENT},
    constraint=_constraint,
    edge_cases=_EDGE_CASES,
    alignment=16,
)
def vectorized(p: MatvecProblem, size: Mapping[str, int]) -> Launch:
    return _launch("matvec_vectorized", p, size["THREADS"] // 32, size["THREADS"])


@MATVEC.stage(
    "split_k",
    after=vectorized,
    idea="where rows are few, several warps share one; a second kernel adds up their sums",
    problem=MatvecProblem(n=1024, k=65_536, dtype="bf16", out="bf16"),
    parameters={"THREADS": 256, "UNROLL": 4, "RESIDENT": 1024, "WARPS": 4096},
    space={"THREADS": THREADS, "UNROLL": UNROLL, "RESIDENT": RESIDENT, "WARPS": (1024, 2048, 4096, 8192, 16384)},
    constraint=_constraint,
)
def split_k(p: MatvecProblem, size: Mapping[str, int]) -> Plan:
    return _split("matvec_parts", "matvec_finish", p, size)


@MATVEC.stage(
    "overlapped_split_k",
    after=split_k,
    idea="a programmatic launch: the kernel that adds up starts while the first one runs, and waits for its end",
    architecture=90,
)
def overlapped_split_k(p: MatvecProblem, size: Mapping[str, int]) -> Plan:
    return _split("matvec_parts_first", "matvec_finish_overlapped", p, size, programmatic=True)


def _split(parts: str, finish: str, p: MatvecProblem, size: Mapping[str, int], programmatic: bool = False) -> Plan:
    """Warps that share rows, and where there is more than one part a kernel that adds up their sums."""
    threads = size["THREADS"]
    least = 32 * 16 // dtype_of(p.dtype).itemsize * size["UNROLL"]  # elements that a warp loads at once
    splits = max(1, min(ceil_div(size["WARPS"], p.n), p.k // least))
    part = ceil_div(ceil_div(p.k, splits), least) * least
    splits = ceil_div(p.k, part)
    grid = (ceil_div(p.n, threads // 32), splits, 1)
    launches = [Launch(parts, grid, (threads, 1, 1), ("a", "B", "partial", "c", *_scalars(p), np.int32(part)))]
    if splits > 1:
        blocks, arguments = (ceil_div(p.n, threads), 1, 1), ("partial", "c", np.int32(p.n), np.int32(splits))
        launches.append(Launch(finish, blocks, (threads, 1, 1), arguments, programmatic=programmatic))
    return Plan(tuple(launches), scratch={"partial": Array((splits, p.n), FP32, output=True)})


SMALL = 640 << 20
"""Bytes of B up to which it pays to have it leave the L2 first: some twelve times what an H200's L2 holds."""

STREAMED = {"THREADS": 512, "UNROLL": 4, "MOST": 16, "RESIDENT": 1024}


def _read_once(p: MatvecProblem) -> int:
    return int(p.arrays()["B"].nbytes <= SMALL)


def _streamed(p: MatvecProblem, size: Mapping[str, int]) -> dict[str, int]:
    """As many warps share a row as have something to do."""
    stretches = ceil_div(p.k * dtype_of(p.dtype).itemsize, 32 * 16 * size["UNROLL"])
    most = min(stretches, size["MOST"], size["THREADS"] // 32)
    share = 1 << (most.bit_length() - 1)  # a power of two, as the warps of a block are
    return {"SHARE": share, "READ_ONCE": _read_once(p)}


@MATVEC.stage(
    "streamed",
    after=vectorized,
    idea="the warps of a block share a row; B, which is read only once, is evicted first from the L2",
    parameters=STREAMED,
    space={"THREADS": THREADS[1:], "UNROLL": (1, 2, 4), "MOST": (1, 2, 4, 8, 16, 32), "RESIDENT": RESIDENT},
    constraint=_constraint,
    sizes=_streamed,
    edge_cases=(*_EDGE_CASES, *_LONG),
)
def streamed(p: MatvecProblem, size: Mapping[str, int]) -> Launch:
    return _launch("matvec_streamed", p, size["THREADS"] // 32 // size["SHARE"], size["THREADS"])


def _vectors(p: MatvecProblem) -> int:
    """Vectors of 16 bytes that a row holds at least, one at least."""
    return max(1, p.k * dtype_of(p.dtype).itemsize // 16)


def _even(p: MatvecProblem) -> dict[str, int]:
    """Whether every row begins at a multiple of 16 bytes and consists of whole vectors."""
    return {"EVEN": groups.even(16 // dtype_of(p.dtype).itemsize, p.k, *((p.ldb,) if p.n > 1 else ()))}


def _lanes(p: MatvecProblem, size: Mapping[str, int]) -> dict[str, int]:
    """As many lanes share a row as it has vectors for, a power of two."""
    return {"GROUP": min(32, 1 << (_vectors(p).bit_length() - 1))}


_UNALIGNED = (
    MatvecProblem(n=70, k=3, dtype="bf16", out="bf16"),
    MatvecProblem(n=40, k=33, dtype="fp32", out="fp32"),
    MatvecProblem(n=33, k=601, dtype="fp16", pad_b=2),
    MatvecProblem(n=9, k=5001, dtype="bf16"),
    MatvecProblem(n=9, k=2501, dtype="fp32", pad_b=1),
)
"""Rows that begin anywhere: without a vector, with a few, and with more than a warp loads at once."""


@MATVEC.stage(
    "unaligned",
    after=warp_parallel,
    idea="each load reads 16 bytes, wherever a row begins; few lanes share a short row",
    problem=MatvecProblem(n=16_384, k=4099, dtype="bf16", out="bf16"),
    space={"THREADS": THREADS[:3]},
    sizes=_lanes,
    edge_cases=(*_EDGE_CASES, *_UNALIGNED),
    alignment=16,
)
def unaligned(p: MatvecProblem, size: Mapping[str, int]) -> Launch:
    return _launch("matvec_unaligned", p, size["THREADS"] // size["GROUP"], size["THREADS"])


def _loads(p: MatvecProblem, size: Mapping[str, int]) -> int:
    """Vectors of a row that a thread has in flight: 3 at most where it has two of a for each, as registers have it."""
    return size["UNROLL"] if _even(p)["EVEN"] else min(3, size["UNROLL"])


def _spread(p: MatvecProblem, size: Mapping[str, int]) -> dict[str, int]:
    return groups.spread(p.n, _vectors(p), _loads(p, size), size["THREADS"], size["RESIDENT"])


def _shared(p: MatvecProblem, size: Mapping[str, int]) -> dict[str, int]:
    """What its kernel is compiled for: how threads share rows, and whether blocks do. A thread has no more vectors in
    flight than its row has for it."""
    chosen = _spread(p, size)
    blocks = chosen.pop("BLOCKS")
    most = ceil_div(ceil_div(_vectors(p), blocks), chosen["GROUP"])
    more = {"SHARED": int(blocks > 1), "IN_FLIGHT": min(most, _loads(p, size)), "READ_ONCE": _read_once(p)}
    return {**chosen, **more, **_even(p)}


@MATVEC.stage(
    "shared_rows",
    after=streamed,
    idea="as many threads as the device can spare share a row: lanes, a block, or blocks; the last block adds up",
    problem=MatvecProblem(n=64, k=65_536, dtype="bf16", out="bf16"),
    parameters={"THREADS": 256, "UNROLL": 4, "RESIDENT": 1024},
    space={"THREADS": THREADS[1:4], "UNROLL": (1, 2, 4), "RESIDENT": RESIDENT},
    constraint=_constraint,
    sizes=_shared,
    edge_cases=(*_EDGE_CASES, *_LONG, *_UNALIGNED, MatvecProblem(n=2, k=140_001, dtype="fp32", out="fp32")),
)
def shared_rows(p: MatvecProblem, size: Mapping[str, int]) -> Plan:
    blocks, threads = _spread(p, size)["BLOCKS"], size["THREADS"]
    scratch: dict[str, Array] = {}
    if size["SHARED"]:
        counters = Array((p.n,), FP32, output=True, zero=True)  # 4 bytes each
        scratch = {"partial": Array((p.n, blocks), FP32, output=True), "counters": counters}
    handed = tuple(scratch) or ("c", "c")  # where nothing is handed over any address will do
    grid = (ceil_div(p.n, threads // size["GROUP"]) * blocks, 1, 1)
    part = ceil_div(_vectors(p), blocks)
    args: tuple[Argument, ...] = ("a", "B", "c", *handed, *_scalars(p), np.int32(blocks), np.int32(part))
    return Plan((Launch("matvec_shared_rows", grid, (threads, 1, 1), args),), scratch)


# ---------------------------------------------------------------------------------------------- as a function on arrays


@MATVEC.function
def matvec(a: Any, b: Any, *, out_dtype: Any = None) -> Call:
    """Matrix-vector product on the GPU, accumulated in fp32: c[n] = sum_k a[k] b[n, k].

    a: (k,), contiguous; b: (n, k), rows contiguous: arrays of one dtype (bfloat16, float16 or float32). Returns
    (n,) of `out_dtype`: the dtype of the inputs (default) or float32. Raises TypeError and ValueError like `gemm`."""
    dtype = shared.common_dtype("matvec", a=a, b=b)
    if a.ndim != 1 or b.ndim != 2 or a.shape[0] != b.shape[1]:
        raise ValueError(f"matvec: a has shape {a.shape} and b {b.shape}; they have to be (k,) and (n, k)")
    if 0 in b.shape:
        raise ValueError(f"matvec: b {b.shape} has to have at least one element")
    shared.contiguous("matvec", "a", a)
    problem = MatvecProblem(
        n=b.shape[0],
        k=b.shape[1],
        dtype=dtype.name,
        out=shared.output_dtype("matvec", dtype, out_dtype).name,
        pad_b=shared.row_stride("matvec", "b", b) - b.shape[1],
    )
    return Call(problem, {"a": a, "B": b})


# --------------------------------------------------------------------------------- what the stages are measured against


@MATVEC.baseline("cuBLAS", requires="cublas", vendor=True)
def cublas(p: MatvecProblem, a: Any, B: Any, c: Any) -> None:
    if B.is_fp32:
        B.handle.gemv(1, (p.k, p.n), (B.address, B.leading), a.address, c.address)
    else:  # for half types it has no product with a vector: the vector is a matrix with one column
        B.handle.gemm((1, 0), (p.n, 1, p.k), B.argument, a.vector, c.vector)


@MATVEC.baseline("PyTorch", requires="torch", refuses=shared.one_type)
def pytorch(p: MatvecProblem, a: Any, B: Any, c: Any) -> None:
    import torch

    torch.mv(B, a, out=c)


@MATVEC.baseline("cuBLASLt", requires="torch", refuses=shared.one_type)
def cublaslt(p: MatvecProblem, a: Any, B: Any, c: Any) -> None:
    import torch

    with shared.preferred_blas("cublaslt"):  # it has matrix products only: the vector is a matrix with one column
        torch.mm(B, a.unsqueeze(1), out=c.unsqueeze(1))


@MATVEC.baseline("torch.compile", requires="torch", compiled=True, refuses=shared.one_type)
def compiled(p: MatvecProblem, a: Any, B: Any) -> Any:
    import torch

    return torch.mv(B, a)


shared.beside_triton(MATVEC, __package__)


@MATVEC.baseline("NumPy", requires="numpy")
def numpy(p: MatvecProblem, a: Any, B: Any) -> Any:
    return B @ a

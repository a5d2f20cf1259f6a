"""What the stages of `matvec` are measured against."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..shared.libraries import multiprocessors, one_type, preferred_blas
from .problem import MatvecProblem
from .stages import MATVEC


@MATVEC.baseline("cuBLAS", requires="cublas", vendor=True)
def cublas(p: MatvecProblem, a: Any, B: Any, c: Any) -> None:
    if B.is_fp32:
        B.handle.gemv(1, (p.k, p.n), (B.address, B.leading), a.address, c.address)
    else:  # for half types it has no product with a vector: the vector is a matrix with one column
        B.handle.gemm((1, 0), (p.n, 1, p.k), B.argument, a.vector, c.vector)


@MATVEC.baseline("PyTorch", requires="torch", refuses=one_type)
def pytorch(p: MatvecProblem, a: Any, B: Any, c: Any) -> None:
    import torch

    torch.mv(B, a, out=c)


@MATVEC.baseline("cuBLASLt", requires="torch", refuses=one_type)
def cublaslt(p: MatvecProblem, a: Any, B: Any, c: Any) -> None:
    import torch

    with preferred_blas("cublaslt"):  # it has matrix products only: the vector is a matrix with one column
        torch.mm(B, a.unsqueeze(1), out=c.unsqueeze(1))


@MATVEC.baseline("torch.compile", requires="torch", compiled=True, refuses=one_type)
def compiled(p: MatvecProblem, a: Any, B: Any) -> Any:
    import torch

    return torch.mv(B, a)


@MATVEC.baseline("Triton", requires=("torch", "triton"), prepares=True)
def triton(p: MatvecProblem, a: Any, B: Any, c: Any) -> Callable[[], object]:
    from ._triton import work

    return work(p, a, B, c, multiprocessors())


@MATVEC.baseline("NumPy", requires="numpy")
def numpy(p: MatvecProblem, a: Any, B: Any) -> Any:
    return B @ a

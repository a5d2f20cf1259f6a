"""What the stages of `gemm` are measured against."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..shared.libraries import multiprocessors, one_type, preferred_blas
from .operation import GEMM
from .problem import GemmProblem


def _as_kn(p: GemmProblem, B: Any) -> Any:
    """B as (k, n), however it is stored."""
    return B if p.layout == "nn" else B.T


@GEMM.baseline("cuBLAS", requires="cublas", vendor=True)
def cublas(p: GemmProblem, A: Any, B: Any, C: Any) -> None:
    # it takes columns for what lie here as rows: of the product it computes the transpose, C^T = B^T A^T
    B.handle.gemm((int(p.layout == "nt"), 0), (p.n, p.m, p.k), B.argument, A.argument, C.argument)


@GEMM.baseline("PyTorch", requires="torch", refuses=one_type)
def pytorch(p: GemmProblem, A: Any, B: Any, C: Any) -> None:
    import torch

    torch.mm(A, _as_kn(p, B), out=C)


@GEMM.baseline("cuBLASLt", requires="torch", refuses=one_type)
def cublaslt(p: GemmProblem, A: Any, B: Any, C: Any) -> None:
    import torch

    with preferred_blas("cublaslt"):
        torch.mm(A, _as_kn(p, B), out=C)


def _no_convolution(p: GemmProblem) -> str | None:
    if p.layout != "nt":
        return "a convolution takes B with k along its rows, layout nt"
    if any(array.padded for array in p.arrays().values()):
        return "a convolution takes rows without padding between them"
    return one_type(p)


def _cudnn_version() -> str | None:
    import torch

    number = torch.backends.cudnn.version()
    return None if number is None else str(number)


@GEMM.baseline("cuDNN", requires="torch", refuses=_no_convolution, version=_cudnn_version)
def cudnn(p: GemmProblem, A: Any, B: Any, C: Any) -> None:
    """A product A B^T as a convolution with a window of one element: rows of A are pixels, k its channels, which come
    last in memory, and B the weights of n output channels. Padded rows would be copied first, within what is timed."""
    import torch

    how = {"padding": (0, 0), "stride": (1, 1), "dilation": (1, 1), "groups": 1}
    how |= {"benchmark": True, "deterministic": True, "allow_tf32": False}
    torch.ops.aten.cudnn_convolution.out(_pixels(A), B.view(*B.shape, 1, 1), **how, out=_pixels(C))


def _pixels(matrix: Any) -> Any:
    """A (rows, channels) matrix as one image of rows x 1 pixels, channels last in memory."""
    rows, channels = matrix.shape
    return matrix.view(1, rows, 1, channels).permute(0, 3, 1, 2)


@GEMM.baseline("torch.compile", requires="torch", compiled=True, refuses=one_type)
def compiled(p: GemmProblem, A: Any, B: Any) -> Any:
    import torch

    return torch.mm(A, _as_kn(p, B))


@GEMM.baseline("Triton", requires=("torch", "triton"), prepares=True)
def triton(p: GemmProblem, A: Any, B: Any, C: Any) -> Callable[[], object]:
    from ._triton import work

    return work(p, A, B, C, multiprocessors())


@GEMM.baseline("NumPy", requires="numpy")
def numpy(p: GemmProblem, A: Any, B: Any) -> Any:
    return A @ _as_kn(p, B)

"""What the stages of GEMM do for a problem, for the cost model."""

from __future__ import annotations

from collections.abc import Mapping

from ...model.cost_model import Work
from ...model.dtypes import FP32, dtype_of
from ...model.launch import ceil_div
from .fastest import NARROW, STREAMED_N
from .problem import GemmProblem, tensor_maps


def work(p: GemmProblem, size: Mapping[str, int]) -> Work | None:
    """Of a stage with these sizes: its tiles of C, in as many parts as k is split. None on CUDA cores, where several
    blocks share a multiprocessor, and where no times are known: of fp32, of C in another type than A and B, of rows
    that are no multiples of 16 bytes, and of so few rows or columns that `few_vectors` is for them."""
    on_tensor_cores = "BLOCK_K" in size and "THREAD_M" not in size
    if not on_tensor_cores or p.dtype == FP32.name or p.out != p.dtype or tensor_maps(p) or min(p.m, p.n) <= NARROW:
        return None
    m, n, k, split = size["BLOCK_M"], size.get("BLOCK_N", STREAMED_N), size["BLOCK_K"], size.get("SPLIT", 1)
    item = dtype_of(p.dtype).itemsize
    return Work(
        tiles=ceil_div(p.m, m) * ceil_div(p.n, n) * split,
        iterations=ceil_div(ceil_div(p.k, k), split),
        flops=2 * m * n * k,
        loaded=(m + n) * k * item,
        bytes=(p.m * p.k + p.k * p.n + p.m * p.n) * item,
        shared="LEAST_GAIN" in size,  # blocks of stream-k share tiles from this gain on
    )

"""cuBLAS is asked for the product that the problem means. A stand-in computes, on the CPU, what its calls document."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from baselines_on_cpu import judge, judge_many

from workbench.catalogue import registry
from workbench.kernels.gemm import GemmProblem
from workbench.measure.baselines import cublas
from workbench.model.arrays import Array
from workbench.model.problem import Problem, Size

TYPES = {0: np.dtype(np.float32), 2: np.dtype(np.float16), 14: np.dtype(ml_dtypes.bfloat16)}


def _columns(pointer: int, kind: int, leading: int, rows: int, columns: int) -> Any:
    """The column-major matrix at an address."""
    assert leading >= rows
    dtype = TYPES[kind]
    memory = (ctypes.c_char * (((columns - 1) * leading + rows) * dtype.itemsize)).from_address(pointer)
    return np.lib.stride_tricks.as_strided(
        np.frombuffer(memory, dtype), (rows, columns), (dtype.itemsize, leading * dtype.itemsize)
    )


def _operand(op: int, pointer: int, kind: int, leading: int, rows: int, columns: int) -> Any:
    if op == 0:
        return _columns(pointer, kind, leading, rows, columns).astype(np.float64)
    return _columns(pointer, kind, leading, columns, rows).T.astype(np.float64)


def _stand_in(calls: list[str], status: int = 0) -> SimpleNamespace:
    """The library, with its calls by name in `calls`."""

    def create(handle: Any) -> int:
        return status

    def set_stream(handle: Any, stream: int) -> int:
        calls.append(f"stream {stream}")
        return 0

    def set_workspace(handle: Any, memory: int, size: int) -> int:
        calls.append(f"workspace {memory}")
        return 0

    def gemm(h: Any, opa: int, opb: int, m: int, n: int, k: int, alpha: Any, *more: Any) -> int:
        a, ta, lda, b, tb, ldb, beta, c, tc, ldc, compute, algorithm = more
        assert (alpha._obj.value, beta._obj.value, compute, algorithm) == (1, 0, 68, -1)
        assert ta == tb
        assert tc in (ta, 0)
        product = _operand(opa, a, ta, lda, m, k) @ _operand(opb, b, tb, ldb, k, n)
        _columns(c, tc, ldc, m, n)[...] = product.astype(TYPES[tc])
        return 0

    def gemv(h: Any, op: int, m: int, n: int, alpha: Any, a: int, lda: int, x: int, *more: Any) -> int:
        step, beta, y, stride = more
        assert (op, alpha._obj.value, beta._obj.value, step, stride) == (1, 1, 0, 1, 1)
        _columns(y, 0, n, n, 1)[...] = _operand(1, a, 0, lda, n, m) @ _operand(0, x, 0, m, m, 1)
        return 0

    return SimpleNamespace(
        cublasCreate_v2=create,
        cublasGetProperty=lambda: 0,
        cublasSetStream_v2=set_stream,
        cublasSetWorkspace_v2=set_workspace,
        cublasGemmEx=gemm,
        cublasSgemv_v2=gemv,
    )


def _solve(problem: Problem, arrays: Mapping[str, Array], buffers: Mapping[str, Any]) -> None:
    addresses = {name: buffers[name].ctypes.data for name in arrays}
    held = cublas.matrices(cublas.Handle(_stand_in([]), 0), arrays, addresses)
    operation = next(o for o in registry.operations().values() if isinstance(problem, o.problem))
    (declared,) = (b for b in operation.baselines if b.name == "cuBLAS")
    declared.call(problem, **declared.arguments(held))


@pytest.mark.parametrize(("operation", "size"), [("gemm", Size(100, 64**3)), ("matvec", Size(300, 20_000))])
def test_random_problems_are_solved(operation: str, size: Size) -> None:
    refuses = next(b.refuses for b in registry.operations()[operation].baselines if b.name == "cuBLAS")
    judge_many(operation, size, lambda multiprocessors: _solve, refuses)


@pytest.mark.parametrize("layout", ["nn", "nt"])
def test_padded_rows_and_a_wider_result(layout: str) -> None:
    judge(GemmProblem(m=5, n=7, k=9, layout=layout, dtype="fp16", out="fp32", pad_a=2, pad_b=3, pad_c=1), _solve)


def test_another_stream_gets_the_workspace_again() -> None:
    calls: list[str] = []
    handle = cublas.Handle(_stand_in(calls), 64)
    for stream in (7, 7, 8):
        handle.on(stream)
    assert calls == ["stream 7", "workspace 64", "stream 8", "workspace 64"]


def test_a_status_that_is_not_success_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="cublasCreate_v2 of cuBLAS returned status 3"):
        cublas.Handle(_stand_in([], status=3), 0)

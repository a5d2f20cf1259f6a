"""What PyTorch brings: its own calls, which for products are cuBLAS's, cuBLASLt, cuDNN, and its compiler."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from ...model.arrays import Array
from ...model.dtypes import BF16
from ...model.problem import Problem
from .base import Prepared, one_type

Tensors = Mapping[str, Any]
Call = Callable[[Any, Problem, Tensors], Any]
"""A call of the module `torch` on the tensors of a problem."""

DEVICE = "cuda"


@cache
def load() -> Any | None:
    """The module, where it is installed and sees a GPU."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    torch.backends.cuda.matmul.allow_tf32 = False
    return torch


def tensors(arrays: Mapping[str, Array], buffers: Mapping[str, Any]) -> dict[str, Any]:
    """PyTorch tensors over the device memory of the arrays, with their leading dimensions."""
    torch = load()
    assert torch is not None
    kinds = {
        "bf16": torch.bfloat16,
        "fp16": torch.float16,
        "fp32": torch.float32,
        "e4m3": torch.float8_e4m3fn,
        "int32": torch.int32,
    }
    made = {}
    for name, array in arrays.items():
        flat = torch.as_tensor(buffers[name], device=DEVICE).view(kinds[array.dtype.name])
        made[name] = flat.as_strided(array.shape, array.element_strides)
    return made


def _version() -> str | None:
    torch = load()
    return None if torch is None else f"torch {torch.__version__}, CUDA {torch.version.cuda}"


class Eager:
    """A call that writes the output tensor."""

    solves = True

    def __init__(self, name: str, call: Call) -> None:
        self.name, self._call = name, call

    def version(self) -> str | None:
        return _version()

    def refuses(self, problem: Problem) -> str | None:
        return one_type(problem)

    def prepare(self, problem: Problem, arrays: Mapping[str, Array], buffers: Mapping[str, Any]) -> Prepared:
        torch, held = load(), tensors(arrays, buffers)

        def enqueue() -> None:
            self._call(torch, problem, held)

        return Prepared(enqueue)


class CublasLt(Eager):
    """A call for which PyTorch is told to prefer cuBLASLt; by default it takes cuBLAS."""

    def __init__(self, call: Call) -> None:
        def preferring(torch: Any, problem: Problem, held: Tensors) -> None:
            with _preferred(torch, "cublaslt"):
                call(torch, problem, held)

        super().__init__("cuBLASLt", preferring)


@contextmanager
def _preferred(torch: Any, library: str) -> Iterator[None]:
    before = torch.backends.cuda.preferred_blas_library()
    torch.backends.cuda.preferred_blas_library(library)
    try:
        yield
    finally:
        torch.backends.cuda.preferred_blas_library(before)


class ScaledProduct(Eager):
    """PyTorch's product of 8-bit numbers with a scale a row: with sums as the tensor cores make them, `fast`, or
    promoted to fp32 on the way. On an H200 its kernels are cuBLASLt's (`nvjet_sm90_...`; torch 2.11, CUDA 13.0)."""

    def __init__(self, *, fast: bool) -> None:
        def call(torch: Any, problem: Problem, held: Tensors) -> None:
            scales = {"scale_a": held["a_scale"][:, None], "scale_b": held["b_scale"][None, :]}
            how = {"out_dtype": held["C"].dtype, "use_fast_accum": fast}
            torch._scaled_mm(held["A"], held["B"].t(), **scales, **how, out=held["C"])

        super().__init__("cuBLASLt, fast sums" if fast else "cuBLASLt", call)

    def refuses(self, problem: Problem) -> str | None:
        a, b, *_, c = problem.arrays().values()
        if c.dtype is not BF16:
            return f"its scales a row come with C of bf16, not {c.dtype}"
        if any(extent % 16 for array in (a, b) for extent in (*array.shape[1:], array.row_stride)) or c.shape[1] % 16:
            return "its extents n and k and the distances of rows have to be multiples of 16"
        return None


class Cudnn(Eager):
    """A product A B^T as a convolution with a window of one element: rows of A are pixels, k its channels, which come
    last in memory, and B the weights of n output channels. Padded rows would be copied first, within what is timed."""

    def __init__(self) -> None:
        super().__init__("cuDNN", _convolve)

    def version(self) -> str | None:
        torch = load()
        number = None if torch is None else torch.backends.cudnn.version()
        return None if number is None else f"{number}, {_version()}"

    def refuses(self, problem: Problem) -> str | None:
        if getattr(problem, "layout", "") != "nt":
            return "a convolution takes B with k along its rows, layout nt"
        if any(array.row_stride != array.shape[-1] for array in problem.arrays().values()):
            return "a convolution takes rows without padding between them"
        return one_type(problem)


def pixels(matrix: Any) -> Any:
    """A (rows, channels) matrix as one image of rows x 1 pixels, channels last in memory."""
    rows, channels = matrix.shape
    return matrix.view(1, rows, 1, channels).permute(0, 3, 1, 2)


def _convolve(torch: Any, problem: Problem, held: Tensors) -> None:
    weights = held["B"].view(*held["B"].shape, 1, 1)
    how = {"padding": (0, 0), "stride": (1, 1), "dilation": (1, 1), "groups": 1}
    how |= {"benchmark": True, "deterministic": True, "allow_tf32": False}
    torch.ops.aten.cudnn_convolution.out(pixels(held["A"]), weights, **how, out=pixels(held["C"]))


class Compiled:
    """A call that returns the output, compiled by `torch.compile` as it is by default: what it does not take from a
    library becomes a Triton kernel. Its search for the best matrix product would take minutes; so that is cuBLAS's."""

    name = "torch.compile"
    solves = True

    def __init__(self, call: Call) -> None:
        self._call = call

    def version(self) -> str | None:
        return _version()

    def refuses(self, problem: Problem) -> str | None:
        return one_type(problem)

    def prepare(self, problem: Problem, arrays: Mapping[str, Array], buffers: Mapping[str, Any]) -> Prepared:
        torch, held = load(), tensors(arrays, buffers)
        assert torch is not None
        (output,) = (held.pop(name) for name, array in arrays.items() if array.output)
        torch.compiler.reset()  # it compiles a function for a few shapes, and then no more
        # in this process: for one kernel others need not be started
        how = {"fullgraph": True, "dynamic": False, "options": {"compile_threads": 1}}
        compiled = torch.compile(lambda given: self._call(torch, problem, given), **how)
        answer: list[Any] = []

        def enqueue() -> None:
            answer.clear()  # its memory serves for the next
            answer.append(compiled(held))

        return Prepared(enqueue, lambda: output.copy_(answer[0]))

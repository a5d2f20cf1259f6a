"""What operations share: checks of arrays, and what models, controls, invariants and baselines have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np

from ..model.arrays import Arrays
from ..model.calls import ArraySpec, Call
from ..model.distributions import st
from ..model.dtypes import FLOATS, DType, from_numpy
from ..model.operation import Operation
from ..model.problem import Problem

REMEDY = "use ascontiguousarray, or contiguous() of torch"


def check_arrays(function: str, allowed: Sequence[np.dtype[Any]], **arrays: ArraySpec) -> None:
    """Raise TypeError or ValueError unless all are of one of these types, on one device."""
    for name, array in arrays.items():
        if array.dtype not in allowed:
            choice = "one of " if len(allowed) > 1 else ""
            names = ", ".join(map(str, allowed))
            raise TypeError(f"{function}: {name} has dtype {array.dtype}; it has to be {choice}{names}")
    devices = {array.device for array in arrays.values()}
    if len(devices) > 1:
        given = ", ".join(f"{name} {array.device}" for name, array in arrays.items())
        raise ValueError(f"{function}: the arrays are on devices {given}; they have to be on the same: copy them")


def common_dtype(function: str, **arrays: ArraySpec) -> DType:
    """The type that all arrays have. Raises TypeError and ValueError."""
    check_arrays(function, [t.numpy for t in FLOATS.values()], **arrays)
    dtypes = {str(array.dtype) for array in arrays.values()}
    if len(dtypes) > 1:
        raise TypeError(f"{function}: the arrays have dtypes {', '.join(sorted(dtypes))}; they have to have the same")
    found = from_numpy(next(iter(arrays.values())).dtype)
    assert found is not None
    return found


def output_dtype(function: str, dtype: DType, wanted: Any) -> DType:
    """The type that the caller wants the output in: that of the inputs, or fp32. Raises TypeError."""
    out = dtype if wanted is None else from_numpy(np.dtype(wanted))
    if out is None or out.name not in (dtype.name, "fp32"):
        raise TypeError(f"{function}: out_dtype is {wanted}; it has to be {dtype.numpy} or float32")
    return out


def rows_contiguous(array: ArraySpec) -> bool:
    """Whether the elements of a row lie side by side."""
    return bool(array.shape[1] == 1 or array.strides[1] == array.itemsize)


def row_stride(function: str, name: str, array: ArraySpec) -> int:
    """Elements from one row to the next. Raises ValueError where the kernels cannot walk the array."""
    rows, columns = array.shape
    if rows == 1 and rows_contiguous(array):
        return int(columns)
    stride, remainder = divmod(array.strides[0], array.itemsize)
    if not rows_contiguous(array) or remainder or stride < columns:
        raise ValueError(
            f"{function}: {name} has strides {array.strides} bytes; each row has to be contiguous and to follow the "
            f"one before it: {REMEDY}"
        )
    return int(stride)


def contiguous(function: str, name: str, array: ArraySpec) -> None:
    """Raise ValueError for a vector with gaps between its elements."""
    if array.shape[0] > 1 and array.strides[0] != array.itemsize:
        raise ValueError(f"{function}: {name} is not contiguous (stride {array.strides[0]} bytes): {REMEDY}")


def matrix(function: str, name: str, array: ArraySpec) -> ArraySpec:
    """The array as a matrix of its rows, without a copy. Raises ValueError where that is not possible."""
    if array.ndim == 2:
        return array
    if array.ndim == 0 or not array.contiguous:
        raise ValueError(f"{function}: {name} has shape {array.shape}; it has to be a matrix, or contiguous")
    return array.reshape(-1, array.shape[-1])


def rows_of(function: str, dtype: DType, out_dtype: Any, **arrays: ArraySpec) -> dict[str, Any]:
    """The fields of a problem on the rows of arrays, which have the same shape and the same distance of rows."""
    shapes = {array.shape for array in arrays.values()}
    if len(shapes) > 1 or 0 in next(iter(shapes)):
        given = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise ValueError(f"{function}: the shapes are {given}; they have to be the same, with one element at least")
    matrices = {name: matrix(function, name, array) for name, array in arrays.items()}
    strides = {name: row_stride(function, name, matrix) for name, matrix in matrices.items()}
    if len(set(strides.values())) > 1:
        given = ", ".join(f"{name} {stride}" for name, stride in strides.items())
        raise ValueError(f"{function}: rows are {given} elements apart; they have to be as far apart in all of them")
    rows, columns = next(iter(matrices.values())).shape
    out, pad = output_dtype(function, dtype, out_dtype).name, next(iter(strides.values())) - columns
    return {"rows": rows, "columns": columns, "dtype": dtype.name, "out": out, "pad_x": pad}


def row(function: str, x: ArraySpec, **rows: ArraySpec) -> None:
    """Raises ValueError where one of them is not one contiguous row like those of x."""
    for name, array in rows.items():
        if array.shape != x.shape[-1:]:
            raise ValueError(f"{function}: {name} has shape {array.shape}; for x {x.shape} it has to be {x.shape[-1:]}")
        contiguous(function, name, array)


def call_on_rows(
    function: str,
    problem: Callable[..., Problem],
    results: Sequence[str],
    out_dtype: Any,
    arrays: Mapping[str, ArraySpec],
    rows: Mapping[str, ArraySpec] | None = None,
    **fields: Any,
) -> Call:
    """The call of an operation on the rows of `arrays` of one shape, which those of its `results` that have several
    rows have, too, and on single `rows` of as many columns. Raises TypeError and ValueError."""
    rows, (first, *_) = rows or {}, arrays.values()
    made = problem(**rows_of(function, common_dtype(function, **arrays, **rows), out_dtype, **arrays), **fields)
    row(function, first, **rows)
    inputs = {name: matrix(function, name, array) for name, array in arrays.items()} | dict(rows)

    def finish(found: Mapping[str, ArraySpec]) -> Any:
        every = tuple(found[name].reshape(first.shape) if found[name].ndim > 1 else found[name] for name in results)
        return every if len(every) > 1 else every[0]

    return Call(made, inputs, finish)


def row_of_rows(function: str, name: str, matrix: ArraySpec, columns: int) -> None:
    """Raises ValueError where the rows of a matrix do not follow each other."""
    if row_stride(function, name, matrix) != columns:
        raise ValueError(f"{function}: {name} is not contiguous: {REMEDY}")


def head_strides(function: str, name: str, array: ArraySpec) -> tuple[int, int]:
    """Elements from one row of a (batch, m, n, dim) array to the next, and from one of m to the next."""
    item, (batch, outer, inner, dim) = array.itemsize, array.shape
    row = array.strides[2] if inner > 1 else dim * item
    middle = array.strides[1] if outer > 1 else inner * row
    if batch > 1 and outer == 1:
        middle = array.strides[0]
    whole = (batch == 1 or array.strides[0] == outer * middle) and (dim == 1 or array.strides[3] == item)
    if row % item or middle % item or row < dim * item or middle < inner * row or not whole:
        raise ValueError(
            f"{function}: {name} has strides {array.strides} bytes; rows have to be contiguous and to lie in the "
            f"order of the dimensions, batches without a gap: {REMEDY}, or the other layout"
        )
    return int(row // item), int(middle // item)


LARGE = (8, 12, 16)
"""As models have them: more heads than four, and more than half a tile of a tensor core has rows."""


def group_sizes(most: int) -> st.SearchStrategy[int]:
    """One to four, and in some problems as many as models have, if `most` allows it."""
    few, many = st.integers(1, min(4, most)), [size for size in LARGE if size <= most]
    return st.one_of(few, few, st.sampled_from(many)) if many else few


def noticeable(answer: Arrays, expected: Arrays, least: Mapping[str, float]) -> bool:
    """Whether an answer differs by more than rounding may: in one output by more than `least` of its largest element.

    Answers of broken kernels need not: of large logits the key that is left out may weigh 1e-6."""
    for name, part in least.items():
        got, right = answer[name], expected[name]
        finite = np.isfinite(right)
        if not np.array_equal(np.isfinite(got), finite):
            return True
        size = np.abs(right[finite]).max(initial=0.0) or 1.0
        if (np.abs(got[finite] - right[finite]) > part * size).any():
            return True
    return False


UNDERFLOW = float(np.finfo(np.float32).smallest_normal)
SHIFTED = 2.0**24
"""A number in fp32 that is so many times another one does not change where that is added."""
SPACING = 2.0**-7
"""Of neighbours in bf16, which outputs are rounded to at most, relative to them."""


def scales(first: Arrays, other: Arrays, factor: float, terms: int = 1) -> bool:
    """Whether every element of `other` is `factor` times that of `first`, for kernels that are linear in their inputs.

    A power of two changes no rounding, so this is exact; only sums and products that are subnormal in fp32, or
    flushed to zero, may differ, by less than the smallest normal number for each of the `terms` that are added up.
    Where a result is so small that this changes it, it may then be rounded to a neighbour."""
    for name, values in first.items():
        wanted = factor * values
        away = np.abs(np.subtract(wanted, other[name], out=np.zeros_like(wanted), where=wanted != other[name]))
        size, lost = np.abs(wanted), UNDERFLOW * terms
        if not (away < lost + np.where(size < SHIFTED * lost, SPACING * size, 0.0)).all():
            return False
    return True


Values = np.ndarray[Any, Any]

TRUNCATED_EVERY = 8
"""Terms of a product that tensor cores add up at once."""


def tensor_core_product(a: Values, b: Values, depth: int, backwards: bool = False) -> Values:
    """a @ b in fp32 as tensor cores add up: `depth` terms at once, and what is added to them truncated, not rounded.

    Of the 24 bits of a sum the last is dropped for what is lost where terms are aligned to the largest. A device adds
    up 8 terms at once. Where `depth` is larger, which is faster here, the sum also loses what the truncations in
    between would cost: a unit roundoff each in the mean. a: (..., m, k), b: (..., k, n) fp32; returns (..., m, n).
    Source: Fasi et al., Numerical behavior of NVIDIA tensor cores, 2021."""
    left = np.float32(1 - max(0, depth // TRUNCATED_EVERY - 2) * 2.0**-24)
    leading = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    total = np.zeros((*leading, a.shape[-2], b.shape[-1]), np.float32)
    starts = range(0, b.shape[-2], depth)
    for first in reversed(starts) if backwards else starts:
        total += a[..., first : first + depth] @ b[..., first : first + depth, :]
        truncate(total)
        if left != 1:
            total *= left
    return total


def truncate(total: Values) -> None:
    """Drop the last bit of fp32 numbers, in place."""
    total.view(np.uint32)[...] &= np.uint32(0xFFFFFFFE)


def one_type(problem: Problem) -> str | None:
    """The refusal of a library whose call has one type for inputs and output."""
    types = dict.fromkeys(str(array.dtype) for array in problem.arrays().values() if array.dtype.is_float)
    return None if len(types) == 1 else f"its call has one type for inputs and output, not {' and '.join(types)}"


@contextmanager
def preferred_blas(library: str) -> Iterator[None]:
    """PyTorch calls this library for matrix products, `cublaslt`; by default it takes cuBLAS."""
    import torch

    before = torch.backends.cuda.preferred_blas_library()
    torch.backends.cuda.preferred_blas_library(library)
    try:
        yield
    finally:
        torch.backends.cuda.preferred_blas_library(before)


def cudnn_version() -> str | None:
    """That PyTorch has been built with."""
    import torch

    number = torch.backends.cudnn.version()
    return None if number is None else str(number)


def beside_triton(
    operation: Operation[Any], package: str, refuses: Callable[[Any], str | None] = lambda problem: None
) -> None:
    """Declare the kernel of Triton that `_triton` in the operation's package has: `work` gets all arrays by name."""

    @operation.baseline("Triton", requires=("torch", "triton"), prepares=True, refuses=refuses)
    def triton(problem: Any, **arrays: Any) -> Callable[[], object]:
        made: Callable[[], object] = import_module("._triton", package).work(problem, **arrays)
        return made


def multiprocessors() -> int:
    """Of the current GPU, by PyTorch."""
    import torch

    return int(torch.cuda.get_device_properties(0).multi_processor_count)


def copy_as_long(problem: Problem) -> Callable[[], None]:
    """What copies as many bytes (read plus written) as the problem has to move, device to device."""
    import cupy

    half = problem.cost.bytes // 2
    source, target = cupy.empty(half, cupy.uint8), cupy.empty(half, cupy.uint8)
    run: Any = lambda: target.data.copy_from_device_async(source.data, half)  # noqa: E731
    made: Callable[[], None] = run
    return made

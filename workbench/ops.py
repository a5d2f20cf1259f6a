"""The operations as functions on CuPy arrays, each solved by the fastest stage that supports the problem.

Stage and parameters come from what `workbench tune` has found on this device, else from the table that ships, else from
the ladder.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from .catalogue import registry
from .devices.cuda import CudaDevice
from .kernels.cross_entropy import CrossEntropyProblem
from .kernels.gemm import GemmProblem
from .kernels.gemm_fp8 import ScaledGemmProblem
from .kernels.layer_norm import LayerNormProblem
from .kernels.layer_norm_backward import LayerNormBackwardProblem
from .kernels.matvec import MatvecProblem
from .kernels.reduce import ReduceProblem
from .kernels.residual_rms_norm import ResidualRmsNormProblem
from .kernels.rms_norm import RmsNormProblem
from .kernels.rms_norm_backward import RmsNormBackwardProblem
from .kernels.rotary import RotaryProblem
from .kernels.scan import ScanProblem
from .kernels.softmax import SoftmaxProblem
from .kernels.softmax_backward import SoftmaxBackwardProblem
from .kernels.transpose import TransposeProblem
from .kernels.vector_add import VectorAddProblem
from .model.arrays import Array
from .model.dtypes import BF16, FLOATS, FP32, DType, from_numpy
from .model.problem import Problem
from .model.stage import Stage
from .records import tuned
from .toolchain.compiler import compile_stage

__all__ = [
    "cross_entropy",
    "gemm",
    "gemm_fp8",
    "layer_norm",
    "layer_norm_backward",
    "matvec",
    "reduce",
    "residual_rms_norm",
    "rms_norm",
    "rms_norm_backward",
    "rotary",
    "scan",
    "softmax",
    "softmax_backward",
    "transpose",
    "vector_add",
]


@cache
def _device(number: int) -> CudaDevice:
    return CudaDevice()


def gemm(a: Any, b: Any, *, trans_b: bool = False, out_dtype: Any = None) -> Any:
    """Matrix product on the GPU, accumulated in fp32.

    a: (m, k), b: (k, n), or (n, k) with `trans_b`: CuPy arrays of one dtype (bfloat16, float16 or float32), rows
    contiguous, any distance between them; a `b` whose columns are contiguous is taken too. Returns (m, n) of
    `out_dtype`: the dtype of the inputs (default) or float32. Raises TypeError for wrong types and dtypes, ValueError
    for wrong shapes, strides or devices.
    """
    dtype = _common_dtype("gemm", a=a, b=b)
    for name, array in (("a", a), ("b", b)):
        if array.ndim != 2:
            raise ValueError(f"gemm: {name} has shape {array.shape}; it has to have two dimensions")
    b_kn = b.T if trans_b else b
    if a.shape[1] != b_kn.shape[0]:
        wanted = f"(n, {a.shape[1]})" if trans_b else f"({a.shape[1]}, n)"
        raise ValueError(f"gemm: b has shape {b.shape}; for a of shape {a.shape} it has to be {wanted}")
    if 0 in a.shape or 0 in b.shape:
        raise ValueError(f"gemm: a {a.shape} and b {b.shape} have to have at least one element each")
    layout = "nn" if _rows_contiguous(b_kn) else "nt"
    stored = b_kn if layout == "nn" else b_kn.T
    out = _output_dtype("gemm", dtype, out_dtype)
    problem = GemmProblem(
        m=a.shape[0],
        n=b_kn.shape[1],
        k=a.shape[1],
        dtype=dtype.name,
        out=out.name,
        layout=layout,
        pad_a=_row_stride("gemm", "a", a) - a.shape[1],
        pad_b=_row_stride("gemm", "b", stored) - stored.shape[1],
    )
    return _solve(problem, "gemm", {"A": a, "B": stored}, "C")


def gemm_fp8(a: Any, b: Any, a_scale: Any, b_scale: Any, *, out_dtype: Any = None) -> Any:
    """Matrix product of 8-bit numbers on the GPU: c[m, n] = a_scale[m] b_scale[n] sum_k a[m, k] b[n, k].

    a: (m, k), b: (n, k), CuPy arrays of uint8 that hold the bits of `ml_dtypes.float8_e4m3fn`, of which CuPy knows
    nothing; rows contiguous, any distance between them. a_scale: (m,), b_scale: (n,), float32 and contiguous. Returns
    (m, n) of `out_dtype`: bfloat16 (default) or float32. Raises TypeError and ValueError like `gemm`.
    """
    _check_arrays("gemm_fp8", [np.dtype(np.uint8)], a=a, b=b)
    _check_arrays("gemm_fp8", [FP32.numpy], a_scale=a_scale, b_scale=b_scale)
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1] or 0 in a.shape or 0 in b.shape:
        raise ValueError(
            f"gemm_fp8: a has shape {a.shape} and b {b.shape}; they have to be (m, k) and (n, k), none of them 0"
        )
    for name, scales, rows in (("a_scale", a_scale, a.shape[0]), ("b_scale", b_scale, b.shape[0])):
        if scales.shape != (rows,):
            raise ValueError(f"gemm_fp8: {name} has shape {scales.shape}; it has to be ({rows},), a scale a row")
        _contiguous("gemm_fp8", name, scales)
    out = BF16 if out_dtype is None else from_numpy(np.dtype(out_dtype))
    if out not in (BF16, FP32):
        raise TypeError(f"gemm_fp8: out_dtype is {out_dtype}; it has to be bfloat16 or float32")
    problem = ScaledGemmProblem(
        m=a.shape[0],
        n=b.shape[0],
        k=a.shape[1],
        out=out.name,
        pad_a=_row_stride("gemm_fp8", "a", a) - a.shape[1],
        pad_b=_row_stride("gemm_fp8", "b", b) - b.shape[1],
    )
    return _solve(problem, "gemm_fp8", {"A": a, "B": b, "a_scale": a_scale, "b_scale": b_scale}, "C")


def matvec(a: Any, b: Any, *, out_dtype: Any = None) -> Any:
    """Matrix-vector product on the GPU, accumulated in fp32: c[n] = sum_k a[k] b[n, k].

    a: (k,), contiguous; b: (n, k), rows contiguous: CuPy arrays of one dtype (bfloat16, float16 or float32). Returns
    (n,) of `out_dtype`: the dtype of the inputs (default) or float32. Raises TypeError and ValueError like `gemm`.
    """
    dtype = _common_dtype("matvec", a=a, b=b)
    if a.ndim != 1 or b.ndim != 2 or a.shape[0] != b.shape[1]:
        raise ValueError(f"matvec: a has shape {a.shape} and b {b.shape}; they have to be (k,) and (n, k)")
    if 0 in b.shape:
        raise ValueError(f"matvec: b {b.shape} has to have at least one element")
    _contiguous("matvec", "a", a)
    problem = MatvecProblem(
        n=b.shape[0],
        k=b.shape[1],
        dtype=dtype.name,
        out=_output_dtype("matvec", dtype, out_dtype).name,
        pad_b=_row_stride("matvec", "b", b) - b.shape[1],
    )
    return _solve(problem, "matvec", {"a": a, "B": b}, "c")


def vector_add(a: Any, b: Any) -> Any:
    """Elementwise sum on the GPU. a, b: (n,), contiguous CuPy arrays of one dtype; returns (n,) of that dtype.

    Raises TypeError and ValueError like `gemm`.
    """
    dtype = _common_dtype("vector_add", a=a, b=b)
    if a.ndim != 1 or a.shape != b.shape or not a.shape[0]:
        raise ValueError(f"vector_add: a has shape {a.shape} and b {b.shape}; they have to be the same (n,), n >= 1")
    _contiguous("vector_add", "a", a)
    _contiguous("vector_add", "b", b)
    return _solve(VectorAddProblem(n=a.shape[0], dtype=dtype.name), "vector_add", {"a": a, "b": b}, "c")


def softmax(x: Any, *, out_dtype: Any = None) -> Any:
    """Softmax along the last axis. x: (..., columns), a CuPy array of bfloat16, float16 or float32 with at least one
    element; rows of a matrix may be any distance apart, other arrays have to be contiguous. -inf is masked: a row of
    nothing else becomes 0. Returns the same shape, of the dtype of x or of `out_dtype` float32.

    Raises TypeError and ValueError like `gemm`, as do the other operations on rows.
    """
    dtype = _common_dtype("softmax", x=x)
    problem = SoftmaxProblem(**_rows_of("softmax", dtype, out_dtype, x=x))
    return _solve(problem, "softmax", {"x": _matrix("softmax", "x", x)}, "y").reshape(x.shape)


def softmax_backward(y: Any, dy: Any, *, out_dtype: Any = None) -> Any:
    """Gradient of softmax along the last axis, for its result y and the gradient dy of that: dx, of their shape."""
    name = "softmax_backward"
    problem = SoftmaxBackwardProblem(**_rows_of(name, _common_dtype(name, y=y, dy=dy), out_dtype, y=y, dy=dy))
    return _solve(problem, name, {"y": _matrix(name, "y", y), "dy": _matrix(name, "dy", dy)}, "dx").reshape(y.shape)


def rms_norm(x: Any, w: Any, *, eps: float = 1e-6, out_dtype: Any = None) -> Any:
    """x / sqrt(mean(x^2) + eps) w along the last axis. x: (..., columns), w: (columns,); arrays as for `softmax`."""
    fields = _rows_of("rms_norm", _common_dtype("rms_norm", x=x, w=w), out_dtype, x=x)
    _row("rms_norm", x, w=w)
    problem = RmsNormProblem(**fields, eps=float(eps))
    return _solve(problem, "rms_norm", {"x": _matrix("rms_norm", "x", x), "w": w}, "y").reshape(x.shape)


def residual_rms_norm(x: Any, residual: Any, w: Any, *, eps: float = 1e-6, out_dtype: Any = None) -> Any:
    """The sum s = x + residual, and the `rms_norm` of s as it is stored. x, residual: (..., columns), w: (columns,).
    Returns (y, s): y of `out_dtype`, s of the dtype of x."""
    name = "residual_rms_norm"
    dtype = _common_dtype(name, x=x, residual=residual, w=w)
    fields = _rows_of(name, dtype, out_dtype, x=x, residual=residual)
    _row(name, x, w=w)
    inputs = {"x": _matrix(name, "x", x), "residual": _matrix(name, "residual", residual), "w": w}
    y, s = _solve(ResidualRmsNormProblem(**fields, eps=float(eps)), name, inputs, ("y", "s"))
    return y.reshape(x.shape), s.reshape(x.shape)


def layer_norm(x: Any, w: Any, b: Any, *, eps: float = 1e-5, out_dtype: Any = None) -> Any:
    """(x - mean(x)) / sqrt(variance(x) + eps) w + b along the last axis. x: (..., columns), w, b: (columns,)."""
    fields = _rows_of("layer_norm", _common_dtype("layer_norm", x=x, w=w, b=b), out_dtype, x=x)
    _row("layer_norm", x, w=w, b=b)
    inputs = {"x": _matrix("layer_norm", "x", x), "w": w, "b": b}
    return _solve(LayerNormProblem(**fields, eps=float(eps)), "layer_norm", inputs, "y").reshape(x.shape)


def rms_norm_backward(x: Any, w: Any, dy: Any, *, eps: float = 1e-6, out_dtype: Any = None) -> Any:
    """Gradients (dx, dw) of `rms_norm` for its arguments and the gradient dy of its result."""
    name = "rms_norm_backward"
    fields = _rows_of(name, _common_dtype(name, x=x, w=w, dy=dy), out_dtype, x=x, dy=dy)
    _row(name, x, w=w)
    inputs = {"x": _matrix(name, "x", x), "w": w, "dy": _matrix(name, "dy", dy)}
    dx, dw = _solve(RmsNormBackwardProblem(**fields, eps=float(eps)), name, inputs, ("dx", "dw"))
    return dx.reshape(x.shape), dw


def layer_norm_backward(x: Any, w: Any, dy: Any, *, eps: float = 1e-5, out_dtype: Any = None) -> Any:
    """Gradients (dx, dw, db) of `layer_norm` for its arguments and the gradient dy of its result."""
    name = "layer_norm_backward"
    fields = _rows_of(name, _common_dtype(name, x=x, w=w, dy=dy), out_dtype, x=x, dy=dy)
    _row(name, x, w=w)
    inputs = {"x": _matrix(name, "x", x), "w": w, "dy": _matrix(name, "dy", dy)}
    dx, dw, db = _solve(LayerNormBackwardProblem(**fields, eps=float(eps)), name, inputs, ("dx", "dw", "db"))
    return dx.reshape(x.shape), dw, db


def cross_entropy(x: Any, labels: Any) -> Any:
    """Cross entropy of logits x, (rows, columns), and labels, (rows,) int32 below columns; rows whose label is negative
    are left out: their loss is 0. Returns (loss, log-sum-exp), both (rows,) float32."""
    name = "cross_entropy"
    fields = _rows_of(name, _common_dtype(name, x=x), np.float32, x=x)
    _check_arrays(name, [np.dtype(np.int32)], labels=labels)
    if x.ndim != 2 or labels.shape != x.shape[:1]:
        raise ValueError(f"{name}: x has shape {x.shape} and labels {labels.shape}; they have to be (n, c) and (n,)")
    _contiguous(name, "labels", labels)
    return _solve(CrossEntropyProblem(**fields), name, {"x": x, "labels": labels}, ("loss", "lse"))


def rotary(x: Any, cos: Any, sin: Any, *, interleaved: bool = False, layout: str = "bhsd") -> Any:
    """Rotary position embedding: pairs (u, v) of the last axis become (u cos - v sin, u sin + v cos).

    x: (batch, heads, seq, dim), or (batch, seq, heads, dim) with `layout` bshd, whose rows of dim elements, and whose
    heads (positions, with bshd), may be any distance apart; cos, sin: (seq, dim / 2), contiguous. A pair is
    (2i, 2i + 1), `interleaved`, or (i, i + dim / 2).
    """
    dtype = _common_dtype("rotary", x=x, cos=cos, sin=sin)
    if layout not in RotaryProblem.choices["layout"]:
        raise ValueError(f"rotary: layout is {layout!r}; it has to be bhsd or bshd")
    if x.ndim != 4 or 0 in x.shape or x.shape[-1] % 2:
        raise ValueError(f"rotary: x has shape {x.shape}; it has to have four dimensions, the last one even")
    seq = x.shape[2 if layout == "bhsd" else 1]
    angles = (seq, x.shape[-1] // 2)
    for name, array in (("cos", cos), ("sin", sin)):
        if array.shape != angles:
            raise ValueError(f"rotary: {name} has shape {array.shape}; it has to be {angles}")
        _row_of_rows("rotary", name, array, angles[1])
    row, middle = _head_strides("rotary", "x", x)
    problem = RotaryProblem(
        batch=x.shape[0],
        heads=x.shape[1 if layout == "bhsd" else 2],
        seq=seq,
        half=angles[1],
        dtype=dtype.name,
        pairs="interleaved" if interleaved else "half",
        layout=layout,
        pad_x=row - x.shape[3],
        gap_x=middle - x.shape[2] * row,
    )
    return _solve(problem, "rotary", {"x": x, "cos": cos, "sin": sin}, "y")


def transpose(x: Any) -> Any:
    """The transpose of a matrix as an array of its own. x: (rows, columns), rows any distance apart."""
    fields = _rows_of("transpose", _common_dtype("transpose", x=x), None, x=x)
    if x.ndim != 2:
        raise ValueError(f"transpose: x has shape {x.shape}; it has to have two dimensions")
    return _solve(TransposeProblem(**{**fields, "out": "fp32"}), "transpose", {"x": x}, "y")


def reduce(x: Any, *, op: str = "sum", over: str = "columns", out_dtype: Any = None) -> Any:
    """Sum or maximum (`op` sum or max) of a matrix, added up in fp32. x: (rows, columns), rows any distance apart;
    returns (rows,) where `over` is columns, (columns,) where it is rows, and (1,) where it is all."""
    fields = _rows_of("reduce", _common_dtype("reduce", x=x), out_dtype, x=x)
    for name, value in (("op", op), ("over", over)):
        if value not in ReduceProblem.choices[name]:
            allowed = ", ".join(ReduceProblem.choices[name])
            raise ValueError(f"reduce: {name} is {value!r}; it has to be one of {allowed}")
    if x.ndim != 2:
        raise ValueError(f"reduce: x has shape {x.shape}; it has to have two dimensions")
    return _solve(ReduceProblem(**fields, op=op, over=over), "reduce", {"x": x}, "y")


def scan(x: Any, *, out_dtype: Any = None) -> Any:
    """Inclusive sums along the last axis, added up in fp32. x: (..., columns), as for `softmax`."""
    problem = ScanProblem(**_rows_of("scan", _common_dtype("scan", x=x), out_dtype, x=x))
    return _solve(problem, "scan", {"x": _matrix("scan", "x", x)}, "y").reshape(x.shape)


def choose(operation: str, problem: Problem, architecture: int, alignment: int = 256, device: str = "") -> Stage[Any]:
    """The fastest stage that supports `problem`, with the parameters for its class of problems on the device named.

    Usually that is the stage of the table that ships, else one that the operation prefers, else the last one of the
    ladder. Where it has been tuned on this device, it gets the parameters found, or makes room for another stage that
    was tuned as well and is faster. `alignment` in bytes divides the address of every array. Raises ValueError where no
    stage supports the problem, or those that do cannot be launched for it; the message has the limits.
    """
    found = registry.operations()[operation]
    beyond: dict[str, str] = {}  # what could not be launched, and why

    def takes(stage: Stage[Any]) -> bool:
        if stage.supports(problem, architecture) is not None or alignment % stage.alignment:
            return False
        if reason := stage.beyond_limits(problem):
            beyond[stage.name] = reason
        return reason is None

    picked = tuned.hand_picked(device, operation, problem)
    names = found.fastest(problem) if callable(found.fastest) else found.fastest
    preferred = [stage for name in names for stage in found.stages if stage.name == name]
    usual = next(filter(takes, [*([picked] if picked else []), *preferred, *reversed(found.stages)]), None)
    if usual is None:
        limits = "".join(f"; {name}: {reason}" for name, reason in beyond.items())
        raise ValueError(f"no stage of {operation} supports {problem.label} on this device{limits}")
    measured = [stage for _, stage in tuned.found(device, operation, tuned.problem_class(problem)) if takes(stage)]
    # a time of some other stage alone does not say that it is faster than the usual one
    return measured[0] if usual.name in {stage.name for stage in measured} else usual


def _check_arrays(function: str, allowed: Sequence[np.dtype[Any]], **arrays: Any) -> None:
    import cupy

    for name, array in arrays.items():
        if not isinstance(array, cupy.ndarray):
            kind = type(array)
            raise TypeError(f"{function}: {name} is a {kind.__module__}.{kind.__name__}; it has to be a cupy.ndarray")
        if array.dtype not in allowed:
            choice = "one of " if len(allowed) > 1 else ""
            names = ", ".join(map(str, allowed))
            raise TypeError(f"{function}: {name} has dtype {array.dtype}; it has to be {choice}{names}")
    current = cupy.cuda.Device().id
    for name, array in arrays.items():
        if array.device.id != current:
            raise ValueError(
                f"{function}: {name} is on device {array.device.id} and the current one is {current}; "
                "use cupy.cuda.Device(n) as a context, or copy the array"
            )


def _common_dtype(function: str, **arrays: Any) -> DType:
    _check_arrays(function, [t.numpy for t in FLOATS.values()], **arrays)
    dtypes = {str(array.dtype) for array in arrays.values()}
    if len(dtypes) > 1:
        raise TypeError(f"{function}: the arrays have dtypes {', '.join(sorted(dtypes))}; they have to have the same")
    found = from_numpy(next(iter(arrays.values())).dtype)
    assert found is not None
    return found


def _output_dtype(function: str, dtype: DType, wanted: Any) -> DType:
    out = dtype if wanted is None else from_numpy(np.dtype(wanted))
    if out is None or out.name not in (dtype.name, "fp32"):
        raise TypeError(f"{function}: out_dtype is {wanted}; it has to be {dtype.numpy} or float32")
    return out


def _rows_contiguous(array: Any) -> bool:
    return bool(array.shape[1] == 1 or array.strides[1] == array.itemsize)


def _row_stride(function: str, name: str, array: Any) -> int:
    """Elements from one row to the next. Raises ValueError where the kernels cannot walk the array."""
    rows, columns = array.shape
    if rows == 1 and _rows_contiguous(array):
        return int(columns)
    stride, remainder = divmod(array.strides[0], array.itemsize)
    if not _rows_contiguous(array) or remainder or stride < columns:
        raise ValueError(
            f"{function}: {name} has strides {array.strides} bytes; each row has to be contiguous and to follow the "
            "one before it: use cupy.ascontiguousarray"
        )
    return int(stride)


def _contiguous(function: str, name: str, array: Any) -> None:
    if array.shape[0] > 1 and array.strides[0] != array.itemsize:
        raise ValueError(
            f"{function}: {name} is not contiguous (stride {array.strides[0]} bytes): use ascontiguousarray"
        )


def _matrix(function: str, name: str, array: Any) -> Any:
    """The array as a matrix of its rows, without a copy. Raises ValueError where that is not possible."""
    if array.ndim == 2:
        return array
    if array.ndim == 0 or not array.flags.c_contiguous:
        raise ValueError(f"{function}: {name} has shape {array.shape}; it has to be a matrix, or contiguous")
    return array.reshape(-1, array.shape[-1])


def _rows_of(function: str, dtype: DType, out_dtype: Any, **arrays: Any) -> dict[str, Any]:
    """The fields of a problem on the rows of arrays, which have the same shape and the same distance of rows."""
    shapes = {array.shape for array in arrays.values()}
    if len(shapes) > 1 or 0 in next(iter(shapes)):
        given = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise ValueError(f"{function}: the shapes are {given}; they have to be the same, with one element at least")
    matrices = {name: _matrix(function, name, array) for name, array in arrays.items()}
    strides = {name: _row_stride(function, name, matrix) for name, matrix in matrices.items()}
    if len(set(strides.values())) > 1:
        given = ", ".join(f"{name} {stride}" for name, stride in strides.items())
        raise ValueError(f"{function}: rows are {given} elements apart; they have to be as far apart in all of them")
    rows, columns = next(iter(matrices.values())).shape
    out = _output_dtype(function, dtype, out_dtype).name
    return {
        "rows": rows,
        "columns": columns,
        "dtype": dtype.name,
        "out": out,
        "pad_x": next(iter(strides.values())) - columns,
    }


def _row(function: str, x: Any, **rows: Any) -> None:
    """Raises ValueError where one of them is not one contiguous row like those of x."""
    for name, array in rows.items():
        if array.shape != x.shape[-1:]:
            raise ValueError(f"{function}: {name} has shape {array.shape}; for x {x.shape} it has to be {x.shape[-1:]}")
        _contiguous(function, name, array)


def _row_of_rows(function: str, name: str, matrix: Any, columns: int) -> None:
    """Raises ValueError where the rows of a matrix do not follow each other."""
    if _row_stride(function, name, matrix) != columns:
        raise ValueError(f"{function}: {name} is not contiguous: use ascontiguousarray")


def _head_strides(function: str, name: str, array: Any) -> tuple[int, int]:
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
            "order of the dimensions, batches without a gap: use cupy.ascontiguousarray, or the other layout"
        )
    return int(row // item), int(middle // item)


_zero: dict[tuple[int, int, str], tuple[Any, Any]] = {}
"""By device, stream and name: scratch that plans find zero and leave zero, and the stream, which must live as long."""


def _scratch(name: str, array: Array) -> Any:
    """Memory for a scratch array of a plan on the current stream: fresh, or, where it has to be zero, kept.

    What is captured into a graph may run beside the stream it was captured from: it has its own, cleared there.
    """
    import cupy

    if not array.zero:
        return cupy.empty(array.nbytes, cupy.uint8)
    stream = cupy.cuda.get_current_stream()
    if stream.is_capturing():
        return cupy.zeros(array.nbytes, cupy.uint8)
    key = (cupy.cuda.Device().id, stream.ptr, name)
    if key not in _zero or _zero[key][0].nbytes < array.nbytes:
        _zero[key] = cupy.zeros(array.nbytes, cupy.uint8), stream
    return _zero[key][0]


def _solve(problem: Problem, operation: str, inputs: dict[str, Any], output: str | tuple[str, ...]) -> Any:
    """The output of this name, or all of these names."""
    import cupy

    device = _device(cupy.cuda.Device().id)
    # the lowest set bit of all addresses together is what every one of them is a multiple of
    addresses = functools.reduce(operator.or_, (array.data.ptr for array in inputs.values()))
    stage = choose(operation, problem, device.architecture, addresses & -addresses, device.properties["name"].decode())
    compiled = compile_stage(stage, problem)
    plan = stage.plan(problem)
    arrays = {**problem.arrays(), **plan.scratch}
    results = {
        name: cupy.empty(array.shape, array.dtype.numpy) for name, array in problem.arrays().items() if array.output
    }
    scratch = {name: _scratch(name, array) for name, array in plan.scratch.items()}
    pointers = {name: array.data.ptr for name, array in {**inputs, **scratch, **results}.items()}
    for launch in plan.launches:
        device.prepare(compiled, launch, arrays, pointers)()
    return results[output] if isinstance(output, str) else tuple(results[name] for name in output)

"""What the stages of `conv2d` are measured against."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...model.dtypes import FP32
from .operation import CONV2D
from .problem import Activation, Conv2dProblem


def _cudnn_version() -> str | None:
    import torch

    number = torch.backends.cudnn.version()
    return None if number is None else str(number)


def _named(array: Any) -> Any:
    """In the order of names that PyTorch has, images or filters, channels, rows, columns: no element moves."""
    return array.permute(0, 3, 1, 2)


def _windows(p: Conv2dProblem) -> dict[str, Any]:
    return {
        "stride": (p.stride_y, p.stride_x),
        "padding": (p.pad_y, p.pad_x),
        "dilation": (p.dilation_y, p.dilation_x),
        "groups": p.groups,
    }


def _activated(p: Conv2dProblem, y: Any) -> Any:
    import torch

    if p.activation is Activation.RELU:
        return torch.relu_(y)
    return torch.nn.functional.gelu(y) if p.activation is Activation.GELU else y


def _rounds_between(p: Conv2dProblem) -> str | None:
    """Why the answer is not that of a sum that is rounded once, or None where it is."""
    if p.dtype == FP32.name:
        return None
    if p.activation is Activation.GELU:
        return f"its sum is rounded to {p.dtype} before it goes through GELU"
    return f"its sum is rounded to {p.dtype} before the bias is added" if p.bias else None


def _cudnn_refuses(p: Conv2dProblem) -> str | None:
    return None if p.bias and p.activation is Activation.RELU else _rounds_between(p)


@CONV2D.baseline("cuDNN", requires="torch", vendor=True, version=_cudnn_version, refuses=_cudnn_refuses)
def cudnn(p: Conv2dProblem, x: Any, f: Any, y: Any, **more: Any) -> None:
    """cuDNN's convolution, of its algorithms the one that is fastest when all are tried. Bias and ReLU are in it where
    there are both, else they follow."""
    import torch

    bias, windows = more.get("bias"), _windows(p)
    given, to = (_named(x), _named(f)), _named(y)
    if bias is not None and p.activation is Activation.RELU:
        order = [windows[name] for name in ("stride", "padding", "dilation", "groups")]
        before, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, True
        try:
            to.copy_(torch.ops.aten.cudnn_convolution_relu(*given, bias, *order))
        finally:
            torch.backends.cudnn.benchmark = before
        return
    how = {"benchmark": True, "deterministic": False, "allow_tf32": False}
    torch.ops.aten.cudnn_convolution.out(*given, **windows, **how, out=to)
    if bias is not None:
        y.add_(bias)
    if p.activation is not Activation.NONE:
        y.copy_(_activated(p, y))


def _convolved(p: Conv2dProblem, x: Any, f: Any, **more: Any) -> Any:
    import torch

    z = torch.nn.functional.conv2d(_named(x), _named(f), more.get("bias"), **_windows(p))
    return _activated(p, z).permute(0, 2, 3, 1)


CONV2D.baseline("PyTorch", requires="torch", refuses=_rounds_between)(_convolved)
CONV2D.baseline("torch.compile", requires="torch", compiled=True, refuses=_rounds_between)(_convolved)


@CONV2D.baseline("Triton", requires=("torch", "triton"), prepares=True)
def triton(p: Conv2dProblem, x: Any, f: Any, y: Any, **more: Any) -> Callable[[], object]:
    from ._triton import work

    return work(p, x, f, more.get("bias"), y)


@CONV2D.baseline("NumPy", requires="numpy")
def numpy(p: Conv2dProblem, x: Any, f: Any, **more: Any) -> Any:
    return p.solved(x, f, more.get("bias"))

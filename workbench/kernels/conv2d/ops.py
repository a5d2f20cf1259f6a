"""`conv2d` as a function on arrays."""

from __future__ import annotations

from typing import Any

from ...model.calls import Call
from ...model.problem import ProblemError
from ..shared.arguments import REMEDY, common_dtype
from . import CONV2D, Activation, Conv2dProblem, Layout

Pair = int | tuple[int, int]


@CONV2D.function
def conv2d(
    x: Any,
    f: Any,
    bias: Any = None,
    *,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
    dilation: int | tuple[int, int] = 1,
    groups: int = 1,
    activation: str = "none",
    layout: str = "nhwc",
) -> Call:
    """Convolution of images with filters as neural networks have it, plus bias, through an activation. x: (images,
    height, width, channels); f: (filters, taps_y, taps_x, channels / groups); bias: (filters,) or None; or x: (images,
    channels, height, width) and f: (filters, channels / groups, taps_y, taps_x) with `layout` nchw. Contiguous
    arrays of the same type: bfloat16, float16 or float32. `stride`, `padding` (zeros on every side) and `dilation` are
    one number, or those of y and x; `groups` divides channels and filters, whose n-th parts belong together;
    `activation` is none, relu or gelu (with the error function).

    Returns y of the same type and layout: (images, rows, columns, filters), with rows = (height + 2 padding - dilation
    (taps_y - 1) - 1) // stride + 1. Raises TypeError and ValueError like `gemm`.
    """
    problem = _problem(x, f, bias, stride, padding, dilation, groups, activation, layout)
    channels_first = problem.layout is Layout.NCHW

    def finish(found: dict[str, Any]) -> Any:
        return found["y"].transpose(0, 3, 1, 2) if channels_first else found["y"]

    given = {"x": x, "f": f}
    if channels_first:  # in the order of the problem's dimensions: no element moves
        given = {name: array.transpose(0, 2, 3, 1) for name, array in given.items()}
    return Call(problem, given if bias is None else {**given, "bias": bias}, finish)


def _pair(name: str, given: Pair) -> tuple[int, int]:
    both = (given, given) if isinstance(given, int) else tuple(given)
    if len(both) != 2:
        raise ValueError(f"conv2d: {name} is {given}; it has to be a number, or two, of y and x")
    return both


def _problem(
    x: Any,
    f: Any,
    bias: Any,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
    activation: str,
    layout: str,
) -> Conv2dProblem:
    """Raises TypeError and ValueError for arrays that are none of a problem."""
    given = {"x": x, "f": f} if bias is None else {"x": x, "f": f, "bias": bias}
    dtype = common_dtype("conv2d", **given)
    for name, array in given.items():
        if array.ndim != (1 if name == "bias" else 4) or 0 in array.shape:
            wanted = "one dimension" if name == "bias" else "four dimensions, none empty"
            raise ValueError(f"conv2d: {name} has shape {array.shape}; it has to have {wanted}")
        if not array.contiguous:
            raise ValueError(f"conv2d: {name} has strides {array.strides} bytes; it has to be contiguous: {REMEDY}")
    if layout not in tuple(Layout):
        raise ValueError(f"conv2d: layout is {layout!r}; it has to be nhwc or nchw")
    if activation not in tuple(Activation):
        raise ValueError(f"conv2d: activation is {activation!r}; it has to be none, relu or gelu")
    order = (0, 1, 2, 3) if layout == Layout.NHWC else (0, 2, 3, 1)
    images, height, width, channels = (x.shape[i] for i in order)
    filters, taps_y, taps_x, own = (f.shape[i] for i in order)
    if groups < 1 or channels % groups or filters % groups or own != channels // groups:
        raise ValueError(
            f"conv2d: x has {channels} channels and f {filters} filters of {own}; groups is {groups}, which has to "
            "divide both, and a filter has to have the channels of one group"
        )
    if bias is not None and bias.shape != (filters,):
        raise ValueError(f"conv2d: bias has shape {bias.shape}; for {filters} filters it has to be ({filters},)")
    pairs = {"stride": stride, "pad": padding, "dilation": dilation}
    along: dict[str, Any] = {}
    for name, value in pairs.items():
        along[f"{name}_y"], along[f"{name}_x"] = _pair("padding" if name == "pad" else name, value)
    try:
        return Conv2dProblem(
            images=images,
            height=height,
            width=width,
            channels=own,
            filters=filters // groups,
            taps_y=taps_y,
            taps_x=taps_x,
            groups=groups,
            bias=bias is not None,
            activation=Activation(activation),
            layout=Layout(layout),
            dtype=dtype.name,
            **along,
        )
    except ProblemError as error:
        raise ValueError(f"conv2d: {error}") from None

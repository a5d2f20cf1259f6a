"""The operation conv2d: preferred stages, its call, its baselines, and what its stages share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ...model.calls import Call
from ...model.dtypes import FP32, dtype_of
from ...model.launch import machine
from ...model.operation import Operation
from ...model.problem import ProblemError, Size
from ..gemm.operation import GEMM, gemm
from ..shared import REMEDY, beside_triton, common_dtype, cudnn_version
from . import estimate
from .estimate import BLOCK_K
from .problem import SUITE, Activation, Conv2dProblem, Layout, problems

FEW = 4
"""Below so many channels, and where every multiprocessor has a tile, a thread gathers a window: for 3
channels 1.6 of cuDNN's speed."""

FEWEST_FILTERS, FEW_FILTERS, FULL = 16, 32, 32
"""Up to so many filters of one tap, and up to so many of several taps, are kept apart where there are more channels
than the last: pixels are loaded into registers, or once for all taps."""

MANY_PIXELS = 8192
"""From so many on each multiprocessor has several warps that each multiply more than 64 filters."""

FLEXIBLE_MARGIN = 1.1
"""By how much the estimate of tiles of any width is to be less than those of the others that TMA loads. Of 53 layers on
an H200 these were then preferred for 22, and 1.11 times as fast as the best of the others, 0.92 times at worst."""

SEVERAL_MARGIN = 1.2
"""The same of tiles whose k-tiles have several taps, over 21 layers."""

ALONE_MARGIN = 1.5
"""By how much the estimate of padding is less than what it takes, beside stages that do not pad (two layers, H200)."""

MARGIN = 1.7
"""By how much the estimate of copies by threads is less than what they take, where that of TMA is not (H200)."""


def fastest(p: Conv2dProblem) -> tuple[str, ...]:
    """The stages that are preferred for a problem that is in no table of what is fastest, best first."""
    single = estimate.cycles(p, *estimate.fitted_to_one(p), overlapped=True)
    # of one tap memory decides, not products: larger tiles read less (0.98 to 1.05 of ping_pong over ten such layers)
    several = p.taps_y * p.taps_x > 1 and single < estimate.cycles(p, *estimate.fitted(p))
    wgmma = ("ping_pong", "im2col_tma") if several else ("im2col_tma", "ping_pong")
    copied = estimate.copied_cycles(p, *estimate.fitted_to_copies(p))
    ranked: dict[tuple[str, ...], float] = {("narrow_copies",): MARGIN * copied}
    if estimate.no_eights(p):  # channels that are copied to whole k-tiles took longer: 0.76 of cuDNN over twelve layers
        ranked[wgmma] = estimate.im2col_cycles(p)
        height, width, shares = estimate.fitted_to_shares(p)
        if shares > 1:
            ranked["split_k",] = estimate.shared_cycles(p, height, width, shares)
        if p.groups == 1:
            ranked["several_taps",] = _of_several(p)
        ranked["flexible_tiles",] = FLEXIBLE_MARGIN * estimate.flexible_cycles(p, *estimate.fitted_flexibly(p))
        if p.filters <= FEW_FILTERS and p.channels > FULL and p.taps_y * p.taps_x > 1:
            ranked["halo",] = estimate.halo_cycles(p)
    else:
        wide, whole = estimate.padded(p), estimate.padded(p, BLOCK_K)
        by_copies = MARGIN * estimate.copied_cycles(wide, *estimate.fitted_to_copies(wide))
        by_tma = estimate.tile_cycles(whole, *estimate.fitted_to_one(whole), overlapped=True)
        ranked["padded_channels",] = by_copies + estimate.padding_cycles(p, wide)
        ranked["padded_im2col",] = by_tma + estimate.padding_cycles(p, whole)
    if p.groups == 1 and p.channels % estimate.BOXES[0]:
        boxes = estimate.padded_to_boxes(p)
        more = 0 if estimate.no_eights(p) is None else ALONE_MARGIN  # the others pad, too
        ranked["padded_taps",] = _of_several(boxes) + (1 + more) * estimate.padding_cycles(p, boxes)
    names = sorted(ranked, key=lambda names: ranked[names])
    ranking = (name for several in names for name in several)
    alone = ("depthwise_tma", "depthwise")
    return (*alone, *_special(p), *ranking, "tensor_core", "few_channels", "smem_tiling")


def _of_several(p: Conv2dProblem) -> float:
    return SEVERAL_MARGIN * estimate.several_cycles(p, *estimate.fitted_to_taps(p))


def _special(p: Conv2dProblem) -> tuple[str, ...]:
    """Stages that are preferred to those that an estimate ranks, where they take the problem."""
    if p.channels < FEW and p.tiles(128, 64) >= machine().multiprocessors:
        return ("few_channels",)
    return ("pointwise",) if _few_of_one_tap(p) else ()


def _few_of_one_tap(p: Conv2dProblem) -> bool:
    """Whether `pointwise` is preferred where it takes the problem: filters are few, or boxes of TMA would not be full.
    It then had 1.05 to 4 times the speed of im2col_tma (H100)."""
    if p.filters <= FEWEST_FILTERS and p.channels > FULL:
        return True
    return bool(p.channels % BLOCK_K or p.filters % BLOCK_K) and (p.filters <= BLOCK_K or p.pixels >= MANY_PIXELS)


CONV2D = Operation(
    name="conv2d",
    summary="two-dimensional convolution with bias and activation",
    problem=Conv2dProblem,
    problems=problems,
    suite=SUITE,
    defines=lambda p: {"IN": dtype_of(p.dtype).cuda, "ACTIVATION": tuple(Activation).index(p.activation)},
    emulator_size=Size(extent=300, work=100_000),
    cuda_size=Size(extent=1000, work=200_000_000),
    fastest=fastest,
)

EDGE_CASES = (
    Conv2dProblem(taps_y=1, taps_x=1, pad_y=0, pad_x=0),
    Conv2dProblem(height=3, width=3, channels=8, filters=9, pad_y=3, pad_x=3, stride_y=3, stride_x=3),  # taps outside
    Conv2dProblem(height=9, width=4, channels=16, filters=8, taps_y=5, taps_x=2, dilation_y=2, pad_y=0, groups=3),
    Conv2dProblem(images=3, height=5, width=7, channels=72, filters=130, bias=True, activation=Activation.GELU),
    Conv2dProblem(height=4, width=300, channels=8, filters=5, taps_x=7, pad_x=0, bias=True, activation=Activation.RELU),
)
"""What random problems would hardly hit."""

CONVOLUTION = np.dtype(
    [
        (name, np.int32)
        for name in (
            *("pixels", "height", "width", "channels", "rows", "columns", "filters"),
            *("taps_y", "taps_x", "stride_y", "stride_x", "pad_y", "pad_x", "dilation_y", "dilation_x"),
            *("group_channels", "group_filters"),
        )
    ]
)
"""The struct of the sizes, as the kernels take it by value."""


def sizes(p: Conv2dProblem) -> np.generic:
    """The sizes of a problem. Raises OverflowError for those that 32 bits do not hold, and for more pixels and products
    of an output than they count up to the end of a tile."""
    for counted in (p.pixels, p.products):
        np.int32(counted + LARGEST_TILE)
    own = {"channels": p.groups * p.channels, "filters": p.groups * p.filters}
    own |= {"group_channels": p.channels, "group_filters": p.filters}
    values = [own[name] if name in own else getattr(p, name) for name in CONVOLUTION.names or ()]
    return _struct(CONVOLUTION, [np.int32(value) for value in values])


LARGEST_TILE = 256
"""Pixels, or products of a sum, of the largest tile of a stage."""

STRIDES = np.dtype([(f"{name}_{i}", np.int64) for name in ("x", "f", "y") for i in range(4)])
"""The struct of the strides of arrays in either layout."""


def strides(p: Conv2dProblem) -> np.generic:
    """Elements of x, f and y from one to the next in each dimension."""
    arrays = p.arrays()
    return _struct(STRIDES, [step for name in ("x", "f", "y") for step in arrays[name].element_strides])


def _struct(kind: np.dtype[Any], values: list[Any]) -> np.generic:
    """The bytes of a struct, which a kernel takes by value."""
    return np.void(np.array(tuple(values), kind).tobytes())


def pointers(p: Conv2dProblem, prefix: str = "") -> tuple[str | np.generic, ...]:
    """x and f, or arrays of these names behind a `prefix`, the bias, which is null where there is none, and y."""
    return (f"{prefix}x", f"{prefix}f", "bias" if p.bias else np.uint64(0), "y")


ODD_CHANNELS = (
    Conv2dProblem(images=2, height=7, width=7, channels=75, filters=17, bias=True, activation=Activation.GELU),
    Conv2dProblem(images=3, height=9, width=6, channels=70, filters=34, groups=2, taps_y=5, stride_x=2, dtype="fp16"),
    Conv2dProblem(images=2, height=8, width=9, channels=44, filters=72, taps_x=5, pad_x=0, dilation_y=2, bias=True),
    Conv2dProblem(images=2, height=13, width=12, channels=3, filters=131, taps_y=7, taps_x=7, dtype="fp16"),
)
"""Channels that are a multiple of 1, 2 and 4, so many k-tiles that blocks may share them, and filters whose pixels are
a multiple of 2, 4 and 16 bytes."""


def channels_last(p: Conv2dProblem) -> str | None:
    """Why a stage that reads several channels at once cannot take a problem, or None where it can."""
    return None if p.layout is Layout.NHWC else "channels have to lie side by side: layout nhwc"


def first_refusal(*asked: Callable[[Conv2dProblem], str | None]) -> Callable[[Conv2dProblem], str | None]:
    """What the first of several reasons is that is none of None."""
    return lambda p: next(filter(None, (why(p) for why in asked)), None)


# ---------------------------------------------------------------------------------------------- as a function on arrays


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
    `activation` is none, relu or gelu (with the error function). With one tap and stride 1, `gemm` computes the same
    product.

    Returns y of the same type and layout: (images, rows, columns, filters), with rows = (height + 2 padding - dilation
    (taps_y - 1) - 1) // stride + 1. Raises TypeError and ValueError like `gemm`."""
    problem = _problem(x, f, bias, stride, padding, dilation, groups, activation, layout)
    channels_first = problem.layout is Layout.NCHW

    def finish(found: dict[str, Any]) -> Any:
        return found["y"].transpose(0, 3, 1, 2) if channels_first else found["y"]

    given = {"x": x, "f": f}
    if _is_product(problem):
        return Call(problem, given if bias is None else {**given, "bias": bias}, finish, _product(problem, x, f, bias))
    if channels_first:  # in the order of the problem's dimensions: no element moves
        given = {name: array.transpose(0, 2, 3, 1) for name, array in given.items()}
    return Call(problem, given if bias is None else {**given, "bias": bias}, finish)


def _is_product(p: Conv2dProblem) -> bool:
    """Whether pixels and filters are two matrices, and neither is so small that `pointwise` is preferred."""
    if {p.taps_y, p.taps_x, p.stride_y, p.stride_x, p.groups} != {1} or p.pad_y or p.pad_x or p.layout is Layout.NCHW:
        return False
    if p.channels % estimate.EIGHT and p.pixels > 2 * MANY_PIXELS:
        return False  # rows of a matrix would begin anywhere: 0.44 of cuDNN
    return not _few_of_one_tap(p) or any(s.name == "pointwise" and s.supports(p) for s in CONV2D.stages)


def _product(p: Conv2dProblem, x: Any, f: Any, bias: Any) -> tuple[str, Call]:
    """The call of gemm. On an H200 it takes 0.6 to 1.03 of the time of the fastest stage here (seven layers)."""
    matrices = x.reshape(p.pixels, p.channels), f.reshape(p.filters, p.channels)
    call = gemm.build(*matrices, bias, trans_b=True, activation=p.activation.value)
    name = next(name for name, array in call.problem.arrays().items() if array.output)
    return GEMM.name, replace(call, finish=lambda found: found[name].reshape(p.images, p.rows, p.columns, p.filters))


def _pair(name: str, given: Pair) -> tuple[int, int]:
    both = (given, given) if isinstance(given, int) else tuple(given)
    if len(both) != 2:
        raise ValueError(f"conv2d: {name} is {given}; it has to be a number, or two, of y and x")
    return both


def _problem(
    x: Any, f: Any, bias: Any, stride: Pair, padding: Pair, dilation: Pair, groups: int, activation: str, layout: str
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


# --------------------------------------------------------------------------------- what the stages are measured against


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


@CONV2D.baseline("cuDNN", requires="torch", vendor=True, version=cudnn_version, refuses=_cudnn_refuses)
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

beside_triton(CONV2D, __package__)


@CONV2D.baseline("NumPy", requires="numpy")
def numpy(p: Conv2dProblem, x: Any, f: Any, **more: Any) -> Any:
    return p.solved(x, f, more.get("bias"))

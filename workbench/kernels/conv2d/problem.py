"""Problems of two-dimensional convolution: windows, groups, layouts, and how exact the result has to be."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

import numpy as np

from ... import reference
from ...judge import bounds
from ...model.arrays import Array, Arrays, element_bytes
from ...model.distributions import NonFinite, drawn, st
from ...model.dtypes import BF16, FP16, FP32, dtype_of
from ...model.launch import ceil_div
from ...model.parts import Axis
from ...model.problem import Cost, Problem, Size, extents

Values = np.ndarray[Any, Any]


class Layout(StrEnum):
    """The order in which arrays lie in memory: n image, h row, w column, c channel. With NHWC filters lie as KRSC, with
    NCHW as KCRS: filter, tap along y, along x, channel."""

    NHWC = "nhwc"
    NCHW = "nchw"


class Activation(StrEnum):
    """What the sums go through."""

    NONE = "none"
    RELU = "relu"
    GELU = "gelu"


GELU_GROWTH = 2.2
"""By how much GELU makes an error of accumulation larger: its slope is at most 1.13, and its own roundings, at most
4 u |z| of an erf of 2 ulp (CUDA C++ Programming Guide, erff), are no more than what is accumulated without it."""

GELU_STEP = 16
"""In the exact tier of GELU filters and bias are multiples of it, and so are the sums: of one of 16 or more GELU is the
sum, of one of -16 or less 0, to the last bit of every type."""


@dataclass(frozen=True)
class Conv2dProblem(Problem):
    """x: (images, height, width, groups channels), f: (groups filters, taps_y, taps_x, channels), bias: (groups
    filters,), y: (images, rows, columns, groups filters), all of type `dtype`; in memory as `layout` says.

    `channels` and `filters` are those of one group. The filters of a group see only the channels of that group. An
    image has `pad_y` and `pad_x` zeros on its sides. Windows are `stride_y` and `stride_x` pixels apart, and taps
    `dilation_y` and `dilation_x`. A number in x that is not finite reaches the outputs whose windows contain it, and
    no others. One in f or bias reaches the outputs of its filter, and no others. If its tap lies in the padding, it
    may reach the output or not. ReLU of NaN is NaN."""

    images: int = 1
    height: int = 1
    width: int = 1
    channels: int = 1
    filters: int = 1
    taps_y: int = 3
    taps_x: int = 3
    stride_y: int = 1
    stride_x: int = 1
    pad_y: int = 1
    pad_x: int = 1
    dilation_y: int = 1
    dilation_x: int = 1
    groups: int = 1
    bias: bool = False
    activation: Activation = Activation.NONE
    layout: Layout = Layout.NHWC
    dtype: str = "bf16"

    non_finite: ClassVar[NonFinite | str] = NonFinite.UNDEFINED  # a filter may meet zeros of the padding
    extents: ClassVar[tuple[str, ...]] = ("images", "height", "width", "channels", "filters")
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"dtype": (BF16.name, FP16.name, FP32.name)}
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = dict.fromkeys(
        ("taps_y", "taps_x", "stride_y", "stride_x", "dilation_y", "dilation_x", "groups"), (1, 2**31)
    )

    def check(self) -> str | None:
        if min(self.rows, self.columns) < 1:
            return (
                f"filters of {self.taps_y}x{self.taps_x} taps, {self.dilation_y} and {self.dilation_x} apart, are "
                f"larger than the image of {self.height}x{self.width} with {self.pad_y} and {self.pad_x} pixels of "
                "padding"
            )
        return None

    @property
    def rows(self) -> int:
        """Of the output."""
        return (self.height + 2 * self.pad_y - self.dilation_y * (self.taps_y - 1) - 1) // self.stride_y + 1

    @property
    def columns(self) -> int:
        """Of the output."""
        return (self.width + 2 * self.pad_x - self.dilation_x * (self.taps_x - 1) - 1) // self.stride_x + 1

    @property
    def pixels(self) -> int:
        """Of all outputs together."""
        return self.images * self.rows * self.columns

    @property
    def products(self) -> int:
        """Of an input and a weight, that each output sums up."""
        return self.taps_y * self.taps_x * self.channels

    def tiles(self, height: int, width: int) -> int:
        """How many tiles of so many pixels, and filters of a group, cover the outputs."""
        return ceil_div(self.pixels, height) * ceil_div(self.filters, width) * self.groups

    @property
    def label(self) -> str:
        def both(name: str) -> str:
            y, x = getattr(self, f"{name}_y"), getattr(self, f"{name}_x")
            return f"{y}" if y == x else f"{y}x{x}"

        channels, filters = self.groups * self.channels, self.groups * self.filters
        image = f"n{self.images} {self.height}x{self.width} c{channels} k{filters}"
        usual = {"stride": "1", "pad": "0", "dilation": "1"}
        options = [f"{name}{both(name)}" for name, value in usual.items() if both(name) != value]
        options += [f"groups{self.groups}"] if self.groups > 1 else []
        options += ["bias"] if self.bias else []
        options += [self.activation] if self.activation is not Activation.NONE else []
        options += [self.layout] if self.layout is not Layout.NHWC else []
        return " ".join([image, f"{self.taps_y}x{self.taps_x}", *options, self.dtype])

    def _array(self, shape: tuple[int, int, int, int], output: bool = False) -> Array:
        """Of outermost, y, x and channels; in NCHW channels come second in memory."""
        dtype, (_, height, width, inner) = dtype_of(self.dtype), shape
        if self.layout is Layout.NHWC:
            return Array(shape, dtype, output=output)
        return Array(shape, dtype, strides=(inner * height * width, width, 1, height * width), output=output)

    def arrays(self) -> dict[str, Array]:
        filters = self.groups * self.filters
        found: dict[str, Any] = {
            "x": self._array((self.images, self.height, self.width, self.groups * self.channels)),
            "f": self._array((filters, self.taps_y, self.taps_x, self.channels)),
        }
        if self.bias:
            found["bias"] = Array((filters,), dtype_of(self.dtype))
        return found | {"y": self._array((self.images, self.rows, self.columns, filters), output=True)}

    def axes(self) -> tuple[Axis, ...]:
        images = Axis("images", {"x": 0, "y": 0})
        if self.groups == 1:
            return images, Axis("filters", {"f": 0, "y": 3, **({"bias": 0} if self.bias else {})})
        return (images,)

    def exact_steps(self) -> Mapping[str, int]:
        if self.activation is not Activation.GELU:
            return {}
        return {name: GELU_STEP for name, array in self.arrays().items() if array.given and name != "x"}

    def solved(self, x: Values, f: Values, bias: Values | None, **changed: Any) -> Values:
        """y by the reference, float64, with other numbers than those of the problem where they are `changed`."""
        how: dict[str, Any] = {
            "stride": (self.stride_y, self.stride_x),
            "pad": (self.pad_y, self.pad_x),
            "dilation": (self.dilation_y, self.dilation_x),
            "activation": self.activation.value,
        }
        grouped = x.reshape(*x.shape[:3], self.groups, self.channels)
        filters = f.reshape(self.groups, self.filters, *f.shape[1:])
        added = None if bias is None else bias.reshape(self.groups, self.filters)

        def solve(images: Values) -> Values:
            return reference.conv2d(images, filters, added, **(how | changed))

        if self.channels * self.filters == 1 and x.size > 2**22:  # no product of matrices, which NumPy would share out
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                y = np.concatenate(list(pool.map(solve, np.split(grouped, self.images))))
        else:
            y = solve(grouped)
        return y.reshape(*y.shape[:3], self.groups * self.filters)

    def reference(self, inputs: Arrays) -> Arrays:
        return {"y": self.solved(inputs["x"], inputs["f"], inputs.get("bias"))}

    def bound(self, inputs: Arrays, expected: Arrays) -> Arrays:
        # the bias is one term more. ReLU moves no two numbers further apart
        x, f, bias = (np.abs(inputs[name]) if name in inputs else None for name in ("x", "f", "bias"))
        assert x is not None and f is not None
        magnitude = self.solved(x, f, bias, activation="none")
        growth = GELU_GROWTH if self.activation is Activation.GELU else 1.0
        terms = self.products + self.bias
        return {"y": bounds.dot_products(expected["y"], growth * magnitude, terms, dtype_of(self.dtype))}

    def negative_controls(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        return super().negative_controls(inputs, expected) | controls(self, inputs, expected)

    @property
    def cost(self) -> Cost:
        flops = 2 * self.pixels * self.groups * self.filters * self.products
        arrays = self.arrays()
        rows, taps_y = touched(self.height, self.rows, self.taps_y, self.stride_y, self.pad_y, self.dilation_y)
        columns, taps_x = touched(self.width, self.columns, self.taps_x, self.stride_x, self.pad_x, self.dilation_x)
        read = self.groups * self.channels * (self.images * rows * columns + self.filters * taps_y * taps_x)
        others = (array for name, array in arrays.items() if name not in ("x", "f"))
        return Cost(flops, read * arrays["x"].dtype.itemsize + element_bytes(others))


def touched(extent: int, windows: int, taps: int, stride: int, pad: int, dilation: int) -> tuple[int, int]:
    """Along one axis, how many pixels of the image any tap of any window lies on, and how many taps lie on one: a 1 x 1
    filter of stride 2 reads every second row, and on an image of one pixel a padded 3 x 3 filter has one tap.

    The pixels of a tap are `stride` apart. Taps whose first pixels have the same remainder lie on pixels of one
    sequence, of which each adds what lies behind the pixels of those before it."""
    behind: dict[int, int] = {}  # of every remainder, the next pixel that is not counted yet
    pixels = used = 0
    for tap in range(taps):
        begin = tap * dilation - pad
        remainder = begin % stride
        inside, last = max(begin, remainder), min(extent - 1, begin + (windows - 1) * stride)
        used += inside <= last
        if (first := max(inside, behind.get(remainder, 0))) <= last:
            count = (last - first) // stride + 1
            pixels += count
            behind[remainder] = first + count * stride
    return pixels, used


def _steps(p: Conv2dProblem) -> int:
    """Products, or of the small tiles that cover the outputs, which are far from full, a part."""
    return max(p.pixels * p.groups * p.filters, 64 * p.tiles(64, 64)) * p.products


FEW_STEPS = 10**6
"""Work up to which images are small: so many products an emulator computes."""


@drawn
def problems(d: st.DrawFn, size: Size, edges: tuple[int, ...]) -> Conv2dProblem:
    """Convolutions of up to `size.work` products: small images and many; few channels, many, groups, depthwise, and
    filters of one tap."""
    kind = d(st.sampled_from(["dense"] * 4 + ["few", "groups", "depthwise", "depthwise", "one tap"]))
    taps = [d(st.sampled_from([1, 1, 2, 3, 3, 3, 5, 7])) for _ in range(2)]
    dilation = [d(st.sampled_from([1, 1, 1, 1, 2, 2, 3, 6])) for _ in range(2)]
    pad = [d(st.integers(0, 3)) for _ in range(2)]
    if kind == "one tap":
        taps, dilation, pad = [1, 1], [1, 1], [0, 0]
    least = [max(1, n * (t - 1) + 1 - 2 * p) for n, t, p in zip(dilation, taps, pad, strict=True)]
    more = min(size.extent, 14 if size.work <= FEW_STEPS else 60)
    extent: dict[str, Any] = {
        "images": d(st.integers(1, 4)),
        "height": d(st.integers(least[0], least[0] + more)),
        "width": d(st.integers(least[1], least[1] + more)),
    }
    bottom = {"height": least[0], "width": least[1]}
    eights = st.sampled_from([8, 16, 24, 40, 64, 64, 72, 128, 200])
    fields: dict[str, Any] = {"channels": 1, "filters": 1, "groups": 1}
    if kind == "depthwise":
        fields["groups"] = d(st.one_of(st.integers(1, 20), eights))
    elif kind == "few":
        fields |= {"channels": d(st.integers(1, 9)), "filters": d(extents(size, edges))}
    else:
        fields["groups"] = d(st.sampled_from([2, 3, 4, 8])) if kind == "groups" else 1
        odd = d(st.sampled_from([0, 0, 0, 1, 4]))
        fields |= {"channels": max(1, d(eights) - odd), "filters": d(st.one_of(extents(size, edges), eights))}
    rest: dict[str, Any] = {
        "bias": d(st.booleans()),
        "activation": d(st.sampled_from(Activation)),
        "layout": d(st.sampled_from([Layout.NHWC] * 6 + [Layout.NCHW])),
        "dtype": d(st.sampled_from([BF16.name, FP16.name] * 3 + [FP32.name])),
        "seed": d(st.integers(0, 2**16)),
    }
    stride = [d(st.sampled_from([1, 1, 1, 2, 3])) for _ in range(2)]
    pairs = {"taps": taps, "stride": stride, "pad": pad, "dilation": dilation}
    along: dict[str, Any] = {f"{name}_{axis}": both[i] for name, both in pairs.items() for i, axis in enumerate("yx")}
    found = {name: n if name == "groups" else min(n, size.extent) for name, n in (extent | fields).items()}
    made = Conv2dProblem(**found, **along, **rest)
    while _steps(made) > size.work and (larger := {k: n for k, n in found.items() if n > bottom.get(k, 1)}):
        largest = max(larger, key=lambda name: found[name] / bottom.get(name, 1))
        half = max(bottom.get(largest, 1), found[largest] // 2)
        by_eights = largest == "channels" and found[largest] % 8 == 0 and half > 8
        found[largest] = half // 8 * 8 if by_eights else half
        made = dataclasses.replace(made, **found)
    return made


SHAPES = (
    (32, 256, 56, 256, 3, 1, 1, 1),
    (32, 512, 28, 512, 3, 1, 1, 1),
    (128, 64, 56, 64, 3, 1, 1, 1),
    (64, 256, 56, 512, 1, 2, 1, 1),
    (64, 3, 224, 64, 7, 2, 1, 1),
    (32, 256, 28, 256, 3, 1, 2, 1),
    (32, 320, 64, 320, 3, 1, 1, 1),
    (1, 512, 128, 512, 3, 1, 1, 1),
    (32, 512, 28, 512, 3, 1, 1, 512),
    (32, 384, 56, 384, 7, 1, 1, 384),
)
"""Images, all channels, height and width, all filters, taps, stride, dilation and groups of what is timed. Padding
keeps the size of the image where the stride is 1."""


def timed(n: int, c: int, hw: int, k: int, taps: int, stride: int, dilation: int, groups: int) -> Conv2dProblem:
    """A problem of square images and filters."""
    along: dict[str, Any] = {
        f"{name}_{axis}": value for axis in "yx" for name, value in (("taps", taps), ("stride", stride))
    }
    along |= {f"pad_{axis}": dilation * (taps // 2) for axis in "yx"}
    along |= {f"dilation_{axis}": dilation for axis in "yx"}
    size: dict[str, Any] = {
        "images": n,
        "height": hw,
        "width": hw,
        "channels": c // groups,
        "filters": k // groups,
        "groups": groups,
    }
    return Conv2dProblem(**size, **along)


SUITE = tuple(timed(*shape) for shape in SHAPES)

# ---------------------------------------------------------------------------------------------------- negative controls
NOTICEABLE = 0.02
"""Of the largest element: an answer that differs by less in every element may be right by chance."""


def controls(p: Conv2dProblem, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
    """What broken kernels answer to a problem, by what is wrong with them."""
    x, f, bias, y = inputs["x"], inputs["f"], inputs.get("bias"), expected["y"]
    without = f.copy()
    without[..., -1] = 0
    wrong = {
        "last channel dropped": p.solved(x, without, bias),
        "filter flipped": p.solved(x, f[:, ::-1, ::-1], bias),
        "taps of y and x swapped": _swapped_taps(p, x, f, bias),
        "padding off by one": p.solved(_moved(x), f, bias),
        "last image missing": np.concatenate([y[:-1], np.zeros_like(y[-1:])]),
        "bias forgotten": p.solved(x, f, None),
        "activation forgotten": p.solved(x, f, bias, activation="none"),
        "another activation": p.solved(x, f, bias, activation="relu" if p.activation == "gelu" else "gelu"),
    }
    if p.groups > 1:
        wrong["groups mixed"] = p.solved(np.roll(x, p.channels, axis=3), f, bias)
    stride, dilation = (p.stride_y, p.stride_x), (p.dilation_y, p.dilation_x)
    if stride != dilation:
        wrong["dilation and stride swapped"] = _windows(p, x, f, bias, y.shape[1:3], dilation, stride)
    size = NOTICEABLE * np.abs(y).max(initial=0.0)
    return {name: {"y": answer} for name, answer in wrong.items() if (np.abs(answer - y) > size).any()}


def _moved(x: Values) -> Values:
    """The image one pixel further down and right."""
    moved = np.zeros_like(x)
    moved[:, 1:, 1:] = x[:, :-1, :-1]
    return moved


def _swapped_taps(p: Conv2dProblem, x: Values, f: Values, bias: Values | None) -> Values:
    """Filters read in the other order of taps."""
    swapped = f.reshape(len(f), p.taps_x, p.taps_y, p.channels).swapaxes(1, 2)
    return p.solved(x, swapped, bias)


def _windows(
    p: Conv2dProblem,
    x: Values,
    f: Values,
    bias: Values | None,
    size: tuple[int, ...],
    stride: tuple[int, int],
    dilation: tuple[int, int],
) -> Values:
    """As many windows, with other distances, over an image with zeros where they reach beyond it."""
    taps, pad = (p.taps_y, p.taps_x), (p.pad_y, p.pad_x)
    needed = [(n - 1) * s + d * (t - 1) + 1 for n, s, d, t in zip(size, stride, dilation, taps, strict=True)]
    more = [max(0, n - m - 2 * z) for n, m, z in zip(needed, x.shape[1:3], pad, strict=True)]
    wider = np.pad(x, ((0, 0), *((0, n) for n in more), (0, 0)))
    return p.solved(wider, f, bias, stride=stride, dilation=dilation)[:, : size[0], : size[1]]

"""Two-dimensional convolution by an implicit matrix product: TMA reads the input through an im2col map."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from hypothesis import strategies as st

from workbench import (
    BF16,
    FP16,
    Array,
    Cost,
    Im2col,
    Launch,
    Operation,
    Problem,
    ProblemError,
    Size,
    TensorMap,
    ceil_div,
    dot_products,
    dtype_of,
)

from . import reference

Arrays = dict[str, np.ndarray]

CHANNELS = 64
"""Channels of a tile: rows of 128 bytes, which is what TMA swizzles at most."""

SHAPE = np.dtype([(name, np.int32) for name in (
    "pixels", "rows", "columns", "filters", "channels", "taps_y", "taps_x", "stride", "pad", "dilation",
)])  # fmt: skip
"""The struct that the kernel takes by value."""


@dataclass(frozen=True)
class Conv2dProblem(Problem):
    """x: (images, height, width, channels), f: (filters, taps_y, taps_x, channels), y: (images, rows, columns,
    filters), all of type `dtype`.

    An image has `pad` zeros on every side; taps are `dilation` pixels apart, outputs `stride` pixels.
    """

    images: int = 1
    height: int = 8
    width: int = 8
    channels: int = 8
    filters: int = 8
    taps_y: int = 3
    taps_x: int = 3
    stride: int = 1
    pad: int = 0
    dilation: int = 1
    dtype: str = "bf16"

    extents: ClassVar[tuple[str, ...]] = ("images", "height", "width", "channels", "filters")
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"dtype": (BF16.name, FP16.name)}

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("taps_y", "taps_x", "stride", "dilation"):
            if getattr(self, name) < 1:
                raise ProblemError(f"{name} is {getattr(self, name)}; it has to be at least 1")
        if self.rows < 1 or self.columns < 1:
            raise ProblemError(
                f"filters of {self.taps_y}x{self.taps_x} taps, {self.dilation} apart, are larger than the image of "
                f"{self.height}x{self.width} with {self.pad} pixels of padding"
            )

    @property
    def rows(self) -> int:
        """Of the output."""
        return (self.height + 2 * self.pad - self.dilation * (self.taps_y - 1) - 1) // self.stride + 1

    @property
    def columns(self) -> int:
        """Of the output."""
        return (self.width + 2 * self.pad - self.dilation * (self.taps_x - 1) - 1) // self.stride + 1

    @property
    def pixels(self) -> int:
        """Of all outputs together."""
        return self.images * self.rows * self.columns

    @property
    def products(self) -> int:
        """Of an input and a weight, that each output sums up."""
        return self.taps_y * self.taps_x * self.channels

    @property
    def label(self) -> str:
        image = f"{self.images}x{self.height}x{self.width}x{self.channels}"
        options = f"stride {self.stride} pad {self.pad} dilation {self.dilation}"
        return f"{image} {self.filters}x{self.taps_y}x{self.taps_x} {options} {self.dtype}"

    def arrays(self) -> dict[str, Array]:
        dtype = dtype_of(self.dtype)
        return {
            "x": Array((self.images, self.height, self.width, self.channels), dtype),
            "f": Array((self.filters, self.taps_y, self.taps_x, self.channels), dtype),
            "y": Array((self.images, self.rows, self.columns, self.filters), dtype, output=True),
        }

    def _convolved(self, x: np.ndarray, f: np.ndarray) -> np.ndarray:
        return reference.conv2d(x, f, self.stride, self.pad, self.dilation)

    def reference(self, inputs: Arrays) -> Arrays:
        return {"y": self._convolved(inputs["x"], inputs["f"])}

    def bound(self, inputs: Arrays, expected: Arrays) -> Arrays:
        magnitude = self._convolved(np.abs(inputs["x"]), np.abs(inputs["f"]))
        return {"y": dot_products(expected["y"], magnitude, self.products, dtype_of(self.dtype))}

    def negative_controls(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        x, f, y = inputs["x"], inputs["f"], expected["y"]
        without = f.copy()
        without[..., -1] = 0
        wrong = {
            "all zeros": np.zeros_like(y),
            "last channel missing": self._convolved(x, without),
            "last image missing": np.concatenate([y[:-1], np.zeros_like(y[-1:])]),
            "filters flipped": self._convolved(x, f[:, ::-1, ::-1]),
            "shifted by one filter": np.roll(y, 1, axis=3),
        }
        return {name: {"y": value} for name, value in wrong.items() if np.any(value != y)}

    @property
    def cost(self) -> Cost:
        elements = sum(int(np.prod(array.shape)) for array in self.arrays().values())
        return Cost(2 * self.pixels * self.filters * self.products, elements * dtype_of(self.dtype).itemsize)


def problems(size: Size, edges: tuple[int, ...]) -> st.SearchStrategy[Conv2dProblem]:
    """Convolutions of up to `size.work` multiplications: small images and many, filters of one tap to five."""

    @st.composite
    def draw(d: st.DrawFn) -> Conv2dProblem:
        taps_y, taps_x = (d(st.sampled_from([1, 1, 2, 3, 3, 5])) for _ in range(2))
        dilation, stride = d(st.sampled_from([1, 1, 2, 3])), d(st.sampled_from([1, 1, 2, 3]))
        pad = d(st.integers(0, 3))
        least = [max(1, dilation * (taps - 1) + 1 - 2 * pad) for taps in (taps_y, taps_x)]
        height, width = (d(st.integers(n, n + min(size.extent, 12))) for n in least)
        channels = 8 * d(st.sampled_from([1, 1, 2, 3, 5, 8, 9]))
        near = [n for edge in edges for n in (edge - 1, edge, edge + 1) if n <= size.extent]
        filters = d(st.one_of(st.integers(1, min(size.extent, 40)), st.sampled_from(near or [1])))
        images = d(st.integers(1, 4))
        work = images * height * width * taps_y * taps_x * channels * filters
        while work > size.work and max(filters, channels // 8, images) > 1:
            if filters == max(filters, channels // 8, images):
                filters //= 2
            elif images > 1:
                images //= 2
            else:
                channels = channels // 16 * 8
            work = images * height * width * taps_y * taps_x * channels * filters
        return Conv2dProblem(
            images=images,
            height=height,
            width=width,
            channels=channels,
            filters=filters,
            taps_y=taps_y,
            taps_x=taps_x,
            stride=stride,
            pad=pad,
            dilation=dilation,
            dtype=d(st.sampled_from([BF16.name, FP16.name])),
            seed=d(st.integers(0, 2**16)),
        )

    return draw()


CONV2D = Operation(
    name="conv2d",
    summary="two-dimensional convolution of channels-last images",
    problem=Conv2dProblem,
    problems=problems,
    suite=(
        Conv2dProblem(images=32, height=56, width=56, channels=64, filters=64, pad=1),
        Conv2dProblem(images=32, height=28, width=28, channels=256, filters=512, taps_y=1, taps_x=1, stride=2),
        Conv2dProblem(images=32, height=14, width=14, channels=256, filters=256, pad=2, dilation=2, dtype="fp16"),
    ),
    defines=lambda p: {"IN": dtype_of(p.dtype).cuda},
    emulator_size=Size(extent=100, work=400_000),
    cuda_size=Size(extent=1000, work=40_000_000),
)


def supports(p: Conv2dProblem) -> str | None:
    """Why the im2col map cannot be made: what TMA asks of 4 dimensions."""
    if p.channels % 8:
        return f"TMA finds pixels at multiples of 16 bytes: channels has to divide by 8, and is {p.channels}"
    if p.stride > 8:
        return f"a tensor map steps over at most 8 elements, and stride is {p.stride}"
    reach = [p.dilation * (taps - 1) for taps in (p.taps_y, p.taps_x)]
    if p.pad > 128 or max(reach) > 128 + p.pad or p.pad - min(reach) > 127:
        return "the bounds of the pixels have 8 bits: padding and extent of the filter have to be at most 128"
    return None


@CONV2D.stage(
    "im2col",
    source="conv2d/1_im2col.cu",
    idea="an implicit matrix product whose left tiles TMA gathers in its im2col mode",
    parameters={"PIXELS": 64, "FILTERS": 64},
    supports=supports,
    architecture=90,
    edge_cases=(
        Conv2dProblem(height=1, width=1, taps_y=1, taps_x=1),
        Conv2dProblem(height=9, width=7, taps_y=1, taps_x=1, channels=72, filters=65),  # a channel tile and 8 more
        Conv2dProblem(images=3, height=5, width=7, pad=1, channels=64, filters=64),  # tiles go on into the next image
        Conv2dProblem(images=2, height=9, width=9, pad=1, stride=2, channels=16),
        Conv2dProblem(height=3, width=3, pad=3, stride=3, channels=8),  # whole taps outside
        Conv2dProblem(height=3, width=1, taps_y=1, taps_x=1, channels=456, filters=2),  # the eighth channel tile has 8
        Conv2dProblem(height=10, width=12, pad=2, dilation=2, taps_y=2, taps_x=5, channels=24, filters=7, dtype="fp16"),
    ),
)
def im2col(p: Conv2dProblem, size: Mapping[str, int]) -> Launch:
    reach = [p.dilation * (taps - 1) for taps in (p.taps_y, p.taps_x)]
    pixels = Im2col((-p.pad, -p.pad), (p.pad - reach[0], p.pad - reach[1]), CHANNELS, size["PIXELS"])
    taps = p.taps_y * p.taps_x
    shape = tuple(getattr(p, name) for name in SHAPE.names or ())
    arguments = (
        TensorMap("x", pixels, element_strides=(1, p.stride, p.stride, 1)),
        TensorMap("f", (size["FILTERS"], 1, CHANNELS), shape=(p.filters, taps, p.channels)),
        "y",
        np.array(shape, SHAPE)[()],
    )
    grid = (ceil_div(p.pixels, size["PIXELS"]), ceil_div(p.filters, size["FILTERS"]), 1)
    return Launch("conv2d_im2col", grid, (2 * size["PIXELS"], 1, 1), arguments)


@CONV2D.baseline("PyTorch", requires="torch", vendor=True)
def pytorch(p: Conv2dProblem, x: Any, f: Any) -> Any:
    """y by PyTorch, of tensors as they lie in memory, which is its channels-last format (cuDNN's)."""
    from torch.nn.functional import conv2d

    # N, C, H, W is the order of names only: no element moves
    y = conv2d(x.permute(0, 3, 1, 2), f.permute(0, 3, 1, 2), stride=p.stride, padding=p.pad, dilation=p.dilation)
    return y.permute(0, 2, 3, 1)

"""Answers of broken convolution kernels, which have to be rejected."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ...model.arrays import Arrays

Values = np.ndarray[Any, Any]

NOTICEABLE = 0.02
"""Of the largest element: an answer that differs by less in every element may be right by chance."""


class Solved(Protocol):
    """What is asked of a problem."""

    @property
    def taps_y(self) -> int: ...
    @property
    def taps_x(self) -> int: ...
    @property
    def stride_y(self) -> int: ...
    @property
    def stride_x(self) -> int: ...
    @property
    def pad_y(self) -> int: ...
    @property
    def pad_x(self) -> int: ...
    @property
    def dilation_y(self) -> int: ...
    @property
    def dilation_x(self) -> int: ...
    @property
    def channels(self) -> int: ...
    @property
    def groups(self) -> int: ...
    @property
    def activation(self) -> str: ...
    def solved(self, x: Values, f: Values, bias: Values | None, **changed: Any) -> Values: ...


def controls(p: Solved, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
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


def _swapped_taps(p: Solved, x: Values, f: Values, bias: Values | None) -> Values:
    """Filters read in the other order of taps."""
    swapped = f.reshape(len(f), p.taps_x, p.taps_y, p.channels).swapaxes(1, 2)
    return p.solved(x, swapped, bias)


def _windows(
    p: Solved,
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

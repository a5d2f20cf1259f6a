"""Answers of broken kernels of the convolution, which have to be rejected."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ... import reference
from ...model.arrays import Arrays
from ..shared.controls import noticeable


class Solved(Protocol):
    """What is asked of a problem."""

    @property
    def batch(self) -> int: ...
    @property
    def channels(self) -> int: ...
    @property
    def causal(self) -> bool: ...
    @property
    def period(self) -> int: ...


def controls(p: Solved, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
    """What broken kernels answer to a problem, by what is wrong with them."""
    u, k, y = inputs["u"], inputs["k"], expected["y"]
    mirrored = np.roll(k[:, ::-1], 1, axis=-1)
    wrong = {
        "mirrored filter": reference.fft_conv(u, mirrored, causal=p.causal),
        "filter one place late": reference.fft_conv(u, np.roll(k, 1, axis=-1), causal=p.causal),
        "wrapped around" if p.causal else "not wrapped around": reference.fft_conv(u, k, causal=not p.causal),
        "not divided by the period": y * p.period,
        "spectrum of real parts": reference.fft_conv(u, (k + mirrored) / 2, causal=False),
        "squared filter": reference.fft_conv(y, k, causal=p.causal),
        "second half missing": np.where(np.arange(y.shape[-1]) < y.shape[-1] // 2, y, 0),
    }
    if p.channels > 1:
        wrong["filter of another channel"] = reference.fft_conv(u, np.roll(k, 1, axis=0), causal=p.causal)
    if p.batch > 1:
        even = p.batch // 2 * 2
        exchanged = y.copy()
        exchanged[:even] = y[:even].reshape(-1, 2, *y.shape[1:])[:, ::-1].reshape(exchanged[:even].shape)
        wrong["real and imaginary part exchanged"] = exchanged
        added = y.copy()
        added[0:even:2] += 0.25 * y[1:even:2]
        wrong["imaginary part in the real one"] = added
    return {name: {"y": value} for name, value in wrong.items() if noticeable({"y": value}, expected, {"y": 0.1})}

"""Problems of the convolution by Fourier transforms: circular and causal ones, kinds of filters, and how exact the
result has to be."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

import numpy as np

from ... import reference
from ...model.arrays import Array, Arrays, element_bytes
from ...model.distributions import NonFinite, drawn, st
from ...model.dtypes import BF16, FP32, dtype_of
from ...model.parts import Axis
from ...model.problem import Cost, Invariant, Problem, Size, Tier, draw_values, extents
from ..shared import noticeable, scales

Values = np.ndarray[Any, Any]

LEAST, MOST = 256, 32768
"""The shortest transform, and the longest sequence."""

TOGETHER = 16
"""Channels that are solved at once on the host."""


class Filter(StrEnum):
    """What the filters are: normal numbers; the same with a weight that falls to exp(-8); a single 1, which delays."""

    NORMAL = "normal"
    DECAYING = "decaying"
    DELAY = "delay"


def period_of(length: int, causal: bool) -> int:
    """Places of the transform: those of the sequence where that is a power of two, and of a circular convolution; else
    the next power of two that holds the sequence and what reaches beyond it."""
    if not causal and length >= LEAST and length & (length - 1) == 0:
        return length
    return int(max(LEAST, 1 << (2 * length - 2).bit_length()))


def factors(period: int) -> tuple[int, int]:
    """Two powers of two whose product is the period, the second as large as the first or twice that."""
    first = 1 << (period.bit_length() - 1) // 2
    return first, period // first


def spectrum(k: Values, causal: bool) -> Values:
    """What transforms of a sequence are multiplied by: that of the filter over the period, which the inverse transform
    does not divide by any more. k: (channels, length); returns (channels, period, 2) fp32, real and imaginary parts."""
    period = period_of(k.shape[-1], causal)
    found = np.fft.fft(k.astype(np.float64), period) / period
    return np.stack([found.real, found.imag], axis=-1).astype(np.float32)


def roots(period: int) -> Values:
    """exp(-2 pi i j / period). Returns (period, 2) fp32, real and imaginary parts."""
    angles = -2 * np.pi / period * np.arange(period)
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1).astype(np.float32)


@dataclass(frozen=True)
class FftConvProblem(Problem):
    """u, y: (batch, channels, length); k: (channels, length) fp32; spectrum: (channels, period, 2) fp32 and roots:
    (period, 2) fp32, which are prepared once.

    y_t = sum_j k_j u_{t-j}. Places are modulo length; if `causal`, there are no places before the first. `period` is
    the number of places of the transform. The two sequences of a channel in batches 2i and 2i + 1 may be transformed
    as one complex sequence. So errors are relative to the larger of the two, and a number that is not finite in one
    of them may reach all of both."""

    batch: int = 1
    channels: int = 1
    length: int = 1
    causal: bool = False
    filter: Filter = Filter.NORMAL
    dtype: str = "bf16"
    tier: Tier = Tier.COMPARATIVE

    tiers: ClassVar[tuple[Tier, ...]] = (Tier.COMPARATIVE,)
    not_exact: ClassVar[str] = "roots of unity are rounded"
    non_finite: ClassVar[NonFinite | str] = NonFinite.UNDEFINED
    distributed: ClassVar[tuple[str, ...]] = ("k",)  # errors are relative to the larger of two sequences
    drawn_by: ClassVar[tuple[str, ...]] = ("filter",)
    extents: ClassVar[tuple[str, ...]] = ("batch", "channels", "length")
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"length": (1, MOST)}
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"dtype": (BF16.name,)}

    @property
    def label(self) -> str:
        kind = "causal" if self.causal else "circular"
        return f"b{self.batch} h{self.channels} n{self.length} {self.dtype} {kind}"

    @property
    def period(self) -> int:
        """Places of the transform."""
        return period_of(self.length, self.causal)

    @property
    def pairs(self) -> int:
        """How many complex sequences there are, of two batches of a channel each."""
        return self.channels * ((self.batch + 1) // 2)

    @property
    def extended(self) -> bool:
        """Whether the sequence is continued before its first place, at the end of the period: a circular convolution
        over a period that is not its length."""
        return not self.causal and self.period != self.length

    def arrays(self) -> dict[str, Array]:
        shape, dtype = (self.batch, self.channels, self.length), dtype_of(self.dtype)
        return {
            "u": Array(shape, dtype),
            "k": Array((self.channels, self.length), FP32),
            "spectrum": Array((self.channels, self.period, 2), FP32, prepared=True),
            "roots": Array((self.period, 2), FP32, prepared=True),
            "y": Array(shape, dtype, output=True),
        }

    def axes(self) -> tuple[Axis, ...]:
        return Axis("channels", {"u": 1, "k": 0, "spectrum": 0, "y": 1}), Axis("batch", {"u": 0, "y": 0})

    def inputs(self) -> Arrays:
        rng, arrays = self.rng(), self.arrays()
        u = draw_values(rng, self.tier, arrays["u"].shape, arrays["u"].dtype)
        k = draw_values(rng, self.tier, arrays["k"].shape, FP32)
        if self.filter is Filter.DECAYING:
            k = k * np.exp(-8 * np.arange(self.length, dtype=np.float32, like=k) / self.length)
        elif self.filter is Filter.DELAY:
            k = np.zeros_like(k)
            places = rng.integers(0, self.length, self.channels)
            places[rng.random(self.channels) < 0.5] = self.length - 1  # where a sum ends too soon
            k[np.arange(self.channels), places] = 1
        return {"u": u, "k": k.astype(np.float32)}

    def prepare(self, inputs: Arrays) -> Arrays:
        return {"spectrum": spectrum(inputs["k"], self.causal), "roots": roots(self.period)}

    def _by_channels(self, solve: Callable[[slice], Values], kind: Any, like: Values) -> Arrays:
        """y of type `kind`, some channels at a time, on several threads."""
        y = np.empty((self.batch, self.channels, self.length), kind, like=like)

        def part(first: int) -> None:
            channels = slice(first, first + TOGETHER)
            y[:, channels] = solve(channels)

        firsts = range(0, self.channels, TOGETHER)
        with ThreadPoolExecutor(min(len(firsts), os.cpu_count() or 1)) as pool:
            list(pool.map(part, firsts))
        return {"y": y}

    def reference(self, inputs: Arrays) -> Arrays:
        def solve(channels: slice) -> Values:
            return reference.fft_conv(inputs["u"][:, channels], inputs["k"][channels], causal=self.causal)

        return self._by_channels(solve, np.float64, inputs["u"])

    def model(self, inputs: Arrays, *, backwards: bool = False) -> Arrays:
        """Transforms as products of two matrices each, whose operands are rounded to the type of u and whose sums are
        fp32, of two sequences as one complex one."""
        dtype, period = dtype_of(self.dtype), self.period
        first, second = factors(period)

        def rounded(values: Values) -> Values:
            parts = np.ascontiguousarray(values).astype(np.complex64).view(np.float32)
            return dtype.rounded(parts).astype(np.float32).view(np.complex64)

        def matrix(size: int) -> Values:
            numbers = np.arange(size)
            made: Values = np.exp(-2j * np.pi / size * (np.outer(numbers, numbers) % size))
            return made

        left, right = rounded(matrix(first)), rounded(matrix(second))
        turned = np.exp(-2j * np.pi / period * np.outer(np.arange(first), np.arange(second))).astype(np.complex64)

        def solve(channels: slice) -> Values:
            u = inputs["u"][:, channels].astype(np.float32)
            z = np.zeros((-(-self.batch // 2), u.shape[1], period), np.complex64)
            z[..., : self.length] = u[0::2]
            z[: self.batch // 2, :, : self.length] += 1j * u[1::2]
            if self.extended and self.length > 1:
                z[..., 1 - self.length :] = z[..., 1 : self.length]
            factor = spectrum(inputs["k"][channels], self.causal).view(np.complex64)[..., 0]
            factor = factor.reshape(-1, second, first).swapaxes(1, 2)  # place [k1][k2] is of k1 + first k2
            z = rounded((left @ z.reshape(*z.shape[:2], first, second)) * turned)
            z = rounded((z @ right) * factor)
            z = rounded((z @ right.conj()) * turned.conj())
            z = (left.conj() @ z).reshape(*z.shape[:2], period)[..., : self.length]
            found: Values = np.stack([z.real, z.imag], axis=1).reshape(-1, *z.shape[1:])[: self.batch]
            return found

        return self._by_channels(solve, np.float32, inputs["u"])

    def invariants(self) -> tuple[Invariant, ...]:
        return (self._linear(), *((self._causal() if self.causal else self._shifted(),) if self.length > 1 else ()))

    def _linear(self) -> Invariant:
        def scaled(inputs: Arrays) -> Arrays:
            return {**inputs, "u": inputs["u"] * inputs["u"].dtype.type(4)}

        def holds(first: Arrays, other: Arrays, bound: Arrays) -> bool:
            return scales(first, other, 4, self.period)

        return Invariant("four times u gives four times y", holds, scaled)

    def _shifted(self) -> Invariant:
        by = self.length // 3 + 1

        def rolled(inputs: Arrays) -> Arrays:
            return {**inputs, "u": np.roll(inputs["u"], by, axis=-1)}

        def holds(first: Arrays, other: Arrays, bound: Arrays) -> bool:
            away = np.abs(np.roll(first["y"], by, axis=-1) - other["y"])
            return bool((away <= 2 * np.roll(bound["y"], by, axis=-1)).all())

        return Invariant("a rolled sequence gives a rolled result", holds, rolled)

    def _causal(self) -> Invariant:
        half = self.length // 2

        def later_changed(inputs: Arrays) -> Arrays:
            u = inputs["u"].copy()
            u[..., half:] = -u[..., half:]
            return {**inputs, "u": u}

        def holds(first: Arrays, other: Arrays, bound: Arrays) -> bool:
            away = np.abs(first["y"][..., :half] - other["y"][..., :half])
            return bool((away <= 2 * bound["y"][..., :half]).all())

        return Invariant("changed later places change no earlier one", holds, later_changed)

    def negative_controls(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        return super().negative_controls(inputs, expected) | controls(self, inputs, expected)

    @property
    def cost(self) -> Cost:
        """Of two transforms of real numbers, 2.5 n log2 n operations each, and of the product of spectra."""
        arrays = self.arrays()
        own = [arrays[name] for name in ("u", "k", "y")]
        transforms = 5 * self.period * (self.period.bit_length() - 1) + 3 * self.period
        return Cost(self.batch * self.channels * transforms, element_bytes(own))


@drawn
def problems(d: st.DrawFn, size: Size, edges: tuple[int, ...]) -> FftConvProblem:
    """Few sequences; lengths are powers of two, or any."""
    powers = tuple(n for n in (256, 512, 1024, 2048, 4096, 8192, 16384, 32768) if n <= size.extent)
    most = min(size.extent, MOST)
    short = extents(Size(min(most, 700), size.work), edges)
    lengths = st.one_of(st.sampled_from(powers), short, st.integers(1, most)) if powers else short
    length, causal = d(lengths), d(st.booleans())
    left = max(1, 8 * size.work // FftConvProblem(length=length, causal=causal).cost.flops)
    channels = d(st.integers(1, min(5, left, size.extent)))
    batch = d(st.integers(1, max(1, min(5, left // channels))))
    return FftConvProblem(
        batch=batch,
        channels=channels,
        length=length,
        causal=causal,
        filter=d(st.sampled_from(Filter)),
        seed=d(st.integers(0, 2**16)),
    )


SUITE = tuple(
    FftConvProblem(batch=16, channels=1024, length=length, causal=causal, filter=Filter.DECAYING)
    for causal in (False, True)
    for length in (1024, 4096, 16384)
)


# ---------------------------------------------------------------------------------------------------- negative controls


def controls(p: FftConvProblem, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
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

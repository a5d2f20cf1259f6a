"""Problems of the chunked scan: heads that share b and c, kinds of decays, and how exact the result has to be."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, ClassVar

import numpy as np

from ... import reference
from ...model.arrays import Array, Arrays, element_bytes
from ...model.distributions import NonFinite, drawn, drawn_pad, st
from ...model.dtypes import BF16, FP32, dtype_of
from ...model.parts import Axis
from ...model.problem import Cost, Invariant, Problem, Size, Tier, draw_values, extents
from ..shared import group_sizes, noticeable, scales, tensor_core_product, truncate

Values = np.ndarray[Any, Any]
Solver = Callable[[Values, Values, Values, Values, Values], tuple[Values, Values]]

CHUNK = 64
"""Places of a chunk of the model."""

LOG2_E = np.float32(1.4426950408889634)
SMALLEST = np.float32(-104.0)
"""Where exp is 0 in fp32: a smaller logarithm of a decay counts as this, so that sums of them stay exact enough."""

TOGETHER = 8
"""Heads that are solved at once on the host."""


class Decays(StrEnum):
    """What the decays are: those of Mamba-2, exp(-0.001) to exp(-1); near 1, a state that hardly forgets; near 0, some
    below what fp32 holds, and 0 itself; near 1 with a 0 now and then, which begins another sequence."""

    USUAL = "usual"
    NEAR_ONE = "near_one"
    NEAR_ZERO = "near_zero"
    RESETS = "resets"


@dataclass(frozen=True)
class SsdProblem(Problem):
    """x, y: (batch, length, heads, headdim); log_a: (batch, length, heads) fp32; b, c: (batch, length, heads / group,
    dstate); h0, h: (batch, heads, dstate, headdim) fp32.

    h_t = exp(log_a_t) h_{t-1} + b_t x_t^T and y_t = h_t^T c_t of every head, from h0 to h. `group` heads share b and
    c. log_a is at most 0, and may be -inf. In memory, `pad_x` elements follow the heads of a place in x, and `pad_bc`
    elements follow those in b, and those in c. A number in x, b, c or log_a that is not finite may reach places of its
    head that come before it, by less than a chunk."""

    batch: int = 1
    heads: int = 1
    length: int = 1
    headdim: int = 1
    dstate: int = 1
    group: int = 1
    dtype: str = "bf16"
    decays: Decays = Decays.USUAL
    pad_x: int = 0
    pad_bc: int = 0
    tier: Tier = Tier.COMPARATIVE

    tiers: ClassVar[tuple[Tier, ...]] = (Tier.COMPARATIVE,)
    not_exact: ClassVar[str] = "an exponential is rounded"
    non_finite: ClassVar[NonFinite | str] = NonFinite.UNDEFINED
    distributed: ClassVar[tuple[str, ...]] = ("x", "b", "c", "h0")  # decays have kinds of their own
    drawn_by: ClassVar[tuple[str, ...]] = ("decays",)
    extents: ClassVar[tuple[str, ...]] = ("batch", "heads", "length", "headdim", "dstate")
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"headdim": (1, 128), "dstate": (1, 128), "group": (1, 2**31)}
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"dtype": (BF16.name,)}

    def check(self) -> str | None:
        if self.heads % self.group:
            return f"{self.heads} heads cannot be divided into groups of {self.group}; group has to divide heads"
        return None

    @property
    def label(self) -> str:
        shared = f"/{self.group}" if self.group > 1 else ""
        return f"b{self.batch} h{self.heads}{shared} s{self.length} d{self.headdim} n{self.dstate} {self.dtype}"

    @property
    def groups(self) -> int:
        """Heads of b and c."""
        return self.heads // self.group

    def _places(self, heads: int, dim: int, pad: int = 0, output: bool = False) -> Array:
        """Of so many heads of `dim` elements each at every place."""
        place = heads * dim + pad
        strides = (self.length * place, place, dim, 1)
        return Array((self.batch, self.length, heads, dim), dtype_of(self.dtype), strides=strides, output=output)

    def arrays(self) -> dict[str, Array]:
        bc = self._places(self.groups, self.dstate, self.pad_bc)
        state = Array((self.batch, self.heads, self.dstate, self.headdim), FP32)
        return {
            "x": self._places(self.heads, self.headdim, self.pad_x),
            "log_a": Array((self.batch, self.length, self.heads), FP32),
            "b": bc,
            "c": bc,
            "h0": state,
            "y": self._places(self.heads, self.headdim, output=True),
            "h": replace(state, output=True),
        }

    def axes(self) -> tuple[Axis, ...]:
        of_heads = {"x": 2, "log_a": 2, "y": 2, "h0": 1, "h": 1}
        heads = Axis("heads", of_heads, self.group, {"b": 2, "c": 2})
        return heads, Axis("batch", dict.fromkeys(self.arrays(), 0))

    def inputs(self) -> Arrays:
        rng, arrays = self.rng(), self.arrays()
        drawn = {
            name: draw_values(rng, self.tier, arrays[name].shape, arrays[name].dtype) for name in ("x", "b", "c", "h0")
        }
        return {**drawn, "log_a": self._log_decays(rng, arrays["log_a"].shape)}

    def _log_decays(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Values:
        part = rng.random(shape, np.float32)
        if self.decays is Decays.USUAL:  # evenly distributed logarithms
            drawn = -(np.float32(1000.0) ** (part - 1))
        elif self.decays is Decays.NEAR_ZERO:
            drawn = np.select([part < 0.1, part < 0.2], [-np.inf, -1000 * part], -6 - 14 * part)
        else:
            drawn = -np.exp2(-8 - 12 * part)
            if self.decays is Decays.RESETS:
                drawn = np.where(rng.random(shape) < 0.05, np.where(part < 0.5, -np.inf, -90 - part), drawn)
        return drawn.astype(np.float32)

    def solved(self, inputs: Arrays, solver: Solver, kind: Any) -> Arrays:
        """y and h of type `kind`, some heads at a time, on several threads. `solver` is called like `reference.ssd`,
        with some heads in the first dimension."""
        x = inputs["x"]
        y = np.empty((self.batch, self.length, self.heads, self.headdim), kind, like=x)
        h = np.empty((self.batch, self.heads, self.dstate, self.headdim), kind, like=x)

        def solve(batch: int, first: int) -> None:
            heads = np.arange(first, min(first + TOGETHER, self.heads))
            x, log_a = (inputs[name][batch].swapaxes(0, 1)[heads] for name in ("x", "log_a"))
            b, c = (inputs[name][batch].swapaxes(0, 1)[heads // self.group] for name in ("b", "c"))
            found, h[batch, heads] = solver(x, log_a, b, c, inputs["h0"][batch, heads])
            y[batch][:, heads] = found.swapaxes(0, 1)

        parts = [(batch, first) for batch in range(self.batch) for first in range(0, self.heads, TOGETHER)]
        with ThreadPoolExecutor(min(len(parts), os.cpu_count() or 1)) as pool:
            list(pool.map(lambda part: solve(*part), parts))
        return {"y": y, "h": h}

    def reference(self, inputs: Arrays) -> Arrays:
        if isinstance(inputs["x"], np.ndarray):
            return self.solved(inputs, reference.ssd, np.float64)
        x, log_a = (inputs[name].swapaxes(1, 2) for name in ("x", "log_a"))  # on a device, all heads at once
        b, c = (inputs[name].swapaxes(1, 2).repeat(self.group, axis=1) for name in ("b", "c"))
        y, h = reference.ssd(x, log_a, b, c, inputs["h0"])
        return {"y": y.swapaxes(1, 2), "h": h}

    def model(self, inputs: Arrays, *, backwards: bool = False) -> Arrays:
        dtype = dtype_of(self.dtype)

        def rounded(values: Values) -> Values:
            return dtype.rounded(values).astype(np.float32)

        def decay(exponents: Values) -> Values:
            """2^exponents as ex2.approx.ftz gives it: no subnormal numbers."""
            found = np.exp2(exponents)
            return np.where(found < np.finfo(np.float32).tiny, np.float32(0), found)

        def solver(x: Values, log_a: Values, b: Values, c: Values, h0: Values) -> tuple[Values, Values]:
            """Products of chunks, of operands that are rounded. The state stays in fp32, and decays step by step, as
            where a kernel goes through it so: where nothing is added, its error is that of as many products."""
            x, b, c = (v.astype(np.float32) for v in (x, b, c))
            h, y = h0.astype(np.float32), np.empty(x.shape, np.float32)
            steps = np.maximum(log_a, SMALLEST).astype(np.float32) * LOG2_E
            for first in range(0, self.length, CHUNK):
                at = slice(first, first + CHUNK)
                xs, bs, cs = x[:, at], b[:, at], c[:, at]
                sums = np.cumsum(steps[:, at], axis=1, dtype=np.float32)
                earlier = np.tri(xs.shape[1], dtype=bool)
                apart = np.where(earlier, sums[:, :, None] - sums[:, None, :], np.float32(-np.inf))
                weights = tensor_core_product(cs, bs.swapaxes(1, 2), 16, backwards) * decay(apart)
                from_before = tensor_core_product(cs, rounded(h), 16, backwards) * decay(sums)[:, :, None]
                y[:, at] = from_before + tensor_core_product(rounded(weights), xs, 16, backwards)
                kept = rounded(bs * decay(sums[:, -1:] - sums)[:, :, None])
                added = tensor_core_product(kept.swapaxes(1, 2), xs, 16, backwards)
                for step in decay(steps[:, at]).T:
                    h = h * step[:, None, None]
                h = h + added
                truncate(h)
            return y, h

        return self.solved(inputs, solver, np.float32)

    def magnitudes(self, inputs: Arrays, expected: Arrays) -> Arrays:
        """The results, and the root of the sum of the squares of their terms, which may cancel, as those of constant b
        and alternating c do."""
        squares = {name: inputs[name].astype(np.float64) ** 2 for name in ("x", "b", "c", "h0")}
        roots = self.reference({**inputs, **squares, "log_a": 2 * inputs["log_a"]})
        return {name: abs(right) + np.sqrt(roots[name]) for name, right in expected.items()}

    @property
    def addends(self) -> int:
        return self.length + 1

    def invariants(self) -> tuple[Invariant, ...]:
        found = [self._linear()]
        if self.length > 1:
            found += [self._causal(), self._delayed(), self._handed_over()]
        return tuple(found)

    def _linear(self) -> Invariant:
        def scaled(inputs: Arrays) -> Arrays:
            return {**inputs, "x": inputs["x"] * inputs["x"].dtype.type(4), "h0": inputs["h0"] * np.float32(4)}

        def holds(first: Arrays, other: Arrays, bound: Arrays) -> bool:
            return scales(first, other, 4)

        return Invariant("four times x and h0 give four times y and h", holds, scaled)

    def _causal(self) -> Invariant:
        def last_changed(inputs: Arrays) -> Arrays:
            changed = {name: inputs[name].copy() for name in ("x", "log_a", "b", "c")}
            for name, value in {"x": 3, "log_a": -0.25, "b": 2, "c": 5}.items():
                changed[name][:, -1] = value
            return inputs | changed

        def holds(first: Arrays, other: Arrays, bound: Arrays) -> bool:
            return np.array_equal(first["y"][:, :-1], other["y"][:, :-1])

        return Invariant("a changed last place changes no earlier one", holds, last_changed)

    def _delayed(self) -> Invariant:
        """A place in front of all others at which nothing happens: every other one moves to another place of its chunk,
        and some to the next chunk."""

        def delayed(inputs: Arrays) -> Arrays:
            moved = {name: np.roll(inputs[name], 1, axis=1) for name in ("x", "log_a", "b", "c")}
            for values in moved.values():
                values[:, 0] = 0
            return inputs | moved

        def holds(first: Arrays, other: Arrays, bound: Arrays) -> bool:
            away = np.abs(first["y"][:, :-1] - other["y"][:, 1:])
            return bool((away <= 2 * bound["y"][:, :-1]).all())

        def moved(arrays: Arrays) -> Arrays:
            return arrays | {"y": np.roll(arrays["y"], -1, axis=1)}

        return Invariant("where chunks begin changes nothing", holds, delayed, moved)

    def _handed_over(self) -> Invariant:
        """The second half alone, from the state after the first, and behind it places at which nothing happens."""
        half = self.length // 2

        def second_half(inputs: Arrays) -> Arrays:
            first = {name: inputs[name][:, :half] for name in ("x", "log_a", "b", "c")}
            state = replace(self, length=half).reference(inputs | first)["h"]
            moved = {name: np.roll(inputs[name], -half, axis=1) for name in first}
            for values in moved.values():
                values[:, self.length - half :] = 0
            return inputs | moved | {"h0": state.astype(np.float32)}

        def holds(first: Arrays, other: Arrays, bound: Arrays) -> bool:
            away = np.abs(first["y"][:, half:] - other["y"][:, : self.length - half])
            same = np.abs(first["h"] - other["h"]) <= 2 * bound["h"]
            return bool((away <= 2 * bound["y"][:, half:]).all() and same.all())

        def moved(arrays: Arrays) -> Arrays:
            return arrays | {"y": np.roll(arrays["y"], half, axis=1)}

        return Invariant("a state that is handed over gives what one run does", holds, second_half, moved)

    def negative_controls(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        return super().negative_controls(inputs, expected) | controls(self, inputs, expected)

    @property
    def cost(self) -> Cost:
        """Of the recurrence: b x^T is added to the state, and the state multiplied by c."""
        steps = self.batch * self.heads * self.length
        return Cost(4 * steps * self.headdim * self.dstate, element_bytes(self.arrays().values()))


DIMS = (64, 128, 64, 128, 64, 8, 16, 33, 1, 72)
"""The usual ones, those that are padded to them, and odd ones."""

COLUMNS = 64
"""Of x and of the state, which most stages compute together, also where a head has fewer."""


@drawn
def problems(d: st.DrawFn, size: Size, edges: tuple[int, ...]) -> SsdProblem:
    """Few heads of sequences that have some chunks."""
    edges = tuple(sorted({*edges, CHUNK}))
    dims = [n for n in DIMS if n <= size.extent]
    headdim, dstate = d(st.sampled_from(dims)), d(st.sampled_from(dims))
    left = max(1, size.work // (max(headdim, COLUMNS) * dstate))
    length = d(extents(Size(min(size.extent, left), size.work), edges))
    left = max(1, left // length)
    group = d(group_sizes(left))
    heads = group * d(st.integers(1, max(1, min(3, left // group))))
    batch = d(st.integers(1, max(1, min(3, left // heads))))
    aligned = d(st.sampled_from([True, True, False]))
    of_x, of_bc = heads * headdim, heads // group * dstate
    pads = [drawn_pad(d, row, 8, aligned, 1) for row in (of_x, of_bc)]
    return SsdProblem(
        batch=batch,
        heads=heads,
        length=length,
        headdim=headdim,
        dstate=dstate,
        group=group,
        decays=d(st.sampled_from(Decays)),
        pad_x=pads[0],
        pad_bc=pads[1],
        seed=d(st.integers(0, 2**16)),
    )


SHAPES = ((16, 16, 1024, 64), (16, 16, 4096, 64), (16, 16, 8192, 64), (1, 128, 16384, 128))
"""Batch, heads, length, dstate of what is timed; headdim is 64."""

SUITE = tuple(
    SsdProblem(batch=b, heads=h, length=s, headdim=64, dstate=n, group=group)
    for b, h, s, n in SHAPES
    for group in (1, h)
)
"""Each with b and c of its own for every head, as linear attention has them, and shared by all, as Mamba-2 has."""

# ---------------------------------------------------------------------------------------------------- negative controls
CHUNK = 64
"""Places of a chunk of a broken kernel."""


def controls(p: SsdProblem, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
    """What broken kernels answer to a problem, by what is wrong with them."""
    log_a = inputs["log_a"]
    wrong = {
        "decays forgotten": p.reference({**inputs, "log_a": np.zeros_like(log_a)}),
        "decays by 2^x": p.reference({**inputs, "log_a": log_a * np.float32(np.log(2))}),
        "initial state forgotten": p.reference({**inputs, "h0": np.zeros_like(inputs["h0"])}),
        "b and c exchanged": p.reference({**inputs, "b": inputs["c"], "c": inputs["b"]}),
        "decayed after x was added": p.solved(inputs, _decayed_after, np.float64),
        "a place does not see itself": {**expected, "y": expected["y"] - _own(p, inputs)},
    }
    if p.length > 1:
        wrong["last place missing"] = {**expected, "h": _without_last(p, inputs)}
        late = np.roll(log_a, 1, axis=1)
        wrong["decays of the place before"] = p.reference({**inputs, "log_a": late})
    if p.length > CHUNK:
        wrong["state not handed to the next chunk"] = p.solved(inputs, _not_handed_on, np.float64)
        wrong["state not decayed over a chunk"] = p.solved(inputs, _not_decayed, np.float64)
    if p.groups > 1:
        other = {name: np.roll(inputs[name], 1, axis=2) for name in ("b", "c")}
        wrong["b and c of another group"] = p.reference(inputs | other)
    return {name: answer for name, answer in wrong.items() if noticeable(answer, expected, {"y": 0.1, "h": 0.1})}


def _own(p: SsdProblem, inputs: Arrays) -> Values:
    """What every place adds to its own result."""
    dot = (inputs["b"].astype(np.float64) * inputs["c"].astype(np.float64)).sum(axis=-1)
    return np.asarray(np.repeat(dot, p.group, axis=2)[..., None] * inputs["x"].astype(np.float64))


def _without_last(p: SsdProblem, inputs: Arrays) -> Values:
    """The state without the last place."""
    silent = {name: inputs[name].copy() for name in ("x", "log_a")}
    for values in silent.values():
        values[:, -1] = 0
    return p.reference(inputs | silent)["h"]


def _decayed_after(x: Values, log_a: Values, b: Values, c: Values, h0: Values) -> tuple[Values, Values]:
    return reference.ssd(x * np.exp(log_a.astype(np.float64))[..., None], log_a, b, c, h0)


def _not_handed_on(x: Values, log_a: Values, b: Values, c: Values, h0: Values) -> tuple[Values, Values]:
    cut = log_a.copy()
    cut[:, CHUNK::CHUNK] = -np.inf
    return reference.ssd(x, cut, b, c, h0)


def _not_decayed(x: Values, log_a: Values, b: Values, c: Values, h0: Values) -> tuple[Values, Values]:
    """Each chunk is right from the state it is given, which is the sum of those of all before it."""
    y, total = np.empty(x.shape), h0.astype(np.float64)
    for first in range(0, x.shape[1], CHUNK):
        at = slice(first, first + CHUNK)
        y[:, at], _ = reference.ssd(x[:, at], log_a[:, at], b[:, at], c[:, at], total)
        _, own = reference.ssd(x[:, at], log_a[:, at], b[:, at], c[:, at], np.zeros_like(total))
        total = total + own
    return y, total

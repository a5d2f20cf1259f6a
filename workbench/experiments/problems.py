"""What the experiments compute: as little as shows the effect, and every element of it can be checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .. import reference
from ..model.arrays import Array, Arrays
from ..model.distributions import st
from ..model.dtypes import FP32
from ..model.operation import Operation
from ..model.problem import Cost, Problem, Size, Tier, extents

TELLING = 2048
"""So many equal terms can be added in fp32 before their rounding may weigh as much as one of them."""


@dataclass(frozen=True)
class Scale(Problem):
    """x, y: (m, n), fp32; y = factor x, for which a kernel may add up `factor` terms."""

    m: int = 1
    n: int = 1
    factor: int = 1

    dtype: ClassVar[str] = FP32.name
    extents: ClassVar[tuple[str, ...]] = ("m", "n")

    @property
    def label(self) -> str:
        return f"{self.m}x{self.n} fp32, {self.factor} terms"

    def arrays(self) -> dict[str, Array]:
        return {"x": Array((self.m, self.n), FP32), "y": Array((self.m, self.n), FP32, output=True)}

    def reference(self, inputs: Arrays) -> Arrays:
        return {"y": reference.scale(inputs["x"], self.factor)}

    def bound(self, inputs: Arrays, expected: Arrays) -> Arrays:
        # each partial sum is rounded: the errors are at most u x (1 + 2 + ... + factor)
        share = FP32.unit_roundoff * (self.factor + 1) / 2
        return {"y": share * np.abs(expected["y"]) + FP32.smallest}

    def negative_controls(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        x, y = inputs["x"].astype(np.float64), expected["y"]
        last = np.zeros_like(y)
        last[-1, -1] = y[-1, -1]
        wrong = {"all zeros": np.zeros_like(y), "last element missing": y - last, "shifted by one": np.roll(y, 1)}
        if self.tier is Tier.EXACT or self.factor <= TELLING:
            wrong["a term too few"] = y - x
        return {name: {"y": value} for name, value in wrong.items()}

    @property
    def cost(self) -> Cost:
        return Cost(2 * self.m * self.n * self.factor, 2 * self.m * self.n * FP32.itemsize)


def scales(size: Size, edges: tuple[int, ...]) -> st.SearchStrategy[Scale]:
    """Problems of one to four rows within `size`."""
    return st.builds(
        Scale, m=st.integers(1, 4), n=extents(size, edges), factor=st.integers(1, 40), seed=st.integers(0, 2**16)
    )


@dataclass(frozen=True)
class Transpose(Problem):
    """x: (m, n), y: (n, m), fp32; y is x transposed."""

    m: int = 1
    n: int = 1

    dtype: ClassVar[str] = FP32.name
    extents: ClassVar[tuple[str, ...]] = ("m", "n")

    @property
    def label(self) -> str:
        return f"{self.m}x{self.n} fp32"

    def arrays(self) -> dict[str, Array]:
        return {"x": Array((self.m, self.n), FP32), "y": Array((self.n, self.m), FP32, output=True)}

    def reference(self, inputs: Arrays) -> Arrays:
        return {"y": reference.transpose(inputs["x"])}

    def bound(self, inputs: Arrays, expected: Arrays) -> Arrays:
        return {"y": np.zeros(expected["y"].shape)}  # nothing is rounded

    def negative_controls(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        y = expected["y"]
        wrong = {
            "all zeros": np.zeros_like(y),
            "not transposed": inputs["x"].astype(np.float64).reshape(y.shape),
            "last row missing": np.concatenate([y[:-1], np.zeros_like(y[-1:])]),
            "shifted by one": np.roll(y, 1),
        }
        return {name: {"y": value} for name, value in wrong.items()}

    @property
    def cost(self) -> Cost:
        return Cost(0, 2 * self.m * self.n * FP32.itemsize)


def transposes(size: Size, edges: tuple[int, ...]) -> st.SearchStrategy[Transpose]:
    """Matrices whose extents are within `size`."""
    extent = extents(size, edges)
    return st.builds(Transpose, m=extent, n=extent, seed=st.integers(0, 2**16))


def scaling(
    name: str, summary: str, suite: Scale, extent: int, *, most: int = 1_000_000, **more: Any
) -> Operation[Scale]:
    """An operation that scales a matrix: random problems have up to `extent` elements in the emulator, on a GPU rows of
    up to `most`."""
    emulated, on_gpu = Size(extent, extent), Size(most, 1_000_000)
    return Operation(name, summary, Scale, scales, (suite,), lambda p: {}, emulated, on_gpu, **more)

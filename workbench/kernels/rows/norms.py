"""What the norms share: their fields, their negative controls, and the ladder of their stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from hypothesis import strategies as st

from ...model.dtypes import FP32
from ...model.problem import Tier
from . import groups, ladder
from .problem import RowProblem, draw_rows

EPSILONS = st.sampled_from([1e-6, 1e-5, 1e-2])
"""What is drawn for eps: the usual ones, and one that every row shows."""


@dataclass(frozen=True)
class NormProblem(RowProblem):
    """A norm of the rows of x, (rows, columns), with weights w, (columns,), of the same type.

    NaN and infinities do what arithmetic with them does: a row with NaN becomes NaN.
    """

    eps: float = 1e-6

    tiers: ClassVar[tuple[Tier, ...]] = (Tier.BOUNDED,)
    not_exact: ClassVar[str] = "the reciprocal square root of a mean plus eps is rounded"
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"eps": (0.0, 1.0)}

    @property
    def eps32(self) -> float:
        """The eps that kernels get, of fp32."""
        return float(np.float32(self.eps))

    def weights(self, rng: np.random.Generator) -> np.ndarray[Any, Any]:
        """(columns,) weights around 1."""
        w = 1 + 0.25 * draw_rows(rng, (1, self.columns), FP32)[0]
        rounded: np.ndarray[Any, Any] = w.astype(self.in_type.numpy)
        return rounded

    def scalars(self) -> tuple[np.generic, ...]:
        return (*super().scalars(), np.float32(self.eps))


def common_controls(y: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Answers that are wrong for every operation with an output like its input."""
    return {
        "all zeros": np.zeros_like(y),
        "last column dropped": np.where(np.arange(y.shape[1]) == y.shape[1] - 1, 0.0, y),
        "last row missing": np.concatenate([y[:-1], np.zeros_like(y[-1:])]),
    }


def fastest(p: NormProblem) -> tuple[str, ...]:
    """Rows are held by a block each, or fetched ahead where they are many and long; few long ones are held by clusters,
    or else split."""
    return (*(("prefetch",) if ladder.worth_fetching(p) else ()), *held(p), "split_rows", "vectorized")


def held(p: RowProblem) -> tuple[str, ...]:
    """Those of the stages that hold rows that are worth it, in order."""
    return ("registers", "cluster") if p.rows >= groups.MANY or groups.by_block(p) else ("cluster",)


def fastest_of_more(p: NormProblem) -> tuple[str, ...]:
    """As `fastest`, of norms with more numbers or arrays: a cluster that holds rows of 100,000 columns has one block a
    multiprocessor then, and is slower than two kernels."""
    first = ("registers",) if p.rows >= groups.MANY else held(p)
    return (*first, "split_rows", "cluster", "vectorized")

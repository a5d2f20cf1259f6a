"""Layer norm of the rows of a matrix: y[r, c] = (x[r, c] - mean_r) w[c] / sqrt(variance_r + eps) + b[c]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .. import reference
from ..judge import bounds
from ..model.arrays import Arrays
from ..model.calls import Call, Gradient
from .rows import groups, ladder
from .rows.baselines import beside, beside_liger
from .rows.problem import HELD_BY_BLOCK, draw_rows
from .shared import call_on_rows


@dataclass(frozen=True)
class LayerNormProblem(ladder.NormProblem):
    """x, y: (rows, columns); w, b: (columns,)."""

    operations: ClassVar[int] = 7
    taken: ClassVar[tuple[str, ...]] = ("x", "w", "b")
    most_narrow: ClassVar[int] = HELD_BY_BLOCK

    def inputs(self) -> Arrays:
        rng = self.rng()
        x, w = self.draw_rows(rng), self.weights(rng)
        return {"x": x, "w": w, "b": draw_rows(rng, (1, self.columns), self.in_type)[0]}

    def reference(self, inputs: Arrays) -> Arrays:
        return {"y": reference.layer_norm(inputs["x"], inputs["w"], inputs["b"], self.eps32)}

    def bound(self, inputs: Arrays, expected: Arrays) -> Arrays:
        x, w, b = inputs["x"], inputs["w"], inputs["b"]
        return {"y": bounds.layer_norm(x, expected["y"], w, b, self.eps32, self.out_type)}

    def negative_controls(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        x, w, b = (inputs[name].astype(np.float64) for name in ("x", "w", "b"))
        wrong = ladder.common_controls(expected["y"])
        wrong["weights forgotten"] = reference.layer_norm(x, np.ones(self.columns), b, self.eps32)
        wrong["bias forgotten"] = reference.layer_norm(x, w, np.zeros(self.columns), self.eps32)
        variance = x.var(axis=1, keepdims=True)
        if self.columns > 1 and (variance < 4 * self.eps32).any():
            with np.errstate(divide="ignore", invalid="ignore"):
                wrong["eps forgotten"] = reference.layer_norm(x, w, b, 0.0)
        halved = _variance_in_half(x)
        if self.columns > 1 and (np.abs(halved - variance) > variance / 4).any():
            with np.errstate(divide="ignore", invalid="ignore"):
                scale = 1 / np.sqrt(halved + self.eps32)
                wrong["E[x^2] - E[x]^2 in half"] = (x - x.mean(axis=1, keepdims=True)) * scale * w + b
        return {name: {"y": value} for name, value in wrong.items()}


def _variance_in_half(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The variance of rows by the difference of two means that are rounded to fp16."""
    with np.errstate(over="ignore", invalid="ignore"):
        square, mean = (np.mean(v, axis=1, keepdims=True).astype(np.float16) for v in (x * x, x))
        halved: np.ndarray[Any, Any] = (square - mean * mean).astype(np.float64)
    return halved


def fastest(p: LayerNormProblem) -> tuple[str, ...]:
    """Many long rows are fetched ahead, and also those that a block holds: 117 us in `registers` at 4096x20480, where
    `prefetch` takes 109, but for 4096x32768, 153 and 170 (bf16, H200)."""
    held = p.rows >= groups.MANY and p.in_type.itemsize == 2 and 2**14 < p.columns < 2**15
    fetched = held or ladder.worth_fetching(p)
    return (*(("prefetch",) if fetched else ()), *ladder.fastest_of_larger_norms(p))


LAYER_NORM = ladder.row_operation(
    LayerNormProblem,
    "layer_norm",
    "rows of mean 0 and variance 1, times weights, plus a bias",
    fastest,
    eps=ladder.EPSILONS,
)

ladder.declare_first(LAYER_NORM, "x", "w", "b", "y")
ladder.declare_held(LAYER_NORM, "x", "w", "b", "y")
FEW_PARTS = {**ladder.SPLIT, "TARGET": 1056}
"""Each block of the second kernel combines the moments of all parts: 16x1048576 takes 41 us so, and 46 with four times
as many (bf16, H200)."""

ladder.declare_split(LAYER_NORM, ("x",), ("x", "w", "b"), 4, parameters=FEW_PARTS)
ladder.declare_prefetch(LAYER_NORM, "x", "w", "b", "y")


# ---------------------------------------------------------------------------------------------- as a function on arrays


@LAYER_NORM.function
def layer_norm(x: Any, w: Any, b: Any, *, eps: float = 1e-5, out_dtype: Any = None) -> Call:
    """(x - mean(x)) / sqrt(variance(x) + eps) w + b along the last axis. x: (..., columns), w, b: (columns,)."""
    return call_on_rows("layer_norm", LayerNormProblem, ("y",), out_dtype, {"x": x}, {"w": w, "b": b}, eps=float(eps))


layer_norm.gradient = Gradient("layer_norm_backward", ("x", "w", Gradient.OF_RESULT), ("x", "w", "b"))


# --------------------------------------------------------------------------------- what the stages are measured against


def _torch(p: Any, x: Any, w: Any, b: Any) -> Any:
    import torch

    return torch.layer_norm(x, (x.shape[-1],), w, b, p.eps)


def _numpy(p: Any, x: Any, w: Any, b: Any) -> Any:
    centred = x - x.mean(axis=1, keepdims=True)
    return centred * w / np.sqrt(np.mean(centred * centred, axis=1, keepdims=True) + np.float32(p.eps)) + b


beside(LAYER_NORM, _torch, _numpy)


@beside_liger(LAYER_NORM)
def _liger(p: Any, x: Any, w: Any, b: Any) -> Any:
    from liger_kernel.transformers.functional import liger_layer_norm

    return liger_layer_norm(x, w, b, p.eps)

"""Gradients of layer norm, for its input, its weights and its bias."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .. import reference
from ..judge import bounds
from ..model.arrays import Arrays
from ..model.calls import Call
from .rows import gradients
from .rows.baselines import autograd_of, beside, beside_autograd, beside_liger
from .shared import call_on_rows


@dataclass(frozen=True)
class LayerNormBackwardProblem(gradients.NormGradientProblem):
    """x, dy, dx: (rows, columns); w, dw, db: (columns,)."""

    gradients: ClassVar[tuple[str, ...]] = ("dw", "db")

    def reference(self, inputs: Arrays) -> Arrays:
        dx, dw, db = reference.layer_norm_backward(inputs["x"], inputs["w"], inputs["dy"], self.eps32)
        return {"dx": dx, "dw": dw, "db": db}

    def bound(self, inputs: Arrays, expected: Arrays) -> Arrays:
        w, dy = (inputs[name].astype(np.float64) for name in ("w", "dy"))
        n, off, scale, relative = bounds.standardised(inputs["x"], self.eps32)
        u = self.out_type.unit_roundoff
        error = {"dw": gradients.sum_bound(dy * n, np.abs(dy) * off), "db": gradients.sum_bound(dy, np.zeros_like(dy))}
        sums = {name: u * (np.abs(expected[name]) + e) + e + self.out_type.smallest for name, e in error.items()}
        return {"dx": bounds.norm_backward(n, off, scale, relative, w * dy, expected["dx"], self.out_type)} | sums

    def negative_controls(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        power = inputs["x"].astype(np.float64).var(axis=1) if self.columns > 1 else np.inf
        return self.controls(inputs, expected, power)


LAYER_NORM_BACKWARD = gradients.operation(
    LayerNormBackwardProblem, "layer_norm_backward", "gradients of layer norm", states=2, state=5
)


# ---------------------------------------------------------------------------------------------- as a function on arrays


@LAYER_NORM_BACKWARD.function
def layer_norm_backward(x: Any, w: Any, dy: Any, *, eps: float = 1e-5, out_dtype: Any = None) -> Call:
    """Gradients (dx, dw, db) of `layer_norm` for its arguments and the gradient dy of its result."""
    arrays, of, results = ({"x": x, "dy": dy}, {"w": w}), LayerNormBackwardProblem, ("dx", "dw", "db")
    return call_on_rows("layer_norm_backward", of, results, out_dtype, *arrays, eps=float(eps))


# --------------------------------------------------------------------------------- what the stages are measured against


def _torch(p: Any, x: Any, w: Any, dy: Any) -> Any:
    import torch

    kind = x.dtype
    x, w, dy = x.float(), w.float(), dy.float()
    variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
    scale = torch.rsqrt(variance + p.eps)
    n, g = (x - mean) * scale, w * dy
    dx = scale * (g - g.mean(-1, keepdim=True) - n * (g * n).mean(-1, keepdim=True))
    return dx.to(kind), (dy * n).sum(0).to(kind), dy.sum(0).to(kind)


def _numpy(p: Any, x: Any, w: Any, dy: Any) -> Any:
    centred = x - x.mean(axis=1, keepdims=True)
    scale = 1 / np.sqrt(np.mean(centred * centred, axis=1, keepdims=True) + np.float32(p.eps))
    n, g = centred * scale, w * dy
    dx = scale * (g - g.mean(axis=1, keepdims=True) - n * np.mean(g * n, axis=1, keepdims=True))
    return dx, (dy * n).sum(axis=0), dy.sum(axis=0)


beside(LAYER_NORM_BACKWARD, _torch, _numpy)


@beside_autograd(LAYER_NORM_BACKWARD)
def _autograd(p: Any, x: Any, w: Any, dy: Any) -> Callable[[], Any]:
    import torch

    b = torch.zeros_like(w)  # no gradient depends on it
    return autograd_of(lambda x, w, b: torch.nn.functional.layer_norm(x, (p.columns,), w, b, p.eps), dy, x, w, b)


@beside_liger(LAYER_NORM_BACKWARD, prepares=True)
def _liger(p: Any, x: Any, w: Any, dy: Any) -> Callable[[], Any]:
    import torch
    from liger_kernel.transformers.functional import liger_layer_norm

    return autograd_of(lambda x, w, b: liger_layer_norm(x, w, b, p.eps), dy, x, w, torch.zeros_like(w))

"""Gradients of the root mean square norm, for its input and its weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import reference
from ..judge import bounds
from ..model.arrays import Arrays
from ..model.calls import Call
from ..model.dtypes import FP32
from .rows import gradients
from .rows.baselines import autograd_of, beside, beside_autograd, beside_liger
from .shared import call_on_rows


@dataclass(frozen=True)
class RmsNormBackwardProblem(gradients.NormGradientProblem):
    """x, dy, dx: (rows, columns); w, dw: (columns,)."""

    def reference(self, inputs: Arrays) -> Arrays:
        dx, dw = reference.rms_norm_backward(inputs["x"], inputs["w"], inputs["dy"], self.eps32)
        return {"dx": dx, "dw": dw}

    def bound(self, inputs: Arrays, expected: Arrays) -> Arrays:
        x, w, dy = (inputs[name].astype(np.float64) for name in ("x", "w", "dy"))
        scale = 1 / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + self.eps32)
        relative = FP32.unit_roundoff * (bounds.ACCUMULATION / 2 * np.sqrt(self.columns) + bounds.NORM_STEPS)
        n = x * scale
        off = relative * np.abs(n) + bounds.UNDERFLOWS * FP32.smallest
        sums = gradients.sum_bound(dy * n, np.abs(dy) * off)
        return {
            "dx": bounds.norm_backward(n, off, scale, relative, w * dy, expected["dx"], self.out_type),
            "dw": self.out_type.unit_roundoff * (np.abs(expected["dw"]) + sums) + sums + self.out_type.smallest,
        }

    def negative_controls(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        return self.controls(inputs, expected, np.mean(inputs["x"].astype(np.float64) ** 2, axis=1))


RMS_NORM_BACKWARD = gradients.operation(
    RmsNormBackwardProblem, "rms_norm_backward", "gradients of the root mean square norm", states=1, state=2
)


# ---------------------------------------------------------------------------------------------- as a function on arrays


@RMS_NORM_BACKWARD.function
def rms_norm_backward(x: Any, w: Any, dy: Any, *, eps: float = 1e-6, out_dtype: Any = None) -> Call:
    """Gradients (dx, dw) of `rms_norm` for its arguments and the gradient dy of its result."""
    arrays, of, results = ({"x": x, "dy": dy}, {"w": w}), RmsNormBackwardProblem, ("dx", "dw")
    return call_on_rows("rms_norm_backward", of, results, out_dtype, *arrays, eps=float(eps))


# --------------------------------------------------------------------------------- what the stages are measured against


def _torch(p: Any, x: Any, w: Any, dy: Any) -> Any:
    import torch

    kind = x.dtype
    x, w, dy = x.float(), w.float(), dy.float()
    scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + p.eps)
    n, g = x * scale, w * dy
    dx = scale * (g - n * (g * n).mean(-1, keepdim=True))
    return dx.to(kind), (dy * n).sum(0).to(kind)


def _numpy(p: Any, x: Any, w: Any, dy: Any) -> Any:
    scale = 1 / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + np.float32(p.eps))
    n, g = x * scale, w * dy
    return scale * (g - n * np.mean(g * n, axis=1, keepdims=True)), (dy * n).sum(axis=0)


beside(RMS_NORM_BACKWARD, _torch, _numpy)


@beside_autograd(RMS_NORM_BACKWARD)
def _autograd(p: Any, x: Any, w: Any, dy: Any) -> Callable[[], Any]:
    import torch

    return autograd_of(lambda x, w: torch.nn.functional.rms_norm(x, (p.columns,), w, p.eps), dy, x, w)


@beside_liger(RMS_NORM_BACKWARD, prepares=True)
def _liger(p: Any, x: Any, w: Any, dy: Any) -> Callable[[], Any]:
    from liger_kernel.transformers.functional import liger_rms_norm

    how = {"casting_mode": "gemma", "in_place": False}  # in place, dx would take the place of dy
    return autograd_of(lambda x, w: liger_rms_norm(x, w, p.eps, **how), dy, x, w)

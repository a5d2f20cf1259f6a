"""What the stages of `rms_norm_backward` are measured against."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..rows.baselines import beside
from ..rows.liger import beside_autograd, beside_liger, gradients
from . import RMS_NORM_BACKWARD


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

    return gradients(lambda x, w: torch.nn.functional.rms_norm(x, (p.columns,), w, p.eps), dy, x, w)


@beside_liger(RMS_NORM_BACKWARD, prepares=True)
def _liger(p: Any, x: Any, w: Any, dy: Any) -> Callable[[], Any]:
    from liger_kernel.transformers.functional import liger_rms_norm

    how = {"casting_mode": "gemma", "in_place": False}  # in place, dx would take the place of dy
    return gradients(lambda x, w: liger_rms_norm(x, w, p.eps, **how), dy, x, w)

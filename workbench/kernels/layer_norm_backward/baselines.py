"""What the stages of `layer_norm_backward` are measured against."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..rows.baselines import beside
from ..rows.liger import beside_autograd, beside_liger, gradients
from . import LAYER_NORM_BACKWARD


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
    return gradients(lambda x, w, b: torch.nn.functional.layer_norm(x, (p.columns,), w, b, p.eps), dy, x, w, b)


@beside_liger(LAYER_NORM_BACKWARD, prepares=True)
def _liger(p: Any, x: Any, w: Any, dy: Any) -> Callable[[], Any]:
    import torch
    from liger_kernel.transformers.functional import liger_layer_norm

    return gradients(lambda x, w, b: liger_layer_norm(x, w, b, p.eps), dy, x, w, torch.zeros_like(w))

"""What the stages of `rms_norm_backward` are measured against."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..rows.baselines import beside
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

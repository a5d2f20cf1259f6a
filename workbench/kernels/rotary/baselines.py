"""What the stages of `rotary` are measured against."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..rows.baselines import beside
from . import ROTARY


def _torch(p: Any, x: Any, cos: Any, sin: Any) -> Any:
    import torch

    kind = x.dtype
    x, cos, sin = x.float(), cos.float(), sin.float()
    if p.layout == "bshd":
        cos, sin = cos[:, None], sin[:, None]
    if p.pairs == "interleaved":
        u, v = x[..., 0::2], x[..., 1::2]
        y = torch.stack((u * cos - v * sin, u * sin + v * cos), -1).flatten(-2)
    else:
        u, v = x.chunk(2, -1)
        y = torch.cat((u * cos - v * sin, u * sin + v * cos), -1)
    return y.to(kind)


def _numpy(p: Any, x: Any, cos: Any, sin: Any) -> Any:
    if p.layout == "bshd":
        cos, sin = cos[:, None], sin[:, None]
    y, half = np.empty_like(x), x.shape[-1] // 2
    first, second = (
        (slice(0, None, 2), slice(1, None, 2)) if p.pairs == "interleaved" else (slice(half), slice(half, None))
    )
    y[..., first] = x[..., first] * cos - x[..., second] * sin
    y[..., second] = x[..., first] * sin + x[..., second] * cos
    return y


beside(ROTARY, _torch, _numpy)

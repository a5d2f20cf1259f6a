"""What the stages of `rotary` are measured against."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..rows.baselines import beside
from ..rows.liger import beside_liger
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


def _pairs(p: Any) -> str | None:
    return None if p.pairs == "half" else "it rotates elements half a row apart"


@beside_liger(ROTARY, prepares=True, refuses=_pairs)
def _liger(p: Any, x: Any, cos: Any, sin: Any) -> Callable[[], Any]:
    """It rotates queries and keys where they lie, as (batch, seq, heads, dim): the time has a copy of x, which stays as
    it is, and one head of keys. In fp32, which is the type of the angles."""
    import torch
    from liger_kernel.transformers.functional import liger_rope

    def other_order(heads: Any) -> Any:
        return heads.transpose(1, 2)

    rows = x if p.layout == "bshd" else other_order(x)
    copied = torch.empty(tuple(rows.shape), dtype=x.dtype, device=x.device)
    keys = torch.zeros_like(copied[:, :, :1])
    angles = [torch.cat((table, table), -1).float()[None] for table in (cos, sin)]

    def rotate() -> Any:
        copied.copy_(rows)
        y, _ = liger_rope(other_order(copied), other_order(keys), *angles)
        return other_order(y) if p.layout == "bshd" else y

    return rotate

"""What the stages of `softmax_backward` are measured against."""

from __future__ import annotations

from typing import Any

from ..rows.baselines import beside
from . import SOFTMAX_BACKWARD


def _torch(p: Any, y: Any, dy: Any) -> Any:
    import torch

    return torch.ops.aten._softmax_backward_data(dy, y, -1, y.dtype)


def _numpy(p: Any, y: Any, dy: Any) -> Any:
    return y * (dy - (y * dy).sum(axis=1, keepdims=True))


beside(SOFTMAX_BACKWARD, _torch, _numpy)

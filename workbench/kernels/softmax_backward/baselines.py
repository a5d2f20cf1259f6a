"""What the stages of `softmax_backward` are measured against."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..rows.baselines import beside
from ..rows.liger import beside_liger, gradients
from . import SOFTMAX_BACKWARD


def _torch(p: Any, y: Any, dy: Any) -> Any:
    import torch

    return torch.ops.aten._softmax_backward_data(dy, y, -1, y.dtype)


def _numpy(p: Any, y: Any, dy: Any) -> Any:
    return y * (dy - (y * dy).sum(axis=1, keepdims=True))


beside(SOFTMAX_BACKWARD, _torch, _numpy)


@beside_liger(SOFTMAX_BACKWARD, prepares=True)
def _liger(p: Any, y: Any, dy: Any) -> Callable[[], Any]:
    from liger_kernel.transformers.functional import liger_softmax

    def given(x: Any) -> Any:
        kept = liger_softmax(x)
        kept.data.copy_(y)  # what its gradient is computed of: no x has exactly this softmax
        return kept

    return gradients(given, dy, y)

"""What the stages of `softmax_backward` are measured against."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..rows.baselines import beside
from ..rows.liger import beside_liger, gradients, short_rows
from . import SOFTMAX_BACKWARD


def _torch(p: Any, y: Any, dy: Any) -> Any:
    import torch

    return torch.ops.aten._softmax_backward_data(dy, y, -1, y.dtype)


def _numpy(p: Any, y: Any, dy: Any) -> Any:
    return y * (dy - (y * dy).sum(axis=1, keepdims=True))


beside(SOFTMAX_BACKWARD, _torch, _numpy)


def _exact_sums(p: Any) -> str | None:
    return short_rows(p) or (None if p.dtype == "fp32" else f"it adds up the products of a row in {p.dtype}")


@beside_liger(SOFTMAX_BACKWARD, prepares=True, refuses=_exact_sums)
def _liger(p: Any, y: Any, dy: Any) -> Callable[[], Any]:
    from liger_kernel.transformers.functional import liger_softmax

    def given(x: Any) -> Any:
        kept = liger_softmax(x)
        kept.data.copy_(y)  # what its gradient is computed of: no x has exactly this softmax
        return kept

    return gradients(given, dy, y)

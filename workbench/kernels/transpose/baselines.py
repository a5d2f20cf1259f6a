"""What the stages of `transpose` are measured against."""

from __future__ import annotations

from typing import Any

from ..rows.baselines import beside
from . import TRANSPOSE


def _torch(p: Any, x: Any) -> Any:
    import torch

    return x.t().clone(memory_format=torch.contiguous_format)  # contiguous() does not copy a single row or column


def _numpy(p: Any, x: Any) -> Any:
    return x.T.copy()  # as above


beside(TRANSPOSE, _torch, _numpy)

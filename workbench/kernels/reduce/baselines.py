"""What the stages of `reduce` are measured against."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..rows.baselines import beside
from . import REDUCE


def _torch(p: Any, x: Any) -> Any:
    import torch

    return (torch.sum if p.op == "sum" else torch.amax)(x, {"columns": (1,), "rows": (0,), "all": (0, 1)}[p.over])


def _numpy(p: Any, x: Any) -> Any:
    axis = {"columns": 1, "rows": 0, "all": None}[p.over]
    return np.atleast_1d((np.sum if p.op == "sum" else np.max)(x, axis=axis))


beside(REDUCE, _torch, _numpy)

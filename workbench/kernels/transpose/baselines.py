"""What the stages of `transpose` are measured against."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..rows.baselines import beside
from . import TRANSPOSE


def _torch(p: Any, x: Any) -> Any:
    return x.t().contiguous()


def _numpy(p: Any, x: Any) -> Any:
    return np.ascontiguousarray(x.T)


beside(TRANSPOSE, _torch, _numpy)

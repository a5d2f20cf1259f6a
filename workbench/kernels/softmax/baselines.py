"""What the stages of `softmax` are measured against."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..rows.baselines import beside
from ..rows.liger import beside_liger
from . import SOFTMAX


def _torch(p: Any, x: Any) -> Any:
    import torch

    return torch.softmax(x, -1)


def _numpy(p: Any, x: Any) -> Any:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


beside(SOFTMAX, _torch, _numpy)


@beside_liger(SOFTMAX)
def _liger(p: Any, x: Any) -> Any:
    from liger_kernel.transformers.functional import liger_softmax

    return liger_softmax(x)

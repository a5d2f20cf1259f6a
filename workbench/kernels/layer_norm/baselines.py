"""What the stages of `layer_norm` are measured against."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..rows.baselines import beside
from ..rows.liger import beside_liger
from . import LAYER_NORM


def _torch(p: Any, x: Any, w: Any, b: Any) -> Any:
    import torch

    return torch.layer_norm(x, (x.shape[-1],), w, b, p.eps)


def _numpy(p: Any, x: Any, w: Any, b: Any) -> Any:
    centred = x - x.mean(axis=1, keepdims=True)
    return centred * w / np.sqrt(np.mean(centred * centred, axis=1, keepdims=True) + np.float32(p.eps)) + b


beside(LAYER_NORM, _torch, _numpy)


@beside_liger(LAYER_NORM)
def _liger(p: Any, x: Any, w: Any, b: Any) -> Any:
    from liger_kernel.transformers.functional import liger_layer_norm

    return liger_layer_norm(x, w, b, p.eps)

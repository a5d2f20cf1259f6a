"""What the stages of `residual_rms_norm` are measured against."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..rows.baselines import beside
from ..rows.liger import beside_liger
from . import RESIDUAL_RMS_NORM


def _torch(p: Any, x: Any, residual: Any, w: Any) -> Any:
    import torch

    s = x + residual
    return s, torch.nn.functional.rms_norm(s, (p.columns,), w, p.eps)


def _numpy(p: Any, x: Any, residual: Any, w: Any) -> Any:
    s = x + residual
    return s, s * w / np.sqrt(np.mean(s * s, axis=1, keepdims=True) + np.float32(p.eps))


beside(RESIDUAL_RMS_NORM, _torch, _numpy)


@beside_liger(RESIDUAL_RMS_NORM)
def _liger(p: Any, x: Any, residual: Any, w: Any) -> Any:
    from liger_kernel.transformers.functional import liger_fused_add_rms_norm

    y, s = liger_fused_add_rms_norm(x, residual, w, p.eps, casting_mode="gemma")  # all but the sum in fp32
    return s, y

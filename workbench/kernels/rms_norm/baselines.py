"""What the stages of `rms_norm` are measured against."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..rows.baselines import beside
from ..rows.liger import beside_liger
from . import RMS_NORM


def _torch(p: Any, x: Any, w: Any) -> Any:
    import torch

    return torch.nn.functional.rms_norm(x, (x.shape[-1],), w, p.eps)


def _numpy(p: Any, x: Any, w: Any) -> Any:
    return x * w / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + np.float32(p.eps))


beside(RMS_NORM, _torch, _numpy)


@beside_liger(RMS_NORM)
def _liger(p: Any, x: Any, w: Any) -> Any:
    from liger_kernel.transformers.functional import liger_rms_norm

    return liger_rms_norm(x, w, p.eps, casting_mode="gemma")  # all in fp32; by default the product with w is not

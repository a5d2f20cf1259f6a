"""`cross_entropy` as a function on arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...model.calls import Call
from ..shared.arguments import check_arrays, common_dtype, contiguous, rows_of
from . import CROSS_ENTROPY, CrossEntropyProblem


@CROSS_ENTROPY.function
def cross_entropy(x: Any, labels: Any) -> Call:
    """Cross entropy of logits x, (rows, columns), and labels, (rows,) int32 below columns; rows whose label is negative
    are left out: their loss is 0. Returns (loss, log-sum-exp), both (rows,) float32."""
    name = "cross_entropy"
    fields = rows_of(name, common_dtype(name, x=x), np.float32, x=x)
    check_arrays(name, [np.dtype(np.int32)], labels=labels)
    if x.ndim != 2 or labels.shape != x.shape[:1]:
        raise ValueError(f"{name}: x has shape {x.shape} and labels {labels.shape}; they have to be (n, c) and (n,)")
    contiguous(name, "labels", labels)
    return Call(CrossEntropyProblem(**fields), {"x": x, "labels": labels})

"""What negative controls of several operations share."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...model.arrays import Arrays


def noticeable(answer: Arrays, expected: Arrays, least: Mapping[str, float]) -> bool:
    """Whether an answer differs by more than rounding may: in one output by more than `least` of its largest element.

    Answers of broken kernels need not: of large logits the key that is left out may weigh 1e-6.
    """
    for name, part in least.items():
        got, right = answer[name], expected[name]
        finite = np.isfinite(right)
        if not np.array_equal(np.isfinite(got), finite):
            return True
        size = np.abs(right[finite]).max(initial=0.0) or 1.0
        if (np.abs(got[finite] - right[finite]) > part * size).any():
            return True
    return False

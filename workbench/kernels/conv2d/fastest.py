"""Which stage of conv2d is preferred for a problem."""

from __future__ import annotations

from .problem import Conv2dProblem


def fastest(p: Conv2dProblem) -> tuple[str, ...]:
    """The stages that are preferred for a problem that is in no table of what is fastest, best first."""
    return ("depthwise", "im2col_tma", "tensor_core", "few_channels", "smem_tiling")

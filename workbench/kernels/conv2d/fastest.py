"""Which stage of conv2d is preferred for a problem."""

from __future__ import annotations

from .estimate import cycles, fitted, fitted_to_one
from .problem import Conv2dProblem


def fastest(p: Conv2dProblem) -> tuple[str, ...]:
    """The stages that are preferred for a problem that is in no table of what is fastest, best first."""
    alone = cycles(p, *fitted_to_one(p), overlapped=True)
    wgmma = ("ping_pong", "im2col_tma") if alone < cycles(p, *fitted(p)) else ("im2col_tma", "ping_pong")
    return ("depthwise", *wgmma, "tensor_core", "few_channels", "smem_tiling")

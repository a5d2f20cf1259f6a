"""Which stage of conv2d is preferred for a problem."""

from __future__ import annotations

from .estimate import copied_cycles, cycles, fitted, fitted_to_copies, fitted_to_one, im2col_cycles, padding_cycles
from .padding import no_eights, padded
from .problem import Conv2dProblem

FEW, MANY = 4, 132
"""Below so many channels, and from so many tiles on, a thread gathers a window: for 3 channels 1.6 of cuDNN's speed."""

MARGIN, OVER_TMA = 1.25, 1.55
"""By how much the estimate of copies by threads has to be less than that of TMA: where channels are padded for it, and
where they need not be. As measured on an H200."""


def fastest(p: Conv2dProblem) -> tuple[str, ...]:
    """The stages that are preferred for a problem that is in no table of what is fastest, best first."""
    alone = cycles(p, *fitted_to_one(p), overlapped=True)
    # of one tap memory decides, not products: larger tiles read less (0.98 to 1.05 of ping_pong over ten such layers)
    several = p.taps_y * p.taps_x > 1 and alone < cycles(p, *fitted(p))
    wgmma = ("ping_pong", "im2col_tma") if several else ("im2col_tma", "ping_pong")
    copied = copied_cycles(p, *fitted_to_copies(p))
    if no_eights(p):
        ranked = {wgmma: im2col_cycles(p), ("narrow_copies",): OVER_TMA * copied}
    else:
        wide, more = padded(p), padding_cycles(p)
        ranked = {
            ("narrow_copies",): MARGIN * copied,
            ("padded_channels",): MARGIN * copied_cycles(wide, *fitted_to_copies(wide)) + more,
            ("padded_im2col",): im2col_cycles(wide) + more,
        }
    names = sorted(ranked, key=lambda names: ranked[names])
    first = ("few_channels",) if p.channels < FEW and p.tiles(128, 64) >= MANY else ()
    ranking = (name for several in names for name in several)
    return ("depthwise", *first, *ranking, "tensor_core", "few_channels", "smem_tiling")

"""Which stage of conv2d is preferred for a problem."""

from __future__ import annotations

from ...model.launch import ceil_div
from .estimate import (
    BLOCK_K,
    copied_cycles,
    cycles,
    fitted,
    fitted_flexibly,
    fitted_to_copies,
    fitted_to_one,
    fitted_to_shares,
    flexible_cycles,
    im2col_cycles,
    k_tiles_of_taps,
    padding_cycles,
    shared_cycles,
    tile_cycles,
)
from .padding import no_eights, padded
from .problem import Conv2dProblem

FEW, MANY = 4, 132
"""Below so many channels, and from so many tiles on, a thread gathers a window: for 3 channels 1.6 of cuDNN's speed."""

FEWEST_FILTERS, FEW_FILTERS, LONG, FULL = 16, 32, 24, 32
"""Up to so many filters, or, where sums have so many k-tiles, up to so many, and above so many channels, the pixels of
overlapping windows are copied once for all taps."""

MANY_PIXELS = 8192
"""From so many on each multiprocessor has several warps that each multiply more than 64 filters."""

FLEXIBLE_MARGIN = 1.1
"""By how much the estimate of tiles of any width is to be less than those of the others that TMA loads. Of 53 layers on
an H200 these were then preferred for 22, and 1.11 times as fast as the best of the others, 0.92 times at worst."""

RECTANGLE, FILLED = (8, 16), 0.6
"""Rows and columns of outputs that are copied for at once, and how much of these rectangles is to lie in the image."""

MARGIN = 1.7
"""By how much the estimate of copies by threads is less than what they take, where that of TMA is not (H200)."""


def fastest(p: Conv2dProblem) -> tuple[str, ...]:
    """The stages that are preferred for a problem that is in no table of what is fastest, best first."""
    single = cycles(p, *fitted_to_one(p), overlapped=True)
    # of one tap memory decides, not products: larger tiles read less (0.98 to 1.05 of ping_pong over ten such layers)
    several = p.taps_y * p.taps_x > 1 and single < cycles(p, *fitted(p))
    wgmma = ("ping_pong", "im2col_tma") if several else ("im2col_tma", "ping_pong")
    copied = copied_cycles(p, *fitted_to_copies(p))
    ranked: dict[tuple[str, ...], float] = {("narrow_copies",): MARGIN * copied}
    if no_eights(p):  # channels that are copied to whole k-tiles took longer: 0.76 of cuDNN over twelve layers
        ranked[wgmma] = im2col_cycles(p)
        height, width, shares = fitted_to_shares(p)
        if shares > 1:
            ranked["split_k",] = shared_cycles(p, height, width, shares)
        ranked["flexible_tiles",] = FLEXIBLE_MARGIN * flexible_cycles(p, *fitted_flexibly(p))
    else:
        wide, whole = padded(p), padded(p, BLOCK_K)
        by_copies = MARGIN * copied_cycles(wide, *fitted_to_copies(wide))
        by_tma = tile_cycles(whole, *fitted_to_one(whole), overlapped=True)
        ranked["padded_channels",] = by_copies + padding_cycles(p, wide)
        ranked["padded_im2col",] = by_tma + padding_cycles(p, whole)
    names = sorted(ranked, key=lambda names: ranked[names])
    ranking = (name for several in names for name in several)
    alone = ("depthwise_tma", "depthwise")
    return (*alone, *_special(p), *ranking, "tensor_core", "few_channels", "smem_tiling")


def _special(p: Conv2dProblem) -> tuple[str, ...]:
    """Stages that are preferred to those that an estimate ranks, where they take the problem."""
    if p.channels < FEW and p.tiles(128, 64) >= MANY:
        return ("few_channels",)
    most = FEW_FILTERS if k_tiles_of_taps(p) >= LONG else FEWEST_FILTERS
    if p.filters <= most and p.channels > FULL:
        return ("pointwise", "halo") if _filled(p) >= FILLED else ("pointwise",)
    # boxes of TMA would not be full: 1.05 to 4 times the speed of im2col_tma (H100)
    if (p.channels % BLOCK_K or p.filters % BLOCK_K) and (p.filters <= BLOCK_K or p.pixels >= MANY_PIXELS):
        return ("pointwise",)
    return ()


def _filled(p: Conv2dProblem) -> float:
    """How much of the rectangles of outputs lies in the image."""
    rows, columns = (ceil_div(n, side) * side for n, side in zip((p.rows, p.columns), RECTANGLE, strict=True))
    return p.rows * p.columns / (rows * columns)

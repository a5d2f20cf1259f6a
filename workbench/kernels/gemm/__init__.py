"""Matrix product C = A B, each operand stored as it is or transposed, in batches, with an epilogue."""

# isort: off
from . import simt, skinny, mma, wgmma, tcgen05  # each track declares its stages, in this order

# isort: on
from .operation import GEMM, GROUPS
from .problem import GemmProblem, drawn_extents, probes
from .wgmma import PADDED_C, Product, tile_launch

__all__ = [
    "GEMM",
    "GROUPS",
    "PADDED_C",
    "GemmProblem",
    "Product",
    "drawn_extents",
    "mma",
    "probes",
    "simt",
    "skinny",
    "tcgen05",
    "tile_launch",
    "wgmma",
]

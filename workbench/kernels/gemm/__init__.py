"""Matrix product C = A B, each operand stored as it is or transposed, in batches, with an epilogue."""

# isort: off
from . import simt, skinny, mma, wgmma, tcgen05  # each track declares its stages, in this order

# isort: on
from .operation import GEMM, GROUPS
from .problem import GemmProblem, ScaledProduct, drawn_extents, scaled_output
from .wgmma import PADDED_C, Product, tile_launch

__all__ = [
    "GEMM",
    "GROUPS",
    "PADDED_C",
    "GemmProblem",
    "Product",
    "ScaledProduct",
    "drawn_extents",
    "mma",
    "scaled_output",
    "simt",
    "skinny",
    "tcgen05",
    "tile_launch",
    "wgmma",
]

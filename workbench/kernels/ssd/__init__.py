"""Mamba-2's chunked scan: h_t = exp(log_a_t) h_{t-1} + b_t x_t^T and y_t = h_t^T c_t of every head."""

# isort: off
from . import simt, mma, wgmma  # each track declares its stages, in this order

# isort: on
from .operation import SSD
from .problem import Decays, SsdProblem

__all__ = ["SSD", "Decays", "SsdProblem", "mma", "simt", "wgmma"]

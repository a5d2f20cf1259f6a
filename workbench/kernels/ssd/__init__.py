"""Mamba-2's chunked scan: h_t = exp(log_a_t) h_{t-1} + b_t x_t^T and y_t = h_t^T c_t of every head."""

from . import stages
from .operation import SSD
from .problem import Decays, SsdProblem

__all__ = ["SSD", "Decays", "SsdProblem", "stages"]

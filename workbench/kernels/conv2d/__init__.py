"""Two-dimensional convolution of images with filters, with groups, bias and activation."""

# isort: off
from . import simt, mma, wgmma  # each track declares its stages, in this order

# isort: on
from .operation import CONV2D
from .problem import Activation, Conv2dProblem, Layout

__all__ = ["CONV2D", "Activation", "Conv2dProblem", "Layout", "mma", "simt", "wgmma"]

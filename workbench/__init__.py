"""Develop raw CUDA kernels in stages: property-tested against NumPy, then timed, with a GPU or without one."""

__version__ = "0.1.0"

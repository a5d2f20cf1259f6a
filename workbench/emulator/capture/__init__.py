"""Programs that were built for CUDA, run without a GPU: every launch in them is executed and checked.

A library stands in for CUDA's runtime and driver in the program's process (`client`), and asks this process, which
keeps the device's memory and executes kernels (`server`)."""

from .program import Captured, CaptureError, HostFinding, capture, library

__all__ = ["CaptureError", "Captured", "HostFinding", "capture", "library"]

"""Triton kernels without a GPU: their launches run in the emulator, which names hazards at the line of Python.

    with workbench.triton.emulate():
        add[(4,)](x, y, out, 1000, BLOCK=256)  # NumPy arrays, or PyTorch tensors on the CPU

The PTX is Triton's own, for sm_75 to sm_121a. It needs Triton, which the extra `triton` brings."""

from ..emulator import Output
from .emulation import Emulation, emulate
from .launching import Launched, LaunchFault, Mismatch
from .taking_over import TritonUnavailable

__all__ = ["Emulation", "LaunchFault", "Launched", "Mismatch", "Output", "TritonUnavailable", "emulate"]

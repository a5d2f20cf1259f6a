"""Where launches run: a CUDA device through CuPy, or the emulator. One interface, `Device`."""

from __future__ import annotations

from functools import partial

from ..model.launch import emulated_machine
from ..model.origin import DEVICES
from .base import BoundPlan, Device, DeviceUnavailable, Fault, machine_for
from .isolated import IsolatedDevice

__all__ = ["BoundPlan", "Device", "DeviceUnavailable", "Fault", "IsolatedDevice", "machine_for", "open_device"]

EMULATOR_SECONDS = 120.0
"""Least deadline of a launch in an isolated emulator, which ends kernels without end itself after some seconds."""


def open_device(name: str = "auto", *, isolate: bool = False) -> Device:
    """The device called `cuda` or `emulator`; `auto` is the GPU where there is one, else the emulator.
    `emulator:multiprocessors=78` is another emulated device, as `emulated_machine` says.

    The GPU is always used from a worker process, so that a kernel that hangs or crashes costs nothing else; the
    emulator, which stops such kernels by itself, only with `isolate`. Raises DeviceUnavailable with the reason and the
    remedy."""
    if name not in DEVICES and not name.startswith("emulator:"):
        raise DeviceUnavailable(f"there is no device {name!r}; the devices are {', '.join(DEVICES)}")
    try:
        machine = emulated_machine(name)
    except ValueError as error:
        raise DeviceUnavailable(str(error)) from None
    if not name.startswith("emulator"):
        from .cuda import CudaDevice, require_gpu

        try:
            if name == "auto":  # else its process says what is missing
                require_gpu()
        except DeviceUnavailable:
            pass
        else:
            return IsolatedDevice(CudaDevice)
    from .emulated import EmulatedDevice

    start = partial(EmulatedDevice, machine=machine)
    return IsolatedDevice(start, EMULATOR_SECONDS) if isolate else start()

"""Where launches run: a CUDA device through CuPy, or the emulator. One interface, `Device`."""

from __future__ import annotations

from .base import BoundPlan, Device, DeviceUnavailable, Fault

__all__ = ["BoundPlan", "Device", "DeviceUnavailable", "Fault", "open_device"]

NAMES = ("auto", "cuda", "emulator")


def open_device(name: str = "auto") -> Device:
    """The device called `cuda` or `emulator`; `auto` is the GPU where there is one, else the emulator.

    Raises DeviceUnavailable with the reason and the remedy.
    """
    if name not in NAMES:
        raise DeviceUnavailable(f"there is no device {name!r}; the devices are {', '.join(NAMES)}")
    if name != "emulator":
        from .cuda import CudaDevice

        try:
            return CudaDevice()
        except DeviceUnavailable:
            if name == "cuda":
                raise
    from .emulated import EmulatedDevice

    return EmulatedDevice()

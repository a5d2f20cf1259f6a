"""Clocks, power, temperature and throttle reasons of the GPU, read through NVML where it is installed."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import cache
from typing import Any

from ..model.results import Conditions


@dataclass(frozen=True)
class StaticInfo:
    """What does not change during a run: driver version, maximum clocks in MHz, power limit in W, and which chip it is.

    `chip` is the beginning of the SHA-256 of the UUID: the same for the same chip, and no name of it."""

    driver: str = ""
    chip: str = ""
    sm_clock_mhz: int = 0
    memory_clock_mhz: int = 0
    power_limit_w: float = 0.0


def visible() -> list[str]:
    """The GPUs that CUDA programs may use here, by index or UUID as CUDA_VISIBLE_DEVICES has them, else by UUID.

    None where neither that nor NVML says which."""
    if (chosen := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [name.strip() for name in chosen.split(",") if name.strip()]
    try:
        import pynvml

        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return [str(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles]
    except Exception:  # neither the module nor the library is needed to run
        return []


@cache
def _handle() -> tuple[Any, Any] | None:
    try:
        import pynvml

        pynvml.nvmlInit()
        first = visible()[0]  # the GPU with index 0 here, which is not the machine's where this process sees another
        if first.startswith("GPU-"):
            return pynvml, pynvml.nvmlDeviceGetHandleByUUID(first)
        return pynvml, pynvml.nvmlDeviceGetHandleByIndex(int(first) if first.isdecimal() else 0)
    except Exception:  # neither the module nor the library is needed to run
        return None


def available() -> bool:
    """Whether NVML answers on this machine."""
    return _handle() is not None


def static_info() -> StaticInfo:
    """Driver, chip, maximum clocks and power limit; nothing and zeros where NVML is missing."""
    found = _handle()
    if not found:
        return StaticInfo()
    nvml, handle = found
    return StaticInfo(
        driver=str(nvml.nvmlSystemGetDriverVersion()),
        chip=hashlib.sha256(str(nvml.nvmlDeviceGetUUID(handle)).encode()).hexdigest()[:12],
        sm_clock_mhz=nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM),
        memory_clock_mhz=nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM),
        power_limit_w=nvml.nvmlDeviceGetPowerManagementLimit(handle) / 1000,
    )


def sm_clock() -> int | None:
    """The clock of the SMs right now, in MHz; None where NVML is missing."""
    found = _handle()
    return int(found[0].nvmlDeviceGetClockInfo(found[1], found[0].NVML_CLOCK_SM)) if found else None


def sample(conditions: Conditions) -> None:
    """Append what the device is doing right now to `conditions`."""
    found = _handle()
    if not found:
        return
    nvml, handle = found
    conditions.sm_clock_mhz.append(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
    conditions.memory_clock_mhz.append(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM))
    conditions.power_w.append(nvml.nvmlDeviceGetPowerUsage(handle) / 1000)
    conditions.temperature_c.append(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
    reasons = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    for text, bit in _throttle_reasons().items():
        if bit & reasons and text not in conditions.throttle_reasons:
            conditions.throttle_reasons.append(text)


@cache
def _throttle_reasons() -> dict[str, int]:
    """The bits of what holds clocks back, by name."""
    found = _handle()
    prefix = "nvmlClocksThrottleReason"
    named = {n.removeprefix(prefix): bit for n, bit in sorted(vars(found[0]).items()) if prefix in n} if found else {}
    idle = ("GpuIdle", "None", "All")
    return {n: bit for n, bit in named.items() if n not in idle and isinstance(bit, int) and bit & (bit - 1) == 0}

"""What kernels are compiled for, and the driver that says so to Triton where there is no GPU."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from ..emulator import DeviceLimits
from ..emulator.architectures import BY_CAPABILITY
from ..model.errors import WrongUsage


@dataclass(frozen=True, slots=True)
class Target:
    """A compute capability, 90 for 9.0, and the device whose limits launches are checked against."""

    capability: int
    limits: DeviceLimits

    @property
    def name(self) -> str:
        """``sm_80``, ``sm_90a``: what Triton compiles for."""
        return f"sm_{self.capability}{'a' if self.capability >= 90 else ''}"


def target_of(asked: str | int) -> Target:
    """The target named ``sm_90a``, ``sm_90``, ``90`` or such. Raises ``WrongUsage`` for one that is not emulated."""
    found = re.fullmatch(r"(?:sm_?)?(\d+)[af]?", str(asked))
    capability = int(found[1]) if found else -1
    if capability not in BY_CAPABILITY:
        known = ", ".join(Target(number, limits).name for number, limits in BY_CAPABILITY.items())
        raise WrongUsage(f"{asked!r} is not a target that Triton's kernels are emulated for; the targets: {known}")
    return Target(capability, BY_CAPABILITY[capability])


class Driver:
    """What Triton asks of a driver while it compiles; launches do not come here.

    Its device has a name of its own: what Triton keeps of a GPU's kernels stays apart."""

    def __init__(self, target: Target, benchmarked: Callable[..., Any]) -> None:
        self.target = target
        self.get_benchmarker = lambda: benchmarked
        self.device = f"emulated {target.name}"
        self.utils = Utilities(target)
        self.launcher_cls = _no_launcher

    def get_current_device(self) -> str:
        """The key under which Triton keeps compiled kernels."""
        return self.device

    def set_current_device(self, device: Any) -> None:
        """There is one."""

    def get_current_stream(self, device: Any = None) -> int:
        """The default one."""
        return 0

    def get_current_target(self) -> Any:
        """As Triton's compiler takes it."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.target.capability, 32)

    def get_device_capability(self, device: Any = None) -> tuple[int, int]:
        """Major and minor number."""
        return divmod(self.target.capability, 10)

    def get_active_torch_device(self) -> Any:
        """Where tensors for these kernels lie: on the CPU, or on the device that PyTorch's stand-in says."""
        import torch

        return torch.empty(0).device

    def get_device_interface(self) -> NoReturn:
        """Triton times kernels through it."""
        raise WrongUsage("nothing is timed in the emulator: call the kernel, not a benchmark of it")

    get_empty_cache_for_benchmark = clear_cache = get_device_interface

    def map_python_to_cpp_type(self, type_name: str) -> str:
        """The C type of an argument of a Triton type."""
        from triton.backends.nvidia.driver import ty_to_cpp

        return str(ty_to_cpp(type_name))


class Utilities:
    """What programs ask of the device between compiling a kernel and launching it."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def get_device_properties(self, device: Any = None) -> dict[str, int]:
        """Those of the device that the target stands for; frequencies and widths are 0, since nothing is timed."""
        limits = self.target.limits
        return {
            "max_shared_mem": limits.shared_per_block,
            "max_num_regs": limits.registers_per_sm,
            "multiprocessor_count": limits.sm_count,
            "warpSize": 32,
            "sm_clock_rate": 0,
            "mem_clock_rate": 0,
            "mem_bus_width": 0,
        }

    def load_binary(self, name: str, binary: bytes, shared: int, device: Any) -> tuple[None, None, int, int, int]:
        """Module, function, registers of a thread, spilled bytes and threads of a block at most."""
        registers = registers_of_cubin(binary) or 0
        return None, None, registers, 0, self.target.limits.max_threads_per_block

    def unload_module(self, module: Any) -> None:
        """Nothing was loaded."""

    def set_printf_fifo_size(self, size: int) -> None:
        """What kernels print is never cut."""


def _no_launcher(source: Any, metadata: Any) -> Any:
    def launch(*args: Any) -> NoReturn:
        raise WrongUsage("a compiled kernel is launched as kernel[grid](...) here")

    return launch


def registers_of_cubin(binary: bytes) -> int | None:
    """Registers of a thread as ptxas has allotted them, the most of any kernel, or None where the file does not say.

    The section ``.nv.info`` is a list of attributes, each a format, a number and, in format 4, a size and as many
    bytes; number 0x2f has a kernel's symbol and its registers."""
    if binary[:5] != b"\x7fELF\x02":
        return None
    start, size = _number(binary[40:48]), _number(binary[58:60])
    headers = [binary[start + i * size : start + (i + 1) * size] for i in range(_number(binary[60:62]))]
    names = _number(headers[_number(binary[62:64])][24:32])
    for header in headers:
        begin = names + _number(header[:4])
        if binary[begin : binary.find(b"\0", begin)] == b".nv.info":
            offset, length = _number(header[24:32]), _number(header[32:40])
            return max(_registers(binary[offset : offset + length]), default=None)
    return None


def _registers(attributes: bytes) -> list[int]:
    found, at = [], 0
    while at + 4 <= len(attributes):
        size = _number(attributes[at + 2 : at + 4]) if attributes[at] == 4 else 0
        if attributes[at : at + 2] == b"\x04\x2f" and size == 8:
            found.append(_number(attributes[at + 8 : at + 12]))
        at += 4 + size
    return found


def _number(raw: bytes) -> int:
    return int.from_bytes(raw, "little")

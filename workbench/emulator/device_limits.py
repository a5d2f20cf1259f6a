"""What a device allows a launch, and how many blocks it holds at once."""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["DEVICES", "H200", "DeviceLimits", "limits_of"]


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """Limits of one device; memory in bytes."""

    name: str
    arch: str
    sm_count: int
    max_threads_per_block: int = 1024
    max_block: tuple[int, int, int] = (1024, 1024, 64)
    max_grid: tuple[int, int, int] = (2**31 - 1, 65535, 65535)
    max_cluster_blocks: int = 8
    shared_per_block: int = 232_448
    shared_per_sm: int = 233_472
    shared_reserved_per_block: int = 1024
    max_warps_per_sm: int = 64
    max_blocks_per_sm: int = 32
    registers_per_sm: int = 65_536
    max_parameter_bytes: int = 32_764

    def blocks_per_sm(self, threads: int, shared_bytes: int, registers_per_thread: int | None = None) -> int:
        """Blocks that one multiprocessor holds, at least one. Unknown register counts do not limit."""
        warps = -(-threads // 32)
        fitting = [
            self.max_blocks_per_sm,
            self.max_warps_per_sm // warps,
            self.shared_per_sm // (shared_bytes + self.shared_reserved_per_block),
        ]
        if registers_per_thread:
            of_a_warp = -(-registers_per_thread * 32 // 256) * 256  # registers are given out 256 at a time
            fitting.append(self.registers_per_sm // (of_a_warp * warps))
        return max(1, min(fitting))

    def resident_blocks(self, threads: int, shared_bytes: int, registers_per_thread: int | None = None) -> int:
        """Blocks that the whole device holds."""
        return self.sm_count * self.blocks_per_sm(threads, shared_bytes, registers_per_thread)


H200 = DeviceLimits("NVIDIA H200", "sm_90a", 132)
"""The limits of an NVIDIA H200."""

_SMALL = DeviceLimits("", "", 0, shared_per_block=101_376, shared_per_sm=102_400, max_warps_per_sm=48)

# from the table of technical specifications per compute capability in the CUDA programming guide
DEVICES = {
    device.arch.rstrip("a"): device
    for device in (
        DeviceLimits(
            "NVIDIA A100", "sm_80", 108, max_cluster_blocks=1, shared_per_block=166_912, shared_per_sm=167_936
        ),
        replace(_SMALL, name="NVIDIA RTX 3090", arch="sm_86", sm_count=82, max_cluster_blocks=1, max_blocks_per_sm=16),
        replace(_SMALL, name="NVIDIA RTX 4090", arch="sm_89", sm_count=128, max_cluster_blocks=1, max_blocks_per_sm=24),
        H200,
        DeviceLimits("NVIDIA B200", "sm_100", 148),
        replace(_SMALL, name="NVIDIA RTX 5090", arch="sm_120", sm_count=170, max_blocks_per_sm=24),
    )
}
"""A device of each architecture, by the architecture without its ``a``."""


def limits_of(arch: str) -> DeviceLimits:
    """The limits of a device of the architecture, such as ``sm_80`` or ``sm_90a``."""
    return replace(DEVICES[arch.rstrip("a")], arch=arch)

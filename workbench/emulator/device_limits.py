"""What a device allows a launch, and how many blocks it holds at once."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["H200", "DeviceLimits"]


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
"""What an NVIDIA H200 holds."""

"""What a launch is checked for before it: numbers that make no sense, and what a device or the emulator refuses."""

from __future__ import annotations

import operator
from collections.abc import Sequence

import numpy as np

from .device_limits import H200, DeviceLimits
from .program import Entry, Signature

__all__ = [
    "Dimensions",
    "LaunchError",
    "check_launch",
    "check_size",
    "registers_of",
    "seconds_of",
    "shared_bytes_of",
    "triple",
    "whole_number",
]

Dimensions = int | Sequence[int]
_MOST_WARPS = 2**24  # of a grid: more would take hours
_MOST_LOCAL_BYTES = 2**31  # of all resident threads
_MOST_LOCAL_BYTES_PER_THREAD = 2**19


class LaunchError(ValueError):
    """The device would refuse the launch."""


def triple(numbers: Dimensions, what: str) -> tuple[int, int, int]:
    """Up to three numbers as three. Raises ``LaunchError`` with ``what`` they are."""
    try:
        values = [numbers] if isinstance(numbers, int | np.integer) else list(numbers)
        padded = [operator.index(value) for value in values] + [1, 1]
    except TypeError:
        raise LaunchError(f"the {what} is one to three whole numbers, not {numbers!r}") from None
    if not 1 <= len(values) <= 3:
        raise LaunchError(f"the {what} has one to three dimensions, not {len(values)}")
    return padded[0], padded[1], padded[2]


def whole_number(value: int, what: str, least: int, most: int) -> int:
    """The number. Raises ``LaunchError`` unless it is whole and within the limits."""
    try:
        number = operator.index(value)
    except TypeError:
        raise LaunchError(f"{what} is a whole number, not {value!r}") from None
    if not least <= number <= most:
        raise LaunchError(f"{what} is a whole number from {least} to {most}, not {value!r}")
    return number


def seconds_of(value: float) -> float:
    """The limit in seconds. Raises ``LaunchError`` unless it is above 0."""
    if not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise LaunchError(f"the limit in seconds is a number above 0, not {value!r}")
    return float(value)


def registers_of(entry: Entry, registers_per_thread: int | None) -> int:
    """What every thread holds at first, a multiple of 8; 0 where the kernel does not fix it."""
    if entry.register_limit is None or not entry.registers_fixed:
        return 0
    return -(-registers_per_thread // 8) * 8 if registers_per_thread else entry.register_limit


def check_launch(
    entry: Signature,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    cluster: tuple[int, int, int],
    dynamic: int,
    registers: int | None,
    limits: DeviceLimits,
) -> None:
    """Raises ``LaunchError`` for a launch that the device would refuse."""
    for what, numbers, most in (("grid", grid, limits.max_grid), ("block", block, limits.max_block)):
        for axis, number, limit in zip("xyz", numbers, most, strict=True):
            if not 1 <= number <= limit:
                raise LaunchError(f"the {what} has {number} in {axis}; 1 to {limit} are allowed on {limits.name}")
    threads = block[0] * block[1] * block[2]
    if threads > limits.max_threads_per_block:
        raise LaunchError(
            f"the block {block} has {threads} threads; {limits.max_threads_per_block} are allowed on {limits.name}"
        )
    if entry.max_threads is not None and threads > entry.max_threads:
        raise LaunchError(
            f"the block {block} has {threads} threads, but {entry.name} is compiled for at most {entry.max_threads} "
            f"(__launch_bounds__)"
        )
    if entry.required_block is not None and block != entry.required_block:
        raise LaunchError(f"{entry.name} must be launched with blocks of {entry.required_block}, not {block}")
    if dynamic < 0:
        raise LaunchError(f"dynamic shared memory cannot have {dynamic} bytes")
    shared = shared_bytes_of(entry, dynamic)
    if shared > limits.shared_per_block:
        raise LaunchError(
            f"a block would have {shared} bytes of shared memory, {entry.static_shared_bytes} static and {dynamic} "
            f"dynamic; {limits.shared_per_block} are allowed on {limits.name}"
        )
    if registers and registers * threads > limits.registers_per_sm:
        raise LaunchError(
            f"{threads} threads of {registers} registers need {threads * registers} registers; a multiprocessor of "
            f"{limits.name} has {limits.registers_per_sm}"
        )
    _check_cluster(entry, grid, cluster, limits)
    held = limits.resident_blocks(threads, shared, registers)
    if entry.cooperative and grid[0] * grid[1] * grid[2] > held:
        raise LaunchError(
            f"{entry.name} waits for its whole grid, so all blocks must be resident: {limits.name} holds {held} "
            f"of {threads} threads and {shared} bytes of shared memory, not {grid[0] * grid[1] * grid[2]}"
        )
    if entry.parameter_bytes > limits.max_parameter_bytes:
        raise LaunchError(
            f"{entry.name} has {entry.parameter_bytes} bytes of parameters; {limits.max_parameter_bytes} are allowed"
        )


def _check_cluster(
    entry: Signature, grid: tuple[int, int, int], cluster: tuple[int, int, int], limits: DeviceLimits
) -> None:
    if entry.cluster is not None and cluster != entry.cluster:
        raise LaunchError(f"{entry.name} is compiled for clusters of {entry.cluster}, not {cluster}")
    blocks = cluster[0] * cluster[1] * cluster[2]
    if blocks > 1 and limits.max_cluster_blocks == 1:
        raise LaunchError(f"{limits.name} ({limits.arch}) has no clusters of blocks; they need sm_90 or later")
    if min(cluster) < 1 or blocks > limits.max_cluster_blocks:
        raise LaunchError(f"the cluster {cluster} has {blocks} blocks; 1 to {limits.max_cluster_blocks} are allowed")
    for axis, number, step in zip("xyz", grid, cluster, strict=True):
        if number % step:
            raise LaunchError(
                f"the grid has {number} blocks in {axis}, which is not a multiple of the cluster's {step}"
            )


def check_size(
    entry: Entry,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    dynamic: int,
    registers: int | None,
    limits: DeviceLimits,
) -> None:
    """Raises ``LaunchError`` for a launch that a device may take and that is too large to be emulated."""
    threads = block[0] * block[1] * block[2]
    shared = shared_bytes_of(entry, dynamic)
    warps = grid[0] * grid[1] * grid[2] * -(-threads // 32)
    if warps > _MOST_WARPS:
        raise LaunchError(f"the grid {grid} of blocks {block} has {warps} warps; the emulator takes {_MOST_WARPS}")
    resident = min(grid[0] * grid[1] * grid[2], limits.resident_blocks(threads, shared, registers))
    if entry.local_bytes > _MOST_LOCAL_BYTES_PER_THREAD:
        raise LaunchError(
            f"{entry.name} has {entry.local_bytes} bytes of local memory a thread; {_MOST_LOCAL_BYTES_PER_THREAD} are "
            f"allowed on {limits.name}"
        )
    if entry.local_bytes * threads * resident > _MOST_LOCAL_BYTES:
        raise LaunchError(
            f"{entry.name} has {entry.local_bytes} bytes of local memory a thread, {entry.local_bytes * threads} a "
            f"block; the emulator has {_MOST_LOCAL_BYTES} for the {resident} blocks that are resident"
        )


def shared_bytes_of(entry: Signature, dynamic: int, *, reserved: bool = False) -> int:
    """Shared memory of a block, static and dynamic, and what is reserved for the system where the kernel uses it."""
    own = entry.dynamic_shared_offset + dynamic if dynamic else entry.static_shared_bytes
    return -(-own // 16) * 16 + H200.shared_reserved_per_block if reserved and entry.uses_reserved_shared else own

"""What a captured program is told of the device: attributes by their number in CUDA."""

from __future__ import annotations

from ..architectures import DeviceLimits

TOTAL_MEMORY = 80 << 30


def attributes(limits: DeviceLimits) -> dict[int, int]:
    """The attributes of `cudaDeviceGetAttribute` and `cuDeviceGetAttribute`: numbers of `cudaDeviceAttr`."""
    version = int(limits.arch[3:].rstrip("af"))
    hopper = version >= 90
    return {
        1: limits.max_threads_per_block,
        **{2 + axis: extent for axis, extent in enumerate(limits.max_block)},
        **{5 + axis: extent for axis, extent in enumerate(limits.max_grid)},
        8: 48 << 10,  # of shared memory a block, without asking for more
        9: 64 << 10,  # of constant memory
        10: 32,  # threads of a warp
        11: 2**31 - 1,  # pitch
        12: limits.registers_per_sm,
        13: 1_500_000,  # kHz
        14: 512,  # alignment of textures
        15: 1,  # copies and kernels overlap
        16: limits.sm_count,
        17: 0,  # no time limit
        18: 0,  # not integrated
        19: 1,  # maps memory of the host
        20: 0,  # default compute mode
        31: 1,  # concurrent kernels
        32: 0,  # no ECC
        36: 2_600_000,  # kHz of memory
        37: 5120,  # bits of the bus
        38: 50 << 20,  # bytes of the L2
        39: 32 * limits.max_warps_per_sm,
        40: 3,  # copy engines
        41: 1,  # unified addresses
        75: version // 10,
        76: version % 10,
        78: 1,  # priorities of streams
        79: 1,  # global loads in the L1
        80: 1,  # local ones
        81: limits.shared_per_sm,
        82: limits.registers_per_sm,
        83: 1,  # managed memory
        86: 0,  # no atomics with the host
        87: 64,  # single to double precision
        88: 0,  # no pageable memory
        89: 1,  # managed memory that both sides use at once
        90: 1,  # preemption
        91: 0,  # registered memory has an address of its own on the device
        95: 1,  # cooperative launches
        97: limits.shared_per_block,
        99: 1,  # memory of the host can be registered
        106: limits.max_blocks_per_sm,
        111: limits.shared_reserved_per_block,
        115: 1,  # pools of memory
        120: int(hopper),  # clusters
    }

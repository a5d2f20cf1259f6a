"""What each architecture has of PTX, and what a device has of everything: limits that a launch is checked against."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

ARCHITECTURES = (
    "sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100f", "sm_100a", "sm_103",
    "sm_103f", "sm_103a", "sm_110", "sm_110f", "sm_110a", "sm_120", "sm_120f", "sm_120a", "sm_121", "sm_121f",
    "sm_121a",
)  # fmt: skip
"""The architectures that can be emulated.

A suffix ``a`` adds instructions that no later architecture has, ``f`` those of the architecture's family."""

PORTABLE_CLUSTER = 8
"""Blocks that a cluster may have on every device that has clusters; twice as many where the kernel asks for more."""

DEFAULT = "sm_90a"
_FOR_OLDER = 80
"""The version on which PTX of versions before the first is emulated."""

_NAME = re.compile(r"(?:sm_|compute_)?(\d+)([af]?)")

_SINCE = (
    (80, r"cp\.async\..*|(redux|createpolicy|discard|applypriority|mbarrier)\..*|.*L2::cache_hint.*"),
    (80, r".*\b(bf16(x2)?|tf32)\b.*|(min|max)\.(.*\.)?(NaN|xorsign|f16(x2)?)\b.*|fma\.(.*\.)?relu\..*"),
    (80, r"mma\.(?!.*m8n8k(16|32|128)\b)(?!.*m16n8k8\..*\.f16\.f16\.)(?!.*m8n8k4\..*\.f16\.f16\.).*|mma\.sp\..*"),
    (80, r"mma\..*\band\.popc|wmma\..*\.f64\b.*"),
    (86, r"(min|max)\.(.*\.)?abs\b.*"),
    (89, r"cvt\..*e[45]m[23]x2.*|mma\..*\.e[45]m[23]\..*"),
    (90, r".*(\.|::)cluster\b.*"),
    (90, r"(cp\.(reduce\.)?async\.bulk|st\.async|red\.async|multimem|tensormap|griddepcontrol)\..*"),
    (90, r"(stmatrix|mapa|getctarank|elect|prefetch.*\.tensormap)\b.*"),
    (90, r"mbarrier\.arrive.*,count"),
    (90, r"mbarrier\.(try_wait|complete_tx|(.*\.)?expect_tx|.*relaxed)\b.*"),
    (90, r"fence\.(proxy\.(async|tensormap)|mbarrier_init|acquire|release)\b.*"),
    (90, r"(add|sub|mul|ex2|tanh|setp?|atom|red)\.(.*\.)?bf16(x2)?\b.*"),
    (90, r"cvt\.(.*\.)?bf16\.(?!f32\b)\w+|cvt\.(.*\.)?(?!f32\b)\w+\.bf16|cvt\.(.*\.)?ftz\.(.*\.)?f32\.bf16"),
    (90, r"cvt\.(?!rna\b)(.*\.)?tf32\.f32"),
    (90, r"(add|min|max)\.(.*\.)?[us]16x2\b.*|(min|max)\.(.*\.)?relu\.(.*\.)?s32|(min|max)\.s32\.relu"),
    (90, r"(atom|red)\.(.*\.)?(v[248]|b128)\b.*|fma\..*\boob\b.*"),
    (90, r"mma\..*m16n8k(4|8|16)\b.*\.f64\b.*"),
    (100, r"(add|sub|mul|fma)\.(.*\.)?f32x2|(add|sub|fma)\..*f32\.b?f16|(min|max)\..*,three"),
    (100, r"(clusterlaunchcontrol|st\.bulk)\b.*|(ld|st)\..*\b(v8\.[bsuf]32|v4\.[bsuf]64)|.*\.tile::gather4\b.*"),
    (100, r"fence\..*sync_restrict.*"),
)


def _specific(*versions: int) -> tuple[str, ...]:
    return tuple(f"sm_{version}{suffix}" for version in versions for suffix in "af")


_SPECIFIC = (  # of which architectures alone, with the ``a``
    (("sm_90a",), r"wgmma\..*"),
    (("sm_90a", *_specific(100, 103, 110, 120, 121)), r"(setmaxnreg|tensormap\.replace)\..*"),
    (("sm_100a", "sm_110a"), r"tcgen05\.mma\..*kind::i8\b.*"),
    (("sm_100a", "sm_103a", "sm_110a"), r"tcgen05\.shift\..*"),
    (_specific(103, 110), r"tcgen05\.ld\.red\..*"),
    (_specific(100, 103), r"tcgen05\.mma\..*,scaled"),
    (_specific(100, 103, 110), r"tcgen05\..*|.*\.cta_group::[12]\b.*|.*\.tile::scatter4\b.*|.*\.im2col::w\b.*"),
    (_specific(100, 103, 110), r"cp\.async\.bulk\.tensor\..*shared::cluster\..*tile::gather4.*"),
    (("sm_100a", "sm_103a", "sm_110a"), r"tcgen05\.mma\.(.*scale_vec::|sp\..*kind::mxf4).*"),
    (("sm_100a", "sm_103a"), r"cvt\.rs\..*"),
    (_specific(100, 103), r"redux\..*\.f32"),
    (("sm_120a", "sm_121a"), r"mma\.sp\b.*kind::mxf4.*"),
    (_specific(120, 121), r"mma\..*kind::(?!f8f6f4\.f\d+\.e[45]m[23]\.e[45]m[23]\b).*"),
    (_specific(100, 103, 110, 120, 121), r"mma\..*kind::.*"),
    (
        _specific(100, 103, 110, 120, 121),
        r"clusterlaunchcontrol\..*multicast.*|cvt\..*(e2m[13]|e3m2|ue8m0)x\d\b.*|cvt\..*bf16x2\.e[45]m[23]x2"
        r"|cvt\..*e[45]m[23]x2\.bf16x2",
    ),
)


class ArchitectureError(ValueError):
    """An unknown architecture, or one that the PTX does not fit; the message says which would be right."""


def architecture(name: str) -> str:
    """An architecture's name, such as ``sm_80`` of ``80``. Raises ``ArchitectureError`` unless it can be emulated."""
    match = _NAME.fullmatch(name.strip())
    found = f"sm_{match[1]}{match[2]}" if match else ""
    if found not in ARCHITECTURES:
        raise ArchitectureError(f"there is no architecture {name!r} here; there are {', '.join(ARCHITECTURES)}")
    return found


def chosen(target: str, wanted: str | None) -> str:
    """The architecture for PTX of a ``.target``: the one wanted, or the nearest to the target that can be emulated.

    Raises ``ArchitectureError`` where PTX of that target does not run on the one that is wanted."""
    match = _NAME.fullmatch(target.partition(",")[0].strip())
    version, specific = (int(match[1]), match[2]) if match else (0, "")
    if wanted is None:
        least = version if version >= _version(ARCHITECTURES[0]) else _FOR_OLDER
        fitting = [name for name in ARCHITECTURES if _version(name) <= least]
        newest = max(map(_version, fitting))
        nearest = f"sm_{newest}{specific}"
        return nearest if nearest in ARCHITECTURES else f"sm_{newest}a" if specific else f"sm_{newest}"
    name = architecture(wanted)
    ran, runs = name[-1] if name[-1] in "af" else "", _version(name)
    fits = runs == version and ran == "a" if specific == "a" else bool(ran) and version // 10 == runs // 10
    if version > runs or (specific and not fits):
        family = f"runs on sm_{version}f and later ones of its family alone"
        said = family if specific == "f" else "runs there alone" if specific else "does not run on one before it"
        raise ArchitectureError(
            f"the PTX is for sm_{version}{specific} and {said}, not on {name}: compile the source for {name}"
        )
    return name


def _version(name: str) -> int:
    return int(name[3:].rstrip("af"))


@lru_cache(maxsize=8192)
def missing(opcode: str, arch: str) -> str | None:
    """Why an architecture cannot execute an opcode, or None where it can.

    ``,count`` after an arrival at an mbarrier stands for its count."""
    for names, pattern in _SPECIFIC:
        if re.fullmatch(pattern, opcode) and arch not in names:
            return f"{arch} does not have it, it needs {' or '.join(names)}"
    needed = max((since for since, pattern in _SINCE if re.fullmatch(pattern, opcode)), default=0)
    return f"{arch} does not have it, it needs sm_{needed} or later" if _version(arch) < needed else None


WARP = 32

REGISTERS_PER_THREAD, REGISTER_UNIT, WARP_UNIT, SHARED_UNIT = 255, 256, 4, 128
"""Most registers of a thread; the units in which registers are given to a warp, warps to the four schedulers, and bytes
of shared memory to a block."""


@dataclass(frozen=True)
class Occupancy:
    """Resident blocks a multiprocessor, resident warps as a fraction of the most there can be, and what runs out
    first.

    Clusters are not considered: they can only lower what is given here. `blocks` is 0 for a launch that cannot run."""

    blocks: int
    fraction: float
    limiter: str


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """Limits of one device; memory in bytes."""

    name: str
    arch: str
    sm_count: int
    max_threads_per_block: int = 1024
    max_block: tuple[int, int, int] = (1024, 1024, 64)
    max_grid: tuple[int, int, int] = (2**31 - 1, 65535, 65535)
    max_cluster_blocks: int = PORTABLE_CLUSTER
    shared_per_block: int = 232_448
    shared_per_sm: int = 233_472
    shared_reserved_per_block: int = 1024
    max_warps_per_sm: int = 64
    max_blocks_per_sm: int = 32
    registers_per_sm: int = 65_536
    max_parameter_bytes: int = 32_764

    def occupancy(self, threads: int, shared_bytes: int, registers: int | None = None) -> Occupancy:
        """Theoretical occupancy of a kernel with so many `threads` and `shared_bytes`, static and dynamic, a block, and
        `registers` a thread; unknown register counts do not limit."""
        warps = -(-threads // WARP)
        for excess, limiter in (
            (threads > self.max_threads_per_block, f"more than {self.max_threads_per_block} threads a block"),
            ((registers or 0) > REGISTERS_PER_THREAD, f"more than {REGISTERS_PER_THREAD} registers a thread"),
            (shared_bytes > self.shared_per_block, f"more than {self.shared_per_block} bytes of shared memory a block"),
        ):
            if excess:
                return Occupancy(0, 0.0, limiter)
        fits = {"warps": self.max_warps_per_sm // warps, "blocks": self.max_blocks_per_sm}
        if registers:
            warp_registers = -(-registers * WARP // REGISTER_UNIT) * REGISTER_UNIT
            fits["registers"] = self.registers_per_sm // warp_registers // WARP_UNIT * WARP_UNIT // warps
        if block_shared := -(-(shared_bytes + self.shared_reserved_per_block) // SHARED_UNIT) * SHARED_UNIT:
            fits["shared memory"] = self.shared_per_sm // block_shared
        blocks = min(fits.values())
        limiter = " and ".join(name for name, most in fits.items() if most == blocks)
        return Occupancy(blocks, blocks * warps / self.max_warps_per_sm, limiter)

    def blocks_per_sm(self, threads: int, shared_bytes: int, registers_per_thread: int | None = None) -> int:
        """Blocks that one multiprocessor holds, at least one."""
        return max(1, self.occupancy(threads, shared_bytes, registers_per_thread).blocks)

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
            *("NVIDIA T4", "sm_75", 40),
            max_cluster_blocks=1,
            shared_per_block=65_536,
            shared_per_sm=65_536,
            shared_reserved_per_block=0,
            max_warps_per_sm=32,
            max_blocks_per_sm=16,
        ),
        DeviceLimits(
            "NVIDIA A100", "sm_80", 108, max_cluster_blocks=1, shared_per_block=166_912, shared_per_sm=167_936
        ),
        replace(_SMALL, name="NVIDIA RTX 3090", arch="sm_86", sm_count=82, max_cluster_blocks=1, max_blocks_per_sm=16),
        DeviceLimits(
            *("NVIDIA Jetson AGX Orin", "sm_87", 16),
            max_cluster_blocks=1,
            shared_per_block=166_912,
            shared_per_sm=167_936,
            max_warps_per_sm=48,
            max_blocks_per_sm=16,
        ),
        replace(_SMALL, name="NVIDIA RTX 4090", arch="sm_89", sm_count=128, max_cluster_blocks=1, max_blocks_per_sm=24),
        H200,
        DeviceLimits("NVIDIA B200", "sm_100", 148),
        DeviceLimits("NVIDIA B300", "sm_103", 148),
        DeviceLimits("NVIDIA Thor", "sm_110", 20, max_warps_per_sm=48, max_blocks_per_sm=24),
        replace(_SMALL, name="NVIDIA RTX 5090", arch="sm_120", sm_count=170, max_blocks_per_sm=24),
        replace(_SMALL, name="NVIDIA GB10", arch="sm_121", sm_count=48, max_blocks_per_sm=24),
    )
}
"""A device of each architecture, by the architecture without a suffix."""

BY_CAPABILITY = {int(arch.removeprefix("sm_")): limits for arch, limits in DEVICES.items()}
"""The same by compute capability times ten."""


@lru_cache(maxsize=64)
def limits_of(arch: str) -> DeviceLimits:
    """The limits of a device of the architecture, such as ``sm_80`` or ``sm_90a``."""
    return replace(DEVICES[arch.rstrip("af")], arch=arch)

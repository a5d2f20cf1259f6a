"""Theoretical occupancy: how many blocks of a kernel fit on one multiprocessor, and what limits them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..model.launch import ceil_div
from ..model.problem import Problem
from ..model.results import Resources
from ..model.stage import Stage
from .compiler import compile_stage

WARP = 32
KIB = 1024


@dataclass(frozen=True)
class Limits:
    """What one multiprocessor holds: warps, blocks, 32-bit registers, bytes of shared memory.

    Registers are given to a warp in units of `register_unit`, warps in groups of `warp_unit` (one for each of the four
    schedulers), shared memory to a block in units of `shared_unit` plus `shared_reserved` bytes of the system's own.
    """

    warps: int
    blocks: int
    shared: int
    shared_per_block: int
    registers: int = 65536
    registers_per_thread: int = 255
    threads_per_block: int = 1024
    register_unit: int = 256
    warp_unit: int = 4
    shared_unit: int = 128
    shared_reserved: int = KIB


LIMITS = {
    80: Limits(64, 32, 164 * KIB, 163 * KIB),
    86: Limits(48, 16, 100 * KIB, 99 * KIB),
    87: Limits(48, 16, 164 * KIB, 163 * KIB),
    89: Limits(48, 24, 100 * KIB, 99 * KIB),
    90: Limits(64, 32, 228 * KIB, 227 * KIB),
    100: Limits(64, 32, 228 * KIB, 227 * KIB),
}
"""By compute capability times ten. Source: CUDA C++ Programming Guide, technical specifications by capability."""


@dataclass(frozen=True)
class Occupancy:
    """Resident blocks a multiprocessor, resident warps as a fraction of the most there can be, and what runs out
    first.

    Clusters are not considered: they can only lower what is given here. `blocks` is 0 for a launch that cannot run.
    """

    blocks: int
    fraction: float
    limiter: str


def occupancy(registers: int, shared_bytes: int, threads: int, architecture: int = 90) -> Occupancy:
    """Theoretical occupancy of a kernel.

    `registers` a thread, `shared_bytes` a block (static plus dynamic), `threads` a block, `architecture` the compute
    capability times ten. Raises ValueError for an architecture whose limits are not known.
    """
    if architecture not in LIMITS:
        known = ", ".join(f"{a / 10:.1f}" for a in LIMITS)
        raise ValueError(f"no limits are known for compute capability {architecture / 10:.1f}; known are {known}")
    m = LIMITS[architecture]
    warps = ceil_div(threads, WARP)
    for excess, limiter in (
        (threads > m.threads_per_block, f"more than {m.threads_per_block} threads a block"),
        (registers > m.registers_per_thread, f"more than {m.registers_per_thread} registers a thread"),
        (shared_bytes > m.shared_per_block, f"more than {m.shared_per_block} bytes of shared memory a block"),
    ):
        if excess:
            return Occupancy(0, 0.0, limiter)
    fits = {"warps": m.warps // warps, "blocks": m.blocks}
    if registers:
        warp_registers = ceil_div(registers * WARP, m.register_unit) * m.register_unit
        fits["registers"] = m.registers // warp_registers // m.warp_unit * m.warp_unit // warps
    block_shared = ceil_div(shared_bytes + m.shared_reserved, m.shared_unit) * m.shared_unit
    fits["shared memory"] = m.shared // block_shared
    blocks = min(fits.values())
    limiter = " and ".join(name for name, most in fits.items() if most == blocks)
    return Occupancy(blocks, blocks * warps / m.warps, limiter)


def resources(stage: Stage[Any], problem: Problem, architecture: int | None = None) -> list[Resources]:
    """What each kernel takes that the stage launches for `problem`, in launch order; on its machine where no
    `architecture` is given.

    Raises CompileError, CompilerUnavailable, OSError as `compile_stage` does, and ValueError for an architecture
    whose limits are not known.
    """
    architecture = architecture or stage.home.architecture
    compiled = compile_stage(stage, problem, architecture)
    found = []
    for launch in stage.plan(problem).launches:
        usage = compiled.usage[launch.kernel]
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        fit = occupancy(usage.registers, usage.static_shared + launch.shared_bytes, threads, architecture)
        found.append(
            Resources(
                variant=compiled.variant,
                kernel=launch.kernel,
                registers=usage.registers,
                static_shared=usage.static_shared,
                dynamic_shared=launch.shared_bytes,
                spill_bytes=usage.spill_bytes,
                block_threads=threads,
                blocks_per_sm=fit.blocks,
                occupancy=fit.fraction,
                limiter=fit.limiter,
            )
        )
    return found


def suite_resources(stage: Stage[Any], problems: tuple[Problem, ...]) -> list[Resources]:
    """`resources` of every variant that the supported ones of `problems` need, each variant once."""
    found: list[Resources] = []
    for problem in problems:
        if stage.supports(problem) is None:
            found += [r for r in resources(stage, problem) if r not in found]
    return found

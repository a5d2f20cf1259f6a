"""Theoretical occupancy: how many blocks of a kernel fit on one multiprocessor, and what limits them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..emulator.architectures import BY_CAPABILITY
from ..model.launch import ceil_div
from ..model.problem import Problem
from ..model.results import Resources
from ..model.stage import Stage
from .compiler import compile_stage

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


def occupancy(registers: int, shared_bytes: int, threads: int, architecture: int = 90) -> Occupancy:
    """Theoretical occupancy of a kernel.

    `registers` a thread, `shared_bytes` a block (static plus dynamic), `threads` a block, `architecture` the compute
    capability times ten. Raises ValueError for an architecture whose limits are not known."""
    if architecture not in BY_CAPABILITY:
        known = ", ".join(f"{a / 10:.1f}" for a in BY_CAPABILITY)
        raise ValueError(f"no limits are known for compute capability {architecture / 10:.1f}; known are {known}")
    m = BY_CAPABILITY[architecture]
    warps = ceil_div(threads, WARP)
    for excess, limiter in (
        (threads > m.max_threads_per_block, f"more than {m.max_threads_per_block} threads a block"),
        (registers > REGISTERS_PER_THREAD, f"more than {REGISTERS_PER_THREAD} registers a thread"),
        (shared_bytes > m.shared_per_block, f"more than {m.shared_per_block} bytes of shared memory a block"),
    ):
        if excess:
            return Occupancy(0, 0.0, limiter)
    fits = {"warps": m.max_warps_per_sm // warps, "blocks": m.max_blocks_per_sm}
    if registers:
        warp_registers = ceil_div(registers * WARP, REGISTER_UNIT) * REGISTER_UNIT
        fits["registers"] = m.registers_per_sm // warp_registers // WARP_UNIT * WARP_UNIT // warps
    if block_shared := ceil_div(shared_bytes + m.shared_reserved_per_block, SHARED_UNIT) * SHARED_UNIT:
        fits["shared memory"] = m.shared_per_sm // block_shared
    blocks = min(fits.values())
    limiter = " and ".join(name for name, most in fits.items() if most == blocks)
    return Occupancy(blocks, blocks * warps / m.max_warps_per_sm, limiter)


def resources(stage: Stage[Any], problem: Problem, architecture: int | None = None) -> list[Resources]:
    """What each kernel takes that the stage launches for `problem`, in launch order; on its machine where no
    `architecture` is given.

    Raises CompileError, CompilerUnavailable, OSError as `compile_stage` does, and ValueError for an architecture
    whose limits are not known."""
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

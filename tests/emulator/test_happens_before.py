"""Races are found where nothing orders two accesses, and only there: random programs against the definition.

`WORKBENCH_FUZZ=20000` draws as many programs; the usual number takes seconds.
"""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
import random_programs as rp
from happens_before import Done, by_warp, without_races
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from program_text import ptx_of
from random_programs import Program as Drawn

from workbench.emulator import Finding, FindingKind, KernelFault, Memory, Program, execute

SEEDS = (0, 1, 2)
LOWER, UPPER = 0xFFFF, 0xFFFF0000

masks = st.sampled_from((rp.WARP_MASK, 1, 1 << 5, LOWER, UPPER, 0x21))
mostly = st.sampled_from((True, True, False))
scopes = st.sampled_from((*rp.SCOPES, "gpu"))


@st.composite
def accesses(draw: st.DrawFn, warps: int, cluster: bool) -> rp.Access:
    kind = draw(st.sampled_from(("load", "store", "load", "store", "atomic", "copy")))
    space = "shared" if kind == "copy" else draw(st.sampled_from(("shared", "shared", "global")))
    if (kind, space) == ("load", "global") and draw(st.booleans()):
        kind = "read"
    words = 1 if kind == "atomic" else draw(st.sampled_from((1, 1, 1, 2, 4)))
    stride = words if kind == "copy" else draw(st.sampled_from((words, words, 0)))
    base, turn = draw(st.sampled_from((0, 0, 4, 16, 32))), draw(st.sampled_from((0, 0, 1, 16)))
    peer = cluster and space == "shared" and kind != "copy" and draw(st.booleans())
    scope = draw(scopes) if kind == "atomic" else "gpu"
    return rp.Access(draw(st.integers(0, warps - 1)), kind, space, draw(masks), base, words, stride, turn, peer, scope)


@st.composite
def bulk_copies(draw: st.DrawFn, warps: tuple[int, ...], mbarrier: int) -> rp.Fetch | rp.Drain:
    base, words = draw(st.sampled_from((0, 4, 16, 32))), draw(st.sampled_from((4, 8, 32)))
    access = rp.Access(
        draw(st.sampled_from(warps)), "", "shared", draw(st.sampled_from((1, 1 << 5))), base, words, 0, 0
    )
    if draw(st.booleans()):
        return rp.Drain(replace(access, kind="drain"))
    return rp.Fetch(replace(access, kind="fetch"), mbarrier, draw(st.sampled_from(warps)), draw(masks))


@st.composite
def programs(draw: st.DrawFn) -> Drawn:
    blocks, size = draw(st.sampled_from(((1, 2), (1, 3), (2, 1), (2, 2))))
    warps, cluster = blocks * size, blocks == 2 and draw(st.booleans())
    arrived = False
    operations: list[rp.Operation] = []
    kinds = (
        "access",
        "access",
        "access",
        "bulk",
        "wait",
        "warp",
        "fence",
        "barrier",
        "flag",
        "mbarrier",
        *["cluster"] * 2,
    )
    for number in range(draw(st.integers(2, 24))):
        block, warp = draw(st.integers(0, blocks - 1)), draw(st.integers(0, warps - 1))
        inside = tuple(range(block * size, (block + 1) * size))
        match draw(st.sampled_from(kinds)):
            case "access":
                operations.append(draw(accesses(warps, cluster)))
            case "bulk":
                operations.append(draw(bulk_copies(inside, number)))
            case "wait":
                pending = draw(st.sampled_from((0, 0, 1)))
                wait = draw(st.sampled_from((rp.CopyWait(warp, pending), rp.DrainWait(warp, pending))))
                operations.append(replace(wait, read=draw(st.booleans())) if isinstance(wait, rp.DrainWait) else wait)
            case "warp":
                operations.append(rp.WarpSync(warp, draw(masks)))
            case "fence":
                operations.append(rp.Fence(warp, draw(masks), draw(scopes)))
            case "barrier" if (barriers := sum(isinstance(o, rp.Barrier) for o in operations)) < 15:
                group = tuple(draw(st.permutations(inside))[: draw(st.integers(1, size))])
                arriving = draw(st.integers(0, len(group) - 1))
                operations.append(rp.Barrier(barriers + 1, group[:arriving], group[arriving:]))
            case "flag" if warps > 1:
                source, target = draw(st.permutations(range(warps)))[:2]
                near = source // size == target // size
                space = draw(st.sampled_from(("shared", "global"))) if near else "global"
                asked = draw(scopes), draw(scopes)
                operations.append(
                    rp.Flag(number, space, source, draw(masks), target, draw(masks), draw(mostly), draw(mostly), asked)
                )
            case "cluster" if cluster:
                everyone = tuple(range(warps))
                operations.append(rp.ClusterWait(everyone) if arrived else rp.ClusterArrive(everyone, draw(mostly)))
                arrived = not arrived
            case "mbarrier" if size > 1 or cluster:
                among = tuple(range(warps)) if cluster else inside
                target, *sources = draw(st.permutations(among))[: draw(st.integers(2, len(among)))]
                operations.append(
                    rp.Mbarrier(number, tuple(sources), draw(masks), target, draw(masks), draw(mostly), draw(mostly))
                )
    if arrived:
        operations.append(rp.ClusterWait(tuple(range(warps))))
    return Drawn(blocks, size, tuple(operations), cluster)


def drawn(examples: int) -> settings:
    chosen = os.environ.get("WORKBENCH_FUZZ")
    return settings(
        max_examples=int(chosen or examples),
        deadline=None,
        derandomize=chosen is None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def hazard_of(program: Drawn, seed: int) -> Finding | None:
    entry, memory = Program.from_ptx(ptx_of(program), "p.cu").entries["k"], Memory()
    length = len(program.operations) + 1
    sizes = {"words": rp.WORDS, "flags": program.rooms, "source": rp.LANES * length}
    arguments = [memory.upload(np.zeros(size, np.uint32), name) for name, size in sizes.items()]
    grid, block = program.blocks, program.warps * rp.LANES
    try:
        cluster = 2 if program.cluster else 1
        execute(
            entry,
            grid,
            block,
            arguments,
            memory=memory,
            seed=seed,
            max_warp_instructions=400_000,
            cluster=cluster,
            strict=True,
        )
    except KernelFault as fault:
        return fault.finding
    return None


def must_be_found(program: Drawn) -> bool:
    """Whether there is a race besides those that docs/emulator.md says are not all seen."""
    clocks, arrivals = by_warp(program), by_warp(program, by_arrival=True)
    readers: dict[rp.Place, set[int]] = {}
    for operation in program.operations:
        for access in rp.accesses_of(operation):
            if access.kind in ("load", "drain", "atomic"):
                for lane in rp.lanes_of(access.lanes):
                    for cell in access.cells(lane):
                        readers.setdefault(clocks.place(access, cell), set()).add(access.warp)
    for number, operation in enumerate(program.operations):
        racing = isinstance(operation, rp.Flag) and not program.is_strong(operation)
        if racing and clocks.apart.isdisjoint(operation.warps):  # else lanes may be so far ahead that it has been told
            return True
        for access in rp.accesses_of(operation):
            for before, lane, place in clocks.races(number, access):
                if counts(before, access, lane, len(readers.get(place, ()))):
                    return True
            for before, _, _ in arrivals.races(number, access):
                if told_by_lockstep(before, access):
                    return True
        clocks.perform(number, operation)
        arrivals.perform(number, operation)
    return False


def told_by_lockstep(before: Done, access: rp.Access) -> bool:
    """Whether an access that only an arrival by other lanes tells of must be found: where its lane is kept."""
    apart = before.access.words <= before.access.stride
    return apart and before.access.kind == "store" and access.kind in ("load", "store") and not access.copies


def counts(before: Done, access: rp.Access, lane: int, readers: int) -> bool:
    """Whether two accesses that race must be found: of those within a warp, not all."""
    if before.access.warp != access.warp or "read" in (before.access.kind, access.kind) or before.access.kind == "put":
        return True
    if before.access.together or access.together:
        return False
    if before.access.kind == "load" and access.kind == "copy":
        return readers == 1
    if before.access.kind == "copy" or access.kind == "copy":
        return before.access.kind != "copy" or before.lane != lane
    if before.access.kind == "store" and access.kind in ("store", "put"):
        return True
    return readers == 1


def in_global(kind: str, lanes: int = rp.WARP_MASK, stride: int = 1, turn: int = 0) -> rp.Access:
    return rp.Access(0, kind, "global", lanes, 0, 1, stride, turn)


def shared(kind: str, warp: int, lanes: int, base: int = 0, stride: int = 0) -> rp.Access:
    return rp.Access(warp, kind, "shared", lanes, base, 1, stride, 0)


def each(kind: str, turn: int = 0, warp: int = 0) -> rp.Access:
    return rp.Access(warp, kind, "shared", rp.WARP_MASK, 0, 1, 1, turn, scope="cta")


def bulk(kind: str, warp: int, base: int, words: int) -> rp.Access:
    return rp.Access(warp, kind, "shared", 1, base, words, 0, 0)


@pytest.mark.long
@drawn(150)
@example(  # lanes come to a barrier one after the other, and the warp arrives once
    Drawn(
        1,
        3,
        (
            rp.Mbarrier(0, (1, 2), rp.WARP_MASK, 0, 1, True, True),
            rp.Flag(1, "shared", 1, UPPER, 2, LOWER, True, True),
            rp.Barrier(1, (0,), (1, 2)),
        ),
    )
)
@example(  # lanes that have met go on together
    Drawn(1, 2, (rp.Flag(0, "shared", 1, 1, 0, 1, True, True), shared("store", 0, rp.WARP_MASK)))
)
@example(Drawn(1, 1, (in_global("atomic"), in_global("store"))))  # each lane its own element
@example(Drawn(1, 1, (in_global("load", LOWER, 0), rp.WarpSync(0, LOWER), in_global("store", 1, 0))))
@example(  # of the lanes of a warp these have read, and these have met
    Drawn(1, 1, (shared("load", 0, 0x21), rp.WarpSync(0, 0x21), shared("store", 0, 1)))
)
@given(programs())
def test_a_program_without_races_has_no_finding(program: Drawn) -> None:
    right, _ = without_races(program)
    for seed in SEEDS:
        hazard = hazard_of(right, seed)
        assert hazard is None, f"{hazard}\n{right}"


@pytest.mark.long
@drawn(150)
@example(Drawn(1, 1, (shared("atomic", 0, rp.WARP_MASK), shared("store", 0, 1 << 5))))
@example(  # to wait for others is not to meet
    Drawn(1, 2, (shared("store", 0, 1), rp.Mbarrier(0, (1,), 1, 0, rp.WARP_MASK, True, True), shared("load", 0, 2)))
)
@example(  # a relaxed arrival at the cluster's barrier says nothing, not to lanes of the same warp either
    Drawn(
        2,
        1,
        (
            rp.Fetch(bulk("fetch", 0, 0, 4), 0, 0, 1 << 5),
            rp.ClusterArrive((0, 1), False),
            rp.ClusterWait((0, 1)),
            rp.Drain(bulk("drain", 0, 0, 4)),
        ),
        cluster=True,
    )
)
@example(  # what is done between the arrival and the wait is not told there
    Drawn(
        2,
        1,
        (rp.ClusterArrive((0, 1), True), shared("store", 0, 1), rp.ClusterWait((0, 1)), shared("load", 0, 2)),
        cluster=True,
    )
)
@example(  # shared memory of the other block
    Drawn(2, 1, (shared("load", 1, rp.WARP_MASK), replace(shared("store", 0, 1), peer=True)), cluster=True)
)
@example(  # lanes that have exited have not met those that come later
    Drawn(1, 2, (shared("load", 1, 1), rp.Mbarrier(0, (0,), 1, 1, UPPER, True, True), shared("store", 1, 1 << 27)))
)
@example(  # a copy that has landed says nothing of what its warp has done since
    Drawn(
        1,
        2,
        (
            rp.Fetch(bulk("fetch", 0, 32, 32), 0, 1, LOWER),
            rp.Fetch(bulk("fetch", 1, 16, 32), 1, 1, rp.WARP_MASK),
            shared("atomic", 0, LOWER, 16, 1),
        ),
    )
)
@example(  # an arrival tells of what its own lane has done
    Drawn(1, 2, (each("store"), rp.Mbarrier(0, (0,), 1, 1, rp.WARP_MASK, True, True), each("load", warp=1)))
)
@example(  # a barrier is no fence for what another block has been polled for
    Drawn(
        2,
        1,
        (
            rp.Access(0, "store", "global", 1, 0, 1, 0, 0),
            rp.Flag(0, "global", 0, 1, 1, 1, True, False),
            rp.Barrier(1, (), (1,)),
            rp.Access(1, "load", "global", 2, 0, 1, 0, 0),
        ),
    )
)
@example(  # lanes are kept of an update after a barrier, where what has been read before stays, too
    Drawn(2, 1, (each("load"), rp.Barrier(1, (), (0,)), each("atomic"), each("load"), each("load", 1)))
)
@example(Drawn(1, 1, (in_global("load", LOWER, 0), in_global("atomic", 1))))  # of the lanes that have read, one updates
@example(Drawn(1, 1, (in_global("atomic"), in_global("load", turn=1))))
@example(Drawn(1, 1, (each("atomic"), rp.WarpSync(0, rp.WARP_MASK), each("load"), each("store", 1))))  # and of a read
@given(programs())
def test_a_race_is_found_at_its_line(program: Drawn) -> None:
    _, racing = without_races(program)
    for number in racing[:3]:
        kept = [o for k, o in enumerate(program.operations) if k == number or k not in racing]
        line = number - sum(k < number for k in racing) + 1
        wrong = replace(program, operations=tuple(kept))
        needed = must_be_found(wrong)
        for seed in SEEDS:
            hazard = hazard_of(wrong, seed)
            if hazard is None:
                assert not needed, f"the race of line {line} is missed, seed {seed}: {wrong}"
                continue
            assert hazard.kind in (FindingKind.RACE, FindingKind.IN_FLIGHT), f"{hazard}\n{wrong}"
            lines = [where.line for where in (hazard.location, hazard.other) if where]
            assert line in lines, f"{hazard}\nline {line} of {wrong}"

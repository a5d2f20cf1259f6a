"""Races between launches are found where the definition has them, and only there: random programs of two and three.

`WORKBENCH_FUZZ=20000` draws as many; the usual number takes seconds.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from happens_before import Ends, by_warp, performed, without_races
from hypothesis import example, given
from hypothesis import strategies as st
from program_text import ptx_of
from random_programs import (
    LANES,
    WARP_MASK,
    WORDS,
    Access,
    Barrier,
    Drain,
    Fence,
    Flag,
    GridWait,
    Launches,
    Operation,
    Trigger,
    WarpSync,
)
from random_programs import Program as Drawn
from test_happens_before import SEEDS, counts, drawn, masks, mostly, scopes

from workbench.emulator import Finding, FindingKind, Memory, Program
from workbench.emulator.execution import prepare, run
from workbench.emulator.launch_checks import Port


@st.composite
def accesses(draw: st.DrawFn, warps: int) -> Access:
    kind = draw(st.sampled_from(("load", "store", "load", "store", "atomic", "read")))
    words = 1 if kind == "atomic" else draw(st.sampled_from((1, 1, 2)))
    stride, base = draw(st.sampled_from((words, words, 0))), draw(st.sampled_from((0, 0, 4, 16)))
    scope = draw(scopes) if kind == "atomic" else "gpu"
    warp = draw(st.integers(0, warps - 1))
    return Access(warp, kind, "global", draw(masks), base, words, stride, 0, scope=scope)


@st.composite
def programs(draw: st.DrawFn) -> Drawn:
    blocks, size = draw(st.sampled_from(((1, 2), (2, 1), (2, 2))))
    warps, operations = blocks * size, list[Operation]()
    triggers = draw(st.booleans())
    kinds = ("access", "access", "access", "wait", "wait", "warp", "fence", "barrier", "flag", "drain", "trigger")
    for number in range(draw(st.integers(1, 8))):
        block, warp = draw(st.integers(0, blocks - 1)), draw(st.integers(0, warps - 1))
        match draw(st.sampled_from(kinds)):
            case "access":
                operations.append(draw(accesses(warps)))
            case "wait":
                everyone = range(warps) if draw(st.booleans()) else (warp,)
                operations += [GridWait(one, draw(masks) if len(everyone) == 1 else WARP_MASK) for one in everyone]
            case "trigger" if triggers:
                for one in range(0, warps, size):  # by lanes that have met
                    operations += [WarpSync(one, WARP_MASK), Trigger(one)]
                triggers = False  # of several in a block, which comes first depends on the order of warps
            case "warp":
                operations.append(WarpSync(warp, draw(masks)))
            case "fence":
                operations.append(Fence(warp, draw(masks), draw(scopes)))
            case "drain":
                operations.append(Drain(Access(warp, "drain", "shared", 1, draw(st.sampled_from((0, 16))), 4, 0, 0)))
            case "barrier" if size > 1:
                inside = tuple(range(block * size, (block + 1) * size))
                operations.append(Barrier(sum(isinstance(o, Barrier) for o in operations) + 1, (), inside))
            case "flag" if warps > 1:
                source, target = draw(st.permutations(range(warps)))[:2]
                asked = draw(masks), target, draw(masks), draw(mostly), draw(mostly)
                operations.append(Flag(number, "global", source, *asked, (draw(scopes), draw(scopes))))
    return Drawn(blocks, size, tuple(operations))


@st.composite
def launches(draw: st.DrawFn) -> Launches:
    edges = st.sampled_from((None, *3 * (Port.TRIGGERED,), Port.ENDED, Port.BEGUN, Port.BEGUN_ONLY))
    count = draw(st.sampled_from((2, 2, 3)))
    after = [[(before, edge) for before in range(k) if (edge := draw(edges)) is not None] for k in range(count)]
    if count == 3 and draw(st.booleans()):
        after[2] = [edge for edge in after[2] if edge[0] == 1]  # a chain, where nothing is said of the first
    return Launches(tuple(draw(programs()) for _ in range(count)), tuple(map(tuple, after)))


def hazards_of(drawn_launches: Launches, seed: int) -> list[tuple[int, Finding]]:
    """The first findings, each with the number of the launch that it is about."""
    memory, prepared = Memory(), []
    words, source = (memory.upload(np.zeros(WORDS, np.uint32), name) for name in ("words", "source"))
    for number, program in enumerate(drawn_launches.programs):
        text = ptx_of(program).replace('"p.cu"', f'"p{number}.cu"')
        entry = Program.from_ptx(text, f"p{number}.cu").entries["k"]
        arguments = [words, memory.upload(np.zeros(program.rooms, np.uint32), f"flags {number}"), source]
        threads = program.warps * LANES
        one = prepare(entry, program.blocks, threads, arguments, memory=memory, seed=seed, strict=True)
        one.after = drawn_launches.after[number]
        prepared.append(one)
    return [(number, f) for number, statistics in enumerate(run(prepared)) for f in statistics.findings]


def right_ones(drawn_launches: Launches) -> tuple[Launches, list[tuple[int, int]]]:
    """The launches without the accesses that race, and launch and number of each of these."""
    ends, kept, racing = Ends(drawn_launches), list[Drawn](), list[tuple[int, int]]()
    for number, program in enumerate(drawn_launches.programs):
        right, left_out = without_races(program, **ends.told())
        racing += [(number, operation) for operation in left_out]
        kept.append(right)
        clocks = by_warp(right, **ends.told())
        for _ in performed(right, clocks):
            pass
        ends.ended(clocks)
    return replace(drawn_launches, programs=tuple(kept)), racing


def must_be_found(drawn_launches: Launches) -> bool:
    """Whether two launches race, by what lanes hand on for their warp."""
    ends = Ends(drawn_launches)
    for program in drawn_launches.programs:
        clocks = by_warp(program, **ends.told())
        races = performed(program, clocks)
        if any(before.foreign or counts(before, access, lane, 2) for _, access, before, lane, _ in races):
            return True
        ends.ended(clocks)
    return False


def stored(warp: int = 0, lanes: int = WARP_MASK) -> Access:
    return Access(warp, "store", "global", lanes, 0, 1, 1, 0)


def pair(first: tuple[Operation, ...], second: tuple[Operation, ...], port: Port = Port.TRIGGERED) -> Launches:
    return Launches((Drawn(1, 2, first), Drawn(1, 2, second)), ((), ((0, port),)))


WAIT = GridWait(0, WARP_MASK)
CHAIN = Launches(
    (Drawn(1, 1, (stored(),)), Drawn(1, 1, (Trigger(0),)), Drawn(1, 1, (WAIT, stored()))),
    ((), ((0, Port.TRIGGERED),), ((1, Port.TRIGGERED),)),
)


@pytest.mark.long
@drawn(100)
@example(pair((Trigger(0), stored()), (WAIT, Barrier(1, (), (0, 1)), stored(1))))
@example(pair((stored(),), (WAIT, stored()), Port.BEGUN))
@example(replace(CHAIN, after=((), ((0, Port.ENDED),), ((1, Port.BEGUN_ONLY),))))  # which begins behind the first
@example(pair((Trigger(0), stored()), (WAIT, Flag(0, "global", 0, 1, 1, WARP_MASK, True, True), stored(1))))
@example(  # the middle one waits at its end only, and so ends after the first
    replace(CHAIN, programs=(CHAIN.programs[0], Drawn(1, 1, (Trigger(0), WAIT)), CHAIN.programs[2]))
)
@given(launches())
def test_launches_without_races_have_no_finding(drawn_launches: Launches) -> None:
    right, _ = right_ones(drawn_launches)
    for seed in SEEDS:
        hazards = hazards_of(right, seed)
        assert not hazards, f"{hazards[0][1]}\n{right}"


@pytest.mark.long
@drawn(100)
@example(pair((Trigger(0), stored()), (stored(),)))
@example(pair((stored(),), (WAIT, stored(1))))  # another warp's wait
@example(pair((stored(),), (WAIT, stored()), Port.BEGUN_ONLY))
@example(pair((stored(),), (GridWait(0, 1), stored())))  # another lane's
@example(CHAIN)
@given(launches())
def test_a_race_of_launches_is_found_at_its_line(drawn_launches: Launches) -> None:
    _, racing = right_ones(drawn_launches)
    for launch, number in racing[:3]:
        programs_left = []
        for k, program in enumerate(drawn_launches.programs):
            out = {operation for other, operation in racing if other == k and (k, operation) != (launch, number)}
            programs_left.append(
                replace(program, operations=tuple(o for i, o in enumerate(program.operations) if i not in out))
            )
        line = number - sum(k == launch and operation < number for k, operation in racing) + 1
        wrong = replace(drawn_launches, programs=tuple(programs_left))
        needed = must_be_found(wrong)
        for seed in SEEDS:
            hazards = hazards_of(wrong, seed)
            if not hazards:
                assert not needed, f"the race of line {line} of launch {launch} is missed, seed {seed}: {wrong}"
                continue
            _, hazard = hazards[0]
            assert hazard.kind is FindingKind.RACE, f"{hazard}\n{wrong}"
            places = [f"{where.file}:{where.line}" for where in (hazard.location, hazard.other) if where]
            assert f"p{launch}.cu:{line}" in places, f"{hazard}\nline {line} of launch {launch} of {wrong}"

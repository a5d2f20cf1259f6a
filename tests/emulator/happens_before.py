"""Which accesses of a random program race by definition: a clock a thread, and what hands it over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import random_programs as rp

from workbench.emulator.launch_checks import Port

READS = ("load", "read", "drain")


@dataclass(frozen=True)
class Done:
    """An access that has been made: by whom (a thread, or a copy on its way), when, and what its thread knew.

    One of an earlier launch has no number, and the end of that launch as its agent.
    """

    number: int
    access: rp.Access
    lane: int
    agent: int
    time: int
    knew: rp.Times

    @property
    def foreign(self) -> bool:
        return self.number < 0


NOTHING: rp.Times = np.zeros(0, np.int32)


@dataclass
class Clocks:
    """Vector clocks of all threads, and of every copy: what each knows of what the others have done.

    With `by_warp` a lane hands on what all lanes of its warp know and have put before a fence, and a barrier is a fence
    for what was read before it, but for what has been polled of another block, which it leaves to a fence behind it. Of
    a warp that is `apart` lanes may be ahead of the one that hands on, and what they have done counts as told, too:
    `ahead` holds what warps know before each operation, and at the end. With `by_arrival`, an arrival at an mbarrier
    tells of other lanes of the warp only what the arriving one knows, or what has been told before.

    Of several launches, the end of each is an agent, too, the last ones: who knows it comes after all of the launch.
    The threads know of `begun` ends at first, and of `waited` ones by griddepcontrol.wait. `earlier` has what those
    launches have done, with the numbers of these as agents.
    """

    program: rp.Program
    by_warp: bool = False
    by_arrival: bool = False
    ahead: Sequence[rp.Times] = ()
    begun: rp.Times = field(default_factory=lambda: NOTHING)
    waited: rp.Times = field(default_factory=lambda: NOTHING)
    earlier: Mapping[rp.Place, Sequence[Done]] = field(default_factory=dict)
    known: rp.Times = field(init=False)
    fenced: dict[str, rp.Times] = field(init=False)
    unfenced: dict[str, rp.Times] = field(init=False)  # what a fence of that scope takes, at least
    copies: dict[tuple[int, str], list[dict[int, int]]] = field(default_factory=dict)
    done: dict[rp.Place, list[Done]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        threads = self.program.blocks * self.program.warps * rp.LANES
        copies = sum(access.copies for o in self.program.operations for access in rp.accesses_of(o))
        self.first_end = threads + copies * rp.LANES
        self.known = np.zeros((threads, self.first_end + len(self.begun)), np.int32)
        self.known[:, self.first_end :] = self.begun
        self.triggered: dict[int, rp.Times] = {}
        for place, before in self.earlier.items():
            self.done[place] = [replace(one, agent=self.first_end + one.agent) for one in before]
        self.known[np.arange(threads), np.arange(threads)] = 1
        self.told = np.zeros(threads, np.int32)  # up to when somebody has told of each thread
        self.fenced = {scope: np.zeros_like(self.known) for scope in rp.SCOPES}
        self.unfenced = {scope: np.zeros_like(self.known) for scope in rp.SCOPES}
        self.next_copy = threads
        self.number = 0
        self.time = [1] * (self.program.blocks * self.program.warps)
        self.before: list[rp.Times] = []
        self.apart: set[int] = set()
        self.arrived: rp.Times = np.zeros_like(self.known[0])

    def of_warps(self) -> rp.Times:
        """What some lane or other of each warp knows."""
        return self.known.reshape(-1, rp.LANES, self.known.shape[1]).max(axis=1)

    def threads(self, warp: int, mask: int = rp.WARP_MASK) -> list[int]:
        return [warp * rp.LANES + lane for lane in rp.lanes_of(mask)]

    def races(self, number: int, access: rp.Access) -> list[tuple[Done, int, rp.Place]]:
        """What has been done that is not ordered before a lane's part of this access, and conflicts."""
        threads = self.threads(access.warp)
        known = self.known[threads]
        if self.by_warp and (access.together or access.kind in ("fetch", "drain", "put")):
            known = np.maximum(known, np.max([unfenced[threads] for unfenced in self.unfenced.values()], axis=0))
        if access.together:
            known[:] = known.max(axis=0)
        return [
            (before, lane, self.place(access, cell))
            for lane in rp.lanes_of(access.lanes)
            for cell in access.cells(lane)
            for before in self.done.get(self.place(access, cell), ())
            if before.number != number and self._conflict(before, access)
            if (not before.foreign and _incoherent(before.access, access))
            or (known[lane, before.agent] < before.time and not self._told_ahead(before, access, lane))
        ]

    def _told_ahead(self, before: Done, access: rp.Access, lane: int) -> bool:
        """Whether a lane is so far ahead of others of its warp that these have told of its access before it was due."""
        if not self.by_warp or before.foreign:
            return False
        if access.copies:
            lanes = rp.lanes_of(access.lanes)
            return bool(before.knew[self.next_copy + len(lanes) * (access.kind == "put") + lanes.index(lane)])
        return bool(before.knew[access.warp * rp.LANES + lane] >= self.time[access.warp])

    def place(self, access: rp.Access, cell: int) -> rp.Place:
        block = self.program.block_of(access.warp)
        return access.space, 0 if access.space == "global" else 1 - block if access.peer else block, cell

    def _conflict(self, before: Done, b: rp.Access) -> bool:
        a = before.access
        if a.kind == b.kind == "atomic":
            if before.foreign:
                return not a.scope == b.scope == "gpu"
            return not self.program.included(a.warp, b.warp, a.scope, b.scope)
        return a.kind not in READS or b.kind not in READS

    def perform(self, number: int, operation: rp.Operation) -> None:
        self.number = number
        self.before.append(self.of_warps())
        if self.by_warp and isinstance(operation, rp.Fetch | rp.Drain):
            access = operation.access
            self._take_unfenced(self.threads(access.warp, access.lanes))  # by the proxy fence
        match operation:
            case rp.Access():
                if operation.together:
                    self._together(self.threads(operation.warp))
                self._access(number, operation)
            case rp.CopyWait(warp, pending):
                self.wait(warp, "copy", pending)
            case rp.DrainWait(warp, pending, read):
                for kind in ("drain",) if read else ("drain", "put"):
                    self.wait(warp, kind, pending)
            case rp.Drain(access):
                self._access(number, access)
                self._access(number, operation.put)
            case rp.Fetch():
                self._fetch(number, operation)
            case rp.GridWait() | rp.Trigger():
                self._grid(operation)
            case rp.WarpSync(warp, lanes):
                self._together(self.threads(warp, lanes))
            case rp.Fence(warp, lanes, scope):
                self._fence(warp, lanes, scope)
            case rp.Barrier(syncing=syncing):
                if self.by_warp:
                    self._meet_unfenced([t for warp in syncing for t in self.threads(warp)])
                everyone = [t for warp in operation.warps for t in self.threads(warp)]
                told = self.known[everyone].max(axis=0)
                self.told[everyone] = np.maximum(self.told[everyone], told[everyone])
                for warp in syncing:
                    self._learn(self.threads(warp), told)
            case rp.ClusterArrive(warps, release):
                self.arrived = np.zeros_like(self.known[0])
                for warp in warps:
                    np.maximum(self.arrived, self._told(warp, rp.WARP_MASK, release, "cluster"), out=self.arrived)
            case rp.ClusterWait(warps):
                for warp in warps:
                    self._hear(warp, rp.WARP_MASK, self.arrived, "")
            case rp.Flag():
                self._flag(operation)
            case rp.Mbarrier():
                told = np.zeros_like(self.known[0])
                for source in operation.sources:
                    scope = self.program.scope_of(source, operation.target)
                    arrived = self._told(source, operation.arriving, operation.release, scope, self.by_arrival)
                    np.maximum(told, arrived, out=told)
                self._hear(operation.target, operation.waiting, told, "" if operation.acquire else "cta")
        for warp in operation.warps:
            if rp.meets(operation, warp):
                self.apart.discard(warp)
            elif rp.takes_apart(operation, warp):
                self.apart.add(warp)
        for warp in operation.warps:  # what lanes ahead have told is not yet their own time
            self.time[warp] += 1
            threads = self.threads(warp)
            self.known[threads, threads] = self.time[warp]

    def _fetch(self, number: int, fetch: rp.Fetch) -> None:
        access = fetch.access
        self._access(number, access)
        (landed,) = self.copies[access.warp, "fetch"].pop().values()
        told = self._told(access.warp, access.lanes, True, "cta").copy()
        told[landed] = 1
        self.told[self.threads(access.warp)] = len(self.program.operations) + 1  # it may land at any time
        self._hear(fetch.target, fetch.waiting, told, "")

    def _grid(self, operation: rp.GridWait | rp.Trigger) -> None:
        """What is about other launches."""
        if isinstance(operation, rp.Trigger):
            ends = self.known[self.threads(operation.warp), self.first_end :].max(axis=0)
            self.triggered.setdefault(self.program.block_of(operation.warp), ends)
        elif self.waited.any():
            told = np.zeros_like(self.known[0])
            told[self.first_end :] = self.waited
            self._learn(self.threads(operation.warp, operation.lanes), told)

    def _access(self, number: int, access: rp.Access) -> None:
        group: dict[int, int] = {}
        for lane in rp.lanes_of(access.lanes):
            thread = access.warp * rp.LANES + lane
            agent, time, knew = thread, self.time[access.warp], self.known[thread].copy()
            if access.copies:
                agent, time = self.next_copy, 1
                self.next_copy += 1
                group[lane] = agent
            for cell in access.cells(lane):
                done = Done(number, access, lane, agent, time, knew)
                self.done.setdefault(self.place(access, cell), []).append(done)
        if access.copies:
            self.copies.setdefault((access.warp, access.kind), []).append(group)

    def wait(self, warp: int, kind: str, pending: int) -> None:
        groups = self.copies.get((warp, kind), [])
        # a group of bulk copies is of one lane; another lane's are not waited for by this one
        for lane in range(rp.LANES):
            own = groups if kind == "copy" else [group for group in groups if lane in group]
            for group in own[: len(own) - pending]:
                if lane in group:
                    self.known[warp * rp.LANES + lane, group[lane]] = 1

    def _together(self, threads: Sequence[int]) -> None:
        if self.by_warp:
            self._meet_unfenced(threads)
        self._learn(threads, self.known[threads].max(axis=0))

    def _learn(self, threads: Sequence[int], told: rp.Times) -> None:
        self.known[threads] = np.maximum(self.known[threads], told)
        if self.by_arrival:  # lanes hear back of their warp what others have heard of any of its lanes
            for thread in threads:
                own = self.threads(thread // rp.LANES)
                self.known[thread, own] = np.maximum(self.known[thread, own], told[own].max())
        if self.by_warp:  # a wait counts as a fence, too
            self._take_unfenced(threads, "cluster")

    def _meet_unfenced(self, threads: Sequence[int]) -> None:
        """At a barrier, which hands what has been polled to all of its threads, and orders it for none."""
        self._take_unfenced(threads, "cluster")
        self.unfenced["gpu"][threads] = self.unfenced["gpu"][threads].max(axis=0)

    def _take_unfenced(self, threads: Sequence[int], scope: str = "gpu") -> None:
        for reached in _up_to(scope):
            self.known[threads] = np.maximum(self.known[threads], self.unfenced[reached][threads])

    def _fence(self, warp: int, lanes: int, scope: str) -> None:
        self._take_unfenced(self.threads(warp, lanes), scope)
        threads = self.threads(warp, rp.WARP_MASK if self.by_warp else lanes)
        known = self.known[threads].max(axis=0) if self.by_warp else self.known[threads]
        for reached in _up_to(scope):
            self.fenced[reached][threads] = known

    def _told(self, warp: int, lanes: int, release: bool, scope: str, by_lane: bool = False) -> rp.Times:
        """What these lanes hand on to others of their block, their cluster, or the device."""
        if release and self.by_warp:
            self._take_unfenced(self.threads(warp, lanes))
        threads = self.threads(warp, rp.WARP_MASK if self.by_warp else lanes)
        told: rp.Times = (self.known if release else self.fenced[scope])[threads].max(axis=0)
        if self.ahead and (lanes != rp.WARP_MASK or warp in self.apart):
            again = self._together_again(warp)
            coming = self.program.operations[self.number + 1 : again]
            if told.any() or any(isinstance(o, rp.Fence) and o.warp == warp for o in coming):  # lanes ahead may fence
                told = np.maximum(told, self.ahead[again][warp])
        own = self.threads(warp)
        if by_lane and release:
            told = told.copy()
            told[own] = np.maximum(self.known[self.threads(warp, lanes)].max(axis=0)[own], self.told[own])
        self.told[own] = np.maximum(self.told[own], told[own])
        return told

    def _together_again(self, warp: int) -> int:
        """The operation before which the quickest lanes of a warp wait for the others."""
        arrived = True  # all of them, as far as this one knows
        for number, operation in enumerate(self.program.operations[self.number + 1 :], self.number + 1):
            if rp.meets(operation, warp) or (isinstance(operation, rp.ClusterWait) and not arrived):
                return number
            arrived &= not isinstance(operation, rp.ClusterArrive)
        return len(self.program.operations)

    def _hear(self, warp: int, lanes: int, told: rp.Times, fence: str) -> None:
        """Lanes learn what they are told, or, where a `fence` of that scope is needed, not yet."""
        threads = self.threads(warp, lanes)
        if fence:
            self.unfenced[fence][threads] = np.maximum(self.unfenced[fence][threads], told)
        else:
            self._learn(threads, told)

    def _flag(self, flag: rp.Flag) -> None:
        if not self.program.is_strong(flag):
            return
        scope = self.program.scope_of(flag.source, flag.target)
        told = self._told(flag.source, flag.raising, flag.release, scope)
        self._hear(flag.target, flag.waiting, told, "" if flag.acquire else scope)


def _incoherent(a: rp.Access, b: rp.Access) -> bool:
    """Whether one is a load that may not see the other, in whatever order they are."""
    return (a.kind == "read" and b.kind not in READS) or (b.kind == "read" and a.kind not in READS)


def _up_to(scope: str) -> tuple[str, ...]:
    return rp.SCOPES[: rp.SCOPES.index(scope) + 1]


def by_warp(program: rp.Program, by_arrival: bool = False, **of_launch: Any) -> Clocks:
    """Clocks before the first operation, which know what lanes may be ahead of others."""
    ahead: Sequence[rp.Times] = ()
    while True:
        clocks = Clocks(program, True, by_arrival, ahead, **of_launch)
        for number, operation in enumerate(program.operations):
            clocks.perform(number, operation)
        for warp, kind in clocks.copies:  # at its end it waits for them all
            clocks.wait(warp, kind, 0)
        before = [*clocks.before, clocks.of_warps()]
        if ahead and all(np.array_equal(a, b) for a, b in zip(ahead, before, strict=True)):
            return Clocks(program, True, by_arrival, ahead, **of_launch)
        ahead = before


def without_races(program: rp.Program, **of_launch: Any) -> tuple[rp.Program, list[int]]:
    """The program without the accesses that race with others before them, and flags that race, and their numbers."""
    clocks, kept, left_out = Clocks(program, **of_launch), list[rp.Operation](), list[int]()
    for number, operation in enumerate(program.operations):
        strong = not isinstance(operation, rp.Flag) or program.is_strong(operation)
        if not strong or any(clocks.races(number, access) for access in rp.accesses_of(operation)):
            left_out.append(number)
            continue
        clocks.perform(number, operation)
        kept.append(operation)
    return replace(program, operations=tuple(kept)), left_out


@dataclass
class Ends:
    """What is known of the ends of launches, which go by in their order: each is told at its `begin`, and tells."""

    launches: rp.Launches
    done: dict[rp.Place, list[Done]] = field(default_factory=dict)
    rows: list[tuple[rp.Times, rp.Times, rp.Times]] = field(
        default_factory=list
    )  # at the start, by triggers, at the end

    def told(self) -> dict[str, Any]:
        """What the next launch is told, as `Clocks` takes it."""
        begun, waited = (np.zeros(len(self.launches.programs), np.int32) for _ in range(2))
        for before, port in self.launches.after[len(self.rows)]:
            start, trigger, end = self.rows[before]
            for row in {Port.ENDED: (end,), Port.TRIGGERED: (start, trigger)}.get(Port(port), (start,)):
                np.maximum(begun, row, out=begun)
            if port != Port.BEGUN_ONLY:
                np.maximum(waited, end, out=waited)
        return {"begun": begun, "waited": waited, "earlier": self.done}

    def ended(self, clocks: Clocks) -> None:
        """The launch has ended: all of its operations have been performed."""
        number, program = len(self.rows), clocks.program
        blocks = clocks.known[:, clocks.first_end :].reshape(program.blocks, program.warps * rp.LANES, -1).max(axis=1)
        end = blocks.max(axis=0)
        trigger = np.max([clocks.triggered.get(block, row) for block, row in enumerate(blocks)], axis=0)
        end[number] = 1
        self.rows.append((clocks.begun, trigger, end))
        for place, every in clocks.done.items():
            if place[0] == "global":
                own = [replace(one, number=-1, agent=number, time=1) for one in every if not one.foreign]
                self.done.setdefault(place, []).extend(own)


def performed(program: rp.Program, clocks: Clocks) -> Iterator[tuple[int, rp.Access, Done, int, rp.Place]]:
    """The races of each operation with what came before, one after the other as they are performed."""
    for number, operation in enumerate(program.operations):
        for access in rp.accesses_of(operation):
            for before, lane, place in clocks.races(number, access):
                yield number, access, before, lane, place
        clocks.perform(number, operation)

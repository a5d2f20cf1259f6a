"""Random programs of warps that share memory, and which of their accesses race by definition.

The operations of a program are drawn in one order, which every warp follows: what waits comes after what it waits for,
so that no program hangs, and which access is ordered before which does not depend on the order in which warps run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

LANES, WARP_MASK = 32, 0xFFFFFFFF
WORDS = 160  # of shared and of global memory that are accessed

Times = npt.NDArray[np.int32]
Place = tuple[str, int, int]
"""Of memory: its space, the block whose it is, and the word."""


def lanes_of(mask: int) -> list[int]:
    return [lane for lane in range(LANES) if mask >> lane & 1]


@dataclass(frozen=True)
class ByOneWarp:
    warp: int

    @property
    def warps(self) -> tuple[int, ...]:
        return (self.warp,)


@dataclass(frozen=True)
class Access(ByOneWarp):
    """Lane l of `lanes` accesses `words` words of 4 bytes at ``base + (l + turn) % 32 * stride``, of shared memory that
    of the other block of the cluster with `peer`."""

    kind: str  # load, store, atomic; of copies to and from shared memory: copy (cp.async), fetch and drain (in bulk)
    space: str
    lanes: int
    base: int
    words: int
    stride: int
    turn: int
    peer: bool = False

    @property
    def copies(self) -> bool:
        """Whether the access goes on while its thread does something else."""
        return self.kind in ("copy", "fetch", "drain")

    @property
    def together(self) -> bool:
        """Whether lanes store the same in one place, which they may as long as nothing takes them apart."""
        return self.kind == "store" and self.stride == 0 and self.lanes & self.lanes - 1 != 0

    def cells(self, lane: int) -> range:
        start = self.base + (lane + self.turn) % LANES * self.stride
        return range(start, start + self.words)


@dataclass(frozen=True)
class CopyWait(ByOneWarp):
    """cp.async.wait_group, by all lanes."""

    pending: int


@dataclass(frozen=True)
class Fetch:
    """cp.async.bulk by one lane to shared memory, for which lanes `waiting` of `target` wait at mbarrier `number`."""

    access: Access
    number: int
    target: int
    waiting: int
    arrivals = 1

    @property
    def warps(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys((self.access.warp, self.target)))


@dataclass(frozen=True)
class Drain:
    """cp.async.bulk by one lane from shared memory."""

    access: Access

    @property
    def warps(self) -> tuple[int, ...]:
        return (self.access.warp,)


@dataclass(frozen=True)
class DrainWait(ByOneWarp):
    """cp.async.bulk.wait_group.read, by all lanes."""

    pending: int


@dataclass(frozen=True)
class WarpSync(ByOneWarp):
    lanes: int


@dataclass(frozen=True)
class Fence(ByOneWarp):
    lanes: int
    scope: str


@dataclass(frozen=True)
class Barrier:
    """bar.sync of `syncing` warps of a block, for which the `arriving` ones do not wait."""

    number: int
    arriving: tuple[int, ...]
    syncing: tuple[int, ...]

    @property
    def warps(self) -> tuple[int, ...]:
        return self.arriving + self.syncing


@dataclass(frozen=True)
class ClusterArrive:
    """barrier.cluster.arrive of all `warps` of the cluster."""

    warps: tuple[int, ...]
    release: bool  # or relaxed


@dataclass(frozen=True)
class ClusterWait:
    """barrier.cluster.wait, some time after they have arrived."""

    warps: tuple[int, ...]


@dataclass(frozen=True)
class Flag:
    """`raising` lanes of warp `source` add 1 to flag `number`, and `waiting` lanes of `target` wait for all of them."""

    number: int
    space: str
    source: int
    raising: int
    target: int
    waiting: int
    release: bool  # or relaxed
    acquire: bool

    @property
    def warps(self) -> tuple[int, ...]:
        return (self.source, self.target)


@dataclass(frozen=True)
class Mbarrier:
    """Arrivals of `arriving` lanes of some warps, for which lanes `waiting` of `target` wait, in whose block it is."""

    number: int
    sources: tuple[int, ...]
    arriving: int
    target: int
    waiting: int
    release: bool
    acquire: bool

    @property
    def arrivals(self) -> int:
        return len(self.sources) * len(lanes_of(self.arriving))

    @property
    def warps(self) -> tuple[int, ...]:
        return (*self.sources, self.target)


ByCluster = ClusterArrive | ClusterWait
Operation = Access | CopyWait | Fetch | Drain | DrainWait | WarpSync | Fence | Barrier | ByCluster | Flag | Mbarrier


def meets(operation: Operation, warp: int) -> bool:
    """Whether all lanes of a warp are together there."""
    match operation:
        case Barrier():
            return warp in operation.warps
        case WarpSync(lanes=lanes):
            return operation.warp == warp and lanes == WARP_MASK
        case Access():
            return operation.warp == warp and operation.together
    return False


def takes_apart(operation: Operation, warp: int) -> bool:
    """Whether some lanes of a warp go on while others are there."""
    match operation:
        case Fence(lanes=lanes) | WarpSync(lanes=lanes):
            return lanes != WARP_MASK
        case Fetch(waiting=lanes, target=target):
            return warp == operation.access.warp or (warp == target and lanes != WARP_MASK)
        case Flag(raising=sent, waiting=lanes, target=target) | Mbarrier(arriving=sent, waiting=lanes, target=target):
            return (lanes if warp == target else sent) != WARP_MASK
    return isinstance(operation, Drain)


def access_of(operation: Operation) -> Access | None:
    match operation:
        case Access():
            return operation
        case Fetch(access=access) | Drain(access=access):
            return access
    return None


@dataclass(frozen=True)
class Program:
    blocks: int
    warps: int  # of a block
    operations: tuple[Operation, ...]
    cluster: bool = False  # of two blocks

    def ptx(self) -> str:
        """A kernel ``k`` of the source p.cu, in which operation i is line i + 1."""
        return _Writer(self).text()

    @property
    def rooms(self) -> int:
        """How many flags, or mbarriers, there is room for."""
        return max((o.number for o in self.operations if isinstance(o, Flag | Mbarrier | Fetch)), default=0) + 1

    def block_of(self, warp: int) -> int:
        return warp // self.warps


# ---------------------------------------------------------------------------------------------------- order of accesses


@dataclass(frozen=True)
class Done:
    """An access that has been made: by whom (a thread, or a copy on its way), when, and what its thread knew."""

    number: int
    access: Access
    lane: int
    agent: int
    time: int
    knew: Times


@dataclass
class Clocks:
    """Vector clocks of all threads, and of every copy: what each knows of what the others have done.

    With `by_warp` a lane hands on what all lanes of its warp know, and a fence of one lane is one of them all, as is a
    barrier. Of a warp that is `apart` lanes may be ahead of the one that hands on, and what they have done counts as
    told, too: `ahead` holds what warps know before each operation, and at the end.
    """

    program: Program
    by_warp: bool = False
    ahead: Sequence[Times] = ()
    known: Times = field(init=False)
    fenced: dict[str, Times] = field(init=False)
    unfenced: Times = field(init=False)
    copies: dict[tuple[int, str], list[dict[int, int]]] = field(default_factory=dict)
    done: dict[Place, list[Done]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        threads = self.program.blocks * self.program.warps * LANES
        copies = sum((access := access_of(o)) is not None and access.copies for o in self.program.operations)
        self.known = np.zeros((threads, threads + copies * LANES), np.int32)
        self.known[np.arange(threads), np.arange(threads)] = 1
        self.fenced = {scope: np.zeros_like(self.known) for scope in ("cta", "gpu")}
        self.unfenced = np.zeros_like(self.known)
        self.next_copy = threads
        self.number = 0
        self.time = [1] * (self.program.blocks * self.program.warps)
        self.before: list[Times] = []
        self.apart: set[int] = set()
        self.arrived: Times = np.zeros_like(self.known[0])

    def of_warps(self) -> Times:
        """What some lane or other of each warp knows."""
        known: Times = self.known.reshape(-1, LANES, self.known.shape[1]).max(axis=1)
        return known

    def threads(self, warp: int, mask: int = WARP_MASK) -> list[int]:
        return [warp * LANES + lane for lane in lanes_of(mask)]

    def races(self, number: int, access: Access) -> list[tuple[Done, int, Place]]:
        """What has been done that is not ordered before a lane's part of this access, and conflicts."""
        threads = self.threads(access.warp)
        known = self.known[threads]
        if self.by_warp and (access.together or access.kind in ("fetch", "drain")):
            known = np.maximum(known, self.unfenced[threads])
        if access.together:
            known[:] = known.max(axis=0)
        return [
            (before, lane, self.place(access, cell))
            for lane in lanes_of(access.lanes)
            for cell in access.cells(lane)
            for before in self.done.get(self.place(access, cell), ())
            if before.number != number and self._conflict(before.access, access)
            if known[lane, before.agent] < before.time and not self._told_ahead(before, access, lane)
        ]

    def _told_ahead(self, before: Done, access: Access, lane: int) -> bool:
        """Whether a lane is so far ahead of others of its warp that these have told of its access before it was due."""
        if not self.by_warp:
            return False
        if access.copies:
            return bool(before.knew[self.next_copy + lanes_of(access.lanes).index(lane)])
        return bool(before.knew[access.warp * LANES + lane] >= self.time[access.warp])

    def place(self, access: Access, cell: int) -> Place:
        block = self.program.block_of(access.warp)
        return access.space, 0 if access.space == "global" else 1 - block if access.peer else block, cell

    def _conflict(self, a: Access, b: Access) -> bool:
        reads = "load", "drain"
        return not (a.kind in reads and b.kind in reads) and not a.kind == b.kind == "atomic"

    def perform(self, number: int, operation: Operation) -> None:
        self.number = number
        self.before.append(self.of_warps())
        if self.by_warp and isinstance(operation, Fetch | Drain):
            self._take_unfenced(self.threads(operation.access.warp))  # by the proxy fence
        match operation:
            case Access():
                if operation.together:
                    self._together(self.threads(operation.warp))
                self._access(number, operation)
            case CopyWait(warp, pending):
                self.wait(warp, "copy", pending)
            case DrainWait(warp, pending):
                self.wait(warp, "drain", pending)
            case Drain(access):
                self._access(number, access)
            case Fetch(access, _, target, waiting):
                self._access(number, access)
                (landed,) = self.copies[access.warp, "fetch"].pop().values()
                told = self._told(access.warp, access.lanes, True, "cta").copy()
                told[landed] = 1
                self._hear(target, waiting, told, True)
            case WarpSync(warp, lanes):
                self._together(self.threads(warp, lanes))
            case Fence(warp, lanes, scope):
                self._fence(warp, lanes, scope)
            case Barrier(syncing=syncing):
                if self.by_warp:
                    self._take_unfenced([t for warp in syncing for t in self.threads(warp)])
                everyone = [t for warp in operation.warps for t in self.threads(warp)]
                told = self.known[everyone].max(axis=0)
                for warp in syncing:
                    self._learn(self.threads(warp), told)
            case ClusterArrive(warps, release):
                self.arrived = np.zeros_like(self.known[0])
                for warp in warps:
                    np.maximum(self.arrived, self._told(warp, WARP_MASK, release, "gpu"), out=self.arrived)
            case ClusterWait(warps):
                for warp in warps:
                    self._hear(warp, WARP_MASK, self.arrived, True)
            case Flag():
                self._flag(operation)
            case Mbarrier():
                told = np.zeros_like(self.known[0])
                for source in operation.sources:
                    scope = self._scope(source, operation.target)
                    np.maximum(told, self._told(source, operation.arriving, operation.release, scope), out=told)
                self._hear(operation.target, operation.waiting, told, operation.acquire)
        for warp in operation.warps:
            if meets(operation, warp):
                self.apart.discard(warp)
            elif takes_apart(operation, warp):
                self.apart.add(warp)
        for warp in operation.warps:  # what lanes ahead have told is not yet their own time
            self.time[warp] += 1
            threads = self.threads(warp)
            self.known[threads, threads] = self.time[warp]

    def _access(self, number: int, access: Access) -> None:
        group: dict[int, int] = {}
        for lane in lanes_of(access.lanes):
            thread = access.warp * LANES + lane
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
        for lane in range(LANES):
            own = [group for group in groups if lane in group] if kind == "drain" else groups
            for group in own[: len(own) - pending]:
                if lane in group:
                    self.known[warp * LANES + lane, group[lane]] = 1

    def _together(self, threads: Sequence[int]) -> None:
        if self.by_warp:
            self._take_unfenced(threads)
        self._learn(threads, self.known[threads].max(axis=0))

    def _learn(self, threads: Sequence[int], told: Times) -> None:
        self.known[threads] = np.maximum(self.known[threads], told)
        if self.by_warp:  # a wait counts as a fence, too
            for warp in {thread // LANES for thread in threads}:
                self._take_unfenced(self.threads(warp))

    def _take_unfenced(self, threads: Sequence[int]) -> None:
        self.known[threads] = np.maximum(self.known[threads], self.unfenced[threads])

    def _fence(self, warp: int, lanes: int, scope: str) -> None:
        threads = self.threads(warp, WARP_MASK if self.by_warp else lanes)
        self._take_unfenced(threads)
        known = self.known[threads].max(axis=0) if self.by_warp else self.known[threads]
        for wide in ("cta", "gpu") if scope == "gpu" else ("cta",):
            self.fenced[wide][threads] = known

    def _told(self, warp: int, lanes: int, release: bool, scope: str) -> Times:
        """What these lanes hand on to others of their block, or of the device."""
        threads = self.threads(warp, WARP_MASK if self.by_warp else lanes)
        if release and self.by_warp:
            self._take_unfenced(threads)
        told: Times = (self.known if release else self.fenced[scope])[threads].max(axis=0)
        if self.ahead and told.any() and (lanes != WARP_MASK or warp in self.apart):
            told = np.maximum(told, self.ahead[self._together_again(warp)][warp])
        return told

    def _together_again(self, warp: int) -> int:
        """The operation before which the quickest lanes of a warp wait for the others."""
        arrived = True  # all of them, as far as this one knows
        for number, operation in enumerate(self.program.operations[self.number + 1 :], self.number + 1):
            if meets(operation, warp) or (isinstance(operation, ClusterWait) and not arrived):
                return number
            arrived &= not isinstance(operation, ClusterArrive)
        return len(self.program.operations)

    def _hear(self, warp: int, lanes: int, told: Times, acquire: bool) -> None:
        threads = self.threads(warp, lanes)
        if acquire:
            self._learn(threads, told)
        else:
            self.unfenced[threads] = np.maximum(self.unfenced[threads], told)

    def _scope(self, source: int, target: int) -> str:
        return "cta" if self.program.block_of(source) == self.program.block_of(target) else "gpu"

    def _flag(self, flag: Flag) -> None:
        scope = self._scope(flag.source, flag.target)
        self._hear(flag.target, flag.waiting, self._told(flag.source, flag.raising, flag.release, scope), flag.acquire)


def by_warp(program: Program) -> Clocks:
    """Clocks before the first operation, which know what lanes may be ahead of others."""
    ahead: Sequence[Times] = ()
    while True:
        clocks = Clocks(program, by_warp=True, ahead=ahead)
        for number, operation in enumerate(program.operations):
            clocks.perform(number, operation)
        for warp, kind in clocks.copies:  # at its end it waits for them all
            clocks.wait(warp, kind, 0)
        before = [*clocks.before, clocks.of_warps()]
        if ahead and all(np.array_equal(a, b) for a, b in zip(ahead, before, strict=True)):
            return Clocks(program, by_warp=True, ahead=ahead)
        ahead = before


def without_races(program: Program) -> tuple[Program, list[int]]:
    """The program without the accesses that race with others before them, and their numbers."""
    clocks, kept, left_out = Clocks(program), list[Operation](), list[int]()
    for number, operation in enumerate(program.operations):
        access = access_of(operation)
        if access and clocks.races(number, access):
            left_out.append(number)
            continue
        clocks.perform(number, operation)
        kept.append(operation)
    return replace(program, operations=tuple(kept)), left_out


# ------------------------------------------------------------------------------------------------------------------ PTX


@dataclass
class _Writer:
    program: Program
    lines: list[str] = field(default_factory=list)
    labels: int = 0
    drains: int = 0

    def text(self) -> str:
        operations = self.program.operations
        flags = [o for o in operations if isinstance(o, Flag)]
        mbarriers = [(o.number, o.arrivals) for o in operations if isinstance(o, Mbarrier | Fetch)]
        for warp in range(self.program.blocks * self.program.warps):
            self.add(f"setp.ne.u32 %other, %warp, {warp};", f"@%other bra after_{warp};")
            for number, operation in enumerate(operations):
                if warp in operation.warps:
                    self.add(f".loc 1 {number + 1} 1")
                    self.write(operation, warp)
            self.add("cp.async.wait_all;", "cp.async.bulk.wait_group 0;", f"after_{warp}:")
        together = "barrier.cluster.arrive;\nbarrier.cluster.wait;" if self.program.cluster else ""
        prologue = [f"st.shared.u32 [flags + {4 * o.number}], 0;" for o in flags if o.space == "shared"]
        prologue += [
            f"mbarrier.init.shared.b64 [mbarriers + {8 * number}], {arrivals};" for number, arrivals in mbarriers
        ]
        body = "\n".join(self.lines)
        first = "\n".join(f"@%first {line}" for line in prologue)
        return f"""
.version 8.5
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 words, .param .u64 flags_far, .param .u64 source)
{{
.reg .pred %other, %mine, %p, %first;
.reg .u32 %lane, %warp, %thread, %block, %peer, %t, %a, %r<4>;
.reg .u64 %g, %words, %flags, %source;
.shared .align 16 .b8 shared[{4 * WORDS}];
.shared .align 4 .b32 flags[{self.program.rooms}];
.shared .align 8 .b64 mbarriers[{self.program.rooms}];
.loc 1 {len(operations) + 1} 1
ld.param.u64 %words, [words];
ld.param.u64 %flags, [flags_far];
ld.param.u64 %source, [source];
mov.u32 %thread, %tid.x;
mov.u32 %block, %ctaid.x;
xor.b32 %peer, %block, 1;
and.b32 %lane, %thread, 31;
shr.u32 %warp, %thread, 5;
mad.lo.u32 %warp, %block, {self.program.warps}, %warp;
setp.eq.u32 %first, %thread, 0;
mov.u32 %a, shared;
mad.lo.u32 %a, %thread, 4, %a;
mov.u32 %t, %thread;
clear:
setp.ge.u32 %p, %t, {WORDS};
@%p bra cleared;
st.shared.u32 [%a], 0;
add.u32 %a, %a, {4 * LANES * self.program.warps};
add.u32 %t, %t, {LANES * self.program.warps};
bra clear;
cleared:
{first}
{together or "bar.sync 0;"}
{body}
{together}
ret;
}}
.file 1 "p.cu"
"""

    def add(self, *lines: str) -> None:
        self.lines += lines

    def write(self, operation: Operation, warp: int) -> None:
        match operation:
            case Access():
                self.access(operation)
            case CopyWait(_, pending):
                self.add(f"cp.async.wait_group {pending};")
            case DrainWait(_, pending):
                self.add(f"cp.async.bulk.wait_group.read {pending};")
            case Fetch():
                self.fetch(operation, warp)
            case Drain(access):
                self.drains += 1
                self.by(
                    access.lanes,
                    "fence.proxy.async.shared::cta;",
                    f"add.u64 %g, %source, {128 * self.drains};",
                    "cp.async.bulk.global.shared::cta.bulk_group "
                    f"[%g], [shared + {4 * access.base}], {4 * access.words};",
                    "cp.async.bulk.commit_group;",
                )
            case WarpSync(_, lanes):
                self.by(lanes, f"bar.warp.sync {lanes};")
            case Fence(_, lanes, scope):
                self.by(lanes, f"fence.acq_rel.{scope};")
            case Barrier(number, arriving):
                verb = "arrive" if warp in arriving else "sync"
                self.add(f"bar.{verb} {number}, {LANES * len(operation.warps)};")
            case ClusterArrive(_, release):
                self.add(f"barrier.cluster.arrive{'' if release else '.relaxed'};")
            case ClusterWait():
                self.add("barrier.cluster.wait;")
            case Flag():
                self.flag(operation, warp)
            case Mbarrier():
                self.mbarrier(operation, warp)

    def by(self, lanes: int, *lines: str) -> None:
        """Instructions of some lanes, which the others pass by."""
        if lanes == WARP_MASK:
            return self.add(*lines)
        self.labels += 1
        self.mine(lanes)
        self.add(f"@!%mine bra passed_{self.labels};", *lines, f"passed_{self.labels}:")
        return None

    def mine(self, lanes: int) -> None:
        self.add(f"mov.u32 %t, {lanes};", "shr.b32 %t, %t, %lane;", "and.b32 %t, %t, 1;", "setp.ne.u32 %mine, %t, 0;")

    def access(self, access: Access) -> None:
        predicate = ""
        if access.together:
            self.add(f"bar.warp.sync {WARP_MASK};")
        if access.lanes != WARP_MASK:
            self.mine(access.lanes)
            predicate = "@%mine "
        self.add(f"add.u32 %t, %lane, {access.turn};", "and.b32 %t, %t, 31;")
        self.add(f"mad.lo.u32 %t, %t, {4 * access.stride}, {4 * access.base};")
        if access.space == "shared":
            self.add("mov.u32 %a, shared;", "add.u32 %a, %a, %t;")
            if access.peer:
                self.add("mapa.shared::cluster.u32 %a, %a, %peer;")
        else:
            self.add("cvt.u64.u32 %g, %t;", "add.u64 %g, %g, %words;")
        place = "[%a]" if access.space == "shared" else "[%g]"
        vector = "" if access.words == 1 else f".v{access.words}"
        values = "%r0" if access.words == 1 else f"{{{', '.join(f'%r{k}' for k in range(access.words))}}}"
        scope = "gpu" if access.space == "global" else "cluster" if self.program.cluster else "cta"
        space = f"{access.space}::cluster" if access.peer else access.space
        match access.kind:
            case "load":
                self.add(f"{predicate}ld.{space}{vector}.u32 {values}, {place};")
            case "store":
                self.add(*(f"mov.u32 %r{k}, 7;" for k in range(access.words)))
                self.add(f"{predicate}st.{space}{vector}.u32 {place}, {values};")
            case "atomic":
                self.add(f"{predicate}red.relaxed.{scope}.{space}.add.u32 {place}, 7;")
            case "copy":
                self.add(f"{predicate}cp.async.ca.shared.global {place}, [%source], {4 * access.words};")
                self.add("cp.async.commit_group;")

    def fetch(self, fetch: Fetch, warp: int) -> None:
        access, place = fetch.access, f"[mbarriers + {8 * fetch.number}]"
        if warp == access.warp:
            self.by(
                access.lanes,
                "fence.proxy.async.shared::cta;",
                f"mbarrier.arrive.expect_tx.shared::cta.b64 _, {place}, {4 * access.words};",
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                f"[shared + {4 * access.base}], [%source], {4 * access.words}, {place};",
            )
        if warp == fetch.target:
            self.wait(fetch.waiting, f"mbarrier.try_wait.parity.shared::cta.b64 %p, {place}, 0;")

    def flag(self, flag: Flag, warp: int) -> None:
        far = flag.space == "global"
        same_block = self.program.block_of(flag.source) == self.program.block_of(flag.target)
        scope = "cta" if same_block and not far else "gpu"
        place = f"[{'%flags' if far else 'flags'} + {4 * flag.number}]"
        if warp == flag.source:
            order = "release" if flag.release else "relaxed"
            self.by(flag.raising, f"red.{order}.{scope}.{flag.space}.add.u32 {place}, 1;")
        else:
            order = "acquire" if flag.acquire else "relaxed"
            self.wait(
                flag.waiting,
                f"ld.{order}.{scope}.{flag.space}.u32 %r0, {place};",
                f"setp.ge.u32 %p, %r0, {len(lanes_of(flag.raising))};",
            )

    def mbarrier(self, mbarrier: Mbarrier, warp: int) -> None:
        place = f"[mbarriers + {8 * mbarrier.number}]"
        scope = "cluster" if self.program.cluster else "cta"
        if warp in mbarrier.sources:
            order = f".{'release' if mbarrier.release else 'relaxed'}.{scope}"
            if self.program.block_of(warp) == self.program.block_of(mbarrier.target):
                self.by(mbarrier.arriving, f"mbarrier.arrive{order}.shared::cta.b64 _, {place};")
            else:
                self.add(f"mov.u32 %a, mbarriers + {8 * mbarrier.number};", "mapa.shared::cluster.u32 %a, %a, %peer;")
                self.by(mbarrier.arriving, f"mbarrier.arrive{order}.shared::cluster.b64 _, [%a];")
        else:
            order = f".{'acquire' if mbarrier.acquire else 'relaxed'}.{scope}"
            self.wait(mbarrier.waiting, f"mbarrier.try_wait.parity{order}.shared::cta.b64 %p, {place}, 0;")

    def wait(self, lanes: int, *until: str) -> None:
        self.labels += 1
        again = f"again_{self.labels}"
        self.by(lanes, f"{again}:", *until, f"@!%p bra {again};")

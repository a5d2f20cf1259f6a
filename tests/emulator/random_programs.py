"""Random programs of warps that share memory.

The operations of a program are drawn in one order, which every warp follows: what waits comes after what it waits for,
so that no program hangs, and which access is ordered before which does not depend on the order in which warps run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from workbench.emulator.launch_checks import Edge

LANES, WARP_MASK = 32, 0xFFFFFFFF
WORDS = 160  # of shared and of global memory that are accessed
SCOPES = ("cta", "cluster", "gpu")

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

    kind: str  # load, read (ld.global.nc), store, atomic; of copies: copy (cp.async), fetch and drain (in bulk, to and
    # from shared memory) and put (what a drain writes to global memory)
    space: str
    lanes: int
    base: int
    words: int
    stride: int
    turn: int
    peer: bool = False
    scope: str = "gpu"  # of an atomic

    @property
    def copies(self) -> bool:
        """Whether the access goes on while its thread does something else."""
        return self.kind in ("copy", "fetch", "drain", "put")

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
    """cp.async.bulk by one lane from shared memory, to the same words of global memory."""

    access: Access

    @property
    def put(self) -> Access:
        return replace(self.access, kind="put", space="global")

    @property
    def warps(self) -> tuple[int, ...]:
        return (self.access.warp,)


@dataclass(frozen=True)
class DrainWait(ByOneWarp):
    """cp.async.bulk.wait_group by all lanes, or with .read."""

    pending: int
    read: bool = True


@dataclass(frozen=True)
class WarpSync(ByOneWarp):
    lanes: int


@dataclass(frozen=True)
class Fence(ByOneWarp):
    lanes: int
    scope: str


@dataclass(frozen=True)
class GridWait(ByOneWarp):
    """griddepcontrol.wait by some lanes."""

    lanes: int


@dataclass(frozen=True)
class Trigger(ByOneWarp):
    """griddepcontrol.launch_dependents by all lanes."""


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
    scopes: tuple[str, str] = ("gpu", "gpu")  # of those who raise it, and of those who wait

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
ByGrid = GridWait | Trigger
ByCopy = CopyWait | Fetch | Drain | DrainWait
Operation = Access | ByCopy | WarpSync | Fence | Barrier | ByCluster | ByGrid | Flag | Mbarrier


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
        case Fence(lanes=lanes) | WarpSync(lanes=lanes) | GridWait(lanes=lanes):
            return lanes != WARP_MASK
        case Fetch(waiting=lanes, target=target):
            return warp == operation.access.warp or (warp == target and lanes != WARP_MASK)
        case Flag(raising=sent, waiting=lanes, target=target) | Mbarrier(arriving=sent, waiting=lanes, target=target):
            return (lanes if warp == target else sent) != WARP_MASK
    return isinstance(operation, Drain)


def accesses_of(operation: Operation) -> tuple[Access, ...]:
    match operation:
        case Access():
            return (operation,)
        case Fetch(access=access):
            return (access,)
        case Drain(access=access):
            return access, operation.put
    return ()


@dataclass(frozen=True)
class Program:
    blocks: int
    warps: int  # of a block
    operations: tuple[Operation, ...]
    cluster: bool = False  # of two blocks

    @property
    def rooms(self) -> int:
        """How many flags, or mbarriers, there is room for."""
        return max((o.number for o in self.operations if isinstance(o, Flag | Mbarrier | Fetch)), default=0) + 1

    def block_of(self, warp: int) -> int:
        return warp // self.warps

    def scope_of(self, a: int, b: int) -> str:
        """The narrowest scope that has the threads of both warps."""
        return "cta" if self.block_of(a) == self.block_of(b) else "cluster" if self.cluster else "gpu"

    def included(self, a: int, b: int, *scopes: str) -> bool:
        """Whether all these scopes, of one warp or the other, have the threads of both."""
        return all(SCOPES.index(scope) >= SCOPES.index(self.scope_of(a, b)) for scope in scopes)

    def is_strong(self, flag: Flag) -> bool:
        """Whether the accesses to a flag do not race with one another."""
        return self.included(flag.source, flag.target, *flag.scopes)


@dataclass(frozen=True)
class Launches:
    """Programs on the same global memory. ``after`` has for each the earlier ones that it follows, and how far these
    have come by then. Those that it does not follow run at the same time."""

    programs: tuple[Program, ...]
    after: tuple[tuple[Edge, ...], ...]

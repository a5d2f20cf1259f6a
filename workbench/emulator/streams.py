"""The order of launches and copies: streams, events, the default stream, the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .launch_checks import whole_number

__all__ = ["DEFAULT_STREAM", "Edge", "Event", "Order"]

DEFAULT_STREAM = 0
"""The legacy default stream: what is in it comes after all that was given before, and before all that follows."""

Edge = tuple[int, bool]
"""The number of an earlier launch, and whether the edge is programmatic."""


@dataclass(frozen=True, slots=True)
class Event:
    """A point that a launch or a copy can wait for, with ``after=[event]``.

    ``nodes`` are the launches that it stands behind. Whoever waits for a ``programmatic`` one may begin as soon as the
    blocks of these have triggered or ended, as with ``cudaLaunchAttributeProgrammaticEvent``.
    """

    nodes: tuple[int, ...]
    programmatic: bool = False
    order: Order | None = field(default=None, repr=False, compare=False)


@dataclass(slots=True)
class Order:
    """The edges between launches and copies, which are nodes with numbers; an edge leads to an earlier node.

    ``before`` has for each node the set of those that have ended when it begins, as bits.
    """

    before: list[int] = field(default_factory=list)
    ends: dict[int, list[int]] = field(default_factory=dict)  # of each stream: what the next one has to wait for
    host: set[int] = field(default_factory=set)  # what the host has waited for, or done itself

    def add(self, stream: int, programmatic: bool, after: Sequence[Event]) -> list[Edge]:
        """A launch or a copy in a stream: its edges. Raises ``LaunchError`` for a stream that is no number."""
        stream = whole_number(stream, "the stream", 0, 2**31 - 1)
        ends = self.ends.setdefault(stream, [])
        if stream == DEFAULT_STREAM:
            full = {node for other, nodes in self.ends.items() if other != stream for node in nodes}
        else:
            full = set(self.ends.get(DEFAULT_STREAM, ()))
        full |= self.host
        early = set[int]()
        for event in after:
            if event.order is not self:
                continue  # the host has waited for it
            (early if event.programmatic else full).update(event.nodes)
        if programmatic and ends and ends[-1] not in full:
            early.add(ends[-1])
        else:
            full.update(ends)
            ends.clear()
        number = len(self.before)
        ends.append(number)
        return self._node(full, early - full)

    def add_host(self) -> list[Edge]:
        """An access by the host, which comes after what the host has waited for, and before all that it does later."""
        edges = self._node(self.host, set())
        self.host.add(len(self.before) - 1)
        return edges

    def _node(self, full: set[int], early: set[int]) -> list[Edge]:
        self.before.append(0)
        for node in full:
            self.before[-1] |= self.before[node] | 1 << node
        for node in early:
            self.before[-1] |= self.before[node]
        return [(node, False) for node in sorted(full)] + [(node, True) for node in sorted(early)]

    def event(self, stream: int, programmatic: bool) -> Event:
        """An event behind all that has been given to a stream; a programmatic one behind its last launch alone."""
        ends = self.ends.get(whole_number(stream, "the stream", 0, 2**31 - 1), [])
        return Event(tuple(ends[-1:] if programmatic else ends), programmatic, self)

    def is_cut(self, node: int) -> bool:
        """Whether the node and all that follow come after every one before it."""
        earlier = (1 << node) - 1
        return all(later & earlier == earlier for later in self.before[node:])

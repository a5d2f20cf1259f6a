"""The timeline of a launch, in the JSON format that Chrome's tracing and Perfetto (ui.perfetto.dev) open.

A block is a process, a warp of it a track. Other tracks of the block are its mbarriers, the bulk copies on their way
to it, and what each warp has under way: groups of cp.async, of wgmma and of bulk stores, operations of tcgen05 until
their commit has ended, and loads and stores of tensor memory until the wait for them. An arrow leads from the landing
of a bulk copy, or the end of a commit, to each wait that it ended.

Time is logical: a microsecond stands for one warp instruction. A warp's clock goes up by one with each that it
executes, as though all warps ran at once, and a wait lasts until the clock of whoever ended it. It tells what waits for
what in the order of warps that the seed drew, and nothing about how long it takes on a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from . import _engine, ptx
from .program import Entry, kernel_line
from .source_lines import source_line

MOST_EVENTS = 200_000
"""Of a timeline, unless another number is asked for: some 40 MB of JSON."""

# numbers of tracks: warps come first, then what they have under way in a few tracks each, loads and mbarriers
_WARP_TRACKS = 16
_GROUPS = {"copies": 1 << 16, "products": 1 << 17, "stores": 3 << 17, "tensor": 1 << 18, "moves": 5 << 16}
_GROUP_NAMES = {
    "copies": "cp.async",
    "products": "tensor cores",
    "stores": "bulk stores",
    "tensor": "tensor memory",
    "moves": "tcgen05.ld and st",
}
_LOADS, _PHASES = 1 << 19, 1 << 20
_TEXT = 60  # most characters of a source line in a name
_LAUNCH_STRIDE = 1 << 32  # between the process numbers of two launches

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Traced:
    """What to record: linear numbers of blocks, and the largest number of events."""

    blocks: Sequence[int] = (0,)
    events: int = MOST_EVENTS


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """What the engine recorded of one launch. ``cut``: there were more events than were asked for."""

    entry: Entry
    grid: tuple[int, int, int]
    dynamic_shared_bytes: int
    seed: int
    events: list[tuple[int, int, int, int, int, int, int, int, int, int, int]]
    cut: bool


def chrome_trace(timelines: Sequence[Timeline], title: str = "") -> Json:
    """The JSON object of one launch, or of several that followed one another."""
    events: list[Json] = []
    for number, timeline in enumerate(timelines):
        events += _Writer(timeline, number * _LAUNCH_STRIDE, len(timelines) > 1).events()
    for number, event in enumerate(e for e in events if e["ph"] in "sf"):
        event["id"] = number // 2 + 1  # start and end follow one another
    events.sort(
        key=lambda event: (event["ph"] != "M", event["pid"], event["tid"], event.get("ts", 0), -event.get("dur", 0))
    )
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {
            "title": title,
            "time": "1 us is one warp instruction; clocks of warps are logical, not those of a GPU",
            "seeds": sorted({timeline.seed for timeline in timelines}),
            "cut": any(timeline.cut for timeline in timelines),
        },
    }


def _free_lane(free: list[int], begin: int, end: int) -> int:
    """The first track that is free at `begin`, taken until `end`: slices of one track must not overlap."""
    lane = next((k for k, until in enumerate(free) if until <= begin), len(free))
    free[lane : lane + 1] = [end]
    return lane


@dataclass(slots=True)
class _Writer:
    timeline: Timeline
    first_process: int
    name_kernel: bool

    def events(self) -> Iterator[Json]:
        kinds, gates = _engine.trace_kinds(), _engine.trace_gates()
        tracks: dict[tuple[int, int], str] = {}
        lanes: dict[tuple[int, str, int], list[int]] = {}  # when each of the tracks for what overlaps is free again
        landed: dict[int, Json] = {}
        waits: list[tuple[int, Json]] = []
        for raw in sorted(self.timeline.events, key=lambda event: (event[1], event[3], -event[4])):
            kind_number, block, warp, begin, end, pc, until, gate_number, key, count, cause = raw
            kind, gate = kinds[kind_number], gates[gate_number]
            slice_: Json = {
                "ph": "X",
                "pid": self.first_process + block + 1,
                "ts": begin,
                "dur": end - begin,
                "cat": kind,
            }
            slice_["args"] = {"line": str(self.location(pc))} if pc >= 0 else {}
            if kind in ("run", "wait"):
                track, name = warp, f"warp {warp}"
                slice_["name"] = self.text(pc) if kind == "run" else f"wait: {self.gate(gate, key)}"
                if kind == "wait":
                    slice_["cname"] = "terrible"
                    waits.append((cause, slice_))
            elif kind == "phase":
                track, name = _PHASES + key, self.gate(gate, key)
                slice_["name"] = f"phase {count}"
            elif kind == "load":
                lane = _free_lane(lanes.setdefault((block, kind, 0), []), begin, end)
                track, name = _LOADS + lane, "bulk copies"
                slice_["name"] = f"{count} bytes to {self.gate(gate, key)}"
                slice_["args"] |= {"bytes": count, "issued by warp": warp}
                landed[cause] = slice_
            else:
                lane = _free_lane(lanes.setdefault((block, kind, warp), []), begin, end)
                track, name = _GROUPS[kind] + _WARP_TRACKS * warp + lane, f"warp {warp}: {_GROUP_NAMES[kind]}"
                slice_["name"] = f"group of {count}"
                if kind == "tensor":
                    slice_["args"] |= {"commit to": self.gate(gate, key)}
                    landed[cause] = slice_
                else:
                    slice_["args"] |= {"waited for at": str(self.location(until))}
            slice_["tid"] = track
            tracks[slice_["pid"], track] = name
            yield slice_
        for (process, track), name in tracks.items():
            yield {"ph": "M", "name": "thread_name", "pid": process, "tid": track, "args": {"name": name}}
            yield {"ph": "M", "name": "thread_sort_index", "pid": process, "tid": track, "args": {"sort_index": track}}
        for process in sorted({process for process, _ in tracks}):
            yield {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": self.block(process)}}
        for cause, wait in waits:
            if cause in landed:
                yield self.arrow("s", landed[cause])
                yield self.arrow("f", wait)

    @staticmethod
    def arrow(end: str, slice_: Json) -> Json:
        """One end of an arrow, at the last moment of a slice."""
        arrow = {"ph": end, "pid": slice_["pid"], "tid": slice_["tid"], "ts": slice_["ts"] + slice_["dur"] - 0.5}
        arrow |= {"name": "landing", "cat": "landing"}
        return arrow | {"bp": "e"} if end == "f" else arrow

    def block(self, process: int) -> str:
        index, (x, y, _) = process - 1 - self.first_process, self.timeline.grid
        name = f"block ({index % x}, {index // x % y}, {index // x // y})"
        return f"{self.timeline.entry.name}, {name}" if self.name_kernel else name

    def location(self, pc: int) -> ptx.SourceLocation:
        entry = self.timeline.entry
        return kernel_line(entry.instructions[int(entry.decoded.instructions[pc])])

    def text(self, pc: int) -> str:
        location = self.location(pc)
        text = source_line(location, self.timeline.entry.program.sources).strip()
        return f"{location.line}: {text[:_TEXT]}" if text else str(location)

    def gate(self, gate: str, key: int) -> str:
        """A barrier as the kernel calls it."""
        if gate == "named":
            return f"barrier {key}"
        if gate != "mbarrier":
            return {"cluster": "the cluster", "grid": "the launches before"}.get(gate, "other lanes")
        for variable, start in self.timeline.entry.shared_variables:
            if start <= key < start + variable.size:
                inside = f"[{(key - start) // 8}]" if variable.size > 8 else ""
                return f"{variable.readable_name}{inside}"
        return f"mbarrier at {key}"

"""What a launch asked of memory, tensor cores and barriers: exact counts, for the whole, by opcode and by source line.

A set of counts is a ``collections.Counter`` of whole numbers. Its names are

- ``warp_instructions``; ``thread_instructions``, of lanes whose guard is true, and ``active_lanes``, of all that came;
- ``branches`` and ``divergent_branches``, which only a part of the active lanes took;
- ``waits`` (barriers, mbarriers, collectives) and ``blocked_waits``, where lanes had to wait;
- of global memory ``global_load_requests`` (warp instructions), ``..._sectors`` (of 32 bytes) and ``..._bytes`` (that
  lanes asked for), the same with ``store``, ``atomic`` and ``copy`` (cp.async), and the same of ``local``;
- of shared memory ``shared_load_requests``, ``..._wavefronts`` (passes of its data stage), ``..._conflicts`` (those of
  them that bank conflicts cost) and ``..._bytes``, the same with ``store``, ``atomic`` and ``copy``; ``remote_...`` are
  requests and bytes of other blocks' shared memory;
- of bulk copies ``bulk_load_requests``, ``..._sectors`` of global memory and ``..._bytes`` of shared memory, and the
  same with ``store``;
- ``tensor_operations``, of which a multiplication and an addition are two; of a sparse product those that its zeros
  would take, too, as in the rates that are given for it.

What is zero is left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from . import _engine, ptx
from .program import Entry

__all__ = ["Counters", "Counts"]

Counts = Counter[str]
Key = TypeVar("Key", bound=Hashable)

_VERBS = {"ld": "load", "ldu": "load", "ldmatrix": "load", "st": "store", "stmatrix": "store"}
_VERBS |= {"atom": "atomic", "red": "atomic"}
_WAITS = re.compile(
    r"(bar|barrier)(\.cta)?\.(sync|red)|(bar\.warp\.sync)|mbarrier\.(try|test)_wait|barrier\.cluster\.wait"
)


@dataclass(frozen=True, slots=True, eq=False)
class Counters:
    """Counters of one launch, or of several together.

    ``parts`` has for each launch its entry, how often each row of the entry ran, ``(rows,)``, and what the engine
    counted in each row, ``(rows, len(_engine.counter_names()))``.
    """

    parts: tuple[tuple[Entry, npt.NDArray[np.uint64], npt.NDArray[np.uint64]], ...]

    def __add__(self, other: Counters) -> Counters:
        return Counters(self.parts + other.parts)

    def totals(self) -> Counts:
        """Of everything."""
        return self.grouped(lambda instruction: ("",)).get("", Counter())

    def by_opcode(self) -> dict[str, Counts]:
        """By opcode of the PTX."""
        return self.grouped(lambda instruction: (instruction.opcode,))

    def by_line(self, *, inlined: bool = False) -> dict[tuple[str, int], Counts]:
        """By file and line of the CUDA source.

        An instruction of a function that was inlined counts at its own line alone, or, with ``inlined``, once at each
        line that it was inlined into as well.
        """
        return self.grouped(_lines if inlined else lambda i: ((i.location.file, i.location.line),))

    def tensor_operations(self) -> Counts:
        """Operations of tensor cores by shape and types, such as ``m16n8k16.f32.bf16.bf16.f32``.

        Those of a sparse product begin with ``sp``.
        """
        found: Counts = Counter()
        for opcode, counts in self.by_opcode().items():
            if counts["tensor_operations"]:
                parts = opcode.split(".")
                shape = next(k for k, part in enumerate(parts) if re.fullmatch(r"m\d+n\d+k\d+", part))
                sparse = ["sp" for part in parts[:shape] if part.partition("::")[0] == "sp"]
                named = sparse + [part for part in parts[shape:] if part not in ("row", "col")]
                found[".".join(named)] += counts["tensor_operations"]
        return found

    def grouped(self, keys: Callable[[ptx.Instruction], Iterable[Key]]) -> dict[Key, Counts]:
        """Counts added up by whatever each instruction is to count for."""
        found: dict[Key, Counts] = {}
        for instruction, counts in self._instructions():
            for key in keys(instruction):
                found.setdefault(key, Counter()).update(counts)
        return found

    def _instructions(self) -> Iterator[tuple[ptx.Instruction, Counts]]:
        names = _engine.counter_names()
        for entry, executed, counted in self.parts:
            for row in np.flatnonzero(executed).tolist():
                if entry.instructions:
                    raw = dict(zip(names, counted[row].tolist(), strict=True))
                    instruction = entry.instructions[int(entry.decoded.instructions[row])]
                    yield instruction, _named(instruction.opcode, int(executed[row]), raw)


def _lines(instruction: ptx.Instruction) -> set[tuple[str, int]]:
    location = instruction.location
    return {(location.file, location.line), *((caller.file, caller.line) for caller in location.inlined_at)}


def _verb(opcode: str) -> str:
    base = opcode.partition(".")[0]
    if ".bulk." in opcode:
        to_shared = opcode.find(".shared") < opcode.find(".global")
        return "load" if to_shared else "store"
    return _VERBS.get(base, "copy")


def _named(opcode: str, executed: int, raw: dict[str, int]) -> Counts:
    """What the engine counted of an instruction, under names that say what the instruction did."""
    verb, base = _verb(opcode), opcode.partition(".")[0]
    counts = {
        "warp_instructions": executed,
        "thread_instructions": raw["lanes"],
        "active_lanes": raw["active_lanes"],
        "branches": executed if base == "bra" else 0,
        "divergent_branches": raw["divergent"],
        "waits": executed if _WAITS.match(opcode) else 0,
        "blocked_waits": raw["blocked"],
        "remote_requests": raw["remote_requests"],
        "remote_bytes": raw["remote_bytes"],
        "tensor_operations": raw["tensor_operations"],
        f"shared_{verb}_requests": raw["shared_requests"],
        f"shared_{verb}_wavefronts": raw["shared_wavefronts"],
        f"shared_{verb}_conflicts": raw["shared_wavefronts"] - raw["shared_ideal"],
        f"shared_{verb}_bytes": raw["shared_bytes"],
    }
    for space in ("global", "local", "bulk"):
        for what in ("requests", "sectors", "bytes"):
            counts[f"{space}_{verb}_{what}"] = raw[f"{space}_{what}"]
    return Counter({name: value for name, value in counts.items() if value})

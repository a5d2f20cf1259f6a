"""Numbers, lanes and opcodes as words of a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .. import _engine


def say_swizzle(nbytes: int) -> str:
    atom = {160: 32, 192: "32 with exchanged halves", 224: 64}.get(nbytes)
    if atom is not None:
        return f"a swizzle of 128 bytes by pieces of {atom}"
    return f"a swizzle of {nbytes} bytes" if nbytes else "no swizzle"


def say_past(elements: int) -> str:
    return "one past" if elements == 0 else f"{elements + 1} past"


NOT_WAITING = frozenset({"exited", "passed_again"})
"""Reasons of the engine for which the lanes are not where it says."""


def say_count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def say_ranges(numbers: Iterable[int]) -> str:
    """``0-3, 7`` for 0, 1, 2, 3, 7."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in found)


def say_lanes(mask: int) -> str:
    return say_ranges(lane for lane in range(32) if mask >> lane & 1) or "none"


def say_warps(waits: Sequence[_engine.Waiting]) -> str:
    """``warps 0-3 wait``, ``lanes 0-7 of warp 2 run``."""
    warps = sorted({wait.warp for wait in waits})
    verb = {"none": "run", "passed_again": "passed"}.get(waits[0].reason, "wait")
    who = f"warp {warps[0]}" if len(warps) == 1 else f"warps {say_ranges(warps)}"
    singular = len(warps) == 1
    masks = {wait.lanes & 0xFFFFFFFF for wait in waits}
    if len(masks) == 1 and (mask := masks.pop()) not in (0, 0xFFFFFFFF):
        singular = mask.bit_count() == 1
        who = f"lane{'' if singular else 's'} {say_lanes(mask)} of {who}"
    return f"{who} {verb}{'s' if singular and verb != 'passed' else ''}"


def say_warp_numbers(numbers: Iterable[int]) -> str:
    """``warp 3``, ``warps 0-3``."""
    each = set(numbers)
    return f"warp{'' if len(each) == 1 else 's'} {say_ranges(each)}"


def shortened(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."

"""Findings as an author of Triton kernels reads them: at lines of the kernel, with remedies in Triton's words."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from ..emulator import Finding, SourceLocation

__all__ = ["in_python"]

_REMEDIES = {
    "__syncthreads()": "tl.debug_barrier()",
    "hand over with __threadfence() and an atomic flag on both sides": (
        'hand over with an atomic flag, sem="release" behind the stores and sem="acquire" before the loads'
    ),
    "__threadfence()": 'an atomic of sem="release"',
}


def in_python(finding: Finding) -> Finding:
    """The finding at the kernel's line where it is at one of Triton's own library, such as that of ``tl.sum``."""
    message, advice, details = finding.message, finding.advice, finding.details
    location, text, callers = finding.location, finding.source_line, finding.caller_lines
    for place in (finding.location, finding.other):
        if place is not None and (own := _own(place)) not in (None, place):
            message, advice = (_moved(sentence, place, own) for sentence in (message, advice))
    if location is not None and (own := _own(location)) not in (None, location):
        skipped = len(location.inlined_at) - len(own.inlined_at)
        details = (*details, f"in {_short(location)}: {text.strip()}".removesuffix(": "))
        location, text, callers = own, callers[skipped - 1], callers[skipped:]
    for word, ours in _REMEDIES.items():
        advice = advice.replace(word, ours)
    return replace(
        finding,
        message=message,
        advice=advice,
        details=details,
        location=location,
        source_line=text,
        caller_lines=callers,
        other=_own(finding.other) or finding.other,
    )


def _own(place: SourceLocation | None) -> SourceLocation | None:
    """The innermost call that is not in Triton's library."""
    if place is None:
        return None
    calls = (place, *place.inlined_at)
    for number, call in enumerate(calls):
        if not Path(call.file).is_relative_to(_library()):
            return replace(call, inlined_at=calls[number + 1 :]) if number else place
    return None


def _moved(sentence: str, place: SourceLocation, own: SourceLocation) -> str:
    return re.sub(re.escape(str(place)) + r"(?: \(from [^)]*\))?", lambda _: str(own), sentence)


def _short(place: SourceLocation) -> str:
    return f"triton/{Path(place.file).relative_to(_library()).as_posix()}:{place.line}"


@cache
def _library() -> Path:
    found = find_spec("triton")
    return Path(found.origin).parent if found is not None and found.origin else Path("triton")

"""Which findings count: strict rules, and findings that are suppressed by kind, by line or by a comment there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePath
from typing import Any

from .fault import KernelFault
from .findings import Finding, FindingKind, Severity
from .headers import is_of_cuda
from .launch_checks import LaunchError, whole_number
from .program import Entry
from .ptx import SourceLocation
from .severity import CAUSES, kind_of, severity_of
from .source_lines import text_of
from .statistics import Statistics
from .trace import line_numbers

__all__ = ["Rules", "Suppression"]

_COMMENT = re.compile(r"(?P<before>.*?)(?://|/\*|#)\s*workbench:\s*allow\s+(?P<names>[\w, ]+)")
_MARK = "workbench:"
_MOST_FINDINGS = 10_000


@dataclass(frozen=True, slots=True)
class Suppression:
    """A kind or a cause that is not reported: everywhere, in a file (``file``) or at one line of it (``line``).

    ``in_source``: a comment of the source says so.
    """

    name: str
    file: str = ""
    line: int = 0
    in_source: bool = False

    @classmethod
    def parse(cls, text: str) -> Suppression:
        """``race``, ``race@kernel.cu`` or ``race@kernel.cu:42``. Raises ``LaunchError``."""
        name, _, place = text.strip().partition("@")
        file, _, line = place.rpartition(":") if re.search(r":\d+$", place) else (place, "", "0")
        if not file and "@" in text:
            raise LaunchError(f"the suppression {text!r} names no file; write for example race@kernel.cu:42")
        if re.search(r":[^./:]*$", file) and not int(line):
            raise LaunchError(f"the line in the suppression {text!r} is no number; write for example race@kernel.cu:42")
        return cls(_known(name, f"the suppression {text!r}"), file, int(line))

    @property
    def causes(self) -> frozenset[str]:
        """What the engine calls it."""
        return frozenset(cause for cause in CAUSES[1:] if self.name in (cause, str(kind_of(cause))))

    def __str__(self) -> str:
        line = f":{self.line}" if self.line else ""
        return f"{self.name}@{self.file}{line}" if self.file else self.name

    def holds_at(self, location: SourceLocation | None) -> bool:
        """Whether it covers an instruction of that line, or one that was inlined into it."""
        if not self.file:
            return True
        places = (location, *location.inlined_at) if location is not None else ()
        return any(self.line in (0, place.line) and _same_file(place.file, self.file) for place in places)

    def covers(self, finding: Finding) -> bool:
        """Whether the finding, or the line that it is also about, is suppressed."""
        if self.name not in (finding.code, str(finding.kind)):
            return False
        return self.holds_at(finding.location) or (finding.other is not None and self.holds_at(finding.other))


@dataclass(frozen=True, slots=True)
class Rules:
    """What is a failure, and what is not reported.

    ``strict``: findings of that severity count as failures, too. ``most``: failures after which a launch ends.
    """

    strict: bool
    suppressions: tuple[Suppression, ...]
    most: int

    @classmethod
    def of(cls, entry: Entry, strict: bool, suppress: str | Sequence[str], max_findings: int) -> Rules:
        """With what comments of the kernel's source allow. Raises ``LaunchError`` for a kind that there is not."""
        most = whole_number(max_findings, "the number of findings", 1, _MOST_FINDINGS)
        texts = [suppress] if isinstance(suppress, str) else list(suppress)
        if entry.allowed is None:
            entry.allowed = tuple(_comments(entry))
        allowed = [Suppression(*comment, in_source=True) for comment in entry.allowed]
        return cls(bool(strict), (*map(Suppression.parse, texts), *allowed), most)

    def fails(self, finding: Finding) -> bool:
        """Whether the finding is a failure."""
        return finding.severity is Severity.ERROR or (self.strict and finding.severity is Severity.STRICT)

    def check(self, statistics: Statistics) -> None:
        """Raises ``KernelFault`` with the first failure, where there is one."""
        failure = next(filter(self.fails, statistics.findings), None)
        if failure is not None:
            raise KernelFault(failure, statistics, statistics.findings)

    def suppressed(self, finding: Finding) -> bool:
        """Whether the finding is not to be reported."""
        return any(suppression.covers(finding) for suppression in self.suppressions)

    def unused(self, findings: Iterable[Finding]) -> tuple[str, ...]:
        """The suppressions that were asked for and that none of these findings matched."""
        every = list(findings)
        asked = [s for s in self.suppressions if not s.in_source]
        return tuple(str(s) for s in asked if not any(s.covers(finding) for finding in every))

    def options(self, entry: Entry) -> dict[str, Any]:
        """What the engine is told of them."""
        if entry.lines is None:
            entry.lines = line_numbers(entry)
        return {
            "most_findings": self.most,
            "failing": _failing_causes(self.strict),
            "suppressed": self.suppressed_rows(entry) if self.suppressions else [],
            "finding_lines": entry.lines,
            "replicas": entry.program.replicas,
        }

    def suppressed_rows(self, entry: Entry) -> list[tuple[int, int]]:
        """Pairs of a cause and a row of the program whose findings are not counted; row -1: all of that cause."""
        pairs: set[tuple[int, int]] = set()
        for suppression in self.suppressions:
            causes = [CAUSES.index(cause) for cause in suppression.causes]
            rows = list(_rows(entry, suppression)) if suppression.file else [-1]
            pairs.update((cause, row) for cause in causes for row in rows)
        return sorted(pairs)


@cache
def _failing_causes(strict: bool) -> list[bool]:
    """Of each of the engine's causes, whether it is a failure."""
    failing = {Severity.ERROR, Severity.STRICT} if strict else {Severity.ERROR}
    return [bool(cause in CAUSES[1:] and severity_of(cause) in failing) for cause in CAUSES]


def _rows(entry: Entry, suppression: Suppression) -> Iterator[int]:
    for row, index in enumerate(entry.decoded.instructions):
        if suppression.holds_at(entry.instructions[int(index)].location):
            yield row


def _same_file(name: str, wanted: str) -> bool:
    """Whether a path ends with the parts that are wanted."""
    parts = PurePath(wanted).parts
    return PurePath(name).parts[-len(parts) :] == parts


def _known(name: str, where: str) -> str:
    kinds = [str(kind) for kind in FindingKind]
    if name in kinds or name in CAUSES[1:]:
        return name
    finer = sorted(set(CAUSES[1:]) - set(kinds))
    raise LaunchError(
        f"{where} names no kind of finding; the kinds are {', '.join(kinds)}, and the finer ones {', '.join(finer)}"
    )


def _comments(entry: Entry) -> Iterator[tuple[str, str, int]]:
    """Name, file and line of what `// workbench: allow race` says, on the line or alone on the line above.

    Raises ``LaunchError``.
    """
    places = {i.location.file for i in entry.instructions} | {
        caller.file for i in entry.instructions for caller in i.location.inlined_at
    }
    for file in sorted(places):
        if is_of_cuda(file):
            continue
        text = text_of(file, entry.program.sources)
        for number, line in enumerate(text.splitlines() if _MARK in text else (), 1):
            if _MARK not in line or not (match := _COMMENT.match(line)):
                continue
            alone = not match["before"].strip()
            for name in re.split(r"[,\s]+", match["names"].strip(", ")):
                known = _known(name, f"{Path(file).name}:{number}: the comment `workbench: allow {name}`")
                yield known, file, number + alone

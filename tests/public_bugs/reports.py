"""Faults of public kernels, reduced in our own words: each a file here, wrong as it is and right with `-DFIXED`.

The head of a file says what goes wrong: a title, a text, the link of the report, the kind, the finding that names it,
and the options of `workbench emulate`. The line of the fault has `// HERE`, that of the other access `// THERE`.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Reported:
    """One file, and what its head says."""

    file: Path
    title: str
    text: str
    report: str
    kind: str
    finding: str
    launch: str

    @property
    def code(self) -> str:
        """The source behind the head."""
        lines = self.file.read_text().splitlines()
        return "\n".join(line for line in lines if not line.startswith("//")) + "\n"

    def line(self, mark: str) -> int | None:
        """The line with a mark, if there is one."""
        lines = self.file.read_text().splitlines()
        return next((number for number, line in enumerate(lines, 1) if line.endswith(f"// {mark}")), None)

    def arguments(self, fixed: bool) -> list[str]:
        """Those of `workbench emulate`, from the top of the repository."""
        defined = ["--define", "FIXED"] if fixed else []
        return [str(self.file.relative_to(ROOT)), *shlex.split(self.launch), *defined]


def read(file: Path) -> Reported:
    """The head of a file. Raises ValueError where it lacks a part."""
    head = [line[2:].strip() for line in file.read_text().splitlines() if line.startswith("//")]
    fields = dict(found.groups() for line in head if (found := re.match(r"(report|kind|finding|launch): (.+)", line)))
    if missing := {"report", "kind", "finding", "launch"} - set(fields):
        raise ValueError(f"the head of {file} lacks {', '.join(sorted(missing))}")
    text = " ".join(head[2 : next(n for n, line in enumerate(head) if line.startswith("report:"))]).strip()
    return Reported(file, head[0], text, **fields)


REPORTED = [read(file) for file in sorted(Path(__file__).parent.glob("*.cu"))]

"""Tables of planted faults.

An entry begins with a line of fields, with " | " between them, which may go on in lines that begin with "| ". Below it
are the changes, indented: OLD => NEW, where ¶ stands for the end of a line. A long one is in two lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator


def entries(table: str) -> Iterator[tuple[list[str], list[tuple[str, str]]]]:
    """The fields of each entry, and its changes: a piece of a source, and what stands there instead."""
    for entry in re.split(r"\n(?=\S)", table.strip()):
        head, *lines = re.sub(r"\n    (?=\| |=>)", " ", entry).split("\n    ")
        changes = (re.split(" => ?", line.replace("¶", "\n"), maxsplit=1) for line in lines)
        yield head.split(" | "), [(old, new) for old, new in changes]

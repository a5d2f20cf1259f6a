"""Which functions of CUDA programs call, and which of them `workbench capture` implements or refuses.

python tools/captured_calls.py NAME=FOLDER ... > reports/captured-calls.md: a row for every function that a source in
one of the folders calls, with the programs (folders with a source of CUDA) that call it. The page says NAME.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from workbench.emulator.capture import library

CALL = re.compile(r"\b(cu(?:da)?[A-Z]\w*)\s*(?:<[\w\s,*&]*>)?\(")
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
SUFFIXES = {".cu", ".cuh", ".cpp", ".cc", ".c", ".h", ".hpp"}
NAMES = Path(__file__).parents[1] / "workbench/emulator/capture/client/names.cpp"


def refused() -> set[str]:
    """The functions that are refused, each in a sentence."""
    rows = re.findall(r"^refused (\w+), (.*)$", NAMES.read_text(), re.MULTILINE)
    return {prefix + name for prefix, names in rows for name in names.split(", ")}


def exported() -> set[str]:
    """The functions that the library has."""
    listed = subprocess.run(["nm", "-D", "--defined-only", library()], capture_output=True, text=True, check=True)
    return {line.split()[2].partition("@")[0] for line in listed.stdout.splitlines()}


def newest(name: str, known: set[str]) -> str:
    """What headers make of a name: a function of the driver by its newest version, an overload by its plain name."""
    found = [name + suffix for suffix in ("_v4", "_v3", "_v2", "", "ExC") if name + suffix in known]
    return found[0] if found else name


def programs(folder: Path) -> Iterator[tuple[str, set[str]]]:
    """Folders with sources of CUDA, and what is called in them."""
    for place in sorted({path.parent for path in folder.rglob("*.cu")}):
        sources = (path.read_text(errors="replace") for path in place.iterdir() if path.suffix in SUFFIXES)
        yield place.name, {call for text in sources for call in CALL.findall(COMMENT.sub("", text))}


def main() -> None:
    """Prints the page."""
    known, no = exported(), refused()
    callers: dict[str, list[str]] = defaultdict(list)
    counted: dict[str, int] = {}
    for argument in sys.argv[1:]:
        title, _, folder = argument.partition("=")
        found = list(programs(Path(folder)))
        counted[title] = len(found)
        for program, calls in found:
            for call in calls:
                callers[call].append(program)
    sources = ", ".join(f"{count} of {title}" for title, count in counted.items())
    rows = {call: newest(call, known) for call in callers if newest(call, known) in known}
    kept = sum(name not in no for name in rows.values())
    print("# Functions of CUDA that programs call\n")
    print(f"`tools/captured_calls.py` has read the sources of programs: {sources}.")
    print(f"They call {len(rows)} functions. `workbench capture` implements {kept} and refuses {len(rows) - kept}.\n")
    print("| function | | programs |\n|---|---|---|")
    for call in sorted(rows):
        by = callers[call]
        shown = ", ".join(by) if len(by) <= 3 else f"{', '.join(by[:3])} and {len(by) - 3} more"
        print(f"| `{call}` | {'refused' if rows[call] in no else 'implemented'} | {shown} |")


if __name__ == "__main__":
    main()

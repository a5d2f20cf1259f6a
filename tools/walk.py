"""What a verification walks through: the files of the workbench whose functions are entered, in all of its processes.

    python tools/walk.py            # the files, and modules that call each other; fails beyond the limit
    python tools/walk.py --calls    # every call between two modules, too

Functions that run while a module is imported do not count, and neither do those of `__init__.py`. A function calls
another one where no function of the workbench stands between them. What an object calls of itself is left out: a base
class that calls what its subclass defines is not a call from one module to another.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "workbench"

VERIFY = ("verify", "gemm:naive", "--device", "emulator", "--seed", "0")
FILES = 50
"""Most files whose functions a verification enters."""

TRACER = """
import os, sys, threading

_out = os.open(os.environ["WORKBENCH_WALK"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)  # before it may write nothing
_package = os.environ["WORKBENCH_WALK_PACKAGE"] + os.sep
_seen = set()
_local = threading.local()
_local.depth, _frame = 0, sys._getframe()
while _frame:  # what is being imported now
    _local.depth += _frame.f_code.co_name == "<module>"
    _frame = _frame.f_back


def _profile(frame, event, argument):
    code = frame.f_code
    if code.co_name == "<module>" and frame.f_globals.get("__name__") != "__main__":
        _local.depth = getattr(_local, "depth", 0) + (1 if event == "call" else -1 if event == "return" else 0)
        return
    if event != "call" or getattr(_local, "depth", 0) or not code.co_filename.startswith(_package):
        return
    own = frame.f_locals.get("self")
    caller = frame.f_back
    while caller is not None and not caller.f_code.co_filename.startswith(_package):
        caller = caller.f_back
    before = caller.f_code if caller is not None else None
    if own is not None and caller is not None and caller.f_locals.get("self") is own:
        before = code  # an object calls itself
    if (before, code) not in _seen:
        _seen.add((before, code))
        names = [f"{c.co_filename.removeprefix(_package)}:{c.co_qualname}" if c else "-" for c in (before, code)]
        os.write(_out, (" ".join(n.replace(" ", "") for n in names) + "\\n").encode())


sys.setprofile(_profile)
threading.setprofile(_profile)
"""


def walked(*command: str) -> set[tuple[str, str]]:
    """The calls that a command of the workbench makes in all its processes: `file:function` of both."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "sitecustomize.py").write_text(TRACER)
        found = Path(folder, "calls")
        variables = {"PYTHONPATH": folder, "WORKBENCH_WALK": str(found), "WORKBENCH_WALK_PACKAGE": str(PACKAGE)}
        program = [sys.executable, "-m", "workbench", *command]
        subprocess.run(program, check=True, env=os.environ | variables, stdout=subprocess.DEVNULL)
        pairs = (line.split() for line in found.read_text().splitlines())
        return {(before, after) for before, after in pairs}


def file_of(name: str) -> str:
    return name.partition(":")[0]


def files(calls: set[tuple[str, str]]) -> list[str]:
    """The files whose functions are entered, but `__init__.py`."""
    return sorted({file_of(after) for _, after in calls if not file_of(after).endswith("__init__.py")})


def mutual(calls: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """The pairs of files that call each other."""
    between = {(file_of(a), file_of(b)) for a, b in calls if a != "-" and file_of(a) != file_of(b)}
    return sorted((a, b) for a, b in between if a < b and (b, a) in between)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", action="store_true", help="every call between two modules")
    options = parser.parse_args()
    calls = walked(*VERIFY)
    found, both = files(calls), mutual(calls)
    print(*found, sep="\n")
    for a, b in both:
        print(f"\n{a} and {b} call each other:")
        print(*(f"  {x} -> {y}" for x, y in sorted(calls) if {file_of(x), file_of(y)} == {a, b}), sep="\n")
    if options.calls:
        print(*(f"{x} -> {y}" for x, y in sorted(calls) if file_of(x) != file_of(y)), sep="\n")
    functions = len({after for _, after in calls})
    print(f"\n{len(found)} files, {FILES} at most, with {functions} functions; {len(both)} pairs that call each other")
    return int(len(found) > FILES or bool(both))


if __name__ == "__main__":
    sys.exit(main())

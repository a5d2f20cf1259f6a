"""A loop that lets a program write a kernel: verify, read the verdict, edit the source, until the kernel is right.

    python agent.py

It works in a copy of this folder. `proposed` stands in for what writes kernels, a language model say: it gets the
verdict and the source, and returns another source. Here it is a table, so that the loop can be tested.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SPEC = "row_sum:naive"
SOURCE = Path("row_sum") / "1_naive.cu"
MOST_ATTEMPTS = 10

TABLE = {
    "compile_error": (-1, r"$", ";"),
    "out_of_bounds": (0, r"<=", "<"),
    "race": (0, r"^(\s*)", r"\1__syncthreads();\n\1"),
    "mismatch": (None, r"half > 1", "half > 0"),
}
"""By the code of a verdict: how far from the line that is named, or None for the first line that fits (a wrong answer
has no line but its kernel's); what stands there; and what takes its place."""


def verified(folder: Path) -> dict[str, Any]:
    """The document that `workbench verify` prints, whether the kernel is right or not."""
    command = [
        sys.executable,
        "-m",
        "workbench",
        "verify",
        SPEC,
        "--device",
        "emulator",
        "--examples",
        "20",
        "--strict",
    ]
    done = subprocess.run([*command, "--json"], cwd=folder, capture_output=True, text=True)
    document: dict[str, Any] = json.loads(done.stdout)
    if document["error"]:  # not a verdict: the command could not do what it was asked for
        raise SystemExit(f"{document['error']['code']}: {document['error']['message']}")
    return document


def proposed(verdict: dict[str, Any], source: str) -> str:
    """Another source in place of one with this verdict."""
    lines = source.split("\n")
    offset, wrong, right = TABLE[verdict["code"]]
    fits = (number for number, line in enumerate(lines) if re.search(wrong, line))
    at = next(fits) if offset is None else verdict["line"] - 1 + offset
    lines[at] = re.sub(wrong, right, lines[at], count=1)
    return "\n".join(lines)


def main() -> int:
    folder = Path(tempfile.mkdtemp()) / "agent"
    shutil.copytree(Path(__file__).parent, folder)
    for attempt in range(1, MOST_ATTEMPTS + 1):
        (verdict,) = verified(folder)["verdicts"]
        print(f"attempt {attempt}: {verdict['code']}, reward {verdict['reward']:g}", end="")
        print(f", {verdict['file']}:{verdict['line']}" if verdict["line"] else "")
        if verdict["reward"] > 0:
            print(f"right: {folder / SOURCE}")
            return 0
        source = folder / SOURCE
        source.write_text(proposed(verdict, source.read_text()))
    print(f"given up: {verdict['message']}\n{verdict['advice']}\nreplay: {verdict['replay']}")
    return 1


if __name__ == "__main__":
    sys.exit(main())

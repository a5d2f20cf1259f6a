"""Correct kernels of public repositories that the emulator has judged, and how many it has blamed falsely.

    python benchmarks/correct_kernels.py    # the page, of what `suites.py` and `public_files.py` have recorded

A kernel is correct where the suite's authors say so, or where reading its file has shown no fault. A finding is a false
one where reading says that the kernel is right, or nobody has read it.
"""

from __future__ import annotations

import json
from collections import Counter

from public_files import REPORTS, recorded
from suite_cases import NOTES, SUITES
from tabulate import tabulate


def main() -> None:
    """Writes the page."""
    rows = []
    for name, suite in json.loads((REPORTS / "suites.json").read_text())["suites"].items():
        correct = [row for row in suite["rows"] if not row["faulty"]]
        kinds = Counter(row["as"] for row in correct)
        blamed = [row for row in correct if row["as"] == "alarm"]
        false = sum(not NOTES.get(f"{name}/{row['case']}", "").startswith("The emulator") for row in blamed)
        where = f"[{name}](https://github.com/{SUITES[name].repository})"
        rows.append((where, kinds["clean"], false, len(blamed) - false, kinds["not run"]))
    files = recorded()
    found = Counter(one.read.partition(":")[0] for one in files if one.ended and not one.clean)
    clean, assumed, ended = sum(one.clean for one in files), found["assumed"], sum(one.ended for one in files)
    blamed_files = found.total() - assumed - found["fault"]
    rows.append(("[public files](public-files.md)", clean, blamed_files, found["fault"], len(files) - ended + assumed))
    rows = [row for row in rows if any(row[1:4])]
    rows.append(("all", *(sum(row[column] for row in rows) for column in range(1, 5))))
    headers = ("of", "clean", "blamed falsely", "blamed, and a fault by reading", "not judged")
    text = f"""# Correct kernels that were judged

{rows[-1][1]} kernels of public repositories were launched in the emulator without a finding at default severity, and
{rows[-1][2]} correct ones were blamed. *not judged*: refused, too slow, or with sizes and values that were assumed and
that the kernel does not take. In [the suites](suites.md) their authors say which kernels are correct, and findings of
the kinds of their labels count. Written by `benchmarks/correct_kernels.py`.

{tabulate(rows, headers, tablefmt="github")}
"""
    (REPORTS / "correct-kernels.md").write_text(text)


if __name__ == "__main__":
    main()

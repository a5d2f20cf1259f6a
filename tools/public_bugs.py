"""Writes docs/public-bugs.md: faults that people have reported, from the heads of the pairs that the tests run.

python tools/refresh.py public_bugs
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
TRITON = ROOT / "tests/triton_kernels/reported_kernels.py"
KINDS = {
    "shared memory": "A barrier orders what threads do to shared memory. Most races here are one barrier short: at the "
    "end of a loop, or where memory is used a second time.",
    "barriers": "All threads that a barrier counts have to come to it, and to the same one.",
    "mbarriers": "An mbarrier goes through phases. A wait names a parity, and an arrival releases what came before it.",
    "asynchronous copies": "Bulk copies use the async proxy and complete later. Both have to be waited for.",
    "tensor cores": "`wgmma` reads its operands until it is complete.",
    "tensor memory": "Tensor memory is allocated, used by asynchronous instructions, and freed.",
    "clusters": "Blocks of a cluster begin and end at different times.",
    "between blocks": "A flag needs a release behind the data and an acquire before it.",
    "indices and addresses": "Sizes that small tests do not have.",
    "values that were never written": "Memory that happens to hold zeros in a test.",
    "warps and masks": "A collective names its lanes.",
}
"""The kinds of `tests/public_bugs`, in the order of the page."""


def module(path: str) -> ModuleType:
    """A module of the tests. `path` is from the top."""
    file = ROOT / path
    sys.path.insert(0, str(file.parent))
    try:
        return importlib.import_module(file.stem)
    finally:
        sys.path.remove(str(file.parent))


def entry(title: str, text: str, report: str, code: str, language: str, below: str) -> str:
    """One fault."""
    told = f"{text} " if text else ""
    return f"### {title}\n\n{told}([report]({report}))\n\n```{language}\n{code.strip()}\n```\n\n{below}\n"


def cuda(kind: str) -> Iterator[str]:
    """The entries of a kind."""
    for one in module("tests/public_bugs/reports.py").REPORTED:
        if one.kind == kind:
            named = f"The emulator names it: `{one.finding}`." if one.finding != "none" else "The emulator misses it."
            command = f"```console\nworkbench emulate {one.file.relative_to(ROOT)} {one.launch}\n```"
            yield entry(one.title, one.text, one.report, one.code, "cuda", f"{named}\n\n{command}")


def launches() -> Iterator[str]:
    """Entries of faults between launches."""
    for pair in module("tests/emulator/launch_pairs.py").PAIRS:
        if pair.report:
            title = pair.name[0].upper() + pair.name[1:]
            yield entry(title, "", pair.report, pair.source, "cuda", f"The emulator's advice has: “{pair.says}”.")


def triton() -> Iterator[str]:
    """Entries of Triton kernels: functions whose docstring has a link."""
    source = TRITON.read_text()
    for node in ast.parse(source).body:
        text = ast.get_docstring(node) if isinstance(node, ast.FunctionDef) else None
        if isinstance(node, ast.FunctionDef) and text and "https://" in text:
            said, _, report = text.rpartition("\n\n")
            lines = source.splitlines()[node.lineno - 1 : node.end_lineno]
            code = "\n".join(["@triton.jit", lines[0], *lines[node.body[0].end_lineno - node.lineno + 1 :]])
            title = node.name.replace("_", " ").capitalize()
            yield entry(title, said, report.strip(), code, "python", "The line is marked `# here`.")


def page() -> str:
    """The Markdown page."""
    sections = [(kind.capitalize(), text, [*cuda(kind)]) for kind, text in KINDS.items()]
    sections += [
        ("Between launches", "Kernels that overlap by [programmatic dependent launch](launches.md).", [*launches()]),
        ("Triton", "In [Triton](triton.md), barriers and bounds are the compiler's, and these are not.", [*triton()]),
    ]
    total = sum(len(entries) for *_, entries in sections)
    text = (
        "# Faults that people have reported\n\n"
        f"{total} faults of public kernels, by kind. Each is a small kernel in our own words, written after the report "
        "that it links. It is wrong as it stands, and right with `--define FIXED` (in Triton with `FIXED` true). "
        "The line of the fault is marked `HERE`, and that of the other access `THERE`. Tests ask that `workbench "
        "emulate` names both lines, and that it finds nothing in the kernel that is right. The commands below run from "
        "the top of the repository. Where a finding is [strict](emulator.md#severities-and-what-is-not-reported), "
        "`--strict` makes it a failure.\n\nFaults that the emulator found in public kernels are "
        "[on another page](../reports/found.md).\n\nThis page is written by `tools/public_bugs.py`.\n"
    )
    return "\n".join([text, *(f"## {title}\n\n{said}\n\n" + "\n".join(entries) for title, said, entries in sections)])

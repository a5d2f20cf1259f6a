"""What README.md quotes: figures of the H200 report, and what a planted fault looks like in the emulator."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from workbench import harness
from workbench.catalogue import registry
from workbench.devices import open_device
from workbench.model import origin
from workbench.model.operation import Operation
from workbench.report.evidence import explain
from workbench.toolchain.compiler import with_headers

ROOT = Path(__file__).parent.parent
TABLE = "### gemm 8192x8192x8192 bf16 nt"
FAULT = ("mbarrier_wait(full[from.stage], from.parity);", "")
"""A statement of the TMA pipeline, and nothing in its place: the consumers no longer wait for their data."""


def excerpt() -> str:
    """The table of one problem from the committed report, with what explains it, under its heading."""
    page = (ROOT / "reports/nvidia-h200/gemm.md").read_text()
    found = re.search(rf"{re.escape(TABLE)}\n\n((?:\|.*\n)+(?:\nThe letter .*\n)?)", page)
    assert found, f"the report has no {TABLE!r}"
    return f"**{TABLE.removeprefix('### ')}**, one NVIDIA H200, against cuBLAS:\n\n{found[1]}"


def tree(declared: Operation[Any]) -> str:
    """The stages of an operation: chains from parent to child, track by track. A branch begins with its parent."""
    tracks: dict[str, list[list[str]]] = {}
    for name, place in declared.tree().items():
        chains = tracks.setdefault(place.track, [])
        chain = next((c for c in chains if c[-1] == place.parent), None)
        if chain:
            chain.append(name)
        else:
            chains.append([place.parent, name] if place.parent else [name])
    shown = {track: "; ".join(" → ".join(chain) for chain in chains) for track, chains in tracks.items()}
    return "<br>".join(f"{track}: {text}" if track else text for track, text in shown.items())


def operations() -> str:
    """Every operation with its stages, and what the index of the reports says of the fastest on an H200."""
    index = (ROOT / "reports/README.md").read_text()
    rows = ["| operation | stages | fastest on an H200 | of the vendor's library |", "|---|---|---|---|"]
    for name, declared in registry.operations().items():
        stages, measured = tree(declared), f"| [{name}](nvidia-h200/{name}.md)"
        line = next((line for line in index.splitlines() if line.startswith(measured)), None)
        if line is None:
            rows.append(f"| [`{name}`](docs/operations/{name}.md) | {stages} | not measured yet | - |")
            continue
        stage, best, share = (cell.strip() for cell in line.split("|")[4:7])
        rows.append(f"| [`{name}`](docs/operations/{name}.md) | {stages} | {stage}: {best} | {share} |")
    return "\n".join(rows) + "\n"


def failure() -> str:
    """What `workbench verify gemm:tma_pipeline` prints about the planted fault."""
    kept = origin.SOURCES
    with tempfile.TemporaryDirectory() as folder:
        origin.SOURCES = Path(folder) / "cuda_src"
        shutil.copytree(kept, origin.SOURCES)
        try:
            (stage,) = registry.select(["gemm:tma_pipeline"])
            (path,) = (path for path in with_headers(stage.path) if FAULT[0] in path.read_text())
            path.write_text(path.read_text().replace(*FAULT))
            result = harness.verify(stage, open_device("emulator"), seed=0)
        finally:
            origin.SOURCES = kept
    text = explain(stage.spec, result)
    for root in (folder, str(kept.parent)):
        text = text.replace(f"{root}/", "")
    return f"```console\n$ workbench verify gemm:tma_pipeline --device emulator\n{text}\n```\n"


def refreshed(readme: str) -> str:
    """The README with all quotations as they are now."""
    for name, text in (("excerpt", excerpt()), ("failure", failure()), ("operations", operations())):
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)"
        readme, count = re.subn(pattern, lambda m, text=text: f"{m[1]}{text}{m[2]}", readme, flags=re.DOTALL)
        assert count == 1, name
    return readme

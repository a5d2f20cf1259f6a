"""What README.md quotes: figures of reports, a chart, and what verification says of the kernel that stands in it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from workbench.catalogue import registry
from workbench.model.operation import Operation

ROOT = Path(__file__).parent.parent
TABLE = "### gemm 8192x8192x8192 bf16 nt"
CHART = "docs/pictures/gemm.png"
CHARTED = TABLE.removeprefix("### gemm ")
"""The problem of the chart."""


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
    rows = ["| operation | stages | fastest on an H200 | beside the library |", "|---|---|---|---|"]
    for name, declared in registry.operations().items():
        stages, measured = tree(declared), f"| [{name}](nvidia-h200/{name}.md)"
        line = next((line for line in index.splitlines() if line.startswith(measured)), None)
        if line is None:
            rows.append(f"| [`{name}`](docs/operations/{name}.md) | {stages} | no report yet | - |")
            continue
        stage, best, share = (cell.strip() for cell in line.split("|")[2:5])
        rows.append(f"| [`{name}`](docs/operations/{name}.md) | {stages} | {stage}: {best} | {share} |")
    return "\n".join(rows) + "\n"


def why() -> str:
    """What the workbench is good for, with figures of the committed reports."""
    page = (ROOT / "reports/emulator.md").read_text()
    (hazards,) = re.findall(r"Of the \d+ faults (\d+) are hazards", page)
    (named,) = re.findall(r"^\| emulator +\| +(\d+) \|", page, re.MULTILINE)
    tools = {name: int(count) for name, count in re.findall(r"^\| `(\w+check)` +\| +(\d+) \|", page, re.MULTILINE)}
    best = max(tools, key=lambda name: tools[name])
    share = {name: _best(name) for name in ("gemm", "gemm_fp8", "matvec")}
    return (
        f"- **It names the fault.** Of {hazards} planted hazards the emulator names {named}, each at its line; the "
        f"best tool of compute-sanitizer, `{best}`, reports {tools[best]} ([report](reports/emulator.md)).\n"
        "- **It works without a GPU.** A laptop or a CI runner verifies every commit; only times need a GPU.\n"
        "- **It times only what is right,** interleaved with the vendor's library, and keeps every sample.\n"
        "- **Its own kernels are fast,** and each is a lesson: one idea a stage, from the naive loop to TMA pipelines. "
        f"On an H200 the best reach {share['gemm']} of cuBLAS in bf16, {share['gemm_fp8']} in fp8 and "
        f"{share['matvec']} in fp32 matrix-vector products ([reports](reports/README.md)).\n"
    )


def _best(operation: str) -> str:
    """The share of the vendor's library that the index of the reports gives for an H200."""
    line = next(
        x for x in (ROOT / "reports/README.md").read_text().splitlines() if f"(nvidia-h200/{operation}.md)" in x
    )
    return line.split("|")[4].partition(" of ")[0].strip()


def chart() -> bytes:
    """Throughput of every stage of GEMM on one problem, from the committed report."""
    from workbench.records import store
    from workbench.report import frame, plots

    runs, places = store.load(ROOT / "reports/nvidia-h200"), list(registry.tree("gemm"))
    entries = [(stage, run) for stage, run in store.current(runs) if stage.operation == "gemm"]
    entries.sort(key=lambda entry: places.index(entry[0].stage))
    times = frame.table(entries, registry.tree("gemm"), runs=runs)
    with tempfile.TemporaryDirectory() as folder:
        figure = plots.ladder(times[times.label == CHARTED], registry.operations()["gemm"].metric)
        return plots.save(figure, Path(folder) / "chart.png").read_bytes()


def write_project(readme: str, folder: Path) -> None:
    """Write the files that the README shows, each below the line that ends with its name."""
    shown = re.findall(r"`([\w./]+)`:\n\n```\w+\n(.*?)```", readme, re.DOTALL)
    assert len(shown) == 3, [name for name, _ in shown]
    for name, text in shown:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


def failure(readme: str) -> str:
    """What `workbench verify row_sum` prints of the kernel in the README, in a project that has it."""
    with tempfile.TemporaryDirectory() as folder:
        write_project(readme, Path(folder))
        command = ["workbench", "verify", "row_sum", "--device", "emulator", "--seed", "0"]
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "100",
            "WORKBENCH_VERSIONS": f"{folder}/versions",
        }
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
    said = done.stdout.partition("row_sum:naive: ")
    assert done.returncode == 1 and said[1], done.stdout + done.stderr
    text = (said[1] + said[2]).partition("\nkept as ")[0]
    return f"```console\n$ {' '.join(command[:-2])}\n{text}\n```\n"


def refreshed(readme: str) -> str:
    """The README with all quotations as they are now."""
    quoted = {"why": why(), "excerpt": excerpt(), "failure": failure(readme), "operations": operations()}
    for name, text in quoted.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)"
        readme, count = re.subn(pattern, lambda m, text=text: f"{m[1]}{text}{m[2]}", readme, flags=re.DOTALL)
        assert count == 1, name
    return readme

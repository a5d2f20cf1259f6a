"""How soon `workbench watch` has a verdict after a save: `python benchmarks/watch.py [-o reports/watch-speed.md]`.

Each row is a stage, in a copy of its project that is saved again and again with another comment, so that nothing is
compiled already. The time goes from the save, in this process, to the verdict of the smallest problems, as the watch
prints it: its median over the saves, beside the time that is aimed at. Before each save the watch has nothing to do.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tabulate import tabulate

from workbench.emulator import _engine
from workbench.records import environment
from workbench.run import watch

ROOT = Path(__file__).parent.parent
BAR_S = {"emulator": 1.5, "cuda": 2.0}
SAVES = 20

STAGES = {
    "softmax:naive": ("examples/softmax", "kernels/softmax/1_naive.cu", "64x64,dtype=fp32"),
    "vector_add:naive": ("", "cuda_src/vector_add/1_naive.cu", "1024,dtype=fp32"),
    "gemm:vectorized": ("", "cuda_src/gemm/simt/05_vectorized.cu", "64x64x64,dtype=fp32,out=fp32"),
    "gemm:tma_pipeline": ("", "cuda_src/gemm/wgmma/01_tma_pipeline.cu", "64x64x64,dtype=bf16,out=bf16"),
}
"""Where the project of a stage lies in this checkout, empty for the workbench itself, its source in there, and a small
problem: on a GPU that is timed after the verdict, so that the watch soon has nothing to do."""


@dataclass
class Watched:
    """A running watch."""

    process: subprocess.Popen[str]

    def until(self, kind: str) -> dict[str, Any]:
        """The next event of a kind. Raises RuntimeError where there is trouble instead."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event: dict[str, Any] = json.loads(line)
            if event["event"] == "trouble":
                raise RuntimeError(event["message"])
            if event["event"] == kind:
                return event
        raise RuntimeError(f"the watch has ended with exit code {self.process.wait()}")


def seconds(spec: str, device: str, folder: Path) -> list[float]:
    """From each save to the verdict. Raises RuntimeError where that is not `pass`."""
    project, source, problem = STAGES[spec]
    copy = folder / "workbench"  # the one that is installed is not written to
    for part in ("workbench", "cuda_src"):
        shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__", "engine", "*.so"))
    shutil.copy(_engine.__file__, copy / "workbench/emulator")
    home = shutil.copytree(ROOT / project, folder / "project") if project else copy
    paths = os.pathsep.join(filter(None, (str(copy), os.environ.get("PYTHONPATH"))))
    environ = {**os.environ, "PYTHONPATH": paths, "WORKBENCH_VERSIONS": str(folder / "kept")}
    where = [sys.executable, "-c", "import workbench; print(workbench.__file__)"]
    found_there = subprocess.run(where, cwd=home, env=environ, capture_output=True, text=True).stdout
    if not Path(found_there).is_relative_to(copy):
        raise SystemExit("the workbench is installed to be edited (pip install -e): no copy of it can be watched")
    command = [sys.executable, "-m", "workbench", "watch", spec, "--device", device, "--examples", "1", "--json"]
    command += ["--problem", problem] if device == "cuda" else []
    path, found = home / source, []
    text = path.read_text()
    with subprocess.Popen(command, cwd=home, env=environ, stdout=subprocess.PIPE, text=True) as process:
        watched = Watched(process)
        try:
            watched.until("idle")
            for number in range(SAVES):
                time.sleep(0.5)  # nobody saves twice in no time: the next process is ready
                started = time.perf_counter()
                path.write_text(f"{text}// {number}\n")
                verdict = watched.until("first")["verification"]
                found.append(time.perf_counter() - started)
                if (verdict["verdict"], verdict["problems"]) != ("pass", watch.FIRST):
                    raise RuntimeError(f"{spec}: {verdict}")
                watched.until("idle")
        finally:
            process.terminate()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=sorted(BAR_S), default="emulator")
    parser.add_argument("-o", "--output", type=Path, help="write the table there as Markdown too")
    parser.add_argument("stage", nargs="*", help=f"of these: {', '.join(STAGES)}; all by default")
    chosen = parser.parse_args()
    bar, rows, busy = BAR_S[chosen.device], [], os.getloadavg()[2]
    for spec in chosen.stage or STAGES:
        with tempfile.TemporaryDirectory() as folder:
            found = seconds(spec, chosen.device, Path(folder))
        median = statistics.median(found)
        limits = f"{min(found):.2f} to {max(found):.2f} s"
        rows.append([spec, f"{median:.2f} s", limits, f"<= {bar:g} s", "yes" if median <= bar else "**no**"])
    table = tabulate(rows, ["stage", "median", "all", "bar", "kept"], tablefmt="pipe", disable_numparse=True)
    print(table)
    if chosen.output:
        made = environment.describe()
        where = f"commit {made.commit}{' with changes' if made.dirty else ''}, {made.date}, {made.host}"
        title = f"How soon a save has a verdict{' on a GPU' if chosen.device == 'cuda' else ''}"
        chosen.output.write_text(
            f"# {title}\n\nWritten by `benchmarks/watch.py`: {where}, Python {made.python}. From "
            f"saving a source to the verdict of its smallest {watch.FIRST} problems on the {chosen.device}, each in "
            f"two tiers, over {SAVES} saves; nothing was compiled before. Other work on the machine: a "
            f"load of {busy:.1f}.\n\n{table}\n"
        )


if __name__ == "__main__":
    main()

"""Two full benches of the same code, an hour or more apart: makes `reports/repeated.md` of what `compare` says of them.

workbench bench gemm matvec vector_add --fresh --output FOLDER   # twice, on a machine with a GPU
python benchmarks/repeated.py keep first RESULTS.json ...        # takes over the record of a bench, or of its parts
python benchmarks/repeated.py keep second RESULTS.json ...       # beside the newest first one
python benchmarks/repeated.py write                              # the page, of all pairs that were taken over
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from tabulate import tabulate

from workbench.model.results import Runs
from workbench.report import changes, derived
from workbench.report.changes import Outcome

KEPT = Path(__file__).parents[1] / "reports/repeated"
BENCHES = ("first", "second")


def pairs() -> list[Path]:
    """Their folders, the newest first: the name is when the first bench was begun."""
    return sorted((path for path in KEPT.iterdir() if path.is_dir()), reverse=True)


def keep(bench: str, files: list[Path]) -> None:
    """Take over the records of a bench: of a first one as a new pair, of a second one into the newest."""
    runs = [run for path in files for run in Runs.load(path).runs]
    begun = re.sub(r"[-:]", "", min(run.environment.date for run in runs))
    Runs(runs).save(_record(KEPT / begun if bench == BENCHES[0] else pairs()[0], bench))


def _record(pair: Path, bench: str) -> Path:
    return pair / f"{bench}.json.gz"


def _interval(ratio: changes.Ratio) -> str:
    between = "" if ratio.low is None or ratio.high is None else f" ({ratio.low:.3f} to {ratio.high:.3f})"
    return f"{ratio.estimate:.3f}{between}"


def page() -> str:
    """The Markdown page."""
    return "\n".join(
        (
            "# Two benches of the same code\n",
            "Each folder of `reports/repeated` has two benches of the same code. This page shows what `workbench "
            "compare` says about the two. Written by `benchmarks/repeated.py`. Parts of a bench were made on several "
            "GPUs at once.\n",
            *(part for pair in pairs() for part in section(pair)),
        )
    )


def section(pair: Path) -> list[str]:
    """What the page says of a pair."""
    first, second = (Runs.load(_record(pair, bench)).runs for bench in BENCHES)
    found = changes.compare(first, second)
    same = sum(c.outcome is Outcome.SAME for c in found.changes)
    made = [
        [bench, run.environment.date, f"`{run.environment.commit[:12]}`", run.device.name, run.device.driver]
        for bench, runs in zip(BENCHES, (first, second), strict=True)
        for run in runs
    ]
    others = [
        [
            f"`{c.operation}:{c.stage}` {c.label}",
            c.kind,
            derived.duration(c.before_us),
            derived.duration(c.after_us),
            _interval(c.used),
            str(c.outcome),
        ]
        for c in found.changes
        if c.outcome is not Outcome.SAME
    ]
    alone = zip(BENCHES, (found.only_before, found.only_after), strict=True)
    headers = ["row", "timing", "first", "second", "second / first", ""]
    return [
        f"## {pair.name}\n",
        tabulate(made, ["bench", "begun", "commit", "device", "driver"], tablefmt="pipe") + "\n",
        f"**{found.summary}: {100 * same / len(found.changes):.1f} % the same.**\n",
        *(f"- {note}" for note in found.notes),
        *(f"- only in the {bench}: {len(missing)} problems of stages" for bench, missing in alone if missing),
        "",
        *(["These rows are not the same:\n", tabulate(others, headers, tablefmt="pipe") + "\n"] if others else []),
    ]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(dest="step", required=True)
    kept = steps.add_parser("keep")
    kept.add_argument("bench", choices=BENCHES)
    kept.add_argument("files", type=Path, nargs="+")
    steps.add_parser("write")
    chosen = parser.parse_args()
    if chosen.step == "keep":
        keep(chosen.bench, chosen.files)
    else:
        KEPT.with_suffix(".md").write_text(page())


if __name__ == "__main__":
    main()

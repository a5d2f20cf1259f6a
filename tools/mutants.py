"""Makes `reports/mutation.md`, or another page, of what `workbench mutate ... --json` printed.

workbench mutate gemm:naive ... --jobs 16 --json > mutation.json
python tools/mutants.py mutation.json [reports/mutation-sample.md]

Reasons that were written down since then are taken in, as long as the sources are those that were changed.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tabulate import tabulate

from workbench.catalogue import registry
from workbench.checks import mutate
from workbench.model import compact

PAGE = Path(__file__).parent.parent / "reports/mutation.md"


def by_file(mutants: list[dict[str, Any]]) -> str:
    """A table with a row for each source."""
    rows = []
    for file in sorted({m["file"] for m in mutants}):
        outcomes = Counter(m["outcome"] for m in mutants if m["file"] == file)
        compiled = sum(outcomes[o] for o in ("killed", "explained", "survived"))
        rows.append([f"`{file}`", compiled, outcomes["killed"], outcomes["explained"], outcomes["survived"]])
    rows.append(["all", *(sum(row[i] for row in rows) for i in range(1, 5))])
    header = ["source", "compiled, another program", "killed", "pass, explained", "survive"]
    return tabulate(rows, header, tablefmt="pipe")


def shown(mutant: Mapping[str, str]) -> str:
    """A mutant that passed: where, its diff, and why it may pass."""
    changed = "\n".join(line for line in mutant["diff"].splitlines() if not line.startswith(("---", "+++", "@@")))
    title = f"`{mutant['file']}:{mutant['line']}`: {mutant['reason'] or 'not explained'}"
    return f"{title}\n\n```diff\n{changed}\n```\n"


def with_reasons(found: Mapping[str, Any]) -> dict[str, Any]:
    """The same, with the reasons that are written down by now.

    Raises ValueError where the sources are no longer those of the run.
    """
    made = mutate.sample(registry.select(found["specs"]), found.get("limit"), found["seed"])
    entries = found["mutants"]
    if [(m.file, m.line, m.old, m.new) for m in made] != [(e["file"], e["line"], e["old"], e["new"]) for e in entries]:
        raise ValueError("the sources have changed since these mutants were made: make them again")
    judged = [
        mutate.Judged(m, mutate.Outcome(e["outcome"]), e["verdict"], e["problem"], e["reason"])
        for m, e in zip(made, entries, strict=True)
    ]
    return {**found, **mutate.Report(mutate.explained(judged)).as_dict()}


def page(found: Mapping[str, Any], record: str = "mutation.json.gz") -> str:
    """The Markdown page, which has its record beside it."""
    made, mutants = found["environment"], found["mutants"]
    limit = f" --limit {found['limit']}" if found.get("limit") else ""
    command = (
        f"workbench mutate {' '.join(found['specs'])} --examples {found['examples']}{limit} --seed {found['seed']}"
    )
    commit = f"`{made['commit'][:12]}`{', changed' if made['dirty'] else ''}"
    passed = [m for m in mutants if m["outcome"] in ("survived", "explained")]
    verdicts = sorted(found["verdicts"].items(), key=lambda item: (-item[1], item[0]))
    parts = (
        f"# Mutation: would verification notice?{' A sample' if limit else ''}\n",
        "Small changes to the CUDA sources, each verified in the emulator on problems that verification draws, until "
        "one fails ([how](../docs/mutation.md)). Written by `tools/mutants.py` from [the JSON beside it]"
        f"({record}): `{command}`, commit {commit}, {made['date'][:10]}.\n",
        f"{found['summary'][0].upper()}{found['summary'][1:]}.\n",
        f"{by_file(mutants)}\n",
        "## What killed them\n",
        tabulate(verdicts, ["verdict", "mutants"], tablefmt="pipe") + "\n",
        "## Those that pass\n",
        *map(shown, passed),
    )
    return "\n".join(parts)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="what `workbench mutate --json` printed")
    parser.add_argument("page", type=Path, nargs="?", default=PAGE, help="what is written, with a record beside it")
    arguments = parser.parse_args()
    found = with_reasons(json.loads(arguments.results.read_text())["result"])
    record = arguments.page.with_suffix(".json.gz")
    compact.write(found, record)
    arguments.page.write_text(page(found, record.name))

"""What a search finds, beside what trying everything finds and beside what was picked by hand: `reports/tuning.md`.

    python benchmarks/tuned.py measure OUTPUT.json   # on a machine with a GPU
    python benchmarks/tuned.py write [OUTPUT.json]   # the page, of that file and nothing else

Each search has a table of its own, so that none knows what another has found, and nothing that is here is touched. What
the searches chose is timed at length in the end, all interleaved, since times of different minutes cannot be compared.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import recorded
from tabulate import tabulate

from workbench.catalogue import registry
from workbench.devices import open_device
from workbench.measure import configurations, places, tuning
from workbench.measure.judged import solved
from workbench.measure.timing import Effort
from workbench.model.problem import Problem
from workbench.model.stage import Stage
from workbench.records import environment, tuned
from workbench.report import derived
from workbench.toolchain.compiler import compile_stage
from workbench.workers.cluster import Processes

RECORD = Path(__file__).parents[1] / "reports/tuning.json"

LIMIT = 60.0
"""Seconds of a search that is compared with trying everything."""

EVERYTHING = 3600.0
"""Seconds that are never needed."""

SPACES = {
    "gemm:cp_async": "4096x4096x4096,dtype=bf16,out=bf16,layout=nt",
    "gemm:warp_tiles": "4096x4096x4096,dtype=fp32,out=fp32,layout=nn",
}
"""The largest spaces, of which the search cannot try all in its time."""

PICKED = ("4096x4096x4096,dtype=bf16,out=bf16,layout=nt", "512x8192x8192,dtype=bf16,out=bf16,layout=nt")
"""Problems for which the table that ships has a stage and its parameters."""

CANDIDATES = ("persistent", "fitted_tiles", "multicast", "ping_pong", "streamed")
"""Stages of GEMM that could be faster than what was picked."""

SHARE = 15.0
"""Seconds of a search for each of them but the stage that was picked, which has `LIMIT`."""


def search(stage: Stage[Any], place: places.Here, problem: Problem, seconds: float) -> tuning.Tuning:
    """What a search finds that begins with an empty table."""
    with tempfile.TemporaryDirectory() as folder:
        return tuning.tune(stage, place, problem, tuned.Table(Path(folder) / tuned.FILE), seconds=seconds)


def raced(device: Any, problem: Problem, stages: Sequence[Stage[Any]]) -> list[float]:
    """Cold medians in microseconds of stages with their parameters, timed interleaved."""
    case, plans = solved(problem), []
    storage = case.storage()
    try:
        for stage in stages:
            compiled = compile_stage(stage, problem)
            plans.append(device.bind(compiled, stage.plan(problem), case.arrays, storage, problem.seed))
            plans[-1].run()
        l2_bytes = device.info().l2_bytes
        samples = device.together(plans, configurations.race, Effort(), l2_bytes, seconds=60.0)
        return [derived.median(one) for one in samples]
    finally:
        for plan in plans:
            plan.close()


def found_by(result: tuning.Tuning) -> dict[str, Any]:
    """A search in types that JSON has."""
    assert result.best is not None, result.trouble
    outcome: dict[str, Any] = {"parameters": dict(result.best.parameters), "seconds": result.seconds}
    return outcome | {"tried": len(result.trials), "rejected": len(result.rejected), "allowed": result.allowed}


def measure(output: Path) -> None:
    """Makes the record; what has been measured is saved at once."""
    device = open_device("cuda")
    gemm = registry.operations()["gemm"]
    record = recorded.begin(device.info(), "spaces", "picked")
    with Processes(environment.core_count()) as pool:
        place = places.Here(device, pool, environment.core_count())
        for text in PICKED:
            problem = gemm.problem.parse(text)
            picked = tuned.hand_picked(device.info().name, "gemm", problem)
            assert picked is not None
            results = [
                search(stage, place, problem, LIMIT if stage.spec == picked.spec else SHARE)
                for stage in gemm.stages
                if stage.name in CANDIDATES and stage.supports(problem) is None
            ]
            best = min((r for r in results if r.best), key=lambda r: r.best.us if r.best else 0.0)
            assert best.best is not None
            (stage,) = registry.select([best.spec])
            times = raced(device, problem, [picked, stage.with_parameters(best.best.parameters)])
            record["picked"].append(
                {
                    "problem": text,
                    "picked": {"spec": picked.spec, "parameters": dict(picked.parameters), "us": times[0]},
                    "tuned": {"spec": best.spec, **found_by(best), "us": times[1]},
                    "searches": [{"spec": r.spec, **found_by(r), "us": r.best.us} for r in results if r.best],
                }
            )
            recorded.save(record, output)
            print(text, "picked and tuned", times, flush=True)
        for spec, text in SPACES.items():
            (stage,) = registry.select([spec])
            problem = gemm.problem.parse(text)
            short, whole = (search(stage, place, problem, seconds) for seconds in (LIMIT, EVERYTHING))
            rows = {"searched": found_by(short), "everything": found_by(whole)}
            stages = [stage, *(stage.with_parameters(row["parameters"]) for row in rows.values())]
            declared, *times = raced(device, problem, stages)
            for row, us in zip(rows.values(), times, strict=True):
                row["us"] = us
            record["spaces"].append({"spec": spec, "problem": text, "declared_us": declared, **rows})
            recorded.save(record, output)
            print(spec, "declared, searched, everything", declared, times, flush=True)
    device.close()


def parameters(of: dict[str, int]) -> str:
    """As they are written in commands."""
    return ", ".join(f"{name}={value}" for name, value in of.items())


def page(record: dict[str, Any]) -> str:
    """The Markdown page."""
    spaces = [
        [
            f"`{row['spec']}`",
            row["problem"],
            f"{row['searched']['tried']} of {row['searched']['allowed']}",
            f"{row['searched']['seconds']:.0f}",
            f"{row['everything']['seconds']:.0f}",
            f"{row['declared_us']:,.1f}",
            f"{row['searched']['us']:,.1f}",
            f"{row['everything']['us']:,.1f}",
            f"{row['searched']['us'] / row['everything']['us']:.3f}",
        ]
        for row in record["spaces"]
    ]
    picked = [
        [
            row["problem"],
            f"`{row['picked']['spec']}` {parameters(row['picked']['parameters'])}",
            f"`{row['tuned']['spec']}` {parameters(row['tuned']['parameters'])}",
            f"{row['picked']['us']:,.1f}",
            f"{row['tuned']['us']:,.1f}",
            f"{row['picked']['us'] / row['tuned']['us']:.3f}",
        ]
        for row in record["picked"]
    ]
    searches = [
        [row["problem"], f"`{s['spec']}`", f"{s['tried']} of {s['allowed']}", f"{s['us']:,.1f}"]
        for row in record["picked"]
        for s in row["searches"]
    ]
    tables = (
        (
            "## A search of one minute, and all configurations",
            spaces,
            ["stage", "problem", "tried", "s", "all, s", "declared, us", "found, us", "best of all, us", "ratio"],
        ),
        (
            "## Stages picked by hand, and the best that was found",
            picked,
            ["problem", "picked", "found", "picked, us", "found, us", "picked / found"],
        ),
        ("What each search found, timed when it ended:", searches, ["problem", "stage", "tried", "us"]),
    )
    lines = [
        "# What tuning finds\n",
        "Written by `benchmarks/tuned.py` from [the JSON beside it](tuning.json). Times are cold medians; those of one "
        "row were measured interleaved.\n",
        recorded.made_on(record),
    ]
    for title, rows, headers in tables:
        if rows:
            lines += [f"{title}\n", tabulate(rows, headers, tablefmt="pipe", disable_numparse=True) + "\n"]
    return "\n".join(lines)


if __name__ == "__main__":
    recorded.main(__doc__, RECORD, lambda o: measure(o.file), page)

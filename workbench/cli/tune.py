"""The search for the parameters with which stages are fastest."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import click

from ..catalogue import registry
from ..measure import tuning
from ..measure.places import Here, There
from ..model.problem import Problem
from ..model.stage import Stage
from ..records import tuned
from ..report import derived
from . import documents
from .console import StageProgress, console, notice, table
from .main import Interrupted, options, specs_argument
from .sessions import place_of, problems_of


def _budget(_: click.Context, __: click.Parameter, text: str) -> float:
    try:
        return tuning.parse_budget(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command()
@specs_argument
@click.option(
    "--budget",
    default="60s",
    show_default=True,
    metavar="TIME",
    callback=_budget,
    help="Time for each stage and class of problems: 60s, 5m, 1h.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    help="Number of processes that compile (default: one for each core), or of workers of --cluster local (default: "
    "one for each GPU).",
)
@click.option("--show", is_flag=True, help="Show what tuning has found so far, and tune nothing.")
@options("device", "cluster", "seed", "problem", "json")
def tune(
    specs: tuple[str, ...],
    budget: float,
    jobs: int | None,
    show: bool,
    device_name: str,
    cluster: str | None,
    seed: int,
    problem_text: str | None,
    as_json: bool,
) -> None:
    """Search for the fastest parameters of stages; workbench.ops then uses them. Needs a GPU to time.

    Every configuration is verified before it is timed. Without --problem, every class of the suite's problems is tuned.
    Results are kept, whatever ends the search. On the emulator, configurations are compiled and verified, and nothing
    is timed. Then the exit code is 1 if one is rejected, or if the time is up before all were verified."""
    stages = registry.select(specs)
    table = tuned.table_for(stages)
    if show:
        if as_json:
            documents.result({"tuned": tuned.as_dict(table, stages)})
        else:
            show_tuned(tuned.listing(table, stages))
        return
    if not specs:
        raise click.UsageError("name what is to be tuned, for example: workbench tune gemm:fitted_tiles")
    problems = problems_of(stages, problem_text)
    found: list[tuning.Tuning] = []
    with place_of(device_name, cluster, jobs) as place:
        searches = tuning.searches(stages, problems, place.device)
        notice(f"searches to make: {len(searches)}, of about {budget:.0f} s each")
        try:
            for outcome in _outcomes(searches, place, table, budget, seed):
                found.append(outcome)
        finally:
            if as_json:
                documents.result({"searches": [dataclasses.asdict(f) | {"ok": f.ok} for f in found]})
            elif found:
                show_tuning(found)
    if not place.device.times:
        notice("the emulator verifies and does not time: nothing was timed, and nothing is used by workbench.ops")
    if found[-1].interrupted:
        kept = f"what was found is in {table.path}" if found[-1].timed else "the configurations were not all verified"
        raise Interrupted(f"interrupted; {kept}")
    _notice_what_is_left(found)
    if not all(f.ok for f in found):
        raise click.exceptions.Exit(1)


def _outcomes(
    searches: Sequence[tuple[Stage[Any], Problem]], place: Here | There, table: tuned.Table, budget: float, seed: int
) -> Iterator[tuning.Tuning]:
    """What the searches find, one after the other, up to the one that is interrupted; progress is shown."""
    with tuning.interrupts() as interrupted, StageProgress(len(searches), 0) as progress:
        options: dict[str, Any] = {"seconds": budget, "seed": seed, "interrupted": interrupted}
        if place.at_once == 1:
            options["on_trial"] = progress.verified
            options["on_start"] = lambda count: progress.count("configurations", count)
        for outcome in tuning.tune_each(searches, place, table, **options):
            progress.begin(outcome.spec)
            progress.end_with(outcome.summary)
            yield outcome
            if outcome.interrupted:
                return


def _notice_what_is_left(found: Sequence[tuning.Tuning]) -> None:
    for f in found:
        if not f.timed and f.left and not f.trouble:
            notice(
                f"{f.spec} on {f.problem_class}: the time was up before {f.left} of {f.allowed} configurations were "
                "verified; give it more with --budget"
            )


def show_tuning(searches: Iterable[tuning.Tuning]) -> None:
    """What each search found, and why configurations were rejected."""
    searches = list(searches)
    headers = ("stage", "problems", "parameters", "cold", "declared", "gain", "of vendor", "tried", "rejected")
    rows = []
    for s in searches:
        best = s.best
        figures = ("-",) * 5
        if best:
            vendor = derived.percent(best.vendor_us / best.us if best.vendor_us else None)
            times = (derived.duration(best.us), derived.duration(best.default_us))
            figures = (_parameters(best.parameters), *times, f"{best.default_us / best.us:.2f}x", vendor)
        rows.append((s.spec, s.problem_class, *figures, f"{len(s.trials)} of {s.allowed}", len(s.rejected)))
    out = console()
    out.print(table(headers, rows, headers[3:]))
    for s in searches:
        if s.trouble:
            out.print(f"{s.spec} on {s.problem_class}: {s.trouble}", soft_wrap=True)
        for trial in s.rejected:
            out.print(f"{s.spec} {_parameters(trial.parameters)}: {trial.reason}", soft_wrap=True)


def show_tuned(lines: Iterable[tuned.Listed]) -> None:
    """The table of tuned parameters."""
    headers = ("device", "stage", "problems", "parameters", "cold", "declared", "of vendor", "state")
    rows = []
    for line in lines:
        entry, figures = line.entry, ("-",) * 3
        if entry:
            share = entry.vendor_us / entry.us if entry.vendor_us else None
            figures = (derived.duration(entry.us), derived.duration(entry.default_us), derived.percent(share))
        rows.append((line.device, line.spec, line.problem_class, _parameters(line.parameters), *figures, line.state))
    console().print(table(headers, rows, headers[4:7], 2))


def _parameters(parameters: Mapping[str, int]) -> str:
    return " ".join(f"{name}={value}" for name, value in parameters.items())

"""The command line of a benchmark that keeps what it measured as JSON, and makes its page of that and nothing else."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from workbench.catalogue import registry
from workbench.devices.cuda import CudaPlan
from workbench.harness import Case
from workbench.measure.baselines import baselines_for
from workbench.measure.timing import Enqueue
from workbench.model import compact
from workbench.model.arrays import Arrays
from workbench.model.problem import Problem
from workbench.model.results import DeviceInfo, Run, StageResult
from workbench.records import environment, store
from workbench.report import derived
from workbench.toolchain import ncu

Record = dict[str, Any]

REPORTS = Path(__file__).parents[1] / "reports"


def begin(device: DeviceInfo, *lists: str) -> Record:
    """A record of this code on a device, with lists that are still empty. Ends the program where the checkout has
    uncommitted changes: nobody could look up what was measured."""
    here = environment.describe()
    if here.dirty:
        raise SystemExit("the checkout has uncommitted changes: commit them first, so that the record names its code")
    made: Record = {"environment": asdict(here), "device": asdict(device)}
    return made | {name: [] for name in lists}


def made_on(record: Record) -> str:
    """The line of a page that says where, when and of which commit its figures are."""
    made, device = record["environment"], record["device"]
    return f"{device['name']}, driver {device['driver']}, commit `{made['commit'][:12]}`, {made['date'][:10]}.\n"


def save(record: Record, path: Path) -> None:
    """Write a record as it is now."""
    compact.write(record, path)


def read(path: Path) -> Record:
    """A record that was saved."""
    record: Record = compact.read(path)
    return record


def page_beside(record: Path) -> Path:
    """Where the page of a record is: `reports/tuning.md`."""
    return record.with_name(f"{record.name.partition('.')[0]}.md")


def storage(problem: Problem, inputs: Arrays) -> Arrays:
    """Fresh storage for every array of a problem, of these inputs, without a reference: nothing is judged."""
    return Case(problem, problem.arrays(), inputs, {}, {}).storage()


def libraries(operation: str, plan: CudaPlan, problem: Problem) -> Iterator[tuple[str, Enqueue, Any]]:
    """The vendor's libraries on the inputs of a bound plan: name, what enqueues a launch, and the outputs of their own,
    which have to live as long."""
    arrays = problem.arrays()
    for baseline in baselines_for(operation):
        outputs = {name: plan.filled_like(name) for name, array in arrays.items() if array.output}
        yield baseline.name, baseline.prepare(problem, arrays, {**plan.buffers, **outputs}).enqueue, outputs


def counted(row: Record, columns: Mapping[str, str], units: Mapping[str, float]) -> list[str]:
    """A launch that ncu counted, as cells of a table: its kernel, without what a template was made with, and metrics,
    in these units, 1 where none is named."""
    found = [f"`{row['kernel'].removeprefix('void ').partition('<')[0]}`"]
    for name, metric in columns.items():
        value = row["metrics"].get(metric.removesuffix(".sum"))  # as workbench.toolchain.ncu names it
        found.append("-" if value is None else derived.three_digits(value * units.get(name, 1.0)))
    return found


def count(record: Record, output: Path, script: str, metrics: Iterable[str], kernels: str, *, seconds: float) -> None:
    """Have ncu count what `python script launch` launches, of kernels whose names match, and save it in the record."""
    with tempfile.TemporaryDirectory() as folder:
        command, log = [sys.executable, script, "launch"], Path(folder) / "ncu.csv"
        rows, trouble = ncu.collect(ncu.find(), list(metrics), kernels, command, log, seconds)
    record["counters"], record["trouble"] = rows, trouble
    save(record, output)
    print(len(record["times"]), "times,", len(rows), "launches counted", trouble, flush=True)


def bench(operation: str) -> list[tuple[StageResult, Run]]:
    """What the committed bench of an H200 found of an operation's stages, in ladder order, and the run each is from."""
    runs = store.load(REPORTS / "nvidia-h200")
    found = [(result, run) for result, run in store.current(runs) if result.operation == operation]
    ladder = [stage.name for stage in registry.operations()[operation].stages]
    return sorted(found, key=lambda each: ladder.index(each[0].stage) if each[0].stage in ladder else len(ladder))


def main(
    description: str | None,
    committed: Path,
    measure: Callable[[argparse.Namespace], None],
    page: Callable[[Record], str],
    draw: Callable[[Record, Path], object] = lambda record, folder: None,
    merge: Callable[[Record, Record], Record] = lambda before, record: record,
    **options: dict[str, Any],
) -> None:
    """`measure FILE` lets `measure` fill the file; `write [FILE]` takes it over and makes the page beside `committed`,
    and what `draw` puts into the folder of that. `merge` makes of what was committed before, and of the file, what is.

    `options` are those of argparse, by name.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("measure", "write"))
    parser.add_argument("file", type=Path, nargs="?", default=committed)
    for name, how in options.items():
        parser.add_argument(f"--{name}", **how)
    chosen = parser.parse_args()
    if chosen.step == "measure":
        measure(chosen)
        return
    record = read(chosen.file)
    if chosen.file != committed:
        record = merge(read(committed), record) if committed.exists() else record
        save(record, committed)
    draw(record, committed.parent)
    page_beside(committed).write_text(page(record))

"""What there is, what a new kernel begins with, and what this machine can do."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from ..catalogue import registry
from ..catalogue.registry import BadProject
from ..model.operation import Operation
from ..model.stage import Stage
from . import documents, new, tasks
from .console import console, table
from .doctor import State, examine
from .main import options, specs_argument


@click.command("list")
@specs_argument
@options("json")
def list_stages(specs: tuple[str, ...], as_json: bool) -> None:
    """List operations and their stages, track by track, with the parent of each and where they come from."""
    stages = registry.select(specs) if specs else registry.stages()
    origins = {name: operation.origin for name, operation in registry.operations().items()}
    if as_json:
        listed = [
            {"spec": s.spec, "idea": s.idea, "source": s.source, "architecture": s.architecture}
            | {"parameters": dict(s.parameters), "origin": origins[s.operation]}
            | {"track": s.track, "parent": s.parent}
            for s in stages
        ]
        documents.result({"stages": listed})
    else:
        out = console()
        for operation in registry.operations().values():
            chosen = [s for s in stages if s.operation == operation.name]
            head = f"{operation.name}: {operation.summary} ({operation.origin}"
            if chosen:
                out.print(f"{head})", style="bold")
                _show(operation, chosen)
            elif not specs:
                out.print(f"{head}; no stages yet)", style="bold")
    if not specs and registry.troubles():
        raise BadProject("\n".join(registry.troubles()))


def _show(operation: Operation[Any], chosen: Sequence[Stage[Any]]) -> None:
    """These stages of an operation: a table a track, branches marked."""
    out = console()
    stages = {stage.name: stage for stage in chosen}
    tree = {name: place for name, place in operation.tree().items() if name in stages}
    for track in dict.fromkeys(place.track for place in tree.values()):
        if track:
            out.print(f"\ntrack {track}")
        rows = [
            (place.shown(name), place.parent or "-", stages[name].idea, stages[name].source)
            for name, place in tree.items()
            if place.track == track
        ]
        out.print(table(("stage", "parent", "idea", "source"), rows))


@click.command("new")
@click.argument("name", metavar="OPERATION[:STAGE]")
@click.option("--from", "previous", metavar="NAME", help="The operation, or the stage, to copy.")
@click.option("--like", type=click.Choice(new.KINDS), help="The template of a new operation.  [default: reduction]")
@click.option("--full", is_flag=True, help="A class of problems, a reference and an empty kernel, in a folder.")
@options("json")
def new_(name: str, previous: str | None, like: str | None, full: bool, as_json: bool) -> None:
    """Write the files of a new operation, or of the next stage of one. Nothing is overwritten.

    OPERATION gets a module that declares it and defines it in NumPy, a first kernel that passes, and a test; change
    them to what you need. With --full or --from it gets a folder with a class of problems, a NumPy reference, a CUDA
    source without its kernel, and a test that fails until the kernel is written. OPERATION:STAGE --from STAGE copies
    the source and the declaration of STAGE."""
    if ":" in name:
        if not previous or like or full:
            raise click.UsageError(f"a stage begins as a copy of another: workbench new {name} --from STAGE")
        made = new.stage(name, previous)
    else:
        if previous and like:
            raise click.UsageError("give either --from or --like")
        made = new.operation(name, like=like or new.KINDS[0], base=previous, full=full)
    show_made(made, as_json)


def show_made(made: new.Made, as_json: bool) -> None:
    """Files that were written and added to, and what is to be done next."""
    if as_json:
        documents.result({"written": made.written, "added": made.added, "next": made.next})
        return
    for path in made.written:
        click.echo(f"wrote {path}")
    for path in made.added:
        click.echo(f"added to {path}")
    for number, step in enumerate(made.next, 1):
        click.echo(f"{number}. {step}")


@click.command("import")
@click.argument("kind", type=click.Choice(tasks.KINDS), metavar="kernelbench|gpumode")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--name", metavar="OPERATION", help="What the operation is called; by default after the task.")
@options("json")
def import_(kind: str, path: Path, name: str | None, as_json: bool) -> None:
    """Make an operation of a task of KernelBench, a FILE.py, or of gpu-mode, a FOLDER with reference.py and task.yml.

    PyTorch has to be installed: the task is run on the CPU to learn its shapes, and is the reference. The operation
    gets a folder with a declaration, a copy of the task, a first CUDA source without its kernel, and a test. Nothing is
    overwritten."""
    from . import imports  # with what looks at PyTorch, which no other command needs

    show_made(imports.import_task(kind, path, name), as_json)


@click.command()
@options("json", "output")
def doctor(as_json: bool, output: Path) -> None:
    """Say what this machine can do, what is missing, and the remedy. Exit code 1 if it can verify no stage."""
    diagnosis = examine(output)
    if as_json:
        documents.result({**dataclasses.asdict(diagnosis), "usable": diagnosis.usable, "summary": diagnosis.summary})
    else:
        styles = {State.OK: "green", State.MISSING: "bold red", State.OPTIONAL: "yellow"}
        rows = [(c.name, Text(c.state, styles[c.state]), c.found, c.remedy) for c in diagnosis.checks]
        out = console()
        out.print(table(("", "state", "found", "remedy"), rows))
        out.print(diagnosis.summary)
    if not diagnosis.usable:
        raise click.exceptions.Exit(1)

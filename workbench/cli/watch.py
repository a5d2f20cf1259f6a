"""A run on every save."""

from __future__ import annotations

import sys

import click

from ..run import watch as watching
from . import documents
from .main import options
from .sessions import one_stage


@click.command()
@click.argument("spec")
@options("device", "seed", "examples", "problem", "isolate", "json")
def watch(
    spec: str, device_name: str, seed: int, examples: int, problem_text: str | None, isolate: bool, as_json: bool
) -> None:
    """Verify a stage whenever its source, a header or its declaration is saved. On a GPU, also time it.

    The smallest problems come first, then --examples random ones. Then the stage is timed, and compared with its last
    good version and with its parent. Every version that passes is kept. A save during a run starts the run again.
    Ctrl-C ends the watch. With --json, every event is one line."""
    sys.dont_write_bytecode = True  # it is told from its source by the second, and there may be two saves in one
    saves = watching.Saves()
    stage, _ = one_stage(spec, problem_text)
    job = watching.Job(stage.spec, device_name, examples, seed, problem_text, isolate)

    def show(event: watching.Event) -> None:
        if as_json:
            documents.line(watching.as_dict(event))
        else:
            for line in watching.lines(event):
                click.echo(line)

    watching.Watch(job, saves, show).follow()

"""`workbench capture`: whole programs without a GPU."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from ..model.errors import WorkbenchError
from . import documents
from .options import Number, options


class NotCaptured(WorkbenchError):
    """A program that cannot be started, or an architecture that there is not."""


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--kernel", metavar="NAME", help="Check launches of this kernel alone; others are executed unchecked.")
@click.option("--sample", type=click.IntRange(1), metavar="N", help="Of each kernel check the first N launches.")
@click.option("--arch", metavar="SM", help="Architecture of the device; sm_90a by default.")
@click.option("--max-seconds", type=Number(0, min_open=True), help="A launch that takes longer counts as hung.")
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), default=0, help="Seed of the order of warps.")
@click.option("--strict", is_flag=True, help="Also fail for strict findings, among them memory that is never freed.")
@click.option("--suppress", multiple=True, metavar="KIND[@FILE:LINE]", help="Hide findings of this kind.")
@options("json")
def capture(program: tuple[str, ...], as_json: bool, **how: Any) -> None:
    """Run a program that was built for CUDA, without a GPU: every launch is executed and checked.

    PROGRAM is a program of nvcc with PTX in it, or any other that runs one, with its arguments. Options of this
    command stand before it:

    \b
      workbench capture ./program 1024
      workbench capture --strict python -m pytest tests
      workbench capture --kernel reduce -- ./program -n 8

    Exit codes: 0 no hazard, 1 a hazard, a call or a kernel that is not emulated; otherwise that of the program.
    """
    from .. import emulator
    from ..emulator.capture import CaptureError
    from ..emulator.capture import capture as run

    try:
        found = run(program, **how)
    except (CaptureError, emulator.ArchitectureError) as error:
        raise NotCaptured(str(error)) from None
    if as_json:
        documents.result(found.as_dict())
    else:
        sys.stdout.flush()
        click.echo(str(found))
        if found.findings and all(finding.location is None or _is_ptx(finding) for finding in found.findings):
            click.echo("lines are those of the PTX: compile with -lineinfo for lines of the source", err=True)
    if not found.ok:
        raise click.exceptions.Exit(1)
    if found.exit_code:
        raise click.exceptions.Exit(found.exit_code if found.exit_code > 0 else 128 - found.exit_code)


def _is_ptx(finding: Any) -> bool:
    return Path(finding.location.file).suffix in ("", ".ptx")

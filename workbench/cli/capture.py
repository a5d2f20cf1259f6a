"""`workbench capture`: whole programs without a GPU."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .. import __version__
from ..model.errors import WorkbenchError, shown
from . import documents
from .main import Number, options

if TYPE_CHECKING:
    from ..emulator.capture import Captured
    from ..report.judged import Judged

_STDERR = 2


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
@options("json", "sarif")
def capture(program: tuple[str, ...], as_json: bool, sarif_file: Path | None, **how: Any) -> None:
    """Run a program that was built for CUDA, without a GPU: every launch is executed and checked.

    PROGRAM is a program of nvcc with PTX in it, or any other that runs one, with its arguments. Options of this
    command stand before it:

    \b
      workbench capture ./program 1024
      workbench capture --sarif tests.sarif python -m pytest tests
      workbench capture --kernel reduce -- ./program -n 8

    Exit codes: 0 no hazard, 1 a hazard, a call or a kernel that is not emulated; otherwise that of the program."""
    from .. import emulator
    from ..emulator.capture import CaptureError
    from ..emulator.capture import capture as run

    try:
        found = run(program, output=_STDERR if as_json else None, **how)
    except (CaptureError, emulator.ArchitectureError) as error:
        raise NotCaptured(str(error)) from None
    if sarif_file:
        from ..report import sarif  # which few programs need

        sarif.write(sarif_file, _judged(found), f"capture/{Path(program[0]).name}", __version__)
    if as_json:
        documents.result(found.as_dict())
    else:
        sys.stdout.flush()
        click.echo(shown(str(found)))
        if (located := [one for one in found.findings if one.location]) and all(map(_is_ptx, located)):
            click.echo("lines are those of the PTX: compile with -lineinfo for lines of the source", err=True)
    if not found.ok:
        raise click.exceptions.Exit(1)
    if found.exit_code:
        raise click.exceptions.Exit(found.exit_code if found.exit_code > 0 else 128 - found.exit_code)


def _judged(found: Captured) -> list[Judged]:
    """What was found in each kernel, and in the host's code, with the command that runs the program again."""
    from ..model.results import Hazard, Verdict
    from ..report.judged import Judged, of_findings
    from ..toolchain.findings import hazard_of

    again = shlex.join(["workbench", *sys.argv[1:]])
    verdicts = [
        of_findings(at, [hazard_of(one)], str(one), again, found.strict)
        for one, at in zip(found.findings, found.launched_at, strict=True)
    ]
    for one in found.host:
        file, _, line = one.place.rpartition(":")
        at = {"file": file, "line": int(line)} if line.isdecimal() else {}
        hazard = Hazard(one.kind, one.kind, one.message, severity=str(one.severity), **at)  # type: ignore[arg-type]
        where = one.test or Path(found.command[0]).name
        verdicts.append(Judged(where, Verdict.PASS, one not in found.failures, replay=again, findings=[hazard]))
    for text in found.refused:
        hazard = Hazard("not_emulated", "not_emulated", text)
        verdicts.append(Judged(Path(found.command[0]).name, Verdict.PASS, False, replay=again, findings=[hazard]))
    return verdicts


def _is_ptx(finding: Any) -> bool:
    return Path(finding.location.file).suffix in ("", ".ptx")

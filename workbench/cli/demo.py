"""`workbench demo`: a fault is planted in a short kernel, found, and mended, with no file of the user's."""

from __future__ import annotations

import contextlib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from .main import options

if TYPE_CHECKING:
    from .. import emulator

KERNEL = Path(__file__).parents[1] / "templates" / "demo" / "row_sum.cu"
PLANTED = "        __syncthreads();\n"
"""The line that is deleted."""

ROWS, COLUMNS, THREADS = 4, 500, 128

NEXT = """\
Next:
  workbench emulate your.cu               # your kernel: its parameters, and a launch to begin with
  workbench new rowmax --like reduction   # an operation: the kernel, its definition in NumPy, its test
"""


@click.command("demo")
@options("json")
def demo(as_json: bool) -> None:
    """Plant a fault in a kernel of ten lines, name it, and show that the mended kernel is clean.

    The kernel is compiled and executed on the CPU. No file is read or written. Exit code 0 if the fault was named and
    the mended kernel is clean."""
    right = KERNEL.read_text()
    wrong = right.replace(PLANTED, "")
    with TemporaryDirectory() as folder, contextlib.chdir(folder):
        if not as_json:
            click.echo("One line is missing in this kernel, which adds up each row of a matrix:\n")
            _show(wrong)
            click.echo(f"\nThe emulator executes it on the CPU, {ROWS} blocks of {THREADS} threads:\n")
        named, _ = _launch(wrong)
        if not as_json:
            click.secho(str(named), fg="red")
            click.echo("\nThe mended kernel:\n")
            added = right[: right.index(PLANTED)].count("\n")
            _show(right, range(added - 1, added + 2), added)
        mended, is_right = _launch(right)
    passed = not named.ok and mended.ok and is_right
    if as_json:
        from . import documents

        documents.result({"planted": named.as_dict(), "mended": mended.as_dict(), "sums_right": is_right})
    else:
        click.secho(f"\n{mended}", fg="green" if passed else "red")
        click.echo(f"The sums are {'those of NumPy' if is_right else 'wrong'}.\n\n{NEXT}", nl=False)
    if not passed:
        raise click.exceptions.Exit(1)


def _show(source: str, lines: range | None = None, added: int = -1) -> None:
    """The source, or some lines of it, with their numbers; the added one is marked."""
    for number, line in enumerate(source.splitlines()):
        if lines is None or number in lines:
            text = f"{'+' if number == added else ' '}{number + 1:3}  {line}"
            click.secho(text, fg="green" if number == added else None)


def _launch(source: str) -> tuple[emulator.Report, bool]:
    """What the emulator says of the kernel, and whether its sums are right. Raises NotExecuted."""
    import numpy as np

    from .. import emulator
    from .launches import not_executed

    Path("row_sum.cu").write_text(source)
    x = np.random.default_rng(0).integers(-9, 10, (ROWS, COLUMNS)).astype(np.float32)
    y = np.zeros(ROWS, np.float32)
    arguments = {"x": x, "y": emulator.Output(y), "columns": np.int32(COLUMNS)}
    with not_executed():
        report = emulator.launch("row_sum.cu", None, ROWS, THREADS, arguments, max_findings=1)
    return report, np.array_equal(y, x.sum(axis=1))

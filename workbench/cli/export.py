"""Operations as packages that run without the workbench."""

from __future__ import annotations

from pathlib import Path

import click

from ..devices import DeviceUnavailable
from . import documents
from .options import options


@click.command()
@click.argument("name", metavar="OPERATION")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder of the package; by default OPERATION in the working directory.",
)
@click.option(
    "--problem",
    "problems",
    metavar="TEXT",
    multiple=True,
    help="A problem whose calls the package solves, as often as you like; by default those of the suite.",
)
@click.option("--stage", help="Take this stage; by default the best one for each problem.")
@click.option("--unverified", is_flag=True, help="Take stages, too, that have not passed verification as they are now.")
@options("json")
def export(
    name: str, output: Path | None, problems: tuple[str, ...], stage: str | None, unverified: bool, as_json: bool
) -> None:
    """Write an operation as a Python package that needs CuPy or PyTorch and nothing of the workbench.

    It has compiled kernels and their sources, what launches them on arrays of either library, and an operator of
    PyTorch. It solves the problems that are named, of any tier and seed: their shapes, strides, types and fields.
    """
    from ..ops import export as packages  # imports every operation

    folder = output or Path(name)
    notes = []
    for line in packages.export(name, folder, problems, stage=stage, unverified=unverified, device=_device()):
        notes.append(line)
        if not as_json:
            click.echo(line)
    if as_json:
        documents.result({"written": [folder], "notes": notes})
        return
    click.echo(f"written to {folder}")


def _device() -> str:
    """The name of the GPU here, for which stages are chosen; nothing where there is none."""
    from ..devices import cuda

    try:
        return str(cuda.CudaDevice().properties["name"].decode())
    except DeviceUnavailable:
        return ""

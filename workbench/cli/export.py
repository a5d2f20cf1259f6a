"""Operations as packages that run without the workbench."""

from __future__ import annotations

from pathlib import Path

import click

from ..devices import DeviceUnavailable
from . import documents
from .main import options


@click.command()
@click.argument("name", metavar="OPERATION")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder of the package. The default is OPERATION in the working directory.",
)
@click.option(
    "--problem",
    "problems",
    metavar="TEXT",
    multiple=True,
    help="A problem that the package solves; can be repeated. The default is the suite.",
)
@click.option("--stage", help="Use this stage. The default is the best one for each problem.")
@click.option(
    "--unverified", is_flag=True, help="Also use stages that have not passed verification in their current state."
)
@options("json")
def export(
    name: str, output: Path | None, problems: tuple[str, ...], stage: str | None, unverified: bool, as_json: bool
) -> None:
    """Write an operation as a Python package that needs CuPy or PyTorch, but not the workbench.

    The package has compiled kernels and their sources, code that launches them on arrays of either library, and an
    operator of PyTorch. It solves the problems that you name: their shapes, strides, types and fields."""
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

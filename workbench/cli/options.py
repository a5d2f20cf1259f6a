"""Options and arguments that several commands have."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from ..model.origin import DEVICES, SUFFIXES

F = TypeVar("F", bound=Callable[..., Any])


def source_lost(path: Path) -> str:
    """Why a result is not written over what is there: nobody means a kernel; empty where it is no source."""
    if path.is_file() and path.suffix in (*SUFFIXES, ".ptx", ".py", ".toml"):
        return f"{path} is a source, which would be lost; name another file"
    return ""


def unwritable(path: Path) -> str:
    """Why a file cannot be written, found out before the work; empty where nothing speaks against it."""
    if path.is_dir():
        return f"{path} is a folder; name a file"
    if reason := source_lost(path):
        return reason
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}; make it first"
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        return f"{path} cannot be written"
    return ""


class OutputFile(click.ParamType[Path]):
    """A file to write. What keeps it from being written is said before the work begins."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The path."""
        if reason := unwritable(Path(value)):
            self.fail(reason, param, ctx)
        return Path(value)


class Number(click.FloatRange):
    """A number within limits: not NaN, which no limit keeps out, and which no comparison holds for."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


class ResultFile(click.Path):
    """A file to write, whose folder is made where it is missing. A source is not written over."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, dir_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path."""
        path = super().convert(value, param, ctx)
        if reason := f"{value!r} is a folder; name a file" if Path(value).is_dir() else source_lost(Path(value)):
            self.fail(reason, param, ctx)
        return path


class _Device(click.Choice):  # type: ignore[type-arg]
    """A device, or `emulator:` and what an emulated one has."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not str(value).startswith("emulator:"):
            return super().convert(value, param, ctx)
        from ..model.machine import emulated_machine

        try:
            emulated_machine(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return value


def _reports_folder() -> Path:
    from ..catalogue.registry import reports  # which looks for a project

    return reports()


COMMON: dict[str, Callable[[Any], Any]] = {
    "device": click.option(
        "--device",
        "device_name",
        type=_Device(DEVICES),
        default="auto",
        show_default=True,
        help="Where to run; auto is the GPU if there is one, otherwise the emulator. "
        "emulator:multiprocessors=78 is an emulated device that has so many.",
    ),
    "seed": click.option(
        "--seed", type=click.IntRange(0), default=0, show_default=True, help="The seed of the random problems."
    ),
    "secret_seed": click.option(
        "--seed",
        type=click.IntRange(0),
        show_default="a secret random one",
        help="The seed of the random problems and their inputs; the replay of a failure names it.",
    ),
    "examples": click.option(
        "--examples",
        type=click.IntRange(1),
        default=50,
        show_default=True,
        help="Random problems for each stage, each judged in all tiers of its operation.",
    ),
    "problem": click.option(
        "--problem",
        "problem_text",
        metavar="TEXT",
        help="One problem instead of the usual ones: `64x32x7,dtype=bf16` or `m=64,n=32,k=7`.",
    ),
    "problems": click.option(
        "--problem",
        "problem_texts",
        metavar="TEXT",
        multiple=True,
        help="A problem instead of the usual ones: `64x32x7,dtype=bf16` or `m=64,n=32,k=7`; can be repeated.",
    ),
    "suite": click.option(
        "--suite",
        is_flag=True,
        help="Time every problem of the suite, not only the one with the most work that a stage takes and its own.",
    ),
    "json": click.option(
        "--json", "as_json", is_flag=True, help="Print JSON and nothing else on stdout; messages go to stderr."
    ),
    "sarif": click.option(
        "--sarif",
        "sarif_file",
        type=ResultFile(),
        metavar="FILE",
        help="Also write failures as SARIF 2.1.0, with their lines, for code scanning.",
    ),
    "isolate": click.option(
        "--isolate", is_flag=True, help="Run the emulator in a separate process, too. The GPU always has one."
    ),
    "sanitize": click.option(
        "--sanitize",
        is_flag=True,
        help="Also run NVIDIA's compute-sanitizer, where it is installed, and show what it finds. Needs a GPU.",
    ),
    "baselines": click.option(
        "--baselines",
        type=click.Choice(("vendor", "all")),
        default="vendor",
        show_default=True,
        help="vendor times the vendor's library, interleaved with each stage; all adds every other baseline that is "
        "installed (such as cuBLASLt, cuDNN, torch.compile, Triton and NumPy), once a problem.",
    ),
    "cluster": click.option(
        "--cluster",
        metavar="ADDRESS",
        help="Spread the work over the workers of the Dask scheduler at ADDRESS; local starts a scheduler here, with a "
        "worker for each GPU, or for each core if there is no GPU.",
    ),
    "fresh": click.option(
        "--fresh", is_flag=True, help="Do everything again, also what an earlier run of the same code has already done."
    ),
    "output": click.option(
        "--output",
        type=click.Path(path_type=Path),
        default=_reports_folder,
        show_default="reports",
        help="Folder of the reports.",
    ),
}
"""The options that several commands have."""


def options(*names: str) -> Callable[[F], F]:
    """The common options of these names, in this order."""

    def decorate(command: F) -> F:
        for name in reversed(names):
            command = COMMON[name](command)
        return command

    return decorate


def trace_options(prefix: str) -> Callable[[F], F]:
    """Which blocks a timeline shows, and how much of them."""

    def decorate(command: F) -> F:
        command = click.option(
            f"--{prefix}events",
            "events",
            type=click.IntRange(1),
            default=200_000,
            show_default=True,
            help="The largest number of events of a launch in the timeline.",
        )(command)
        return click.option(
            f"--{prefix}block",
            "blocks",
            type=click.IntRange(0),
            multiple=True,
            metavar="N",
            help="Show this block in the timeline, counted along x first; can be repeated. The default is block 0.",
        )(command)

    return decorate


def _named(_: click.Context, __: click.Parameter, specs: tuple[str, ...]) -> tuple[str, ...]:
    """The specs; what of the project cannot be used is said, and keeps nobody from what is named."""
    from ..catalogue import registry  # slow to load, and commands without a spec do not need it
    from .console import notice

    if specs and registry.known(specs):  # a name that is unknown is said with them
        for trouble in registry.troubles():
            notice(trouble)
    return specs


specs_argument = click.argument("specs", nargs=-1, metavar="[SPEC]...", callback=_named)

"""Options and arguments that several commands have."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from ..catalogue import registry
from ..inspect.profile import default_problem
from ..model.errors import WorkbenchError
from ..model.origin import DEVICES, SUFFIXES, declared
from ..model.problem import Problem, ProblemError
from ..model.stage import Stage

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


def _reports_folder() -> Path:
    from ..catalogue.registry import reports  # which looks for a project

    return reports()


COMMON: dict[str, Callable[[Any], Any]] = {
    "device": click.option(
        "--device",
        "device_name",
        type=click.Choice(DEVICES),
        default="auto",
        show_default=True,
        help="Where to run; auto is the GPU if there is one, otherwise the emulator.",
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
        "--isolate",
        is_flag=True,
        help="Run the emulator in a separate process, too. The GPU always has one.",
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
        "--fresh",
        is_flag=True,
        help="Do everything again, also what an earlier run of the same code has already done.",
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


def one_stage(spec: str, problem_text: str | None) -> tuple[Stage[Any], Problem]:
    """The one stage that is named and the problem that it is to work on, a small one where none is given."""
    stages = registry.select((spec,))
    if len(stages) != 1:
        raise click.UsageError(f"{spec} names {len(stages)} stages ({', '.join(s.spec for s in stages)}); choose one")
    (stage,) = stages
    problem = problems_of(stages, problem_text).get(stage.operation) or default_problem(stage)
    if reason := stage.supports(problem):
        raise click.UsageError(f"{stage.spec} does not take {problem}: {reason}")
    return stage, problem


def problems_of(stages: Sequence[Stage[Any]], text: str | None) -> dict[str, Problem]:
    """`text` as a problem of every operation that the stages belong to. Raises ProblemError."""
    if text is None:
        return {}
    parsed: dict[str, Problem] = {}
    wrong: dict[str, str] = {}
    for name in dict.fromkeys(s.operation for s in stages):
        try:
            parsed[name] = registry.operations()[name].problem.parse(text)
            _check_memory(parsed[name])
        except ProblemError as error:
            wrong[name] = str(error)
    if wrong and parsed:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in wrong.items())
        raise ProblemError(
            f"--problem {text!r} is a problem of {', '.join(parsed)} and not of {', '.join(wrong)} ({reasons}); "
            f"select one operation, for example: {next(iter(parsed))}"
        )
    if wrong:
        raise ProblemError(f"--problem {text!r}: " + "; ".join(f"{name}: {reason}" for name, reason in wrong.items()))
    return parsed


def suites_of(stages: Sequence[Stage[Any]], texts: Sequence[str]) -> dict[str, tuple[Problem, ...]]:
    """The texts as problems of every operation that the stages belong to. Raises ProblemError."""
    parsed = [problems_of(stages, text) for text in texts]
    return {name: tuple(problems[name] for problems in parsed) for name in (parsed[0] if parsed else ())}


def _check_memory(problem: Problem) -> None:
    """Refuse a problem whose float64 reference alone is larger than the machine's memory. Raises WorkbenchError."""
    with declared("arrays of the operation"):
        needed = sum(8 * math.prod(array.shape) for array in problem.arrays().values())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        gib = f"{needed / 2**30:,.0f} GiB for its NumPy reference and this machine has {memory / 2**30:,.0f}"
        raise WorkbenchError(f"there is not enough memory for {problem}: it needs at least {gib}")

"""The command line, and options that several commands have. Every command is a few calls into the rest of the package.

Exit codes: 0 all pass, 1 something failed or the machine cannot do it, 2 wrong usage, 130 interrupted."""

from __future__ import annotations

import contextlib
import errno
import gc
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import click

from .. import __version__
from ..model.errors import INTERRUPTED, BadOperation, WorkbenchError, hint, shown
from ..model.origin import DEVICES, SUFFIXES

ENGINE = "workbench.emulator._engine"

UNWRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
"""Errors of a stream or file that was opened and takes nothing more: they name no file."""


class Interrupted(WorkbenchError):
    """The user pressed Ctrl-C."""

    exit_code = INTERRUPTED


class EndedEarly(WorkbenchError):
    """The process of the command has ended before the command did: code that it executed ended it, or it crashed."""


class EngineMissing(WorkbenchError):
    """The emulator's engine was not built; the message says how to build it."""


def _said(error: BaseException, message: str = "") -> None:
    """The document of `--json` has the error. Without `--json` nothing has loaded the module that makes documents."""
    if documents := sys.modules.get(f"{__package__}.documents"):
        documents.failed(error, message)


def ended(error: BaseException, message: str, exit_code: int = WorkbenchError.exit_code) -> click.exceptions.Exit:
    """Shows the message of an error; what to raise, so that the command ends with this code."""
    _said(error, message)
    click.ClickException(shown(message)).show()
    return click.exceptions.Exit(exit_code)


def _fault_of_operation(error: BaseException) -> WorkbenchError | None:
    """What is wrong with the code of an operation that has raised the error. None of it has run unless the catalogue
    is loaded."""
    registry = sys.modules.get("workbench.catalogue.registry")
    message = registry.fault_of(error) if registry else ""
    return BadOperation(message) if message else None


def _unwritten(error: OSError) -> str:
    return f"{error.filename2 or error.filename or 'the output'} cannot be written: {error.strerror}"


def _drop_unwritten() -> None:
    """What stdout did not take, Python would try to write once more at its end, and complain."""
    try:
        sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _printed(command: str, helps: bool) -> contextlib.AbstractContextManager[None]:
    from . import documents  # which only `--json` needs

    return documents.printed(command, helps=helps)


class Commands(Mapping[str, click.Command]):
    """The commands of each section of the help. The module of a command is loaded when the command is needed."""

    def __init__(self, sections: Mapping[str, Mapping[str, tuple[str, str]]]) -> None:
        self.sections = sections
        self._modules = {name: module for section in sections.values() for name, (module, _) in section.items()}
        self._loaded: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._loaded:
            module = self._modules[name]
            gc.disable()  # what is imported stays: to look for garbage among it takes as long as a tenth of it
            try:
                found = vars(import_module(f".{module}", __package__)).values()
            except ImportError as error:
                if error.name != ENGINE:
                    raise
                raise EngineMissing(str(error)) from None
            finally:
                gc.freeze()
                gc.enable()
            self._loaded[name] = next(c for c in found if isinstance(c, click.Command) and c.name == name)
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._modules

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


class WorkbenchGroup(click.Group):
    """Turns what can foreseeably go wrong into one message and an exit code, and with `--json` into a document; what is
    wrong in the code of an operation is shown as far as it is in that code; anything else keeps its traceback. Its
    commands stand in sections of the help."""

    commands: Commands  # type: ignore[assignment]  # nothing is added to it

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, section in self.commands.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name, sentence) for name, (_, sentence) in section.items()])

    def main(self, args: Sequence[str] | None = None, *more: Any, **options: Any) -> Any:
        given = list(sys.argv[1:] if args is None else args)
        before = given[: given.index("--")] if "--" in given else given
        command = next((word for word in before if word in self.commands), "")
        try:
            helps = "--help" in before
            with _printed(command, helps) if "--json" in before else contextlib.nullcontext():
                return super().main(given, *more, **{"obj": given, **options})
        except OSError as error:
            if error.errno not in UNWRITTEN:
                raise
            click.ClickException(_unwritten(error)).show()
            sys.exit(1)
        finally:
            _drop_unwritten()

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        try:
            return super().make_context(*arguments, **options)
        except click.ClickException as error:
            _said(error)
            raise

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            _said(error)
            raise
        except WorkbenchError as error:
            raise ended(error, str(error), error.exit_code) from None
        except BrokenPipeError:
            raise  # click ends quietly when the reader of a pipe has gone
        except OSError as error:
            if error.errno in UNWRITTEN:
                raise ended(error, _unwritten(error)) from None
            if error.filename is None:
                raise
            raise ended(error, f"{error.filename}: {error.strerror}") from None
        except MemoryError as error:
            raise ended(error, f"there is not enough memory for this problem ({error})") from None
        except KeyboardInterrupt as error:
            raise ended(error, "interrupted", Interrupted.exit_code) from None
        except (click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            if fault := _fault_of_operation(error):
                raise ended(fault, str(fault)) from None
            raise

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            names = self.list_commands(ctx)
            raise click.UsageError(f"there is no command {args[0]!r}; {hint(args[0], names, 'commands')}", ctx)
        return super().resolve_command(ctx, args)


SECTIONS = {
    "Begin": {
        "demo": ("demo", "Name a planted fault in ten seconds, with no file of yours."),
        "emulate": ("emulate", "Execute any .cu or .ptx file on the CPU, and name its hazards."),
        "check": ("check", "Read the launches of a PyTorch extension; propose commands."),
        "capture": ("capture", "Run a program that was built for CUDA without a GPU."),
    },
    "Develop a kernel": {
        "new": ("setup", "Write the files of a new operation or stage."),
        "import": ("setup", "Turn a KernelBench or gpu-mode task into an operation."),
        "verify": ("verify", "Check stages against NumPy on random problems."),
        "replay": ("verify", "Solve a failing problem of a stage again."),
        "watch": ("watch", "Verify a stage whenever its source is saved."),
        "inspect": ("inspect", "Show registers, spills, occupancy, PTX and SASS."),
        "profile": ("inspect", "Count what each source line of a stage executes."),
        "trace": ("inspect", "Write the timeline of a stage for a trace viewer."),
        "diff": ("compare", "Show two stages side by side."),
    },
    "Measure": {
        "run": ("verify", "Verify, time where there is a GPU, write the report."),
        "bench": ("verify", "Verify stages, then time those that passed."),
        "tune": ("tune", "Search for the fastest parameters of stages."),
        "compare": ("compare", "Say whether one run is as fast as another."),
        "report": ("compare", "Write the report again from saved results."),
        "experiment": ("experiment", "Show what makes a kernel fast, one effect at a time."),
    },
    "Check the checks": {
        "agree": ("verify", "Compare the GPU with the emulator on equal problems."),
        "mutate": ("mutate", "Change sources and see whether verification notices."),
    },
    "Use kernels elsewhere": {
        "export": ("export", "Write an operation as a Python package."),
        "mcp": ("mcp", "Serve these tools to a programming agent."),
    },
    "Look around": {
        "list": ("setup", "List operations and their stages."),
        "history": ("history", "Show the kept versions of stages and their times."),
        "restore": ("history", "Bring back a kept version of a stage."),
        "doctor": ("setup", "Say what this machine can do and what is missing."),
    },
}
"""The sections of the help: each command, its module, and the sentence that says what it does."""


@click.group(cls=WorkbenchGroup, commands=Commands(SECTIONS), context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="workbench")
def main() -> None:
    """Develop CUDA kernels in stages: verified against NumPy on random problems, then timed, then reported.

    SPEC names what to work on: an operation (`gemm`), a stage (`gemm:tma_pipeline`), or a stage of every operation
    that has it (`naive`). Without SPEC, a command works on every stage. In a project (a folder whose pyproject.toml has
    a `[tool.workbench]`), it works on every stage of the project.

    Exit codes: 0 all pass, 1 something failed, 2 wrong usage, 130 interrupted."""


# ------------------------------------------------------------ options and arguments that several commands have

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
        from ..model.launch import emulated_machine

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

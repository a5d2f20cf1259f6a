"""The command line. Every command is a few calls into the rest of the package.

Exit codes: 0 all pass, 1 something failed or the machine cannot do it, 2 wrong usage, 130 interrupted."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

import click

from .. import __version__
from ..model.errors import INTERRUPTED, WorkbenchError, hint, shown

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
    if not message:
        return None
    from ..model.origin import BadOperation  # is loaded with the catalogue

    return BadOperation(message)


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

"""Errors become messages, documents and exit codes, in this one place."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from ..catalogue import registry
from ..model.errors import WorkbenchError, hint
from ..model.origin import BadOperation
from . import documents

UNWRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
"""Errors of a stream or file that was opened and takes nothing more: they name no file."""


class Interrupted(WorkbenchError):
    """The user pressed Ctrl-C."""

    exit_code = documents.INTERRUPTED


def ended(error: BaseException, message: str, exit_code: int = WorkbenchError.exit_code) -> click.exceptions.Exit:
    """Shows the message of an error; what to raise, so that the command ends with this code."""
    documents.failed(error, message)
    click.ClickException(message).show()
    return click.exceptions.Exit(exit_code)


def _unwritten(error: OSError) -> str:
    return f"{error.filename2 or error.filename or 'the output'} cannot be written: {error.strerror}"


def _drop_unwritten() -> None:
    """What stdout did not take, Python would try to write once more at its end, and complain."""
    try:
        sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class WorkbenchGroup(click.Group):
    """Turns what can foreseeably go wrong into one message and an exit code, and with `--json` into a document; what is
    wrong in the code of an operation is shown as far as it is in that code; anything else keeps its traceback. Its
    commands stand in sections of the help."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._sections: dict[str, list[str]] = {}

    def add_section(self, title: str, commands: Mapping[click.Command, str]) -> None:
        """Add commands, each with the sentence that says in the help what it does."""
        for command, sentence in commands.items():
            command.short_help = sentence
            self.add_command(command)
        self._sections[title] = [str(command.name) for command in commands]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in self._sections.items():
            with formatter.section(title):
                formatter.write_dl([(name, self.commands[name].short_help or "") for name in names])

    def main(self, args: Sequence[str] | None = None, *more: Any, **options: Any) -> Any:
        given = list(sys.argv[1:] if args is None else args)
        before = given[: given.index("--")] if "--" in given else given
        command = next((word for word in before if word in self.commands), "")
        try:
            helps = "--help" in before
            with documents.printed(command, helps=helps) if "--json" in before else contextlib.nullcontext():
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
            documents.failed(error)
            raise

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            documents.failed(error)
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
        except Exception as error:
            if said := registry.fault_of(error):
                raise ended(BadOperation(said), said) from None
            raise

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            names = self.list_commands(ctx)
            raise click.UsageError(f"there is no command {args[0]!r}; {hint(args[0], names, 'commands')}", ctx)
        return super().resolve_command(ctx, args)

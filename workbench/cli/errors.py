"""Errors become messages and exit codes, in this one place."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

import click

from ..catalogue import registry
from ..model.errors import WorkbenchError
from .console import errors_as_json


class Interrupted(WorkbenchError):
    """The user pressed Ctrl-C."""

    exit_code = 130


def ended(message: str, exit_code: int = WorkbenchError.exit_code) -> click.exceptions.Exit:
    """Shows the message of an error; what to raise, so that the command ends with this code."""
    click.ClickException(message).show()
    return click.exceptions.Exit(exit_code)


class WorkbenchGroup(click.Group):
    """Turns what can foreseeably go wrong into one message and an exit code; what is wrong in the code of
    an operation is shown as far as it is in that code; anything else keeps its traceback. Its commands stand in
    sections of the help."""

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

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with errors_as_json("--json" in ctx.args):
                return super().invoke(ctx)
        except WorkbenchError as error:
            raise ended(str(error), error.exit_code) from None
        except BrokenPipeError:
            raise  # click ends quietly when the reader of a pipe has gone
        except OSError as error:
            if error.filename is None:
                raise
            raise ended(f"{error.filename}: {error.strerror}") from None
        except MemoryError as error:
            raise ended(f"there is not enough memory for this problem ({error})") from None
        except KeyboardInterrupt:
            raise ended("interrupted", Interrupted.exit_code) from None
        except Exception as error:
            if said := registry.fault_of(error):
                raise ended(said) from None
            raise

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            names = self.list_commands(ctx)
            near = difflib.get_close_matches(args[0], names, 3)
            hint = f"did you mean {' or '.join(near)}?" if near else f"the commands are {', '.join(names)}"
            raise click.UsageError(f"there is no command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

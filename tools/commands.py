"""Writes docs/commands.md from the command line itself: python tools/commands.py"""

from __future__ import annotations

import html
import inspect
import re
from pathlib import Path

import click

from workbench.cli.main import main as group

PAGE = Path(__file__).parent.parent / "docs/commands.md"

HEAD = """# Commands

<!-- made by tools/commands.py from the help texts; change those -->

`workbench COMMAND --help` prints the same text as this page. With [`--json`](json.md) a command prints JSON and nothing
else on stdout, also after an error; messages go to stderr.

"""


def page() -> str:
    """The page as it should be: every command with its arguments and options, in the order of `workbench --help`."""
    top = click.Context(group, info_name="workbench")
    listed = [(name, group.get_command(top, name)) for name in group.list_commands(top)]
    commands = [(name, command) for name, command in listed if command and not command.hidden]
    rows = [f"| [`{name}`](#{name}) | {_cell(command.get_short_help_str(200))} |" for name, command in commands]
    index = ["| command | what it does |", "|---|---|", *rows]
    parts = [*_prose(group.help), "\n".join(index)]
    for name, command in commands:
        parts += _section(command, click.Context(command, info_name=name, parent=top))
    return HEAD + "\n\n".join(parts) + "\n"


def _section(command: click.Command, context: click.Context) -> list[str]:
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    records = [p.get_help_record(context) for p in command.get_params(context) if isinstance(p, click.Option)]
    rows = [f"| {_code(record[0])} | {_cell(record[1])} |" for record in records if record]
    options = "\n".join(["| option | meaning |", "|---|---|", *rows])
    return [
        f"## {context.info_name}",
        f"```text\n{usage}\n```",
        *_prose(command.help),
        options,
        *_prose(command.epilog),
    ]


def _prose(text: str | None) -> list[str]:
    """The paragraphs of a help text; what click is told not to wrap stays as it is, as code."""
    text = inspect.cleandoc(text or "").partition("\f")[0]
    paragraphs = [p.strip("\n") for p in re.split(r"\n\s*\n", text) if p.strip()]
    return [_kept(p.removeprefix("\b\n")) if p.startswith("\b") else p.replace("<", "&lt;") for p in paragraphs]


def _kept(lines: str) -> str:
    return f"```text\n{lines}\n```"


def _code(text: str) -> str:
    """An option and what it takes, as code in a cell; one that is long may be broken between names."""
    return ", ".join(_piece(part) for part in text.split(", "))


def _piece(part: str) -> str:
    """Code with a bar in it: GitHub drops the backslash before it, and the site would show it."""
    if "|" not in part:
        return f"`{part}`"
    return f"<code>{html.escape(part, quote=False).replace('|', '&#124;')}</code>"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.write_text(page())

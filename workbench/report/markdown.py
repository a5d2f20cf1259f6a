"""Pieces of Markdown, and texts of a record as a page may have them: a record may be a stranger's."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from tabulate import tabulate


def table(headers: Sequence[str], rows: Iterable[Sequence[object]], numeric: Sequence[str] = ()) -> str:
    """A Markdown table; the columns named in `numeric` are right-aligned."""
    cells = [[one_line(str(cell)).replace("|", "\\|") for cell in row] for row in rows]
    align = ["right" if header in numeric else "left" for header in headers]
    return str(tabulate(cells, list(headers), tablefmt="pipe", disable_numparse=True, colalign=align))


def one_line(text: str) -> str:
    """The text with its line breaks as spaces."""
    return " ".join(text.split())


def sentence(text: str) -> str:
    """The text with a capital and a full stop; nothing stays nothing."""
    return text[:1].upper() + text[1:] + "." if text else ""


def fenced(text: str) -> str:
    """The text as a block of code, whatever fences are in it."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}text\n{text}\n{fence}"


# ----------------------------------------------------------------------------------------------------- texts of records


T = TypeVar("T")

FENCED = frozenset({"message", "map"})
"""Fields that pages show in a block of code, which shows everything as it is."""

CODE = frozenset(("commit", "source_sha256", "kernel", "variant", "problem", "replay", "source", "operation", "stage"))
"""Fields that pages show between backticks."""


def escaped(record: T) -> T:
    """The same record, its texts without anything that would be markup on a page."""
    return _escaped(record, "")  # type: ignore[no-any-return]


def readable(page: str) -> str:
    """A page whose characters can all be seen: no control characters, and none that turn the direction of writing."""
    return "".join(c if c.isprintable() or c in "\n\u00a0" else "\N{REPLACEMENT CHARACTER}" for c in page)


def _escaped(value: Any, field: str) -> Any:
    if type(value) is str:
        return value if field in FENCED else code(value) if field in CODE else text(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changes = {f.name: _escaped(getattr(value, f.name), f.name) for f in dataclasses.fields(value)}
        return type(value)(**changes)
    if isinstance(value, dict):
        return {_escaped(key, field): _escaped(each, field) for key, each in value.items()}
    if isinstance(value, list) and not (value and isinstance(value[0], float | int)):
        return [_escaped(each, field) for each in value]
    return value


def text(value: str) -> str:
    """No tags, comments or entities, links or pictures, lines of its own, or characters that cannot be seen."""
    value = re.sub(r"<(?=[A-Za-z/!?])", "&lt;", re.sub(r"&(?=#?\w+;)", "&amp;", _visible(value)))
    return re.sub(r"\](?=[(\[:])", r"\\]", value)


def code(value: str) -> str:
    """What stays between backticks."""
    return _visible(value).replace("`", "'")


def _visible(value: str) -> str:
    return "".join(c if c.isprintable() else " " for c in value)

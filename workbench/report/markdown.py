"""Pieces of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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

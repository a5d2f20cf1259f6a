"""JSON in files: what is short has one line, what is long is indented, and a name that ends in `.gz` is compressed."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

WIDTH = 240
"""Columns that an object or a list has to fit in to stand on one line. A list of numbers always has one line."""

COMPRESSED = ".gz"


def dumps(data: Any, *, sort_keys: bool = False) -> str:
    """`data` as JSON, with a newline at its end."""
    parts: list[str] = []
    _add(data, "", 0, sort_keys, parts)
    return "".join(parts) + "\n"


def encoded(data: Any, path: Path, *, sort_keys: bool = False) -> bytes:
    """What the file at `path` has to hold; equal data give equal bytes, compressed ones too."""
    if path.suffix == COMPRESSED:
        return gzip.compress(json.dumps(data, separators=(",", ":"), sort_keys=sort_keys).encode(), mtime=0)
    return dumps(data, sort_keys=sort_keys).encode()


def read_text(path: Path) -> str:
    """The text of a file. Raises OSError, and ValueError for what is no text or is damaged."""
    if path.suffix != COMPRESSED:
        return path.read_text()
    try:
        return gzip.decompress(path.read_bytes()).decode()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(str(error)) from None


def read(path: Path) -> Any:
    """The data in a file. Raises OSError, and ValueError for what is not JSON."""
    return json.loads(read_text(path))


def write(data: Any, path: Path) -> None:
    """Write the file, with the keys of objects in the order that they have."""
    path.write_bytes(encoded(data, path))


def _add(data: Any, indent: str, taken: int, sort_keys: bool, parts: list[str]) -> None:
    """Append the text of a value; `taken` columns of its first line, beyond the indent, are in use."""
    if not isinstance(data, (dict, list, tuple)) or not data or _is_numbers(data):
        parts.append(json.dumps(data))
        return
    left = WIDTH - len(indent) - taken - 1  # a comma follows
    if _spare(data, left) >= 0:
        line = json.dumps(data, sort_keys=sort_keys)
        if len(line) <= left:
            parts.append(line)
            return
    inner = indent + " "
    start, end = "{}" if isinstance(data, dict) else "[]"
    entries = list(data.items()) if isinstance(data, dict) else [("", value) for value in data]
    if sort_keys and isinstance(data, dict):
        entries.sort()
    for number, (key, value) in enumerate(entries):
        name = f"{json.dumps(key)}: " if isinstance(data, dict) else ""
        parts.append(f"{',' if number else start}\n{inner}{name}")
        _add(value, inner, len(name), sort_keys, parts)
    parts.append(f"\n{indent}{end}")


def _is_numbers(data: Any) -> bool:
    return isinstance(data, (list, tuple)) and all(type(item) in (int, float) for item in data)


def _spare(data: Any, columns: int) -> int:
    """What the text of a value leaves of so many columns at most; less than 0 as soon as it cannot fit."""
    if isinstance(data, dict):
        for key, value in data.items():
            columns = _spare(value, columns - len(str(key)) - 6)  # quotes, colon, comma and spaces; or braces
            if columns < 0:
                break
        return columns
    if isinstance(data, (list, tuple)):
        for value in data:
            columns = _spare(value, columns - 2)
            if columns < 0:
                break
        return columns
    return columns - (len(data) + 2 if isinstance(data, str) else 1)

"""JSON in files: what is short has one line, what is long is indented, and a name that ends in `.gz` is compressed."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WIDTH = 160
"""Columns that an object or a list has to fit in to stand on one line. A list of numbers always has one line."""

COMPRESSED = ".gz"


def dumps(data: Any, *, sort_keys: bool = False) -> str:
    """`data` as JSON, with a newline at its end."""
    return "".join(_parts(data, "", 0, sort_keys)) + "\n"


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


def _parts(data: Any, indent: str, taken: int, sort_keys: bool) -> Iterator[str]:
    """The text of a value; `taken` columns of its first line, beyond the indent, are in use."""
    if not isinstance(data, dict | list | tuple) or not data or _is_numbers(data):
        yield json.dumps(data)
        return
    if _may_fit(data):
        line = json.dumps(data, sort_keys=sort_keys)
        if len(indent) + taken + len(line) < WIDTH:  # a comma follows
            yield line
            return
    inner = indent + " "
    start, end = "{}" if isinstance(data, dict) else "[]"
    entries = list(data.items()) if isinstance(data, dict) else [("", value) for value in data]
    if sort_keys and isinstance(data, dict):
        entries.sort()
    for number, (key, value) in enumerate(entries):
        name = f"{json.dumps(key)}: " if isinstance(data, dict) else ""
        yield f"{',' if number else start}\n{inner}{name}"
        yield from _parts(value, inner, len(name), sort_keys)
    yield f"\n{indent}{end}"


def _is_numbers(data: Any) -> bool:
    return isinstance(data, list | tuple) and all(type(item) in (int, float) for item in data)


def _may_fit(data: Any) -> bool:
    """Whether it is small enough to try: an entry takes three characters or more."""
    if not isinstance(data, dict | list | tuple):
        return True
    return len(data) <= WIDTH // 3 and all(map(_may_fit, data.values() if isinstance(data, dict) else data))

"""JSON texts over a socket, each behind its length: between the judge and the process in which stages run."""

from __future__ import annotations

import json
import select
import socket
import time
from typing import Any

MOST_BYTES = 8 << 20
"""Of one message."""


class Silent(Exception):
    """Nothing whole came in time."""


class Closed(Exception):
    """The other end is closed, or what it sends is no message; the text says which."""


def encoded(message: Any) -> bytes:
    """The bytes of a message. Raises ValueError for one that is too large, and what JSON raises."""
    text = json.dumps(message, allow_nan=False).encode()
    if len(text) > MOST_BYTES:
        raise ValueError(f"a message of {len(text):,} bytes; {MOST_BYTES:,} are allowed")
    return len(text).to_bytes(4, "big") + text


def send(connection: socket.socket, message: Any) -> None:
    """Send a message. Raises Closed."""
    try:
        connection.sendall(encoded(message))
    except OSError:
        raise Closed("it has ended") from None


def receive(connection: socket.socket, seconds: float | None = None) -> Any:
    """The next message, whole within so many seconds. Raises Silent and Closed."""
    until = None if seconds is None else time.monotonic() + seconds
    length = int.from_bytes(_read(connection, 4, until), "big")
    if length > MOST_BYTES:
        raise Closed(f"it sent what is no answer, or one of {length:,} bytes; {MOST_BYTES:,} are allowed")
    text = _read(connection, length, until)
    try:
        return json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError):
        raise Closed("it sent what is no answer") from None


def _read(connection: socket.socket, count: int, until: float | None) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        left = None if until is None else max(0.0, until - time.monotonic())
        if not select.select([connection], [], [], left)[0]:
            raise Silent
        try:
            part = connection.recv(count - len(parts))
        except OSError:
            part = b""
        if not part:
            raise Closed("it has ended")
        parts += part
    return bytes(parts)


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is not a number that an answer may have")

"""What kernels print: formats and bytes of arguments as text."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence

from .memory import Memory

_CONVERSION = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d*))?(hh|h|ll|l|j|z|t|L)?([a-zA-Z%])")
_MOST_WIDTH = 4096


def printed_text(printed: Sequence[tuple[int, bytes]], dropped: int, memory: Memory) -> str:
    """The text of all calls in their order.

    ``printed`` holds the address of each call's format and the bytes of its arguments, ``dropped`` the number of calls
    beyond those that are kept."""
    formats = {address: _string(memory, address) for address in {address for address, _ in printed}}
    text = "".join(_Call(formats[address], arguments, memory).text() for address, arguments in printed)
    return text + (f"[{dropped} more calls of printf are not shown]\n" if dropped else "")


def _string(memory: Memory, address: int) -> str:
    """The text at an address in global memory, up to its zero byte."""
    allocation = memory.find(address)
    if allocation is None:
        return "(null)" if address == 0 else f"(text at {address:#x})"
    raw = bytes(allocation.data[address - allocation.address :])
    return raw.partition(b"\0")[0].decode("utf-8", "replace")


class _Call:
    """One call of printf: arguments lie one after the other, each aligned to its size."""

    def __init__(self, format_: str, arguments: bytes, memory: Memory) -> None:
        self.format = format_
        self.arguments = arguments
        self.memory = memory
        self.position = 0

    def text(self) -> str:
        return _CONVERSION.sub(self.conversion, self.format)

    def take(self, size: int) -> int:
        """The bits of the next argument."""
        start = -(-self.position // size) * size
        self.position = start + size
        return int.from_bytes(self.arguments[start : start + size].ljust(size, b"\0"), "little")

    def number(self, text: str | None) -> int | None:
        """A width or a precision, which ``*`` takes from the arguments."""
        if text != "*":
            return int(text) if text else None
        value = self.take(4)
        return value - (value >> 31 << 32)

    def conversion(self, match: re.Match[str]) -> str:
        flags, length, kind = match[1], match[4] or "", match[5]
        if kind == "%":
            return "%"
        width = self.number(match[2])
        width = None if width is None else max(-_MOST_WIDTH, min(width, _MOST_WIDTH))
        precision = self.number(match[3] or "0") if match[3] is not None else None
        if width is not None and width < 0:
            flags, width = flags + "-", -width
        precision = min(precision, _MOST_WIDTH) if precision is not None and precision >= 0 else None
        if kind in "diouxX":
            return self.integer(flags, width or 0, precision, length, kind)
        style = f"%{flags}{width or ''}" + (f".{precision}" if precision is not None else "")
        if kind in "eEfFgGaA":
            value: float = struct.unpack("<d", self.take(8).to_bytes(8, "little"))[0]
            if kind not in "aA":
                converted: str = f"{style}{kind}" % value
                return converted
            text = float(value).hex()
        elif kind == "s":
            text = _string(self.memory, self.take(8))[:precision]
        elif kind == "c":
            text = chr(self.take(4) & 255)
        elif kind == "p":
            text = f"{self.take(8):#x}"
        else:
            return match[0]
        return text.ljust(width or 0) if "-" in flags else text.rjust(width or 0)

    def integer(self, flags: str, width: int, precision: int | None, length: str, kind: str) -> str:
        size = 8 if length in ("l", "ll", "j", "z", "t") else 4
        bits = {"h": 16, "hh": 8}.get(length, 8 * size)
        value = self.take(size) & ((1 << bits) - 1)
        if kind in "di":
            value -= value >> (bits - 1) << bits
        # not left to Python's %, which differs in what flags do to unsigned numbers, to octal ones and to zeros
        digits = format(abs(value), kind if kind in "oxX" else "d")
        if precision is not None:
            digits = digits.rjust(precision, "0") if precision or value else ""
        sign = "-" if value < 0 else "" if kind not in "di" else "+" if "+" in flags else " " if " " in flags else ""
        if "#" in flags and kind == "o" and not digits.startswith("0"):
            digits = f"0{digits}"
        elif "#" in flags and kind in "xX" and value:
            sign = f"0{kind}"
        if "0" in flags and "-" not in flags and precision is None:
            digits = digits.rjust(width - len(sign), "0")
        text = sign + digits
        return text.ljust(width) if "-" in flags else text.rjust(width)

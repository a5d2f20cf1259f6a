"""PTX out of what nvcc and fatbinary write: fat binaries, and object files, libraries and programs that hold them.

The format is known from files: a header of 16 bytes (magic, version, its size, the size of what follows), then entries,
each a header (kind, its size, the size of its contents, the compressed size, the architecture, flags, the size when
decompressed) and contents.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["DamagedData", "Image", "holds_images", "images"]

_MAGIC = struct.pack("<IHH", 0xBA55ED50, 1, 16)
_PTX, _CUBIN = 1, 2
_LZ4, _ZSTD = 0x2000, 0x8000
_ENTRY = struct.Struct("<HHIQ I I HH I II QQQ")
_EM_CUDA = 190
_TARGET = re.compile(rb"^\s*\.target\s+sm_(\d+)([af]?)", re.MULTILINE)


class DamagedData(ValueError):
    """A fat binary that is cut or damaged."""


@dataclass(frozen=True, slots=True)
class Image:
    """One entry of a fat binary: PTX or machine code (a cubin), for an architecture such as 90."""

    is_ptx: bool
    architecture: int
    contents: bytes

    @property
    def target(self) -> tuple[int, str]:
        """Of PTX, the architecture that it names, and its letter."""
        found = _TARGET.search(self.contents)
        return (int(found[1]), found[2].decode()) if found else (self.architecture, "")


def holds_images(data: bytes) -> bool:
    """Whether bytes are a cubin, or hold a fat binary, and not text."""
    return data[:4] == b"\x7fELF" or _MAGIC in data


def images(data: bytes) -> Iterator[Image]:
    """All images in the bytes of a file. Raises ``DamagedData``."""
    if data[:4] == b"\x7fELF" and len(data) > 20 and struct.unpack_from("<H", data, 18)[0] == _EM_CUDA:
        yield Image(False, 0, data)
        return
    at = data.find(_MAGIC)
    while at >= 0:
        end = at + 16 + int.from_bytes(data[at + 8 : at + 16], "little")
        if end > len(data):
            raise DamagedData("a fat binary is longer than the file that holds it")
        yield from _entries(data, at + 16, end)
        at = data.find(_MAGIC, end)


def _entries(data: bytes, at: int, end: int) -> Iterator[Image]:
    while at + _ENTRY.size <= end:
        kind, _, header, size, packed, _, _, _, architecture, _, _, flags, _, unpacked = _ENTRY.unpack_from(data, at)
        if header < _ENTRY.size or at + header + size > end:
            raise DamagedData("an entry of a fat binary is longer than the fat binary")
        contents = data[at + header : at + header + size]
        if kind == _PTX:
            yield Image(True, architecture, _unpacked(contents, flags, packed, unpacked).rstrip(b"\0"))
        elif kind == _CUBIN:
            yield Image(False, architecture, contents)
        at += header + size


def _unpacked(contents: bytes, flags: int, packed: int, unpacked: int) -> bytes:
    if not flags & (_ZSTD | _LZ4):
        return contents
    import lz4.block  # which few files need
    import zstandard

    try:
        if flags & _ZSTD:
            found = zstandard.ZstdDecompressor().decompress(contents[: packed or None], max_output_size=unpacked)
        else:
            found = lz4.block.decompress(contents[:packed], uncompressed_size=unpacked)
    except (zstandard.ZstdError, lz4.block.LZ4BlockError, MemoryError, OverflowError, ValueError) as error:
        raise DamagedData(f"an entry of a fat binary cannot be decompressed: {error}") from None
    if len(found) != unpacked:
        raise DamagedData(f"{len(found)} bytes come out of an entry of a fat binary that should hold {unpacked}")
    return bytes(found)

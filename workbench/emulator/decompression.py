"""Decoders of the two compressed formats that fat binaries hold: blocks of LZ4, and frames of Zstandard (RFC 8878)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["DamagedData", "lz4_block", "zstd_frame"]


class DamagedData(ValueError):
    """Compressed data that is cut or damaged."""


def lz4_block(data: bytes, size: int) -> bytes:
    """``size`` bytes from a block of LZ4. Raises ``DamagedData``."""
    out = bytearray()
    at = 0
    try:
        while len(out) < size:
            token = data[at]
            literals, at = _lz4_length(data, at + 1, token >> 4)
            out += data[at : at + literals]
            at += literals
            if len(out) >= size:
                break
            offset = data[at] | data[at + 1] << 8
            length, at = _lz4_length(data, at + 2, token & 15)
            _repeat(out, offset, length + 4)
    except IndexError:
        raise DamagedData("a block of LZ4 is cut") from None
    return bytes(out[:size])


def _lz4_length(data: bytes, at: int, length: int) -> tuple[int, int]:
    if length == 15:
        while True:
            more = data[at]
            length, at = length + more, at + 1
            if more != 255:
                break
    return length, at


def _repeat(out: bytearray, offset: int, length: int) -> None:
    """Appends ``length`` bytes that begin ``offset`` bytes before the end, which may run into what is appended."""
    start = len(out) - offset
    if offset <= 0 or start < 0:
        raise DamagedData("a match begins before the data")
    if offset >= length:
        out += out[start : start + length]
    else:
        piece = bytes(out[start:])
        out += (piece * (length // offset + 1))[:length]


_MAGIC = 0xFD2FB528
_LITERAL_BASES = (*range(16), 16, 18, 20, 22, 24, 28, 32, 40, 48, *(1 << n for n in range(6, 17)))
_LITERAL_BITS = (*[0] * 16, 1, 1, 1, 1, 2, 2, 3, 3, 4, *range(6, 17))
_MATCH_BASES = (*range(3, 35), 35, 37, 39, 41, 43, 47, 51, 59, 67, 83, 99, *((1 << n) + 3 for n in range(7, 17)))
_MATCH_BITS = (*[0] * 32, 1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, *range(7, 17))
_LITERAL_COUNTS = (4, 3, *[2] * 11, 1, 1, 1, *[2] * 9, 3, 2, *[1] * 5, *[-1] * 4)
_OFFSET_COUNTS = (*[1] * 6, 2, 2, 2, *[1] * 15, *[-1] * 5)
_MATCH_COUNTS = (1, 4, 3, *[2] * 6, *[1] * 37, *[-1] * 7)


def zstd_frame(data: bytes) -> bytes:
    """What a frame of Zstandard holds; its checksum is not looked at. Raises ``DamagedData``."""
    try:
        return _Frame(data).contents()
    except (IndexError, struct.error, ZeroDivisionError, OverflowError):
        raise DamagedData("a frame of Zstandard is cut or damaged") from None


class _Backward:
    """Bits of a stream that is read from its end, where a single 1 stands before them."""

    def __init__(self, data: bytes) -> None:
        if not data or not data[-1]:
            raise DamagedData("a bit stream does not end as it should")
        self.data = data + bytes(8)
        self.left = 8 * len(data) - 9 + data[-1].bit_length()

    def read(self, count: int) -> int:
        self.left -= count
        return self.peek_at(self.left, count)

    def peek_at(self, position: int, count: int) -> int:
        if position < 0:  # zeros stand before the first bit
            return self.peek_at(0, count + position) << -position if count + position > 0 else 0
        (word,) = struct.unpack_from("<Q", self.data, position >> 3)
        return int(word) >> (position & 7) & ((1 << count) - 1)


@dataclass(slots=True)
class _Fse:
    """A table of finite-state entropy: symbol, bits to read and base of the next state, for each state."""

    log: int
    symbols: list[int]
    bits: list[int]
    bases: list[int]

    @classmethod
    def of(cls, counts: Sequence[int], log: int) -> _Fse:
        size = 1 << log
        symbols = [0] * size
        high = size
        for symbol, count in enumerate(counts):
            if count == -1:
                high -= 1
                symbols[high] = symbol
        position, step = 0, (size >> 1) + (size >> 3) + 3
        for symbol, count in enumerate(counts):
            for _ in range(max(count, 0)):
                symbols[position] = symbol
                position = (position + step) % size
                while position >= high:
                    position = (position + step) % size
        following = [abs(count) for count in counts]
        bits, bases = [], []
        for symbol in symbols:
            state = following[symbol]
            following[symbol] += 1
            bits.append(log + 1 - state.bit_length())
            bases.append((state << bits[-1]) - size)
        return cls(log, symbols, bits, bases)

    @classmethod
    def single(cls, symbol: int) -> _Fse:
        return cls(0, [symbol], [0], [0])

    @classmethod
    def described(cls, data: bytes, at: int) -> tuple[_Fse, int]:
        """The table that is described at a place, and where that ends."""
        bits = int.from_bytes(data[at : at + 512], "little")
        log, used = (bits & 15) + 5, 4
        remaining, threshold, width = (1 << log) + 1, 1 << log, log + 1
        counts: list[int] = []
        while remaining > 1:
            most = 2 * threshold - 1 - remaining
            value = bits >> used
            count = value & (threshold - 1)
            if count < most:
                used += width - 1
            else:
                count = value & (2 * threshold - 1)
                count -= most if count >= threshold else 0
                used += width
            counts.append(count - 1)
            remaining -= abs(count - 1)
            while remaining < threshold and threshold > 1:
                width, threshold = width - 1, threshold >> 1
            while count == 1:  # a zero is followed by how many more there are
                more = bits >> used & 3
                used += 2
                counts += [0] * more
                if more < 3:
                    break
        if len(counts) > 256 or remaining != 1:
            raise DamagedData("a table of frequencies is damaged")
        return cls.of(counts, log), at + -(-used // 8)


@dataclass(slots=True)
class _Huffman:
    """Symbols and lengths of codes, by the next ``log`` bits."""

    log: int
    symbols: list[int]
    lengths: list[int]

    @classmethod
    def described(cls, data: bytes, at: int) -> tuple[_Huffman, int]:
        header = data[at]
        at += 1
        if header >= 128:
            count = header - 127
            weights = [data[at + i // 2] >> (0 if i % 2 else 4) & 15 for i in range(count)]
            return cls.of(weights), at + -(-count // 2)
        end = at + header
        table, start = _Fse.described(data[:end], at)
        return cls.of(_weights(table, _Backward(data[start:end]))), end

    @classmethod
    def of(cls, weights: list[int]) -> _Huffman:
        total = sum(1 << weight - 1 for weight in weights if weight)
        log = total.bit_length()
        rest = (1 << log) - total
        if rest & (rest - 1) or log > 11:
            raise DamagedData("the lengths of a Huffman code do not fit together")
        weights = [*weights, rest.bit_length()]
        symbols: list[int] = []
        lengths: list[int] = []
        for weight in range(1, log + 1):
            for symbol, own in enumerate(weights):
                if own == weight:
                    symbols += [symbol] * (1 << weight - 1)
                    lengths += [log + 1 - weight] * (1 << weight - 1)
        return cls(log, symbols, lengths)

    def decode(self, data: bytes, count: int) -> bytes:
        stream = _Backward(data)
        out = bytearray()
        left, log, symbols, lengths = stream.left, self.log, self.symbols, self.lengths
        for _ in range(count):
            code = stream.peek_at(left - log, log)
            out.append(symbols[code])
            left -= lengths[code]
        if left:
            raise DamagedData("a Huffman stream does not end where it should")
        return bytes(out)


def _weights(table: _Fse, stream: _Backward) -> list[int]:
    """Lengths of a Huffman code, of two states that take turns until the stream has ended."""
    states = [stream.read(table.log), stream.read(table.log)]
    weights: list[int] = []
    turn = 0
    while len(weights) <= 255:
        state = states[turn]
        weights.append(table.symbols[state])
        bits = table.bits[state]
        if stream.left < bits:
            weights.append(table.symbols[states[1 - turn]])
            return weights
        states[turn] = table.bases[state] + stream.read(bits)
        turn = 1 - turn
    raise DamagedData("a Huffman code has too many symbols")


@dataclass(slots=True)
class _Frame:
    """One frame while it is decoded."""

    data: bytes
    out: bytearray = field(default_factory=bytearray)
    huffman: _Huffman | None = None
    tables: list[_Fse | None] = field(default_factory=lambda: [None, None, None])  # of literals, offsets, matches
    offsets: list[int] = field(default_factory=lambda: [1, 4, 8])

    def contents(self) -> bytes:
        magic, descriptor = struct.unpack_from("<IB", self.data)
        if magic != _MAGIC:
            raise DamagedData("it is no frame of Zstandard")
        single = descriptor >> 5 & 1
        size_bytes = (single, 2, 4, 8)[descriptor >> 6]
        at = 5 + (1 - single) + (0, 1, 2, 4)[descriptor & 3] + size_bytes
        last = False
        while not last:
            header = int.from_bytes(self.data[at : at + 3], "little")
            if len(self.data) < at + 3:
                raise IndexError
            last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
            at += 3
            if kind == 1:
                self.out += self.data[at : at + 1] * size
                at += 1
                continue
            block = self.data[at : at + size]
            if len(block) < size:
                raise IndexError
            at += size
            if kind == 0:
                self.out += block
            else:
                self.block(block)
        return bytes(self.out)

    def block(self, block: bytes) -> None:
        literals, at = self.literals(block)
        count = block[at]
        at += 1
        if count == 255:
            count, at = block[at] + (block[at + 1] << 8) + 0x7F00, at + 2
        elif count > 127:
            count, at = (count - 128 << 8) + block[at], at + 1
        if not count:
            self.out += literals
            return
        modes = block[at]
        at += 1
        predefined = ((_LITERAL_COUNTS, 6), (_OFFSET_COUNTS, 5), (_MATCH_COUNTS, 6))
        for number, shift in enumerate((6, 4, 2)):
            mode = modes >> shift & 3
            if mode == 0:
                self.tables[number] = _Fse.of(*predefined[number])
            elif mode == 1:
                self.tables[number], at = _Fse.single(block[at]), at + 1
            elif mode == 2:
                self.tables[number], at = _Fse.described(block, at)
        self.sequences(literals, count, _Backward(block[at:]))

    def literals(self, block: bytes) -> tuple[bytes, int]:
        kind, size_format = block[0] & 3, block[0] >> 2 & 3
        if kind < 2:
            length = (1, 2, 1, 3)[size_format]
            size = int.from_bytes(block[:length], "little") >> (3 if length == 1 else 4)
            if kind == 0:
                return block[length : length + size], length + size
            return block[length : length + 1] * size, length + 1
        length, bits = ((3, 10), (3, 10), (4, 14), (5, 18))[size_format]
        header = int.from_bytes(block[:length], "little") >> 4
        size, packed = header & (1 << bits) - 1, header >> bits & (1 << bits) - 1
        at, end = length, length + packed
        if kind == 2:
            self.huffman, at = _Huffman.described(block, at)
        if self.huffman is None:
            raise DamagedData("a block has no Huffman code")
        if size_format == 0:
            return self.huffman.decode(block[at:end], size), end
        sizes = list(struct.unpack_from("<HHH", block, at))
        at += 6
        sizes.append(end - at - sum(sizes))
        each = (size + 3) // 4
        parts = []
        for number, bytes_of_stream in enumerate(sizes):
            part = each if number < 3 else size - 3 * each
            parts.append(self.huffman.decode(block[at : at + bytes_of_stream], part))
            at += bytes_of_stream
        return b"".join(parts), end

    def sequences(self, literals: bytes, count: int, stream: _Backward) -> None:
        of_literals, of_offsets, of_matches = self.tables
        if of_literals is None or of_offsets is None or of_matches is None:
            raise DamagedData("a block has no tables of frequencies")
        state, offset_state, match_state = (
            stream.read(of_literals.log),
            stream.read(of_offsets.log),
            stream.read(of_matches.log),
        )
        at = 0
        for number in range(count):
            code = of_offsets.symbols[offset_state]
            value = (1 << code) + stream.read(code)
            match_code, literal_code = of_matches.symbols[match_state], of_literals.symbols[state]
            length = _MATCH_BASES[match_code] + stream.read(_MATCH_BITS[match_code])
            copied = _LITERAL_BASES[literal_code] + stream.read(_LITERAL_BITS[literal_code])
            self.out += literals[at : at + copied]
            at += copied
            _repeat(self.out, self.offset(value, copied), length)
            if number < count - 1:
                state = of_literals.bases[state] + stream.read(of_literals.bits[state])
                match_state = of_matches.bases[match_state] + stream.read(of_matches.bits[match_state])
                offset_state = of_offsets.bases[offset_state] + stream.read(of_offsets.bits[offset_state])
        if stream.left:
            raise DamagedData("a block does not end where it should")
        self.out += literals[at:]

    def offset(self, value: int, copied: int) -> int:
        """How far back a match begins: given, or one of the last three."""
        if value > 3:
            self.offsets = [value - 3, *self.offsets[:2]]
            return self.offsets[0]
        which = value - 1 + (copied == 0)
        found = self.offsets[which] if which < 3 else self.offsets[0] - 1
        self.offsets.pop(min(which, 2))
        self.offsets.insert(0, found)
        return found

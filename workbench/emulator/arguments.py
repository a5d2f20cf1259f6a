"""Arguments of a launch: what a kernel's signature asks for, and their bytes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from . import _engine, ptx
from .allocation import Allocation
from .memory import Memory
from .program import Signature
from .tensor_bytes import tensor_bytes
from .tensor_map import TensorMap

__all__ = ["Argument", "ArgumentError", "StructBytes", "check_arguments", "parameter_buffer"]


@dataclass(frozen=True, slots=True)
class StructBytes:
    """A struct by value: its bytes, and the tensor maps in it by the bytes in front of them."""

    raw: bytes
    tensor_maps: tuple[tuple[int, TensorMap], ...] = ()


Argument = int | float | bool | np.generic | bytes | Allocation | TensorMap | StructBytes


class ArgumentError(TypeError):
    """An argument is not what the kernel's signature asks for."""


def check_arguments(entry: Signature, args: Sequence[Argument], memory: Memory) -> None:
    """Raises ``ArgumentError`` for arguments that the kernel's signature does not ask for."""
    parameter_buffer(entry, args, memory)


def parameter_buffer(
    entry: Signature, args: Sequence[Argument], memory: Memory
) -> tuple[npt.NDArray[np.uint8], list[tuple[int, TensorMap]]]:
    """The parameters' bytes, and the tensor maps among them with their addresses."""
    if len(args) != len(entry.parameters):
        listed = ", ".join(f"{p.type}{f'[{p.size}]' if p.type == 'b8' else ''}" for p in entry.parameters)
        raise ArgumentError(
            f"{entry.name} has {len(entry.parameters)} parameters ({listed}), but {len(args)} arguments are given"
        )
    buffer = bytearray(entry.parameter_bytes)
    tensor_maps = []
    for number, (parameter, argument) in enumerate(zip(entry.parameters, args, strict=True)):
        raw = _Argument(entry, number, parameter).bytes_of(argument, memory)
        buffer[parameter.offset : parameter.offset + parameter.size] = raw
        if isinstance(argument, TensorMap):
            tensor_maps.append((_engine.PARAM_WINDOW + parameter.offset, argument))
        elif isinstance(argument, StructBytes):
            start = _engine.PARAM_WINDOW + parameter.offset
            tensor_maps += [(start + offset, tensor) for offset, tensor in argument.tensor_maps]
    return np.frombuffer(bytes(buffer), np.uint8), tensor_maps


@dataclass(frozen=True, slots=True)
class _Argument:
    """One argument on its way into the parameter buffer."""

    entry: Signature
    number: int
    parameter: ptx.Parameter

    def refuse(self, reason: str) -> NoReturn:
        parameter = self.parameter
        raise ArgumentError(
            f"parameter {self.number} of {self.entry.name} ({parameter.name}: {parameter.type}, {parameter.size} bytes)"
            f": {reason}"
        )

    @property
    def is_struct(self) -> bool:
        return self.parameter.type == "b8" and self.parameter.size > 1

    @property
    def is_float(self) -> bool:
        return self.parameter.type.startswith("f")

    def bytes_of(self, argument: Argument, memory: Memory) -> bytes:
        size = self.parameter.size
        if isinstance(argument, TensorMap):
            return self.tensor_map(argument, memory)
        if isinstance(argument, StructBytes):
            if len(argument.raw) != size:
                self.refuse(f"the struct that is given has {len(argument.raw)} bytes: compare its members")
            return argument.raw
        if isinstance(argument, Allocation):
            if argument.freed:
                self.refuse(f"{argument.name} has been freed")
            if size != 8 or self.is_struct or self.is_float:
                self.refuse(f"the array {argument.name} is passed by pointer, which has 8 bytes")
            return argument.address.to_bytes(8, "little")
        if isinstance(argument, bytes | bytearray | memoryview | np.void):
            raw = argument.tobytes() if isinstance(argument, np.void | memoryview) else bytes(argument)
            if len(raw) != size:
                self.refuse(f"{len(raw)} bytes are given")
            return raw
        if isinstance(argument, np.ndarray):
            self.refuse("an array must be uploaded first, and its Allocation passed")
        if isinstance(argument, np.generic):
            return self.numpy_scalar(argument)
        if self.is_struct:
            self.refuse(f"a struct is passed as its bytes, not as {type(argument).__name__}")
        if isinstance(argument, int):
            return self.integer(int(argument))
        if isinstance(argument, float):
            if not self.is_float and self.parameter.type[0] != "b":
                self.refuse(f"the float {argument} is given for an integer")
            return struct.pack({2: "<e", 4: "<f", 8: "<d"}[size], argument)
        self.refuse(f"{type(argument).__name__} is not an argument that a kernel takes")

    def integer(self, value: int) -> bytes:
        bits = 8 * self.parameter.size
        if self.is_float:
            self.refuse(f"the integer {value} is given for a float; write {value}.0")
        if not -(1 << bits - 1) <= value < 1 << bits:
            self.refuse(f"{value} does not fit into {bits} bits")
        return (value % (1 << bits)).to_bytes(self.parameter.size, "little")

    def numpy_scalar(self, value: np.generic) -> bytes:
        if value.dtype.itemsize != self.parameter.size:
            self.refuse(f"{value.dtype} has {value.dtype.itemsize} bytes")
        if value.dtype.kind in "iub" and self.is_float:
            self.refuse(f"{value.dtype} is given for a float")
        if value.dtype.kind == "f" and not self.is_float and self.parameter.type[0] in "us" and self.parameter.size > 2:
            self.refuse(f"{value.dtype} is given for an integer")
        return bytes(value.tobytes())

    def tensor_map(self, tensor: TensorMap, memory: Memory) -> bytes:
        if self.parameter.size != 128:
            self.refuse(
                "a tensor map has 128 bytes and is passed as a `const __grid_constant__ CUtensorMap`; "
                "for a pointer to it give a list that holds it"
            )
        if self.parameter.align < 64:
            self.refuse("a tensor map must be aligned to 64 bytes")
        allocation = memory.find(tensor.address)
        if allocation is None:
            self.refuse(f"nothing is allocated at the tensor map's address {tensor.address:#x}")
        if tensor.address + tensor.extent > allocation.end:
            self.refuse(
                f"the tensor map covers {tensor.extent} bytes, but {allocation.name} has "
                f"{allocation.end - tensor.address} from its address on: compare shape and strides"
            )
        return tensor_bytes(tensor)

"""A lane-wise operation as PTX text with operand types and a definition on Python's integers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt
from softfloat import BF16, F16, F32, Format

from workbench.emulator.architectures import missing

Array = npt.NDArray[Any]
Definition = Callable[..., Any]

TF32 = Format(32, 8, 23)  # in a register: an f32 whose last 13 bits do not count
E5M2 = Format(8, 5, 2)
PAIRS = {"f16x2": F16, "bf16x2": BF16, "f32x2": F32}
FLUSHED = {"f16": F16, "f16x2": F16, "f32": F32, "f32x2": F32}
TINY = "after rounding"
"""When a result has to be subnormal for ``.ftz`` to flush it: rounded as if exponents had no limit."""


def bits_of(type_name: str) -> int:
    """Bits of a value of the type; a predicate is one byte in memory."""
    if type_name == "pred":
        return 8
    if type_name.endswith("x2"):
        return 16 if type_name.startswith("e") else 64 if type_name == "f32x2" else 32
    return 32 if type_name == "tf32" else int(type_name.lstrip("usbf"))


def register_of(type_name: str) -> str:
    """Register that holds the type: untyped, as wide as it has to be. Only ``mov`` takes parts of 8 bits."""
    if type_name == "b8":
        return "b8"
    return "pred" if type_name == "pred" else f"b{max(bits_of(type_name), 16)}"


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) & 1 else value


def read(type_name: str, bits: int) -> int:
    """The integer that a bit pattern stands for."""
    return signed(bits, bits_of(type_name)) if type_name[0] == "s" else bits


@dataclass(frozen=True)
class Near:
    """How far an approximation may be from the exact result: the largest of three errors, and of what it says nothing.

    ``relative`` and ``absolute`` are errors, ``ulp`` counts units in the last place. They hold where the magnitude of
    the last operand is from ``low`` to ``high``.
    """

    form: Format
    relative: float = 0.0
    absolute: float = 0.0
    ulp: float = 0.0
    low: float = 0.0
    high: float = math.inf


@dataclass(frozen=True)
class Form:
    """One operation: ``body`` reads %a, %b, ... of the ``inputs``' types and writes %x, %y, ... of the ``outputs``'.

    ``define`` takes the inputs' bit patterns and gives the result's, or a tuple of them. ``number``: the format of
    results for which any NaN is as good as another; ``near``: results are approximations. ``adjust`` moves operands for
    which PTX defines nothing. ``flushes``: of ``.ftz``, the definition by each rule of what it flushes (``TINY``).
    ``plain``: the body is one instruction with registers only.
    """

    operation: str
    body: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    define: Definition
    number: Format | None = None
    near: Near | None = None
    adjust: Callable[[list[Array]], None] | None = None
    flushes: dict[str, Definition] = field(default_factory=dict)
    extra: str = ""

    @property
    def newer(self) -> bool:
        """Whether sm_90a does not have it."""
        return missing(self.operation, "sm_90a") is not None

    @property
    def plain(self) -> bool:
        return self.body.count(";") == 1

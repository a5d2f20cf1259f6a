"""Element types: the NumPy type that holds the values, the CUDA C++ type, the rounding, what unwritten memory holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class DType:
    """An element type.

    `unit_roundoff` is the largest relative error of rounding a real number to it (2^-p, p the bits of the significand
    including the hidden one); `smallest` is the smallest positive subnormal, the absolute error near zero. Both
    are 0 for integers and bool, which are exact. `tensor_map` is the type of a tensor map over such elements, by its
    name in NumPy, or an empty text. `header` is the header of CUDA that has its type, empty for a built-in one. `ptx`,
    `torch` and `triton` are its names there, empty where there is no such type.
    `aliases` are further names that it is given. A `compute_only` type is never in memory: memory holds another type,
    of which the multiplication reads fewer bits. `packing` elements lie in one byte, the first one in its lowest bits;
    an array in NumPy has a byte for each of them."""

    name: str
    numpy: np.dtype[Any]
    cuda: str
    unit_roundoff: float
    smallest: float
    tensor_map: str = ""
    compute_only: bool = False
    ptx: str = ""
    torch: str = ""
    triton: str = ""
    aliases: tuple[str, ...] = ()
    header: str = ""
    packing: int = 1

    @property
    def spellings(self) -> tuple[str, ...]:
        """All names by which `dtype_of` finds it, its own first; in memory a type that is only computed in has none."""
        if self.compute_only:
            return (self.name,)
        known = (self.name, self.numpy.name, self.cuda, self.ptx, self.torch, self.triton, *self.aliases)
        return tuple(dict.fromkeys(filter(None, known)))

    @property
    def bits(self) -> int:
        """Of one element in memory."""
        return 8 * self.itemsize // self.packing

    @property
    def itemsize(self) -> int:
        """Bytes of one element, or of a byte of packed ones."""
        return self.numpy.itemsize

    def nbytes(self, elements: int) -> int:
        """Bytes of so many elements that lie side by side; packed ones fill up the last byte."""
        return -(-elements * self.bits // 8)

    @property
    def storage(self) -> np.dtype[Any]:
        """The NumPy type of memory that holds such elements: bytes where they are packed."""
        return self.numpy if self.packing == 1 else np.dtype(np.uint8)

    def unpacked(self, storage: Any) -> Any:
        """Memory as elements, of which each has a byte. Memory that is not packed stays as it is, and may be written.

        `storage`: one dimension, an array of NumPy or CuPy."""
        if self.packing == 1:
            return storage
        elements = storage.repeat(self.packing)
        for place in range(1, self.packing):
            elements[place :: self.packing] >>= place * self.bits
        elements &= (1 << self.bits) - 1
        return elements

    def packed(self, elements: Any) -> Any:
        """Memory of elements as `unpacked` gives them."""
        if self.packing == 1:
            return elements
        made = elements[:: self.packing].copy()
        for place in range(1, self.packing):
            made |= elements[place :: self.packing] << place * self.bits
        return made

    @property
    def is_float(self) -> bool:
        """Whether numbers are rounded to it; integers and bool are not."""
        return self.unit_roundoff > 0

    @property
    def smallest_normal(self) -> float:
        """The smallest positive number of a float type with all bits of the significand."""
        return self.smallest / (2 * self.unit_roundoff)

    @property
    def fillers(self) -> tuple[bytes, bytes]:
        """Two patterns for an element of memory to which no kernel has written: the usual one, and another.

        In floating-point types both are NaN with a payload that arithmetic does not give: on a GPU a NaN that is
        computed has all bits of its significand set (PTX ISA, floating-point instructions), elsewhere the first one
        alone. e4m3 has one NaN of each sign, so that its other pattern is a number. In integers they are values that
        hardly any kernel computes, in bool neither true nor false. Where a value may be computed all the same, two
        launches, one with each pattern, tell what was written."""
        if self.is_float and self.itemsize > 1:
            return b"\xfd\xff" * (self.itemsize // 2), b"\xfb\xff" * (self.itemsize // 2)
        if self.numpy == ml_dtypes.float8_e5m2:
            return b"\xfd", b"\x7d"
        if self.is_float:
            return b"\xff", b"\x9d"
        return b"\x9d" * self.itemsize, b"\x62" * self.itemsize

    @property
    def largest(self) -> bytes:
        """The bytes of the largest number."""
        if self.numpy.kind == "b":
            return b"\1"
        limits = ml_dtypes.finfo(self.numpy) if self.is_float else np.iinfo(self.numpy)  # type: ignore[no-untyped-call]
        bits: bytes = self.packed(np.array([limits.max] * self.packing, self.numpy).view(self.storage)).tobytes()
        return bits

    def unwritten(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Which of `values`, of this type, have the bits of memory to which nothing has been written: a mask of the
        same shape."""
        return same_bits(values, self.fillers[0])

    @property
    def has_nan(self) -> bool:
        """Whether one of its values is NaN."""
        return self.is_float and bool(np.isnan(self.rounded(np.array(np.nan)).astype(np.float64)))

    @property
    def is_scale(self) -> bool:
        """Whether it holds powers of two alone: no zero, and nothing negative."""
        return self.unit_roundoff == 0.5

    def rounded(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Numbers rounded once to this type; NaN of e4m3 is the positive one, as of a device."""
        with np.errstate(over="ignore", invalid="ignore"):
            made: np.ndarray[Any, Any] = values.astype(self.numpy)
        if self.numpy == ml_dtypes.float8_e4m3fn:  # the negative one stands for what nobody has written
            bits = np.ascontiguousarray(made).view(np.uint8)
            made = np.where(bits == 0xFF, np.uint8(0x7F), bits).view(self.numpy).reshape(np.shape(values))
        return made

    def __str__(self) -> str:
        return self.name


def same_bits(values: np.ndarray[Any, Any], bits: bytes) -> np.ndarray[Any, Any]:
    """Which of the values consist of these bytes: a mask of the same shape."""
    whole = np.dtype(f"u{len(bits)}")
    found: np.ndarray[Any, Any] = np.ascontiguousarray(values).view(whole) == np.frombuffer(bits, whole)
    return found.reshape(values.shape)


def _float(
    name: str, numpy: Any, significand: int, smallest: int, cuda: str, ptx: str, torch: str, triton: str, *aliases: str
) -> DType:
    """A type in memory; of 8 bits a tensor map has no floating-point type."""
    kind = np.dtype(numpy)
    mapped = "uint8" if kind.itemsize == 1 else kind.name
    header = {1: "cuda_fp8.h", 2: f"cuda_{name}.h"}.get(kind.itemsize, "")
    return DType(name, kind, cuda, 2.0**-significand, 2.0**smallest, mapped, False, ptx, torch, triton, aliases, header)


def _whole(name: str, cuda: str, ptx: str, tensor_map: str, triton: str, *aliases: str) -> DType:
    return DType(name, np.dtype(name), cuda, 0.0, 0.0, tensor_map, False, ptx, name, triton, aliases)


FP64 = _float("fp64", np.float64, 53, -1074, "double", "f64", "float64", "fp64")
"""IEEE double precision: 53 bits of significand, as many as the reference has."""

FP32 = _float("fp32", np.float32, 24, -149, "float", "f32", "float32", "fp32")
"""IEEE single precision: 24 bits of significand."""

TF32 = DType("tf32", np.dtype(np.float32), "float", 2.0**-11, 2.0**-149, "tfloat32", compute_only=True, ptx="tf32")
"""What tensor cores read of fp32: 11 bits of significand. In memory it is fp32."""

FP16 = _float("fp16", np.float16, 11, -24, "__half", "f16", "float16", "fp16", "half")
"""IEEE half precision: 11 bits of significand."""

BF16 = _float("bf16", ml_dtypes.bfloat16, 8, -133, "__nv_bfloat16", "bf16", "bfloat16", "bf16", "nv_bfloat16")
"""bfloat16: 8 bits of significand."""

E4M3 = _float("e4m3", ml_dtypes.float8_e4m3fn, 4, -9, "__nv_fp8_e4m3", "e4m3", "float8_e4m3fn", "fp8e4nv")
"""8-bit floating point with 4 bits of significand; the largest number is 448, and there is no infinity."""

E5M2 = _float("e5m2", ml_dtypes.float8_e5m2, 3, -16, "__nv_fp8_e5m2", "e5m2", "float8_e5m2", "fp8e5")
"""8-bit floating point with 3 bits of significand and the exponents of half precision."""

E8M0 = _float("e8m0", ml_dtypes.float8_e8m0fnu, 1, -127, "__nv_fp8_e8m0", "ue8m0", "float8_e8m0fnu", "")
"""Scales of blocks of narrow numbers: 2^-127 to 2^127 by 8 bits of exponent, without sign or zero, and one NaN."""

E2M1 = DType(
    *("e2m1", np.dtype(ml_dtypes.float4_e2m1fn), "__nv_fp4x2_e2m1", 2.0**-2, 2.0**-1, "16u4_align8b"),
    ptx="e2m1",
    torch="float4_e2m1fn_x2",
    triton="e2m1",
    header="cuda_fp4.h",
    packing=2,
)
"""4-bit floating point, two in a byte: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives; no NaN and no infinity."""

INT8 = _whole("int8", "signed char", "s8", "uint8", "i8", "char", "int8_t")
UINT8 = _whole("uint8", "unsigned char", "u8", "uint8", "u8", "uint8_t")
INT16 = _whole("int16", "short", "s16", "uint16", "i16", "int16_t")
UINT16 = _whole("uint16", "unsigned short", "u16", "uint16", "u16", "uint16_t")
INT32 = _whole("int32", "int", "s32", "int32", "i32", "int32_t")
UINT32 = _whole("uint32", "unsigned int", "u32", "uint32", "u32", "unsigned", "uint", "uint32_t")
INT64 = _whole("int64", "long long", "s64", "int64", "i64", "long", "int64_t")
UINT64 = _whole("uint64", "unsigned long long", "u64", "uint64", "u64", "unsigned long", "uint64_t", "size_t")
BOOL = _whole("bool", "bool", "", "uint8", "i1")
"""One byte: 0 or 1, and nothing else."""

DTYPES: dict[str, DType] = {
    t.name: t
    for t in (
        *(FP64, FP32, TF32, FP16, BF16, E4M3, E5M2, E8M0, E2M1),
        *(INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64, BOOL),
    )
}
"""Every element type by name."""

FLOATS: dict[str, DType] = {t.name: t for t in (BF16, FP16, FP32)}
"""The types that most operations on real numbers take, by name."""

SPELLINGS: dict[str, DType] = {name: t for t in DTYPES.values() for name in t.spellings}
"""Element types by all their names: `fp32`, `float32`, `f32` and `float` are one."""


def dtype_of(name: str) -> DType:
    """The element type of this name, in any spelling: `bf16`, `float32`, `e4m3`, `int`. Raises KeyError."""
    if name not in SPELLINGS:
        raise KeyError(f"there is no element type {name!r}; the types are {', '.join(DTYPES)}")
    return SPELLINGS[name]


def wrong_output(dtype: str, out: str) -> str | None:
    """Why the output of a problem cannot be of the type `out`, or None: it has that of the inputs, `dtype`, or fp32."""
    allowed = dict.fromkeys((dtype, FP32.name))
    return None if out in allowed else f"out is {out!r}; for dtype {dtype} it has to be {' or '.join(allowed)}"


def from_numpy(dtype: np.dtype[Any]) -> DType | None:
    """The element type that a NumPy dtype stands for, or None where there is none."""
    return next((t for t in DTYPES.values() if t.numpy == dtype and not t.compute_only), None)

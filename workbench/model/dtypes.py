"""Element types: the NumPy type that holds the values, the CUDA C++ type, and the unit roundoff of its rounding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class DType:
    """An element type.

    `unit_roundoff` is the largest relative error of rounding a real number to it (2^-p, p the bits of the significand
    including the hidden one); `smallest` is the smallest positive subnormal, the absolute error floor near zero.
    """

    name: str
    numpy: np.dtype[Any]
    cuda: str
    unit_roundoff: float
    smallest: float

    @property
    def itemsize(self) -> int:
        """Bytes an element."""
        return self.numpy.itemsize

    @property
    def filler(self) -> int:
        """The byte that memory is filled with before a kernel writes to it: NaN in every floating-point type, in
        integers a value that hardly any kernel computes."""
        return 0x9D if self.numpy.kind in "iu" else 0xFF

    def unwritten(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Which of `values`, of this type, are as they are where nothing has been written: a mask of the same shape."""
        filler = np.full(self.itemsize, self.filler, np.uint8).view(self.numpy)
        mask: np.ndarray[Any, Any] = values == filler if self.numpy.kind in "iu" else np.isnan(values)
        return mask

    def __str__(self) -> str:
        return self.name


BF16 = DType("bf16", np.dtype(ml_dtypes.bfloat16), "__nv_bfloat16", 2.0**-8, 2.0**-133)
"""bfloat16: 8 bits of significand."""

FP16 = DType("fp16", np.dtype(np.float16), "__half", 2.0**-11, 2.0**-24)
"""IEEE half precision: 11 bits of significand."""

FP32 = DType("fp32", np.dtype(np.float32), "float", 2.0**-24, 2.0**-149)
"""IEEE single precision: 24 bits of significand."""

E4M3 = DType("e4m3", np.dtype(ml_dtypes.float8_e4m3fn), "__nv_fp8_e4m3", 2.0**-4, 2.0**-9)
"""8-bit floating point with 4 bits of significand: of inputs that come with scales, not of whole problems."""

DTYPES: dict[str, DType] = {t.name: t for t in (BF16, FP16, FP32)}
"""The element types that problems have, by name."""


def dtype_of(problem_field: str) -> DType:
    """The element type named by a problem field: `bf16`, `fp16` or `fp32`."""
    return DTYPES[problem_field]


def from_numpy(dtype: np.dtype[Any]) -> DType | None:
    """The element type that a NumPy dtype stands for, or None where the workbench has no kernels for it."""
    return next((t for t in DTYPES.values() if t.numpy == dtype), None)

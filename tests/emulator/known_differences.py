"""Why the device does not do as the emulator does: what the page of the comparison says of each form that differs."""

from __future__ import annotations

import re
from typing import Any

# what a record's status and name must match, and the reason
REASONS = [
    (
        "different",
        r"cvt\.rna\.(satfinite\.)?tf32\.f32 ",
        "A NaN whose payload lies in the 13 bits that are dropped becomes an infinity on the device; the emulator, as "
        "PTX says, keeps a NaN.",
    ),
    (
        "different",
        r"ex2\.approx\.f16(x2)? ",
        "Results between one half and one times the smallest subnormal number are zero on the device; the emulator "
        "rounds to nearest.",
    ),
    (
        "different",
        r"(rcp|rsqrt)\.approx\.ftz\.f64 ",
        "The device looks at the upper half of its operand alone: a NaN whose payload lies in the lower half is an "
        "infinity there.",
    ),
    (
        "different",
        r"cvt\.r[mp]\.ftz\.(sat\.)?f16\.f32 ",
        "Subnormal operands are rounded away from zero on the device; the emulator, as PTX says of .ftz, makes them "
        "zeros.",
    ),
    (
        "different",
        r"load cp\.async\.bulk\.tensor\S* as (float32|tfloat32)_ftz",
        "The device keeps subnormal numbers that it loads; the emulator, as CUDA says of these types, does not.",
    ),
    (
        "error",
        r"reduce cp\.reduce\.async\.bulk\.tensor\S*\.(and|or|xor)\.\S* int64 ",
        "The device refuses bitwise reductions of tensors whose elements are signed numbers of 64 bits.",
    ),
]


def reason_of(record: dict[str, Any]) -> str:
    """The known reason of a difference, or an empty text."""
    for status, pattern, reason in REASONS:
        if record["status"] == status and re.match(pattern, record["body"]):
            return reason
    return ""

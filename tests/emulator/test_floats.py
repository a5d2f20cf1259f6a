"""Floats of 8 bits as ml_dtypes has them, and approximations of values that are no numbers; ``test_forms.py`` has every
instruction on floats against exact rationals."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from emulation import apply

from workbench.emulator import Output, launch

RNG = np.random.default_rng(12345)


@pytest.mark.parametrize(
    ("type_name", "dtype"), [("e4m3x2", ml_dtypes.float8_e4m3fn), ("e5m2x2", ml_dtypes.float8_e5m2)]
)
def test_conversion_to_eight_bits_saturates(type_name: str, dtype: type) -> None:
    largest = float(ml_dtypes.finfo(dtype).max)
    values = np.concatenate(
        [RNG.standard_normal(300) * 10, [0, -0.0, largest, 2 * largest, -1e30, np.inf, -np.inf, 2**-9, 2**-17]]
    )
    upper = values.astype(np.float32)
    lower = upper[::-1].copy()
    found = apply(f"cvt.rn.satfinite.{type_name}.f32 %x, %a, %b;", [("f32", upper), ("f32", lower)], "b16")
    for source, result in ((upper, found >> 8), (lower, found & 255)):
        expected = np.clip(source, -largest, largest).astype(dtype).view(np.uint8)
        assert np.array_equal(result, expected)


@pytest.mark.parametrize(
    ("type_name", "dtype"), [("e4m3x2", ml_dtypes.float8_e4m3fn), ("e5m2x2", ml_dtypes.float8_e5m2)]
)
def test_conversion_from_eight_bits_is_exact(type_name: str, dtype: type) -> None:
    codes = np.arange(256, dtype=np.uint16)
    pairs = codes << 8 | codes[::-1]
    found = apply(f"cvt.rn.f16x2.{type_name} %x, %a;", [("b16", pairs)], "b32")
    for code, half in ((codes, found >> 16), (codes[::-1], found & 0xFFFF)):
        expected = code.astype(np.uint8).view(dtype).astype(np.float16)
        assert np.array_equal(half.astype(np.uint16).view(np.float16), expected, equal_nan=True)


def test_approximations_at_the_edges() -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -1.0], np.float32)

    def found(opcode: str) -> list[str]:
        return [str(v) for v in apply(f"{opcode} %x, %a;", [("f32", x)], "f32")]

    assert found("rcp.approx.f32")[:5] == ["inf", "-inf", "0.0", "-0.0", "nan"]
    assert found("sqrt.approx.f32") == ["0.0", "-0.0", "inf", "nan", "nan", "nan"]
    assert found("rsqrt.approx.f32") == ["inf", "-inf", "0.0", "nan", "nan", "nan"]
    assert found("lg2.approx.f32") == ["-inf", "-inf", "inf", "nan", "nan", "nan"]
    assert found("ex2.approx.f32")[:5] == ["1.0", "1.0", "inf", "0.0", "nan"]
    assert found("sin.approx.f32")[4] == "nan"


def test_an_approximation_is_off_by_what_is_documented_and_a_subnormal_one_by_its_rounding() -> None:
    x = np.concatenate([np.linspace(-20, 20, 401), np.linspace(-150, -127, 231)]).astype(np.float32)
    source = """__global__ void k(const float* x, float* y) {
        asm("ex2.approx.f32 %0, %1;" : "=f"(y[threadIdx.x]) : "f"(x[threadIdx.x]));
    }"""
    exact, off = np.exp2(x.astype(np.float64)), []
    for seed in range(12):
        y = np.zeros_like(x)
        assert launch(source, "k", 1, len(x), [x, Output(y)], seed=seed).ok
        error = np.abs(y - exact) / np.spacing(exact.astype(np.float32))
        off.append(error[:401].max())
        assert error[401:].max() <= 0.75
    assert max(off[:2]) <= 0.5 < max(off) <= 2

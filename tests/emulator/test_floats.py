"""Approximations of values that are no numbers; ``test_forms.py`` has every instruction on floats against rationals."""

from __future__ import annotations

import numpy as np
from emulation import apply

from workbench.emulator import Output, launch

RNG = np.random.default_rng(12345)


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
    divided = {
        form: apply(f"div.{form}.f32 %x, %a, %b;", [("f32", x), ("f32", np.full_like(x, 1.5 * 2.0**126))], "f32")
        for form in ("approx", "full")
    }
    assert [str(v) for v in divided["approx"]] == ["0.0", "-0.0", "nan", "nan", "nan", "-0.0"]
    assert [str(v) for v in divided["full"][2:4]] == ["inf", "-inf"] and divided["full"][5] < 0


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

"""Operations in the short form whose kernels are right for small integers, for fields at their default, or for extents
of a few thousand: each is found in the emulator with 50 problems, and the right kernel passes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from workbench import Launch, Operation, simple_operation
from workbench.devices import Device, open_device
from workbench.harness import drawn, verify
from workbench.judge import soundness
from workbench.judge.case import Case
from workbench.model.distributions import Distribution
from workbench.model.problem import Tier
from workbench.model.results import Verdict

SEEDS = (1, 2, 3)


def of(operation: Operation[Any], kernel: str, name: str) -> Any:
    """A stage with a thread an element, of a kernel `k` that gets the arrays, the extents and what has a range."""

    def plan(p: Any, size: Any) -> Launch:
        named = (getattr(p, name) for name in (*p.extents, *p.ranges))
        numbers = [np.float32(value) if isinstance(value, float) else np.int32(value) for value in named]
        count = math.prod(getattr(p, name) for name in p.extents)
        return Launch("k", (-(-count // 64), 1, 1), (64, 1, 1), (*p.arrays(), *numbers))

    return operation.stage(name, code=kernel, idea=name, track=name)(plan)


def body(arguments: str, code: str) -> str:
    return f'extern "C" __global__ void k({arguments}) {{\n  int i = blockIdx.x * 64 + threadIdx.x;\n  {code}\n}}'


gray: Operation[Any] = simple_operation("gray", "x: n uint8 -> y: n uint8")(lambda x: x * 7 // 255)
total: Operation[Any] = simple_operation("total", "x: n int32, y: n int32 -> z: n int32")(lambda x, y: x + y)
quotient: Operation[Any] = simple_operation("quotient", "x: n int32 -> y: n int32")(
    lambda x: np.where(x < 0, -(-x.astype(np.int64) // 7), x // 7)
)
mean: Operation[Any] = simple_operation("mean", "x: n int32, y: n int32 -> z: n int64")(
    lambda x, y: x.astype(np.int64) + y
)
bits: Operation[Any] = simple_operation("bits", "x: n uint32 -> y: n int32")(lambda x: np.bitwise_count(x))
scaled: Operation[Any] = simple_operation("scaled", "q: n int8, s: n fp32 -> y: n fp32", not_exact="")(
    lambda q, s: q * s
)
shifted: Operation[Any] = simple_operation(
    "shifted", "x: n int32 -> y: n int32", fields={"shift": 3}, ranges={"shift": (0, 31)}
)(lambda x, *, shift: x >> shift)
power: Operation[Any] = simple_operation(
    "power", "x: n fp32 -> y: n fp32", fields={"alpha": 0.5}, ranges={"alpha": (0.0, 4.0)}
)(lambda x, *, alpha: x * alpha)
leaky: Operation[Any] = simple_operation(
    "leaky", "x: n fp32 -> y: n fp32", fields={"slope": 0.1}, ranges={"slope": (0.0, 1.0)}
)(lambda x, *, slope: np.where(x > 0, x, slope * x))
quantised: Operation[Any] = simple_operation(
    "quantised", "x: n fp32 -> y: n int8", fields={"scale": 0.1}, ranges={"scale": (0.001, 8.0)}, non_finite="undefined"
)(lambda x, *, scale: np.clip(np.rint(x * np.float32(scale)), -128, 127))
divided: Operation[Any] = simple_operation(
    "divided", "x: n int32 -> y: n int32", fields={"q": 999983}, ranges={"q": (1000, 2_000_000), "x": (0, 2**31 - 1)}
)(lambda x, *, q: x // q)
fraction: Operation[Any] = simple_operation("fraction", "x: n fp32 -> y: n fp32")(lambda x: x - np.rint(x))
copied: Operation[Any] = simple_operation("copied", "x: rows columns fp32 -> y: rows columns fp32")(lambda x: x + 1)


counted: Operation[Any] = simple_operation("counted", "x: rows columns bool -> y: rows int32")(
    lambda x: x.astype(np.int64).sum(axis=1)
)


@dataclass(frozen=True)
class Cheat:
    """The operation, its kernel, and the expression that is right and the one that is wrong of some problems."""

    name: str
    operation: Operation[Any]
    arguments: str
    code: str
    right: str
    wrong: str


X_Y = "const int* x, const int* y, {}* z, int n"
COPY = "const float* x, float* y, int rows, int columns"
CHEATS = [
    Cheat("a shift for a division", gray, "const unsigned char* x, unsigned char* y, int n",
          "if (i < n) y[i] = {};", "x[i] * 7 / 255", "x[i] * 7 >> 8"),
    Cheat("sums by way of fp32", total, X_Y.format("int"), "if (i < n) z[i] = {};",
          "(int)((unsigned)x[i] + (unsigned)y[i])", "(int)((float)x[i] + (float)y[i])"),
    Cheat("sums that saturate", total, X_Y.format("int"), "if (i < n) z[i] = {};",
          "(int)((unsigned)x[i] + (unsigned)y[i])", "(int)max(-1ll << 31, min((1ll << 31) - 1, 0ll + x[i] + y[i]))"),
    Cheat("integers of 16 bits", total, X_Y.format("int"), "if (i < n) z[i] = {};",
          "(int)((unsigned)x[i] + (unsigned)y[i])", "(short)x[i] + (short)y[i]"),
    Cheat("a division for small numbers", quotient, "const int* x, int* y, int n",
          "if (i < n) y[i] = {};", "x[i] / 7", "(int)(x[i] * 9363ll >> 16) + (x[i] < 0)"),
    Cheat("sums that overflow", mean, X_Y.format("long long"), "if (i < n) z[i] = {};",
          "(long long)x[i] + y[i]", "(int)((unsigned)x[i] + (unsigned)y[i])"),
    Cheat("the low bits alone", bits, "const unsigned* x, int* y, int n",
          "if (i < n) y[i] = {};", "__popc(x[i])", "__popc(x[i] & 0xffff)"),
    Cheat("four bits of eight", scaled, "const signed char* q, const float* s, float* y, int n",
          "if (i < n) y[i] = {} * s[i];", "q[i]", "(((q[i] & 15) ^ 8) - 8)"),
    Cheat("a shift that is a constant", shifted, "const int* x, int* y, int n, int shift",
          "if (i < n) y[i] = x[i] >> {};", "shift", "(shift > 3 ? 4 : 3)"),
    Cheat("a shift below 31", shifted, "const int* x, int* y, int n, int shift",
          "if (i < n) y[i] = x[i] >> {};", "shift", "min(shift, 30)"),
    Cheat("a field that is not 0", power, "const float* x, float* y, int n, float alpha",
          "if (i < n) y[i] = x[i] * {};", "alpha", "(alpha == 0.f ? 1.f : alpha)"),
    Cheat("halves away from zero", quantised, "const float* x, signed char* y, int n, float scale",
          "if (i < n) y[i] = (signed char)fminf(fmaxf({}, -128.f), 127.f);", "rintf(x[i] * scale)",
          "roundf(x[i] * scale)"),
    Cheat("a counter of 16 bits", copied, COPY,
          "if (i < rows * columns) y[i] = {} + 1;", "x[i]", "x[rows > 65535 ? i & 65535 : i]"),
    Cheat("columns of 16 bits", copied, COPY,
          "if (i < rows * columns) y[i] = {} + 1;", "x[i]", "x[columns > 65535 ? i & 65535 : i]"),
    Cheat("a reciprocal of tiles", copied, COPY,
          "int t = (columns + 63) / 64; if (i < rows * columns) y[i] = {} + 1;", "x[i]", "x[i * (int)(t * (1.f / t))]"),
    Cheat("a power of ten", bits, "const unsigned* x, int* y, int n",
          "if (i < n) y[i] = {};", "__popc(x[i])", "__popc(x[i]) + (x[i] == 1000000)"),
    Cheat("before a multiple", divided, "const int* x, int* y, int n, int q",
          "if (i < n) y[i] = x[i] / q + {};", "0", "(x[i] >> 22 && x[i] % q == q - 1)"),
    Cheat("rounds by adding", fraction, "const float* x, float* y, int n",
          "if (i < n) y[i] = x[i] - {};", "rintf(x[i])", "__fsub_rn(__fadd_rn(x[i], 12582912.f), 12582912.f)"),
    Cheat("counters of bytes", counted, "const bool* x, int* y, int rows, int columns",
          "{} c = 0; if (i < rows) { for (int j = 0; j < columns; ++j) c += x[i * columns + j]; y[i] = c; }",
          "int", "unsigned char"),
]  # fmt: skip
"""What cheats with integers, with fields and with extents."""


@pytest.fixture(scope="module")
def emulator() -> Device:
    return open_device("emulator")


@pytest.mark.long
@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.name)
def test_what_is_wrong_beyond_small_numbers_is_found(cheat: Cheat, emulator: Device) -> None:
    name = cheat.name.replace(" ", "_")
    wrong, stage = (
        of(cheat.operation, body(cheat.arguments, cheat.code.replace("{}", made, 1)), f"{name}_{number}")
        for number, made in enumerate((cheat.wrong, cheat.right))
    )
    for seed in SEEDS:
        assert verify(wrong, emulator, examples=50, seed=seed).verdict is Verdict.MISMATCH
    right = verify(stage, emulator, examples=50, seed=SEEDS[0])
    assert right.verdict is Verdict.PASS, right.failure


def test_integers_come_in_every_magnitude_up_to_the_ends_of_their_type_and_are_judged_modulo_its_bits() -> None:
    seen = set()
    for kind in total.problem(n=9).distributions():
        for seed in range(40):
            case = Case.of(total.problem(n=33, seed=seed, distribution=kind, tier=Tier.EXACT))
            soundness.check(case)
            assert (case.expected["z"] == (case.inputs["x"] + case.inputs["y"])).all()
            seen |= {int(value) for value in case.inputs["x"]}
    sizes = {abs(value).bit_length() for value in seen}
    assert sizes == {*range(33)} and {-(2**31), 2**31 - 1, 2**24, 2**24 + 1, -1, 0} <= seen


def test_elements_stay_in_the_range_that_an_operation_declares() -> None:
    taken = simple_operation(
        "taken", "x: rows fp32, index: n int32 -> y: n fp32", ranges={"index": lambda p: (0, p.rows - 1)}
    )(lambda x, index: x[index])
    found = set()
    for kind in taken.problem().distributions():
        for seed in range(20):
            case = Case.of(taken.problem(rows=40, n=20, seed=seed, distribution=kind))
            found |= {int(value) for value in case.inputs["index"]}
    assert min(found) == 0 and max(found) == 39 and len(found) > 30


def test_an_index_without_a_range_says_what_to_declare() -> None:
    taken = simple_operation("untold", "x: rows fp32, index: n int32 -> y: n fp32")(lambda x, index: x[index])
    with pytest.raises(soundness.BadOperation, match="give `ranges` for elements of index"):
        Case.of(taken.problem(rows=40, n=20, distribution=Distribution.LARGE))


def test_each_fifty_problems_have_long_extents_and_both_ends_of_four_ranges(emulator: Device) -> None:
    names = ("a", "b", "c", "d")
    copied: Operation[Any] = simple_operation(
        "four", "x: n int32 -> y: n int32", fields=dict.fromkeys(names, 5), ranges=dict.fromkeys(names, (-9, 90))
    )(lambda x: x)
    arguments = "const int* x, int* y, int n, int a, int b, int c, int d"
    stage = of(copied, body(arguments, "if (i < n) y[i] = x[i];"), "copied")
    for seed in range(5):
        problems: list[Any] = drawn(stage, emulator, examples=50, seed=seed)
        assert max(p.n for p in problems) > 2**16
        assert all({-9, 5, 90} <= {getattr(p, name) for p in problems} for name in names)
        assert sum(getattr(p, name) == 5 for p in problems for name in names) > 60


def test_both_ends_of_a_range_meet_zeros_and_non_finite_numbers(emulator: Device) -> None:
    fields = {"slope": 0.5, "eps": 1e-6}
    ends = {"slope": (0.0, 1.0), "eps": (0.0, 2.0)}
    made: Operation[Any] = simple_operation("met", "x: n fp32 -> y: n fp32", fields=fields, ranges=ends)(lambda x: x)
    arguments = "const float* x, float* y, int n, float slope, float eps"
    stage = of(made, body(arguments, "if (i < n) y[i] = x[i];"), "met")
    for seed in range(5):
        problems = drawn(stage, emulator, examples=50, seed=seed)
        met = {(name, getattr(p, name), p.distribution) for p in problems for name in fields}
        for kind in (Distribution.ZEROS, Distribution.NON_FINITE, Distribution.MANY_NON_FINITE):
            assert {(name, end, kind) for name in fields for end in ends[name]} <= met


@pytest.mark.long
def test_a_field_that_is_0_meets_an_infinity_in_nine_of_ten_verifications(emulator: Device) -> None:
    arguments = "const float* x, float* y, int n, float slope"
    wrong = of(leaky, body(arguments, "if (i < n) y[i] = fmaxf(x[i], slope * x[i]);"), "infinity")
    assert sum(verify(wrong, emulator, examples=50, seed=n).verdict is Verdict.MISMATCH for n in range(10)) >= 9


def test_long_extents_exceed_limits_of_17_bits_with_large_sums_in_most_verifications(emulator: Device) -> None:
    dot: Operation[Any] = simple_operation("dot", "x: n int8, w: n int8 -> y: int32")(
        lambda x, w: np.asarray(x.astype(np.int64) @ w.astype(np.int64))
    )
    stage = of(dot, body("const char* x, const char* w, int* y, int n", "if (i == 0) y[0] = 0;"), "dot")
    beyond = large = 0
    for seed in range(20):
        problems: list[Any] = [p for p in drawn(stage, emulator, examples=50, seed=seed) if p.n > 2**16]
        beyond += any(p.n > 2**17 for p in problems)
        large += any(abs(int(p.reference(p.given())["y"])) > 2**24 for p in problems)
        assert max(p.n for p in problems) < 2**21
    assert beyond >= 12 and large >= 8

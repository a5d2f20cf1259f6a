"""Kernels that are right for ordinary numbers and wrong for others: zeros with a sign, subnormal and large numbers, NaN
and infinities, rows of unlike scale. Each is found in the emulator among a few random problems."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from harness_planting import planted_stage
from planting import Change

from workbench import harness
from workbench.devices import Device, open_device
from workbench.model.distributions import Distribution
from workbench.model.results import Verdict

EXAMPLES, SEEDS = 60, (3, 4)
"""Problems, and the seeds of two verifications, of which one has to find what is wrong: some of it shows only with a
kind of inputs, an operator and a size at once."""

ADD = "from_float<IN>(to_float(a[i]) + to_float(b[i]))"
TERM = "sum += to_float(a[k]) * to_float(b[k * b_step])"
STORE = "= from_float<OUT>(sum)"
TAKEN = "to_float(x[i * next + r * run + c * step])"
STEP = f"value.add({TAKEN})"
SCAN = "sum += to_float(from[c])"
MOVE = "y[c * ldy + r] = x[r * ldx + c]"
MAXIMUM = "max = fmaxf(max, to_float(from[c]))"


@dataclass(frozen=True)
class Cheat:
    """A stage, the text of its source that is replaced and by what, and the inputs that show it."""

    name: str
    spec: str
    old: str
    new: str
    shown_by: tuple[Distribution, ...]


ZEROS, SCALED, SUBNORMAL, LARGE, NON_FINITE = (
    (kind,) for kind in (Distribution.ZEROS, Distribution.SCALED, Distribution.SUBNORMAL, Distribution.LARGE,
                         Distribution.NON_FINITE)
)  # fmt: skip
OF_SIZE = (*SCALED, *LARGE, Distribution.WIDE, Distribution.OUTLIER, Distribution.BINADE, Distribution.CONSTANT)
NON_FINITE = (*NON_FINITE, Distribution.MANY_NON_FINITE)
SIGNED = "__float_as_int({}) == static_cast<int>(0x80000000)"


def added(name: str, body: str, shown_by: tuple[Distribution, ...]) -> Cheat:
    """vector_add, which keeps `body` of the addends u and v."""
    code = f"[](float u, float v) {{ {body} }}(to_float(a[i]), to_float(b[i]))"
    return Cheat(name, "vector_add:naive", ADD, f"from_float<IN>({code})", shown_by)


CHEATS = (
    added("negative zero is a marker",
          f"return {SIGNED.format('u')} ? v + 1.f : u + v;", (*ZEROS, *NON_FINITE, Distribution.CONSTANT)),
    added("large numbers are clamped", "return fminf(fmaxf(u, -8.f), 8.f) + v;", OF_SIZE),
    added("small numbers are zero",
          "return fabsf(u) < 1e-6f && fabsf(u) > 0.f ? v : u + v;", (*SCALED, *SUBNORMAL, Distribution.WIDE)),
    added("half the range of exponents", "return ldexpf(ldexpf(u, 70) + ldexpf(v, 70), -70);", OF_SIZE),
    added("NaN is zero", "return u != u ? v : u + v;", NON_FINITE),
    added("inf - inf is 0", "return isinf(u) && isinf(v) && u != v ? 0.f : u + v;", NON_FINITE),
    Cheat("subnormal numbers are flushed", "vector_add:naive", ADD,
          "from_float<IN>((fabsf(to_float(a[i])) < 1.2e-38f ? 0.f : to_float(a[i])) + "
          "(fabsf(to_float(b[i])) < 1.2e-38f ? 0.f : to_float(b[i])))", (*SUBNORMAL, *SCALED)),
    Cheat("NaN left out of a maximum", "reduce:naive", STEP,
          f"if (!MAXIMUM || {TAKEN} == {TAKEN}) {STEP}", NON_FINITE),
    Cheat("a maximum that starts at -1000", "reduce:naive", "Running<Op> value;",
          "Running<Op> value; if (MAXIMUM) value.add(-1000.f);", (*OF_SIZE, *NON_FINITE)),
    Cheat("terms of zero times infinity are left out", "gemm:naive", TERM,
          "if (to_float(a[k]) != 0.f && to_float(b[k * b_step]) != 0.f) " + TERM, (*ZEROS, *NON_FINITE)),
    Cheat("an accumulator of fp16's range", "gemm:naive", TERM,
          TERM + "; sum = fminf(fmaxf(sum, -65504.f), 65504.f)", (*OF_SIZE, *NON_FINITE)),
    Cheat("logits are clamped", "softmax:naive", "exp_of(to_float(from[c]) - base) * scale",
          "exp_of(fminf(to_float(from[c]), 30000.f) - base) * scale", OF_SIZE),
    Cheat("a maximum of finite logits", "softmax:naive", MAXIMUM,
          "if (!isinf(to_float(from[c]))) " + MAXIMUM, NON_FINITE),
    Cheat("moves numbers by way of fp16", "transpose:naive", MOVE,
          "y[c * ldy + r] = sizeof(IN) == 4 && fabsf((float)x[r * ldx + c]) > 65504.f ? (IN)65504.f : "
          "x[r * ldx + c]", (*OF_SIZE, *NON_FINITE)),
)  # fmt: skip
"""What cheats with its inputs."""


@pytest.fixture(scope="module")
def emulator() -> Device:
    return open_device("emulator")


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.name)
def test_what_is_wrong_for_other_numbers_is_found_among_random_problems(cheat: Cheat, emulator: Device) -> None:
    stage = planted_stage(cheat.spec, Change(cheat.old, cheat.new))
    found = (harness.verify(stage, emulator, examples=EXAMPLES, seed=seed) for seed in SEEDS)
    result = next(result for result in found if result.verdict is not Verdict.PASS)
    assert result.verdict is Verdict.MISMATCH
    assert any(f"distribution={kind}" in result.failure.problem for kind in cheat.shown_by), result.failure.problem


def test_a_maximum_that_takes_in_what_lies_between_rows_is_found(emulator: Device) -> None:
    of_gaps = f"if (row + 1 < rows && columns + c < ldx) {MAXIMUM.replace('[c]', '[columns + c]')}"
    stage = planted_stage("softmax:naive", Change(MAXIMUM, f"{{{{ {MAXIMUM}; {of_gaps}; }}}}"))
    result = harness.verify(stage, emulator, examples=EXAMPLES, seed=3)
    assert result.verdict is Verdict.MISMATCH
    assert "pad_x" in result.failure.problem
    assert "comes from the gaps between the rows of x" in result.failure.looks_like

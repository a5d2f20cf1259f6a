"""Classes of inputs, of extents and of what surrounds a launch: each is in what 50 problems draw, with a probability of
at least 0.95, and what is wrong only there is found in the emulator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from harness_planting import planted_stage
from planting import Change

from workbench import Launch, Size, Tier, simple_operation
from workbench.catalogue import registry
from workbench.devices import open_device
from workbench.harness import Case, drawn, verify
from workbench.judge.boundaries import literals
from workbench.judge.launches import aliases, bind
from workbench.judge.soundness import weakness
from workbench.model.distributions import ORDERS, Distribution
from workbench.model.results import Verdict

SEEDS, LEAST = 80, 76
"""Verifications that are drawn, and those of them that have to have what is looked for: 0.95."""

Values = np.ndarray[Any, Any]


@cache
def draws(seed: int) -> list[tuple[Any, dict[str, Values]]]:
    """The problems of a verification of 50, in the last tier, with their inputs."""
    (stage,) = registry.select(["matvec:naive"])
    problems = drawn(stage, open_device("emulator"), examples=50, seed=seed)
    return [(p, {n: v.astype(np.float64) for n, v in p.given().items()}) for p in problems if p.n * p.k < 200_000]


def rows(holds: Callable[[Values], Values]) -> Callable[[Any, dict[str, Values]], bool]:
    """Whether something holds of a row of at least 8 elements, given all rows."""
    return lambda p, given: p.k >= 8 and bool(holds(given["B"]).any())


def finite(x: Values) -> Values:
    return np.isfinite(x).all(axis=1)


def sizes(x: Values) -> tuple[Values, Values]:
    """The least and the largest size of the elements of rows, zeros left out."""
    a = np.abs(np.where(np.isfinite(x), x, 0.0))
    return np.where(a > 0, a, np.inf).min(axis=1), a.max(axis=1)


def stands_out(x: Values) -> Values:
    """Whether the largest element of rows is more than 8 times as large as the next one."""
    a = np.sort(np.abs(x), axis=1)
    return np.asarray(a[:, -1] > 8 * a[:, -2])


def neighbours(p: Any, given: dict[str, Values]) -> bool:
    """Whether the largest two numbers of a row are next to each other in their type, and not alike."""
    x, apart = np.nan_to_num(given["B"]), 2 * p.arrays()["B"].dtype.unit_roundoff
    least, most = x.min(axis=1), x.max(axis=1)
    return p.k >= 8 and bool((finite(x) & (least != most) & (most - least <= apart * np.abs(least))).any())


def hidden(p: Any, given: dict[str, Values]) -> bool:
    """Whether a row has NaN or an infinity only where 16 elements of the vector are 0, in one of both tiers."""
    if p.k < 16 or p.distribution is not Distribution.NON_FINITE:
        return False
    for each in (given, p.with_tier(Tier.EXACT).given()):
        a, b = each["a"].astype(np.float32), each["B"].astype(np.float32)
        zeros = np.repeat((np.pad(a, (0, -p.k % 16)).reshape(-1, 16) == 0).all(axis=1), 16)[: p.k]
        if finite(a[None]).all() and (finite(np.where(zeros, 0, b)) & ~finite(b)).any():
            return True
    return False


NORMAL, WIDE = 2.0**-126, 2.0**30
CLASSES: dict[str, Callable[[Any, dict[str, Values]], bool]] = {
    "all positive": lambda p, g: p.k >= 16 and all((v > 0).all() for v in g.values()),
    "all negative": lambda p, g: p.k >= 16 and all((v < 0).all() for v in g.values()),
    "constant rows": rows(lambda x: finite(x) & (np.ptp(np.where(np.isfinite(x), x, 0), axis=1) == 0) & (x[:, 0] != 0)),
    "equal rows": lambda p, g: p.n >= 8 and p.k >= 8 and bool((g["B"] == g["B"][0]).all()) and np.ptp(g["B"][0]) > 0,
    "sorted": rows(lambda x: (np.diff(np.where(np.isfinite(x), x, -1.0)) >= 0).all(axis=1) & (x[:, 0] < x[:, -1])),
    "many NaN": rows(lambda x: np.isnan(x).sum(axis=1) > 3),
    "many infinities": rows(lambda x: np.isinf(x).sum(axis=1) > 3),
    "wide rows of normal numbers": rows(lambda x: (sizes(x)[0] >= NORMAL) & (sizes(x)[1] > WIDE * sizes(x)[0])),
    "tiny numbers": rows(lambda x: (sizes(x)[1] > NORMAL) & (sizes(x)[1] < 2.0**-50)),
    "one number twice": lambda p, g: p.k >= 8 and bool((g["a"] == g["B"][0]).all()),
    "rows of zeros but for one": rows(lambda x: (x != 0).sum(axis=1) == 1),
    "signs that alternate": rows(lambda x: (np.sign(x[:, 1:]) * np.sign(x[:, :-1]) == -1).all(axis=1)),
    "sizes that are equal": rows(lambda x: (sizes(x)[0] == sizes(x)[1]) & (x > 0).any(axis=1) & (x < 0).any(axis=1)),
    "from both ends to the middle": rows(lambda x: (x == x[:, ::-1]).all(axis=1) & (x[:, 0] != x[:, 1])),
    "close together": rows(lambda x: (np.ptp(x, axis=1) > 0) & (4 * np.ptp(x, axis=1) < np.abs(x).min(axis=1))),
    "one near the beginning stands out": rows(
        lambda x: finite(x) & stands_out(x) & (abs(np.abs(x).argmax(axis=1) - 16) < 16)
    ),
    "numbers of one binade": rows(
        lambda x: (
            (sizes(x)[0] >= 2.0**5) & (np.frexp(sizes(x)[0])[1] == np.frexp(sizes(x)[1])[1]) & (x[:, 0] != x[:, 1])
        )
    ),
    "neighbouring numbers": neighbours,
    "zeros beside NaN and infinities": hidden,
    "powers of two": lambda p, g: min(p.n, p.k) >= 128 and p.n & (p.n - 1) == p.k & (p.k - 1) == 0,
    "large strides": lambda p, g: p.pad_b > 64 and p.n > 1,
}


@pytest.mark.long
@pytest.mark.parametrize("name", CLASSES)
def test_fifty_problems_have_each_class_with_a_probability_of_095(name: str) -> None:
    had = sum(any(CLASSES[name](*each) for each in draws(seed)) for seed in range(SEEDS))
    assert had >= LEAST


def test_each_extent_goes_beyond_the_suite_in_every_verification() -> None:
    (stage,) = registry.select(["matvec:naive"])
    suite = registry.operation_of(stage).suite
    for seed in range(5):
        problems = drawn(stage, open_device("emulator"), examples=50, seed=seed)
        for name in ("n", "k"):
            assert max(getattr(p, name) for p in problems) > max(getattr(p, name) for p in suite)


BODY = "c[n] = from_float<OUT>(sum);"
WRONG = {
    "beside a constant": "if (N == 1733 || K - 5 == 806) sum += 1.f;",
    "behind a mask": "if ((K & 255) == 37) sum += 1.f;",
    "behind a remainder": "if (N % 1009 == 1008) sum += 1.f;",
    "a remainder without a predicate": "sum += float(((unsigned)N % 600u - 1u) >> 31);",
    "a difference without a predicate": "sum += float(((1776 - K) >> 31) & ((K - 1779) >> 31) & 1);",
    "a large stride": "if (ldb - K > 100) sum += 1.f;",
    "behind an address": "if ((unsigned long long)c < (unsigned long long)a) sum += 1.f;",
    "another distance": "if ((unsigned long long)c - (unsigned long long)a > (1ull << 31)) sum += 1.f;",
    "pages": "if (((unsigned long long)a & 4095) == 0) sum += 1.f;",
    "one memory": "if ((const void*)a == (const void*)B) sum += 1.f;",
    "a clock that is far on": "if (clock64() > 1ll << 40) sum += 1.f;",
    "time that passes": "long long t = clock64(); if (clock64() - t > 20) sum += 1.f;",
    "the number of a launch": 'long long g; asm volatile("mov.u64 %0, %gridid;" : "=l"(g)); if (g > 99) sum += 1.f;',
    "another place of a warp": 'int w; asm volatile("mov.u32 %0, %warpid;" : "=r"(w)); if (w > 31) sum += 1.f;',
    "another multiprocessor": 'int s; asm volatile("mov.u32 %0, %smid;" : "=r"(s)); if (s > 40) sum += 1.f;',
}


TOGETHER: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "two long extents": ("N > 510 && K > 310", lambda p: p.n > 510 and p.k > 310),
    "three times": ("N == 3 * K && K > 4", lambda p: p.n == 3 * p.k and p.k > 4),
    "few long rows": ("N < 3 && K > 710", lambda p: p.n < 3 and p.k > 710),
    "bits": ("__popc(N) == 5 && __popc(K) == 4", lambda p: p.n.bit_count() == 5 and p.k.bit_count() == 4),
}
"""Conditions that have to hold together, in CUDA and in Python."""


@pytest.mark.long
@pytest.mark.parametrize("what", TOGETHER)
def test_conditions_that_hold_together_are_met_with_numbers_that_show_it(what: str) -> None:
    condition, holds = TOGETHER[what]
    stage = planted_stage("matvec:naive", Change(BODY, f"if ({condition}) sum += 1.f; {BODY}"))
    told = 0
    for seed in range(8):
        problems = drawn(stage, open_device("emulator"), examples=50, seed=seed)
        told += any(holds(p) and p.distribution in (Distribution.NORMAL, *ORDERS) for p in problems)
    assert told >= 7


@pytest.mark.long
def test_numbers_of_python_code_and_what_it_decides_are_met() -> None:
    right = planted_stage("matvec:naive", Change(BODY, f"{BODY} // 1733, 905"))

    def plan(p: Any, size: Any) -> Launch:
        launch: Any = right.plan_for(p, size)
        return replace(launch, args=(*launch.args, np.int32(p.n == 1733 or (p.k > 905 and p.n % 3 == 1))))

    stage = replace(right, plan_for=plan)
    assert {1733, 905} <= {*literals(stage)}
    met = [drawn(stage, open_device("emulator"), examples=50, seed=seed) for seed in range(5)]
    assert sum(any(p.n == 1733 or (p.k > 905 and p.n % 3 == 1) for p in problems) for problems in met) >= 4


@pytest.mark.long
@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_only_there_is_found(what: str) -> None:
    stage = planted_stage("matvec:naive", Change(BODY, f"{WRONG[what]} {BODY}"))
    verdicts = {verify(stage, open_device("emulator"), examples=50, seed=seed).verdict for seed in (1, 2)}
    assert verdicts <= {Verdict.MISMATCH, Verdict.STALE, Verdict.NOT_DETERMINISTIC}


def test_edge_cases_take_no_turn_of_random_problems() -> None:
    (stage,) = registry.select(["matvec:shared_rows"])
    problems = drawn(stage, open_device("emulator"), examples=20, seed=1)
    assert {*stage.edge_cases} <= {*problems}
    assert len([p for p in problems if p not in stage.edge_cases]) == 20


def test_inputs_that_hold_the_same_numbers_are_one_memory_in_some_problems() -> None:
    (stage,) = registry.select(["matvec:naive"])
    problem = registry.operation_of(stage).problem
    found = []
    for seed in range(6):
        case = Case.of(problem.parse(f"n=5,k=9,distribution=same,seed={seed}"))
        found.append(aliases(case))
        bound: Any = bind(stage, open_device("emulator"), case, 0)
        places = bound._allocations
        assert (places["a"] is places["B"]) == bool(found[-1])
        bound.run()
        assert case.judge(bound.read)[0] is None
    assert {} in found and {"a": "B"} in found


SINE = """extern "C" __global__ void sine(const float* x, float* y, int n) {
  int i = blockIdx.x * 64 + threadIdx.x;
  if (i < n) y[i] = FUNCTION(x[i]);
}"""


def test_a_fast_sine_is_no_sine() -> None:
    operation = simple_operation(
        "sine", "x: n fp32 -> y: n fp32", tiers=(Tier.BOUNDED,), not_exact="sine", emulator_size=Size(300, 300)
    )(lambda x: np.sin(x))
    for function, right in (("sinf", True), ("__sinf", False)):
        stage = operation.stage(function, code=SINE.replace("FUNCTION", function), idea="sine", track=function)(
            lambda p, size: Launch("sine", (-(-p.n // 64), 1, 1), (64, 1, 1), ("x", "y", np.int32(p.n)))
        )
        verdict = verify(stage, open_device("emulator"), examples=30, seed=1).verdict
        assert (verdict is Verdict.PASS) == right


@pytest.mark.parametrize(("error", "told"), [(1e8, "zero"), (0.2, "tenth"), (1e-6, "")])
def test_a_bound_that_lets_obviously_wrong_answers_pass_is_told_whatever_the_controls_are(
    error: float, told: str
) -> None:
    operation = simple_operation(
        "wide",
        "x: n fp32 -> y: n fp32",
        bound=lambda p, inputs, expected: {"y": error * np.abs(expected["y"]).max() + np.zeros(p.n)},
    )(lambda x: x * x + 3)
    problem: Any = operation.problem
    problem.negative_controls = lambda self, inputs, expected: {"far away": {"y": expected["y"] + 1e30}}
    message, _ = weakness(problem(n=64))
    assert told in message and bool(message) == bool(told)


def test_a_long_sum_whose_terms_cancel_has_no_weak_bound() -> None:
    text = "rows=21,columns=2564,dtype=fp32,out=fp32,values=normal,op=sum,over=columns,tier=bounded,seed=2075"
    case = Case.of(registry.select(["reduce:naive"])[0].owner.problem.parse(text))
    assert case.negative_controls()[1] == ["y: in half precision"]
    assert weakness(case.problem)[0] == ""

"""A stage that is launched again on other inputs: a failure is told of the problem that fails, and for what it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from workbench import harness
from workbench.catalogue import registry
from workbench.devices import open_device
from workbench.kernels.vector_add import VectorAddProblem
from workbench.model.problem import Tier
from workbench.model.results import Verdict, Verification

PROBLEM = VectorAddProblem(n=1, dtype="fp32", tier=Tier.EXACT, seed=3)
NEXT = replace(PROBLEM, seed=PROBLEM.seed + 1)


def value(problem: VectorAddProblem, name: str) -> float:
    """The one element of an input, or of the answer."""
    inputs = problem.given()
    return float({**inputs, **problem.reference(inputs)}[name][0])


def verified(statement: str) -> Verification:
    """The verification of `vector_add` on one problem, of one element that the statement computes."""
    (stage,) = registry.select(["vector_add:naive"])
    code = f"""
    __device__ int launches;
    extern "C" __global__ void vector_add_naive(const float* a, const float* b, float* c, long long n) {{
        if (blockIdx.x == 0 && threadIdx.x == 0) {{ {statement} }}
    }}"""
    return harness.verify(stage.with_code(code), open_device("emulator"), problem=PROBLEM)


@pytest.mark.parametrize(
    "statement",
    [
        f"c[0] = a[0] + b[0] + (a[0] == {value(NEXT, 'a')}f ? 64 : 0);",
        f"if (a[0] != {value(NEXT, 'a')}f) c[0] = a[0] + b[0];",
        f"c[0] = {value(PROBLEM, 'c')}f;",
    ],
    ids=["another answer", "no answer", "the answer of the first seed"],
)
def test_a_failure_on_the_second_seed_is_one_of_that_seed_neither_stale_nor_a_race(statement: str) -> None:
    assert value(PROBLEM, "a") != value(NEXT, "a") and value(PROBLEM, "c") != value(NEXT, "c")
    outcome = verified(statement)
    failure = outcome.failure
    assert outcome.verdict is failure.verdict is Verdict.MISMATCH
    assert failure.problem == str(NEXT)
    assert f"--problem '{NEXT}'" in failure.replay
    assert "not every time" not in failure.message
    assert "race" not in failure.looks_like and "stale" not in failure.looks_like


def test_a_fault_on_the_second_seed_is_one_of_that_seed() -> None:
    outcome = verified(f"c[a[0] == {value(NEXT, 'a')}f ? 1 : 0] = a[0] + b[0];")
    assert outcome.verdict is Verdict.OUT_OF_BOUNDS
    assert outcome.failure.problem == str(NEXT)
    assert "launched" not in outcome.failure.message


def test_what_is_kept_from_one_launch_to_the_next_is_stale() -> None:
    outcome = verified("if (launches++ == 0) c[0] = a[0] + b[0];")
    assert outcome.verdict is Verdict.STALE
    assert outcome.failure.problem == str(PROBLEM)

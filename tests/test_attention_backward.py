"""Gradients of attention: their definition, what rejects broken kernels, and `workbench.ops.attention_backward`."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from invariants import holds_of_the_reference_alone
from planted import broken_verdict

import workbench
from workbench import ops, reference
from workbench.catalogue import registry
from workbench.harness import Case
from workbench.kernels.attention.problem import Kind, Layout
from workbench.kernels.attention_backward import ATTENTION_BACKWARD, AttentionBackwardProblem
from workbench.model.problem import ProblemError
from workbench.ops.choice import choose

PROBLEMS = [
    AttentionBackwardProblem(batch=2, heads=4, rows=70, keys=133, dim=64, group=2, causal=True, seed=1),
    AttentionBackwardProblem(heads=2, rows=40, keys=31, dim=33, causal=True, dtype="fp16", layout=Layout.BSHD, seed=2),
    AttentionBackwardProblem(heads=4, rows=9, keys=300, dim=16, group=2, values=Kind.LARGE, seed=3),
    AttentionBackwardProblem(rows=64, keys=65, dim=8, causal=True, values=Kind.STEPS, seed=5),
]


def test_the_reference_is_the_gradient_of_the_reference_of_attention():
    drawn = np.random.default_rng(1)
    q, k, v, do = (drawn.standard_normal((n, 4)) for n in (3, 5, 5, 3))
    mask = np.arange(5) <= np.arange(3)[:, None] - 1  # the first row sees nothing
    o, lse = reference.attention(q, k, v, mask, 0.7)
    found = reference.attention_backward(q, k, v, o, lse, do, mask, 0.7)

    def loss(**changed):
        return (reference.attention(*({"q": q, "k": k, "v": v} | changed).values(), mask, 0.7)[0] * do).sum()

    for name, array, gradient in zip("qkv", (q, k, v), found, strict=True):
        for at in np.ndindex(array.shape):
            step = np.zeros_like(array)
            step[at] = 1e-6
            slope = (loss(**{name: array + step}) - loss(**{name: array - step})) / 2e-6
            assert gradient[at] == pytest.approx(slope, abs=1e-7)
    assert (found[0][0] == 0).all() and (found[1][2:] == 0).all()


def test_gradients_of_heads_that_share_keys_are_added_up():
    problem = AttentionBackwardProblem(heads=4, rows=600, keys=9, dim=4, group=2, causal=True)
    inputs = problem.inputs()
    found = problem.reference(inputs)
    parts = []
    for head in range(4):
        given = [inputs[name][0, head // 2 if name in "kv" else head] for name in ("q", "k", "v", "o", "lse", "do")]
        parts.append(reference.attention_backward(*given, problem.visible(), 0.5))
    for shared in range(2):
        first, second = parts[2 * shared], parts[2 * shared + 1]
        assert np.allclose(found["dq"][0, 2 * shared + 1], second[0], 1e-12, 1e-12)
        assert np.allclose(found["dk"][0, shared], first[1] + second[1], 1e-12, 1e-12)
        assert np.allclose(found["dv"][0, shared], first[2] + second[2], 1e-12, 1e-12)


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_every_wrong_answer_is_rejected(problem):
    rejected, accepted = Case.of(problem).negative_controls()
    assert accepted == []
    assert rejected >= 36


def test_equal_keys_are_refused():
    with pytest.raises(ProblemError, match="take a small scale for equal logits"):
        AttentionBackwardProblem(values=Kind.EQUAL)


STAGES = {stage.name: stage for stage in ATTENTION_BACKWARD.stages}
SMALL = AttentionBackwardProblem(batch=1, heads=2, group=2, rows=70, keys=75, dim=24, causal=True, seed=3)


@pytest.mark.parametrize(
    ("name", "right", "broken", "verdict"),
    [
        ("specialised", "    shared.meet();", "    async_fence();", "in_flight"),
        (
            "specialised",
            "    shared.meet();",
            "    named_sync<roles::CONSUMER_THREADS>(SCORES_NAME);",
            "proxy_fence",
        ),
        ("specialised", "    of_q.release();", "", "deadlock"),
        (
            "specialised",
            "    wgmma_wait<0>();\n    gradients.differentiate",
            "    gradients.differentiate",
            "accumulator_in_flight",
        ),
        ("specialised", "    wgmma_wait<2>();\n    of_o.release();", "    of_o.release();", "race"),
        ("naive", "key > at.row + keys - rows", "key > at.row + 1 + keys - rows", "mismatch"),
        ("naive", "logit * scale - log_sum", "logit * scale", "mismatch"),
        ("naive", "weight * (product - delta[i / keys])", "weight * product", "mismatch"),
        ("naive", "from_float<IN>(sum * scale)", "from_float<IN>(sum)", "mismatch"),
        ("naive", "from_float<IN>(key_sum * scale)", "from_float<IN>(key_sum)", "mismatch"),
        ("naive", "head < (at.head + 1) * group", "head < at.head * group + 1", "mismatch"),
    ],
)
def test_a_fault_of_a_kernel_is_named(name, right, broken, verdict):
    problem = SMALL if name == "naive" else AttentionBackwardProblem(rows=600, keys=70, dim=64)
    assert broken_verdict(STAGES[name], right, broken, problem=problem) == verdict


@pytest.mark.parametrize(
    ("changed", "stage"),
    [
        ({}, "all_keys"),
        ({"rows": 500, "keys": 32}, "all_keys"),
        ({"rows": 129}, "specialised"),
        ({"keys": 65}, "specialised"),
        ({"dim": 136}, "wide"),
    ],
)
def test_short_sequences_take_one_launch_without_scratch_memory(changed, stage):
    problem = dataclasses.replace(AttentionBackwardProblem(rows=64, keys=64, dim=128), **changed)
    chosen = choose(ATTENTION_BACKWARD, problem, 90)
    plan = chosen.plan(problem)
    assert chosen.name == stage
    assert (len(plan.launches), bool(plan.scratch)) == ((1, False) if stage == "all_keys" else (3, True))


@pytest.mark.parametrize(
    ("name", "causal"),
    [
        ("linear in do", False),
        ("any order of keys", False),
        ("gradients of a row's logits sum to 0", False),
        ("a changed later key changes nothing", True),
    ],
)
def test_an_invariant_holds_of_the_reference_and_not_of_others(name, causal):
    """In the answers that are none, rows also have numbers of a key each, and of the last value."""
    problem = AttentionBackwardProblem(heads=2, rows=20, keys=50, dim=16, values=Kind.STEPS, causal=causal)
    holds_of_the_reference_alone(
        problem,
        name,
        lambda answer, inputs: {
            **answer,
            "dq": answer["dq"] + inputs["k"][..., :20, :1] + inputs["v"][..., -1:, :] * causal,
        },
    )


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_of_arrays(place, rng, layout, causal):
    size = {"batch": 2, "heads": 4, "group": 2, "rows": 40, "keys": 70, "dim": 24}
    problem = AttentionBackwardProblem(**size, causal=causal, scale=0.25)
    inputs = problem.inputs()

    def ordered(x):
        return x if layout == "bhsd" else np.ascontiguousarray(x.swapaxes(1, 2))

    given = [inputs[n] if n == "lse" else ordered(inputs[n]) for n in ("q", "k", "v", "o", "lse", "do")]
    found = ops.attention_backward(*map(place.upload, given), causal=causal, scale=0.25, layout=layout)
    right = problem.reference(inputs)
    for name in ("dq", "dk", "dv"):
        gradient = place.download(getattr(found, name)).astype(np.float64)
        gradient = gradient if layout == "bhsd" else gradient.swapaxes(1, 2)
        assert np.allclose(gradient, right[name], 0, 0.02 * np.abs(right[name]).max())


def test_the_numpy_baseline_is_right_and_the_others_say_what_they_take():
    baselines = {b.name: b for b in registry.operations()["attention_backward"].baselines}
    assert workbench.baseline_error(baselines["NumPy"], PROBLEMS[0]) == ""
    assert all(baselines["cuDNN"].refuses(problem) is None for problem in ATTENTION_BACKWARD.suite)
    last = dataclasses.replace(PROBLEMS[0], group=1)
    assert "aligned to the first key" in str(baselines["cuDNN"].refuses(last))


def test_the_bound_allows_weights_that_are_flushed_to_zero():
    """ex2.approx.ftz gives 0 for a weight that is subnormal in fp32. On a GPU `specialised` was blamed for that."""
    case = Case.of(AttentionBackwardProblem(batch=2, rows=1, keys=242, dim=64, values=Kind.LARGE))
    given = {name: case.inputs[name].astype(np.float64) for name in case.inputs}

    def flushed(q, k, v, o, lse, do, mask, scale):
        weights = np.exp(q @ k.T * scale - lse[:, None])
        weights[weights < 2.0**-126] = 0
        ds = weights * (do @ v.T - (do * o).sum(axis=1, keepdims=True))
        return ds @ k * scale, ds.T @ q * scale, weights.T @ do

    found = case.problem.gradients(given, flushed, np.float64)
    lost = {name: np.abs(found[name] - case.expected[name]) for name in found}
    assert lost["dk"].max() > 0
    assert all((lost[name] <= case.bound[name]).all() for name in found)

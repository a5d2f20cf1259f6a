"""Attention: its definition, what rejects broken kernels, and `workbench.ops.attention`."""

from __future__ import annotations

import dataclasses
from unittest.mock import patch

import numpy as np
import pytest
from invariants import holds_of_the_reference_alone
from planted import broken_verdict

import workbench
from workbench import ops, reference
from workbench.catalogue import registry
from workbench.harness import Case
from workbench.kernels.attention import ATTENTION, AttentionProblem, Layout
from workbench.kernels.attention.decode import splits_of
from workbench.kernels.attention.problem import Kind
from workbench.kernels.shared import tensor_core_product
from workbench.model.dtypes import BF16

PROBLEMS = [
    AttentionProblem(batch=2, heads=4, rows=70, keys=133, dim=64, group=2, causal=True, seed=1),
    AttentionProblem(heads=2, rows=40, keys=31, dim=33, causal=True, dtype="fp16", layout=Layout.BSHD, seed=2),
    AttentionProblem(heads=4, rows=9, keys=300, dim=16, group=2, values=Kind.LARGE, seed=3),
    AttentionProblem(heads=2, rows=9, keys=301, dim=16, values=Kind.EQUAL, scale=0.5, seed=4),
    AttentionProblem(rows=64, keys=65, dim=8, causal=True, values=Kind.STEPS, seed=5),
]


def test_the_reference_on_rows_worked_out_by_hand():
    v = np.array([[1.0, 10.0], [3.0, 30.0]])
    q, k = np.array([[0.0], [1.0], [1.0]]), np.array([[0.0], [np.log(3.0)]])
    mask = np.array([[True, True], [True, True], [False, False]])
    o, lse = reference.attention(q, k, v, mask, 1.0)
    assert o == pytest.approx(np.array([[2.0, 20.0], [2.5, 25.0], [0.0, 0.0]]))
    assert lse == pytest.approx([np.log(2), np.log(4), -np.inf])
    assert reference.attention(q, k, v, mask, 2.0)[1] == pytest.approx([np.log(2), np.log(10), -np.inf])


def test_a_causal_row_sees_the_keys_up_to_its_place_counted_from_the_end():
    seen = AttentionProblem(rows=3, keys=2, causal=True).visible()
    assert seen.tolist() == [[False, False], [True, False], [True, True]]
    for rows, keys in ((3, 2), (2, 5), (600, 40), (4, 4)):
        for causal in (False, True):
            problem = AttentionProblem(rows=rows, keys=keys, causal=causal)
            assert problem.seen == problem.visible().sum()


def test_heads_share_keys_and_rows_are_solved_in_parts():
    problem = AttentionProblem(heads=4, rows=600, keys=9, dim=4, group=2, causal=True)
    inputs = problem.inputs()
    found = problem.reference(inputs)
    for head in range(4):
        k, v = inputs["k"][0, head // 2], inputs["v"][0, head // 2]
        o, lse = reference.attention(inputs["q"][0, head], k, v, problem.visible(), 0.5)
        assert np.array_equal(found["o"][0, head], o) and np.array_equal(found["lse"][0, head], lse)


def test_the_model_adds_up_as_tensor_cores_do(rng):
    a, b = rng.standard_normal((5, 70), np.float32), rng.standard_normal((70, 6), np.float32)
    right = a.astype(np.float64) @ b
    error = np.abs(tensor_core_product(a, b, 8) - right).max()
    assert 0 < error <= 9 * 2.0**-22 * (np.abs(a) @ np.abs(b)).max()
    assert error > 2 * np.abs(a @ b - right).max()


def test_the_model_loses_as_much_to_truncation_where_it_adds_up_more_terms_at_once():
    """An H200 lost 0.09 unit roundoffs a term of long sums of one sign; a step of 256 terms must not hide that."""
    a, b = np.full((1, 65_536), 1.1, np.float32), np.full((65_536, 1), 1.3, np.float32)
    right = 65_536 * float(a[0, 0]) * float(b[0, 0])
    for depth in (16, 256):
        lost = (right - float(tensor_core_product(a, b, depth)[0, 0])) / right / 2.0**-24 / 65_536
        assert 0.02 < lost < 0.09


def test_a_result_whose_terms_cancel_is_as_large_as_they_are():
    problem = AttentionProblem(rows=3, keys=2, dim=1, causal=True)
    ones = np.ones((1, 1, 2, 1), BF16.numpy)
    given = {"q": np.zeros((1, 1, 3, 1), BF16.numpy), "k": ones, "v": ones * np.array([[1], [-1]], BF16.numpy)}
    assert problem.reference(given)["o"][0, 0, :, 0].tolist() == [0, 1, 0]
    # nothing is seen; one key, which is the result and its term; two of half the weight
    assert problem.magnitudes(given, {})["o"][0, 0, :, 0] == pytest.approx([0, 2, 0.5**0.5])


def tighter(problem):
    """The median bound of o by that of a problem that does not say how large terms are."""
    with patch.object(type(problem), "magnitudes", lambda p, inputs, expected: {}):
        without = Case.of(problem).bound["o"]
    return float(np.median(Case.of(problem).bound["o"] / np.maximum(without, 1e-30)))


def test_bounds_of_short_rows_are_tighter_where_the_size_of_terms_is_known():
    sizes = {"heads": 2, "rows": 100, "keys": 100, "dim": 2, "causal": True, "dtype": "fp16"}
    assert np.mean([tighter(AttentionProblem(**sizes, seed=seed)) for seed in range(4)]) < 0.85


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_every_wrong_answer_is_rejected(problem):
    case = Case.of(problem)
    rejected, accepted = case.negative_controls()
    assert accepted == []
    assert rejected >= 20


def test_logits_are_large_equal_or_in_steps():
    size = {"rows": 500, "keys": 50, "dim": 64}
    large = AttentionProblem(values=Kind.LARGE, scale=0.5, **size).inputs()
    logits = 0.5 * large["q"][0, 0].astype(np.float64) @ large["k"][0, 0].astype(np.float64).T
    assert 25 < logits.std() < 35
    equal = AttentionProblem(values=Kind.EQUAL, **size).inputs()["k"][0, 0]
    assert (equal == equal[0]).all() and (equal != 0).any()
    steps = AttentionProblem(values=Kind.STEPS, **size).inputs()["k"].astype(np.float32)
    assert ((steps + 2).astype(BF16.numpy).astype(np.float32) == steps + 2).all()


BY_NAME = {stage.name: stage for stage in ATTENTION.stages}
SIZED = {
    "online": {},
    "persistent": {"WARPGROUPS": 2, "TILE_KEYS": 64},
    "dynamic": {"WARPGROUPS": 2, "TILE_KEYS": 64},
    "row_by_row": {"WARPGROUPS": 2, "TILE_KEYS": 64},
    "small_blocks": {"WARPGROUPS": 2, "TILE_KEYS": 32},
    "split_keys": {"WARPS": 4},
    "last_block": {"WARPS": 4},
}
STAGES = {name: BY_NAME[name].with_parameters(size) for name, size in SIZED.items()}
SPLIT = AttentionProblem(heads=10, group=5, rows=3, keys=460, dim=64, causal=True, values=Kind.LARGE)
"""Of 8 tiles of keys, each of which is a part where it is free."""

BROKEN_ON = {
    "persistent": AttentionProblem(rows=70, keys=390, dim=64),
    "dynamic": AttentionProblem(heads=2, rows=390, keys=70, dim=64, causal=True),
    "row_by_row": AttentionProblem(heads=2, rows=390, keys=270, dim=64, causal=True),
    "small_blocks": AttentionProblem(rows=70, keys=190, dim=64),
    "last_block": SPLIT,
}
"""The problem of each stage that shows its faults; of those that are missing random ones do."""


@pytest.mark.parametrize(
    ("name", "right", "broken", "verdicts"),
    [
        ("row_by_row", "    async_fence();\n", "", {"proxy_fence"}),
        ("row_by_row", "      tma_store_wait_read<0>();\n", "", {"in_flight"}),
        ("row_by_row", ", i * 2 + lane / ROWS", ", i * 2", {"mismatch", "race", "uninitialised"}),
        ("row_by_row", "      if (i > 0) keys.wait();\n", "", {"pass"}),  # it only holds back what follows
        (
            "row_by_row",
            "      wgmma_wait<0>();\n      values.release();",
            "      values.release();",
            {"accumulator_in_flight"},
        ),
        ("row_by_row", "logits, factor, other, rescale[1]", "logits, factor, base, rescale[1]", {"mismatch"}),
        ("online", "row + 1 + keys - rows", "row + 2 + keys - rows", {"mismatch"}),
        ("online", "row + 1 + keys - rows", "row + 1", {"mismatch"}),
        ("online", "sum *= rescale", "sum *= 1.f", {"mismatch"}),
        ("online", "state.sum * rescale", "state.sum", {"mismatch"}),
        ("online", "logit *= scale", "logit *= scale * scale", {"mismatch"}),
        ("online", "k + first, v + first,", "k + first, v + batch * k_batch,", {"mismatch"}),
        ("online", "return log_sum(state);", "return log_sum(state) * LOG2_E;", {"mismatch"}),
        ("online", "float logit = -infinity();", "float logit = 0.f;", {"mismatch"}),
        ("persistent", "    Order::pass(consumer);", "", {"deadlock"}),
        ("persistent", "    keys.wait();\n    Order::wait", "    Order::wait", {"race"}),
        (
            "persistent",
            "    wgmma_wait<1>();\n    keys.release();",
            "    keys.release();\n    wgmma_wait<1>();",
            {"race"},
        ),
        ("persistent", "    wgmma_wait<1>();", "    wgmma_wait<2>();", {"accumulator_in_flight"}),
        ("dynamic", "atomicInc(ticket, all - 1)", "atomicInc(ticket, all)", {"stale"}),
        # a ticket is overwritten: consumers wait for its tile, or leave before it has come
        ("dynamic", "    mbarrier_wait(memory.empty, parity);\n", "", {"deadlock", "exited_with_work"}),
        ("dynamic", "  mbarrier_wait(memory.full, parity);\n", "", {"uninitialised"}),
        ("small_blocks", "  buffer.acquire(place);\n", "", {"in_flight"}),
        ("small_blocks", "    shared.values.wait(of_values);\n", "", {"race"}),
        ("small_blocks", "load_keys(i - STAGES,", "load_keys(i - STAGES + 1,", {"exited_with_work"}),
        ("small_blocks", "    shared.keys.release(of_keys.stage);\n", "", {"deadlock", "divergent_collective"}),
        (
            "last_block",
            "count_to_last(counters + mine.tile, splits)",
            "atomicInc(counters + mine.tile, splits - 1) > 6",
            {"race"},
        ),
        ("last_block", "  __syncthreads();  // all threads have written", "  // ", {"race"}),
        (
            "last_block",
            "count_to_last(counters + mine.tile, splits)",
            "count_to_last(counters + mine.tile, splits + 1)",
            {"stale"},
        ),
        ("last_block", "cp_async_wait<STAGES - 2>()", "cp_async_wait<STAGES - 1>()", {"in_flight"}),
        ("last_block", "__syncwarp();  // this tile has come", "// ", {"race"}),
        ("last_block", "x.x[i] * more", "x.x[i]", {"mismatch"}),
        ("last_block", "sum = sum * before", "sum = sum", {"mismatch"}),
    ],
)
def test_a_fault_of_a_kernel_is_named(name, right, broken, verdicts):
    how = {"problem": BROKEN_ON[name]} if name in BROKEN_ON else {"examples": 40}
    assert broken_verdict(STAGES[name], right, broken, **how) in verdicts


@pytest.mark.long
@pytest.mark.parametrize("splits", [1, 3, 8])
@pytest.mark.parametrize("name", ["split_keys", "last_block"])
def test_keys_may_be_split_into_any_number_of_parts(name, splits):
    stage = STAGES[name].with_parameters({"SPLITS": splits})
    plan = stage.plan_for(SPLIT, stage.parameters)
    assert plan.launches[0].grid[0] == 2 * splits
    assert workbench.verify(stage, device="emulator", problem=SPLIT).run.stages[0].verification.verdict == "pass"


@pytest.mark.parametrize("problem", [p for p in ATTENTION.suite if p.rows == 1], ids=lambda p: p.label)
def test_blocks_that_share_keys_fill_the_gpu_and_see_every_key(problem):
    splits, part = splits_of(problem, {**STAGES["last_block"].parameters, "WARPS": 0})
    assert (splits - 1) * part < problem.keys <= splits * part
    blocks = splits * problem.batch * problem.key_heads
    assert blocks / 132 > 0.95 * np.ceil(blocks / 132)


@pytest.mark.parametrize(
    ("heads", "group", "rows", "first"),
    [(32, 4, 1, "last_block"), (32, 8, 4, "last_block"), (16, 16, 1, "split_keys"), (8, 1, 40, "row_by_row")],
)
def test_few_rows_are_for_the_stages_that_split_keys(heads, group, rows, first):
    assert ATTENTION.fastest(AttentionProblem(heads=heads, rows=rows, keys=5000, dim=64, group=group))[0] == first


@pytest.mark.parametrize(
    ("sizes", "first", "tile"),
    [
        ({"batch": 40, "heads": 16, "rows": 256, "dim": 64}, "row_by_row", (2, 128)),
        ({"batch": 64, "heads": 16, "rows": 512, "dim": 64}, "row_by_row", (3, 128)),
        ({"batch": 6, "heads": 4, "rows": 224, "dim": 64, "causal": True}, "small_blocks", (1, 128)),
        ({"batch": 2, "rows": 256, "dim": 64}, "small_blocks", (1, 128)),
        ({"batch": 3, "heads": 24, "rows": 216, "dim": 128}, "row_by_row", (2, 128)),
        ({"batch": 9, "heads": 16, "rows": 24, "dim": 64}, "small_blocks", (1, 64)),
        ({"batch": 16, "heads": 6, "rows": 2200, "dim": 128, "causal": True}, "row_by_row", (2, 128)),
        (
            {"batch": 16, "heads": 6, "rows": 2200, "dim": 121, "pad_q": 7, "pad_kv": 7, "causal": True},
            "dynamic",
            (2, 128),
        ),
        ({"batch": 2, "heads": 4, "rows": 2568, "dim": 128, "causal": True}, "persistent", (2, 128)),
        ({"batch": 8, "heads": 7, "rows": 280, "dim": 128, "causal": True}, "row_by_row", (2, 128)),
        ({"heads": 16, "rows": 16384, "dim": 128}, "persistent", (2, 176)),
        ({"batch": 4, "heads": 8, "rows": 4096, "dim": 256, "causal": True}, "row_by_row", (2, 80)),
    ],
)
def test_few_short_sequences_share_a_multiprocessor_and_most_tiles_are_drawn(sizes, first, tile):
    problem = AttentionProblem(keys=sizes["rows"], **sizes)
    assert next(name for name in ATTENTION.fastest(problem) if BY_NAME[name].supports(problem) is None) == first
    found = BY_NAME[first].sizes(problem)
    assert (found["WARPGROUPS"], found["BLOCK_N"]) == tile


@pytest.mark.parametrize(
    ("name", "causal"),
    [
        ("weights sum to 1", False),
        ("any order of keys", False),
        ("a shift of all logits of a row", False),
        ("a changed later key changes nothing", True),
    ],
)
def test_an_invariant_holds_of_the_reference_and_not_of_others(name, causal):
    """In the answers that are none, rows also have numbers of a key each, and of the last value."""
    problem = AttentionProblem(heads=2, rows=20, keys=50, dim=16, values=Kind.STEPS, causal=causal)
    holds_of_the_reference_alone(
        problem,
        name,
        lambda answer, inputs: {
            **answer,
            "o": answer["o"] + inputs["k"][..., :20, :1] / 8 + inputs["v"][..., -1:, :] * causal,
        },
    )


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize(("causal", "rows"), [(False, 40), (True, 40), (True, 2)])
def test_attention_of_arrays(place, rng, layout, causal, rows):
    q, k, v = (rng.standard_normal((2, heads, n, 24)).astype(BF16.numpy) for heads, n in ((4, rows), (2, 70), (2, 70)))
    given = [x if layout == "bhsd" else x.swapaxes(1, 2) for x in (q, k, v)]
    found = ops.attention(*map(place.upload, given), causal=causal, scale=0.25, layout=layout)
    o, lse = place.download(found.o).astype(np.float64), place.download(found.lse)
    size = {"batch": 2, "heads": 4, "group": 2, "rows": rows, "keys": 70, "dim": 24}
    problem = AttentionProblem(**size, causal=causal, scale=0.25)
    right = problem.reference({"q": q, "k": k, "v": v})
    assert np.allclose(o if layout == "bhsd" else o.swapaxes(1, 2), right["o"], 0, 0.03)
    assert np.allclose(lse, right["lse"], 0, 1e-5)


def test_attention_takes_packed_queries_keys_and_values(place, rng):
    packed = place.upload(rng.standard_normal((2, 30, 3, 2, 16)).astype(BF16.numpy))
    found = ops.attention(*(packed[:, :, i] for i in range(3)), layout="bshd")
    q, k, v = (place.download(packed)[:, :, i].swapaxes(1, 2) for i in range(3))
    right = AttentionProblem(batch=2, heads=2, rows=30, keys=30, dim=16).reference({"q": q, "k": k, "v": v})
    assert np.allclose(place.download(found.o).astype(np.float64).swapaxes(1, 2), right["o"], 0, 0.03)


def test_the_numpy_baseline_is_right_and_the_others_say_what_they_take():
    baselines = {b.name: b for b in registry.operations()["attention"].baselines}
    assert workbench.baseline_error(baselines["NumPy"], PROBLEMS[0]) == ""
    cudnn, fa3 = baselines["cuDNN"], baselines["FlashAttention-3"]
    for problem in ATTENTION.suite:
        assert cudnn.refuses(problem) is None and fa3.refuses(problem) is None
    last = dataclasses.replace(PROBLEMS[0], group=1)
    assert "aligned to the first key" in str(cudnn.refuses(last)) and fa3.refuses(last) is None


def test_the_bound_of_lse_allows_what_an_instruction_for_logarithms_errs():
    """On a GPU two stages were blamed for a lse near 0, where the largest logit and a logarithm cancel."""
    problem = AttentionProblem(batch=2, heads=2, rows=16, keys=16, dim=1, values=Kind.EQUAL, seed=8230)
    case = Case.of(problem)
    top = case.expected["lse"] - np.log(16)
    by_instruction = top + np.log(16) * (1 + 2.0**-22)
    assert (np.abs(case.expected["lse"]) < 1).any()
    assert (np.abs(by_instruction - case.expected["lse"]) <= case.bound["lse"]).all()


def test_the_bound_allows_for_a_weight_that_is_flushed_beside_results_that_are_subnormal():
    """On a GPU a stage was blamed whose exp2 gave 0 for a weight of 2^-129, of a value that is no subnormal number."""
    text = "batch=2,heads=2,rows=16,keys=17,dim=1,causal=true,values=large,pad_q=7,pad_kv=7,seed=390"
    problem = AttentionProblem.parse(f"{text},tier=comparative,distribution=subnormal")
    case, where = Case.of(problem), (0, 1, 11, 0)
    visible = problem.visible()[11]
    q, k, v = (case.inputs[name][0, 1].astype(np.float64) for name in "qkv")
    logits = np.where(visible, k[:, 0] * q[11, 0], -np.inf)
    weights = np.exp(logits - logits.max())
    flushed = np.where(weights < 2.0**-126, 0, weights)
    answer = (flushed / weights.sum()) @ v[:, 0]
    assert 2.0**-130 < weights[np.abs(v[:, 0]) > 1][0] < 2.0**-126 and abs(case.expected["o"][where]) < 2.0**-126
    assert abs(answer - case.expected["o"][where]) <= case.bound["o"][where] < 2.0**-110

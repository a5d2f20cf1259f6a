"""Attention of packed sequences: its definition, what rejects broken kernels, and `workbench.ops.attention_varlen`."""

from __future__ import annotations

import numpy as np
import pytest
from invariants import holds_of_the_reference_alone
from planted import broken_verdict

import workbench
from workbench import ops, reference
from workbench.catalogue import registry
from workbench.harness import Case
from workbench.kernels.attention.problem import Kind
from workbench.kernels.attention_varlen import ATTENTION_VARLEN, AttentionVarlenProblem, Lengths
from workbench.model.dtypes import BF16

SIZE = {"batch": 5, "heads": 4, "group": 2, "dim": 16}
PROBLEMS = [
    AttentionVarlenProblem(rows=90, keys=130, causal=True, lengths=Lengths.UNIFORM, seed=1, **SIZE),
    AttentionVarlenProblem(rows=60, keys=150, lengths=Lengths.EMPTY, values=Kind.LARGE, dtype="fp16", seed=2, **SIZE),
    AttentionVarlenProblem(rows=70, keys=150, causal=True, lengths=Lengths.DECODE, seed=3, **SIZE),
]
STAGES = {stage.name: stage for stage in ATTENTION_VARLEN.stages}


def test_a_sequence_is_attention_of_its_own_rows_and_keys():
    problem = PROBLEMS[0]
    inputs = problem.inputs()
    found = problem.reference(inputs)
    for i in range(problem.batch):
        rows, keys = (slice(*inputs[name][i : i + 2]) for name in ("offsets_q", "offsets_k"))
        n, m = rows.stop - rows.start, keys.stop - keys.start
        mask = np.arange(m) <= np.arange(n)[:, None] + m - n
        for head in range(problem.heads):
            q, k, v = inputs["q"][rows, head], inputs["k"][keys, head // 2], inputs["v"][keys, head // 2]
            o, lse = reference.attention(q, k, v, mask, problem.factor)
            assert np.array_equal(found["o"][rows, head], o) and np.array_equal(found["lse"][head, rows], lse)


@pytest.mark.parametrize("lengths", Lengths)
def test_lengths_are_those_that_they_are_called(lengths):
    for batch, rows, keys in ((1, 5, 7), (40, 3000, 3000), (40, 300, 5000), (30, 7, 2)):
        rows_of, keys_of = AttentionVarlenProblem(batch=batch, rows=rows, keys=keys, lengths=lengths).lengths_of()
        assert (len(rows_of), sum(rows_of), len(keys_of), sum(keys_of)) == (batch, rows, batch, keys)
        assert min(rows_of) >= 0 and min(keys_of) >= 0
    rows_of, keys_of = AttentionVarlenProblem(batch=40, rows=300, keys=5000, lengths=lengths).lengths_of()
    holds = {
        Lengths.EVEN: max(rows_of) - min(rows_of) <= 1,
        Lengths.UNIFORM: 2 < max(rows_of) < 3 * 300 / 40,
        Lengths.LOGNORMAL: max(keys_of) > 3 * 5000 / 40,
        Lengths.ONE_LONG: 140 < max(rows_of) < 160,
        Lengths.EMPTY: rows_of.count(0) >= 13 and keys_of.count(0) >= 13,
        Lengths.DECODE: rows_of.count(1) >= 35 and all(n <= m for n, m in zip(rows_of, keys_of, strict=True)),
    }
    assert holds[lengths]


def test_the_work_is_that_of_the_pairs_that_are_seen():
    for problem in PROBLEMS:
        pairs = 0
        for n, m in zip(*problem.lengths_of(), strict=True):
            pairs += (np.arange(m) <= np.arange(n)[:, None] + m - n).sum() if problem.causal else n * m
        assert problem.seen == pairs and problem.cost.flops == 4 * 4 * 16 * pairs


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.lengths)
def test_every_wrong_answer_is_rejected(problem):
    rejected, accepted = Case.of(problem).negative_controls()
    assert accepted == []
    assert rejected >= 28


def test_terms_of_sums_are_as_large_as_those_of_sequences_alone():
    problem = AttentionVarlenProblem(
        batch=6, heads=4, group=2, rows=40, keys=60, dim=3, causal=True, lengths=Lengths.EMPTY
    )
    inputs, seen = problem.inputs(), 0
    found = problem.magnitudes(inputs, {})["o"]
    for rows, keys, causal in problem.parts(inputs):
        n, m = rows.stop - rows.start, keys.stop - keys.start
        given = {name: inputs[name][rows if name == "q" else keys].swapaxes(0, 1)[None] for name in "qkv"}
        right = problem.alone(n, m, causal).magnitudes(given, {})["o"][0].swapaxes(0, 1) if n * m else 0
        assert np.array_equal(found[rows], np.broadcast_to(right, found[rows].shape))
        seen += n * m
    assert seen > 0 and (found > 0).any() and (found == 0).any()


@pytest.mark.parametrize(
    ("name", "seed", "causal"),
    [
        ("weights sum to 1", 0, False),
        ("any order of keys", 0, False),
        ("a changed later key changes nothing", 0, True),
        ("a changed neighbour changes nothing", 0, True),
        ("any order of sequences", 1, True),
        ("a sequence is the same among others", 8, True),
    ],
)
def test_an_invariant_holds_of_the_reference_and_not_of_others(name, seed, causal):
    """In the answers that are none every row also has values from elsewhere, as many times as the offsets sum up to."""
    size = {"batch": 4, "rows": 20, "keys": 20, "dim": 16, "lengths": Lengths.UNIFORM}
    problem = AttentionVarlenProblem(**size, causal=causal, seed=seed)

    def spoilt(answer, inputs):
        elsewhere = np.roll(inputs["v"], 7, axis=0).astype(np.float64)
        return {**answer, "o": answer["o"] + elsewhere * np.arange(16) * inputs["offsets_q"].sum()}

    holds_of_the_reference_alone(problem, name, spoilt)


BROKEN_ON = {
    "naive": AttentionVarlenProblem(
        batch=6, heads=2, group=2, rows=70, keys=95, dim=24, causal=True, lengths=Lengths.EMPTY, seed=2
    ),
    "longest_first": AttentionVarlenProblem(
        batch=6, rows=600, keys=600, dim=64, causal=True, lengths=Lengths.ONE_LONG, seed=1
    ),
    "persistent": AttentionVarlenProblem(batch=40, rows=200, keys=200, dim=64, causal=True, lengths=Lengths.LOGNORMAL),
    "packed_heads": AttentionVarlenProblem(
        batch=3, heads=6, group=3, rows=40, keys=2300, dim=64, causal=True, lengths=Lengths.DECODE, seed=1
    ),
}
"""The problem of each stage that shows its faults; of the others `AT_ENDS` does."""

AT_ENDS = AttentionVarlenProblem(batch=3, rows=150, keys=300, dim=64, lengths=Lengths.UNIFORM, seed=3)
CHUNKED = AttentionVarlenProblem(batch=2, heads=402, group=201, rows=3, keys=20, dim=64, lengths=Lengths.UNIFORM)


@pytest.mark.parametrize(
    ("name", "right", "broken", "verdict"),
    [
        ("tma", "  async_fence();\n", "", "proxy_fence"),
        ("tma", "if (tile.beyond())", "if (false)", "mismatch"),
        ("tma", "(tile.tiles - 1 >= averages.whole)", "(CAUSAL)", "mismatch"),
        ("tma", "key_offset + tile * BLOCK_N", "row_offset + tile * BLOCK_N", "mismatch"),
        ("naive", "row - sequence.row_offset, causal", "row, causal", "mismatch"),
        ("naive", "sequence.key_offset * k_row", "sequence.row_offset * k_row", "mismatch"),
        ("naive", "return offsets_q[i];", "return offsets_k[i];", "mismatch"),
        ("naive", "find_last(batch, row,", "find_last(batch - 1, row,", "mismatch"),
        ("naive", "lse[number] = log_sum", "lse[row * heads + head] = log_sum", "mismatch"),
        ("longest_first", " && i < mine", "", "out_of_bounds"),
        ("longest_first", "if (rank == batch - 1)", "if (mine == batch - 1)", "mismatch"),
        ("longest_first", "tiles - 1 - place / of_group", "place / of_group / 2", "race"),
        ("persistent", "mbarrier_wait(memory.empty[to.stage], to.parity ^ 1);", "", "race"),
        ("persistent", "if (blockIdx.x == 0 && threadIdx.x == 0) *ticket = 0;", "", "uninitialised"),
        ("persistent", "named_sync<roles::CONSUMER_THREADS>(CLEARED);", "", "in_flight"),
        # rows of the next sequence
        ("row_by_row", " && tile.first + first + Outputs::ROWS <= tile.rows", "", "race"),
        # each warp reads its own rows
        ("row_by_row", "    if (tile.tiles > 0) Outputs::gather(consumer);\n", "", "pass"),
        ("row_by_row", "  consumer.outputs.release(memory.shared);\n", "", "exited_with_work"),
        ("packed_heads", "  grid_dependency_wait();\n", "", "uninitialised"),
        (
            "packed_heads",
            "merging = count_to_last(slots.counters + tile.slot, tile.parts)",
            "merging = tile.part == 0",
            "race",
        ),
        ("packed_heads", "slots.merge(tile.slot + warp, tile.step,", "slots.merge(tile.slot + warp, 0,", "mismatch"),
        ("packed_heads", "tile.slot + tile.part * tile.step", "tile.slot + tile.part", "race"),
        ("packed_heads", "tiles = all * (part + 1) / parts - begin;", "tiles = all / parts;", "mismatch"),
        (
            "packed_heads",
            "if (i < tile.tiles - 1) Order::wait(consumer), Order::pass(consumer);",
            "",
            "deadlock",
        ),
        ("packed_heads", "row / heads + 1 + keys", "row + 1 + keys", "mismatch"),
        ("packed_heads", "first_head + row % heads", "row % heads", "race"),
        ("packed_heads", " && tile.of_group(row) < packing.group", "", "out_of_bounds"),
    ],
)
def test_a_fault_of_a_kernel_is_named(name, right, broken, verdict):
    of_many_heads = "first_head" in right or "packing.group" in right
    problem = CHUNKED if of_many_heads else BROKEN_ON.get(name, AT_ENDS)
    assert broken_verdict(STAGES[name], right, broken, problem=problem) == verdict


def test_heads_are_packed_where_rows_are_few_or_many_heads_share_keys():
    decoding = {"batch": 64, "keys": 131072, "dim": 128, "causal": True}
    first = {
        (rows, group): ATTENTION_VARLEN.fastest(AttentionVarlenProblem(heads=32, rows=rows, group=group, **decoding))[0]
        for rows in (64, 4096, 65536)
        for group in (1, 8)
    }
    assert first == {
        **{(64, 1): "packed_heads", (64, 8): "packed_heads", (4096, 1): "packed_heads", (4096, 8): "packed_heads"},
        **{(65536, 1): "row_by_row", (65536, 8): "row_by_row"},
    }


def packed(rng, lengths, heads, dim=24):
    return rng.standard_normal((sum(lengths), heads, dim)).astype(BF16.numpy), np.cumsum([0, *lengths], dtype=np.int32)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_of_packed_arrays(place, rng, causal):
    q, offsets_q = packed(rng, (7, 0, 30, 3), 4)
    both, offsets_k = packed(rng, (9, 5, 40, 0), 4)
    given = place.upload(both)
    found = ops.attention_varlen(
        place.upload(q),
        given[:, :2],
        given[:, 2:],
        *map(place.upload, (offsets_q, offsets_k)),
        causal=causal,
        scale=0.3,
    )
    size = {"batch": 4, "heads": 4, "group": 2, "rows": 40, "keys": 54, "dim": 24}
    problem = AttentionVarlenProblem(**size, causal=causal, scale=0.3)
    inputs = {"q": q, "k": both[:, :2], "v": both[:, 2:], "offsets_q": offsets_q, "offsets_k": offsets_k}
    right = problem.reference(inputs)
    assert np.allclose(place.download(found.o).astype(np.float64), right["o"], 0, 0.03)
    assert np.allclose(place.download(found.lse), right["lse"], 0, 1e-5)


def test_the_numpy_baseline_is_right_and_the_others_say_what_they_take():
    baselines = {b.name: b for b in registry.operations()["attention_varlen"].baselines}
    assert workbench.baseline_error(baselines["NumPy"], PROBLEMS[0]) == ""
    for problem in ATTENTION_VARLEN.suite:
        assert all(baselines[name].refuses(problem) is None for name in ("PyTorch flash", "FlashAttention-3"))
    assert "+inf" in str(baselines["PyTorch flash"].refuses(PROBLEMS[1]))

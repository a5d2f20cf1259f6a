"""Rows that are few, short, or begin anywhere: how threads share them, and which stages are preferred for them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import workbench
from workbench import harness, ops, reference
from workbench.catalogue import registry
from workbench.devices import open_device
from workbench.inspect.profile import profile_stage
from workbench.judge.case import Case
from workbench.kernels.cross_entropy import CrossEntropyProblem
from workbench.kernels.gemm_fp8 import ScaledGemmProblem
from workbench.kernels.matvec import MATVEC, MatvecProblem
from workbench.kernels.reduce import REDUCE, ReduceProblem
from workbench.kernels.rows import gradients, groups
from workbench.kernels.scan import ScanProblem
from workbench.kernels.softmax import SoftmaxProblem
from workbench.kernels.transpose import LARGE, TRANSPOSE, TransposeProblem
from workbench.model.launch import H200
from workbench.model.problem import Problem


@pytest.mark.parametrize("rows", [1, 2, 7, 75, 263, 264, 1000, 10_000, 200_000])
@pytest.mark.parametrize("count", [1, 3, 31, 32, 100, 1842, 7610, 300_000])
def test_threads_share_a_row_as_far_as_the_device_and_the_row_go(rows, count):
    chosen = groups.spread(rows, count, 4, 256)
    group, threads, blocks = chosen["GROUP"], chosen["THREADS"], chosen["BLOCKS"]
    assert group & (group - 1) == 0 and threads & (threads - 1) == 0 and group <= threads <= 1024
    assert group <= 32 or group == threads  # as `row_reduce` has it
    assert group <= max(32, 2 * count)  # no thread without work, but for the last ones
    if count >= 32 and blocks == 1:  # with no other number of threads does the last row end sooner

        def ends(threads: int) -> int:
            at_once = H200.multiprocessors * 1024 // threads
            return -(-rows // at_once) * (-(-count // (4 * threads)) + 1)

        assert ends(group) == min(
            ends(other) for other in (32, 64, 128, 256, 512, 1024) if other <= max(32, count // 2)
        )
    if blocks > 1:
        assert group == threads and rows < 264
        assert count // blocks >= 4 * group  # a block loads at least once with all its threads
        assert rows * blocks >= H200.multiprocessors or blocks == count // (4 * group)


def test_blocks_that_share_a_row_of_a_product_have_all_of_its_vectors():
    stage = next(s for s in MATVEC.stages if s.name == "shared_rows")
    problem = MatvecProblem(n=3, k=1_000_003, dtype="bf16")
    (launch,) = stage.plan(problem).launches
    blocks, part = (int(value) for value in launch.args[-2:])
    assert blocks > 1 and launch.grid == (3 * blocks, 1, 1)
    assert blocks * part >= problem.k // 8 > (blocks - 1) * part
    assert stage.plan(problem).scratch["counters"].shape == (3,)
    assert not stage.plan(MatvecProblem(n=3, k=1003, dtype="bf16")).scratch


@pytest.mark.parametrize("rows", [1, 3, 60, 1051, 40_000])
@pytest.mark.parametrize("columns", [100, 496, 20_000, 70_000])
def test_blocks_that_share_what_is_reduced_are_those_that_the_kernel_is_compiled_for(rows, columns):
    stage = next(s for s in REDUCE.stages if s.name == "one_launch")
    for over in ("all", "columns"):
        problem = ReduceProblem(rows=rows, columns=columns, over=over)
        (launch,) = stage.plan(problem).launches
        shares, part = (int(value) for value in launch.args[-2:])
        shared = shares > 1 or (over == "all" and launch.grid[0] > 1)
        assert stage.sizes(problem)["SHARED"] == shared
        assert shares * part * 8 >= (min(2**20, rows * columns) if over == "all" else columns)
    assert stage.plan(ReduceProblem(rows=1051, columns=496, over="all")).launches[0].grid[0] > 16  # one took 25 us


CHOICES: list[tuple[Problem, str]] = [
    *((problem, "streamed") for problem in MATVEC.suite),
    (MatvecProblem(n=3, k=14_726, dtype="bf16", out="bf16"), "shared_rows"),
    (MatvecProblem(n=752, k=29_901, dtype="fp32"), "shared_rows"),
    (MatvecProblem(n=1, k=2**20, dtype="fp32"), "shared_rows"),
    (MatvecProblem(n=1, k=30_444, dtype="fp32"), "streamed"),
    (MatvecProblem(n=4000, k=4001, dtype="bf16", out="bf16"), "shared_rows"),  # of a class that is timed
    (MatvecProblem(n=36_806, k=144, dtype="bf16"), "unaligned"),
    (MatvecProblem(n=108_008, k=584, dtype="bf16"), "shared_rows"),
    (MatvecProblem(n=70_520, k=8844, dtype="fp32"), "vectorized"),
    (TransposeProblem(rows=1, columns=2**26), "realigned"),
    (TransposeProblem(rows=2**20, columns=1), "realigned"),
    (TransposeProblem(rows=5, columns=67_271), "realigned"),
    (TransposeProblem(rows=36, columns=49_384), "realigned"),
    (TransposeProblem(rows=4097, columns=4099), "realigned"),
    (TransposeProblem(rows=905, columns=1095), "padded"),
    (TransposeProblem(rows=8, columns=2**20), "ldmatrix"),
    (TransposeProblem(rows=2**20, columns=64), "ldmatrix"),
    (TransposeProblem(rows=2**20, columns=56), "realigned"),  # huge
    (TransposeProblem(rows=2**16, columns=56), "register_blocks"),
    (TransposeProblem(rows=2**16, columns=8), "realigned"),
    (TransposeProblem(rows=2**16, columns=64, pad_x=1), "realigned"),
    (TransposeProblem(rows=512, columns=32, dtype="fp32"), "ldmatrix"),
    (TransposeProblem(rows=16, columns=64), "padded"),
    (TransposeProblem(rows=32, columns=4811), "padded"),
    (ScaledGemmProblem(m=4168, n=16, k=16), "naive"),
    (ReduceProblem(rows=1, columns=256), "one_launch"),
    (ReduceProblem(rows=256, columns=64), "one_launch"),
    (ReduceProblem(rows=64, columns=256, over="all"), "one_launch"),
    (ReduceProblem(rows=4096, columns=1024), "vectorized"),
    (ReduceProblem(rows=4096, columns=4096), "one_launch"),
    (ReduceProblem(rows=4096, columns=2**16), "one_launch"),
    (ReduceProblem(rows=2**20, columns=64), "one_launch"),
    (ReduceProblem(rows=2**14, columns=2**13, over="rows"), "split"),
    (ReduceProblem(rows=9000, columns=3, pad_x=1, over="all"), "split"),  # more parts than a block combines
    (ScanProblem(rows=2**20, columns=64), "registers"),
    (ScanProblem(rows=4096, columns=2**14), "registers"),
    (ScanProblem(rows=4096, columns=2**16), "block_row"),
    (ScanProblem(rows=1, columns=4096), "registers"),
    (ScanProblem(rows=1, columns=2**26), "look_back"),
    (CrossEntropyProblem(rows=2**20, columns=64), "group_row"),
    (CrossEntropyProblem(rows=256, columns=2**20), "group_row"),
    (CrossEntropyProblem(rows=16, columns=2**20), "split_rows"),
    (SoftmaxProblem(rows=256, columns=2**14, out="bf16"), "registers"),
    (SoftmaxProblem(rows=16, columns=2**14, out="bf16"), "cluster"),
    (SoftmaxProblem(rows=4096, columns=2**15, out="bf16"), "registers"),
    (SoftmaxProblem(rows=4096, columns=2**16, out="bf16"), "prefetch"),
    (SoftmaxProblem(rows=4096, columns=20_480, dtype="fp32"), "prefetch"),
    (SoftmaxProblem(rows=4096, columns=2**17, dtype="fp32"), "cluster"),
    (SoftmaxProblem(rows=113_024, columns=61, out="bf16"), "packed"),
    (SoftmaxProblem(rows=113_024, columns=61, pad_x=3, out="bf16"), "registers"),
    (SoftmaxProblem(rows=10_500, columns=196, out="bf16"), "registers"),  # whole vectors of 8 bytes
]


@pytest.mark.parametrize(("problem", "wanted"), CHOICES, ids=lambda value: getattr(value, "label", value))
def test_the_stage_that_is_chosen_for_rows_of_a_kind(problem, wanted):
    (operation,) = (o for o in registry.operations().values() if o.problem is type(problem))
    assert ops.choose(operation, problem, 90, device="NVIDIA H200").name == wanted


def _widths(operation: str, columns: int, **fields: Any) -> tuple[int, int]:
    """Bytes of vectors, and whether rows are whole numbers of them."""
    problem = registry.operations()[operation].problem(rows=3, columns=columns, **fields)
    return groups.row_bytes(problem), int(groups.defines(problem)["EVEN"])


@pytest.mark.parametrize(
    ("rows", "columns", "dtype", "shape"),
    [
        (256, 1024, "bf16", (128, 1)),
        (4096, 1024, "bf16", (32, 4)),
        (4096, 16_384, "bf16", (512, 4)),
        (4096, 32_768, "bf16", (1024, 4)),
        (4096, 16_384, "fp32", (512, 8)),
        (4096, 4099, "bf16", (128, 5)),
        (4096, 32_761, "bf16", (512, 8)),  # the widest blocks are for whole vectors
        (256, 32_768, "bf16", (512, 8)),  # and for many rows
    ],
)
def test_threads_hold_few_vectors_of_a_row_each(rows, columns, dtype, shape):
    (stage,) = (s for s in registry.operations()["softmax"].stages if s.name == "registers")
    size = stage.sizes(SoftmaxProblem(rows=rows, columns=columns, dtype=dtype, out=dtype))
    assert (size["GROUP"], size["VECTORS"]) == shape
    assert size["THREADS"] == max(128, shape[0]) if shape[0] <= 32 else shape[0]


def test_rows_that_are_no_whole_numbers_of_16_bytes_are_moved_8_at_a_time():
    same = {"dtype": "bf16", "out": "bf16"}
    assert _widths("softmax", 1000, **same) == (16, 1)
    assert _widths("softmax", 1004, **same) == (8, 1)
    assert _widths("softmax", 1000, **same, pad_x=4) == (8, 1)
    assert _widths("softmax", 1002, **same) == (16, 0)
    assert _widths("rms_norm", 71_556, **same) == (8, 1)
    assert _widths("rms_norm", 131_076, **same) == (16, 0)  # more than a cluster holds 8 bytes at a time
    assert _widths("layer_norm", 71_556, **same) == (16, 0)  # its rows are split, and read with what they have
    assert _widths("rms_norm", 1002, dtype="fp32", out="fp32") == (8, 1)
    assert _widths("rms_norm_backward", 1004, **same) == (16, 0)


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("columns", [1, 47, 69, 250, 788, 1655, 2766, 5077, 5584, 8192])
@pytest.mark.parametrize("pad", [0, 4])
def test_threads_hold_all_of_a_narrow_row_and_whole_vectors_of_it(columns, dtype, pad):
    problem = registry.operations()["rms_norm_backward"].problem(
        rows=3, columns=columns, dtype=dtype, out=dtype, pad_x=pad
    )
    for held in (8, 16):
        size = gradients.narrow(problem, 256, held)
        group, step = size["GROUP"], gradients.width(problem, size)
        assert groups.even(step, problem.columns, problem.ldx, problem.ldy) and step * problem.widest <= 16
        assert 0 <= group * size["VECTORS"] * step - columns < group * step
        assert size["VECTORS"] * step <= max(held, 16)
        assert size["THREADS"] == (256 if group <= 32 else group)


@pytest.mark.parametrize(("rows", "blocks"), [(7, 7), (528, 528), (529, 265), (1300, 434), (5000, 528)])
def test_blocks_that_keep_sums_are_as_many_as_take_few_rows_each(rows, blocks):
    problem = registry.operations()["rms_norm_backward"].problem(rows=rows, columns=1024, dtype="bf16", out="bf16")
    size = {"THREADS": 128, "VECTORS": 1, "ADDED": 8, "ADDERS": 512}
    first, second = gradients.kept_sums("rms_norm_backward_fused", problem, size, 528).launches
    assert first.grid[0] == blocks and second.grid[0] == 128 and second.args[-1] == blocks


@pytest.mark.parametrize("spec", ["rms_norm:registers", "layer_norm:registers", "residual_rms_norm:cluster"])
def test_rows_of_8_bytes_at_a_time_are_right(spec):
    kind = registry.operations()[spec.split(":")[0]].problem
    problem = kind(rows=5, columns=1004, dtype="bf16", out="bf16", pad_x=4)
    assert groups.row_bytes(problem) == 8
    assert workbench.verify(spec, device="emulator", problem=problem).ok


def test_packed_rows_keep_nan_infinities_and_masks_apart():
    x = np.random.default_rng(0).standard_normal((20, 61)).astype(np.float32)
    x[1, 7], x[3, 60], x[5, 0], x[6] = np.nan, np.inf, -np.inf, -np.inf
    problem = SoftmaxProblem(rows=20, columns=61, dtype="fp32", out="fp32")
    case = Case.of(problem)
    case = dataclasses.replace(case, inputs={"x": x})
    (stage,) = (s for s in registry.operations()["softmax"].stages if s.name == "packed")
    y = case.arrays["y"].view(harness.solve(stage, open_device("emulator"), case)["y"]).astype(np.float64)
    assert np.isnan(y[[1, 3]]).all() and not y[6].any() and y[5, 0] == 0
    others = [r for r in range(20) if r not in (1, 3, 6)]
    assert np.allclose(y[others], reference.softmax(x[others]), rtol=1e-5)


def test_a_single_row_or_column_without_gaps_is_copied():
    stage = next(s for s in TRANSPOSE.stages if s.name == "realigned")

    def kernel(**fields: Any) -> str:
        (launch,) = stage.plan(TransposeProblem(**fields)).launches
        return launch.kernel

    assert kernel(rows=1, columns=9001) == kernel(rows=9001, columns=1) == "transpose_copy"
    assert kernel(rows=1, columns=9001, pad_x=5) == "transpose_copy"  # behind the only row
    assert kernel(rows=1, columns=9001, pad_y=1) == kernel(rows=9001, columns=1, pad_x=1) == "transpose_realigned"


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("rows", [1, 2, 4, 32])
def test_tiles_of_ldmatrix_are_copied_and_loaded_without_bank_conflicts(rows, dtype):
    (stage,) = (s for s in TRANSPOSE.stages if s.name == "ldmatrix")
    width = 8 if dtype == "bf16" else 4
    for extents in ({"columns": 2048}, {"columns": LARGE // (rows * width)}):  # small tiles and large ones
        problem = TransposeProblem(rows=rows * width, dtype=dtype, **extents)
        counts = profile_stage(stage, problem).counts
        assert counts["shared_load_wavefronts"] == 4 * counts["shared_load_requests"] > 0
        assert counts["shared_copy_wavefronts"] == 4 * counts["shared_copy_requests"] > 0
        vectors = rows * problem.columns
        assert counts["global_store_bytes"] == 16 * vectors == counts["global_copy_bytes"]


def test_what_transpose_is_compared_with_copies_a_single_row_too():
    (numpy,) = (b for b in TRANSPOSE.baselines if b.name == "NumPy")
    for shape in ((1, 5), (5, 1), (2, 3)):
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        found = numpy.call(TransposeProblem(rows=shape[0], columns=shape[1], dtype="fp32"), x)
        assert np.array_equal(found, x.T) and found.flags.c_contiguous and not np.shares_memory(found, x)

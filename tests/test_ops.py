"""`workbench.ops`: the fastest stage that can, and one clear sentence for arguments that cannot."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median

import ml_dtypes
import numpy as np
import pytest

from workbench import emulator, ops, reference
from workbench.catalogue import registry
from workbench.kernels.gemm import GemmProblem
from workbench.kernels.gemm_fp8 import ScaledGemmProblem
from workbench.kernels.vector_add import VectorAddProblem
from workbench.model.launch import MOST_BLOCKS
from workbench.records import store
from workbench.report import derived

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

BENCH = Path(__file__).parents[1] / "reports/nvidia-h200"
"""The committed bench of an H200."""


def test_the_fastest_stage_that_supports_the_problem_is_chosen():
    aligned = GemmProblem(m=64, n=64, k=640, dtype="bf16")
    odd = GemmProblem(m=64, n=64, k=63, dtype="bf16")
    single = GemmProblem(m=64, n=64, k=64, dtype="fp32", out="fp32")
    assert ops.choose("gemm", aligned, 90).name == "small_tiles"
    assert ops.choose("gemm", odd, 90).name == "warp_parallel"
    assert ops.choose("gemm", GemmProblem(m=64, n=64, k=999, dtype="bf16"), 90).name == "shifted_tiles"
    assert ops.choose("gemm", GemmProblem(m=640, n=640, k=999, dtype="bf16"), 90).name == "shifted_tiles"
    assert ops.choose("gemm", GemmProblem(m=6400, n=6400, k=999, dtype="bf16"), 90).name == "realigned"
    assert ops.choose("gemm", GemmProblem(m=512, n=512, k=512, dtype="bf16"), 80).name == "cp_async"
    assert ops.choose("gemm", single, 90).name == "warp_parallel"
    assert ops.choose("gemm", GemmProblem(m=300, n=300, k=999, dtype="fp32", out="fp32"), 90).name == "split_warp_tiles"
    large = GemmProblem(m=4559, n=14189, k=4714, dtype="fp32", out="fp32")
    assert ops.choose("gemm", large, 90).name == "realigned_pipeline"
    assert ops.choose("gemm", GemmProblem(m=8, n=300, k=999, dtype="fp32", out="fp32"), 90).name == "few_vectors"
    assert ops.choose("gemm", GemmProblem(m=8, n=300, k=999, dtype="fp32", out="fp32"), 80).name == "split_tiles"
    assert ops.choose("vector_add", VectorAddProblem(n=5), 90).name == "vectorized"


def _measured() -> dict[tuple[str, str], dict[str, float]]:
    """Throughput in the committed bench as a share of the vendor's, timed interleaved with each, by problem and
    stage; without a vendor's library, launches a microsecond."""
    found: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for result, run in store.current(store.load(BENCH)):
        assert run.device.name == "NVIDIA H200"
        for measurement in result.measurements:
            share = derived.share_of_vendor(measurement) or 1 / median(measurement.timing.cold_us)
            found[result.operation, measurement.problem][result.stage] = share
    return found


MEASURED = _measured()

CHANGED = {
    ("softmax", "registers"),
    ("rms_norm", "registers"),
    ("layer_norm", "registers"),
    ("cross_entropy", "group_row"),
}
"""Stages that became faster since: `reports/rows.md` has their times."""

SLACK = 1.03
"""How much slower than the best of a bench a stage may be: what stages differ by that were timed in other runs."""


def test_the_bench_has_every_operation_and_several_stages_of_gemm_for_each_problem():
    assert {operation for operation, _ in MEASURED} >= {"gemm", "gemm_fp8", "matvec", "vector_add"}
    assert min(len(stages) for (operation, _), stages in MEASURED.items() if operation == "gemm") >= 5


@pytest.mark.parametrize("device", ["NVIDIA H200", "a device that no table knows"])
@pytest.mark.parametrize(("operation", "text"), MEASURED, ids=lambda v: str(v)[:60])
def test_the_stage_that_is_chosen_is_as_fast_as_the_fastest_that_was_measured(operation, text, device):
    stages, problem = MEASURED[operation, text], registry.operations()[operation].problem.parse(text)
    chosen = ops.choose(operation, problem, 90, device=device)
    if chosen.name not in stages:
        pytest.skip(f"{chosen.name} has no time on this problem in the committed bench")
    if (operation, chosen.name) in CHANGED:
        pytest.skip(f"{chosen.name} is faster than in the committed bench")
    assert stages[chosen.name] * SLACK >= max(stages.values()), (chosen.name, stages)


@pytest.mark.parametrize(
    ("problem", "neighbour"),
    [
        ("16384x8192x8192,dtype=bf16,out=bf16", "8192x8192x8192,dtype=bf16,out=bf16"),
        ("8192x8192x4096,dtype=fp16,out=fp16,layout=nn", "8192x8192x8192,dtype=bf16,out=bf16,layout=nn"),
        ("32x8192x8192,dtype=bf16,out=bf16", "128x8192x8192,dtype=bf16,out=bf16"),
        ("512x2048x1024,dtype=bf16,out=bf16", "1024x1024x1024,dtype=bf16,out=bf16"),
        ("8192x8192x512,dtype=bf16,out=bf16", "4096x4096x512,dtype=bf16,out=bf16"),
        ("16384x16384x16384,dtype=fp32,out=fp32", "4096x4096x4096,dtype=fp32,out=fp32,layout=nn"),
        ("8192x8192x4096,dtype=fp32,out=fp32,layout=nn", "4096x4096x4096,dtype=fp32,out=fp32,layout=nn"),
    ],
)
def test_a_problem_in_no_table_gets_the_stage_of_the_measured_one_it_is_like(problem, neighbour):
    parsed, like = GemmProblem.parse(problem), GemmProblem.parse(neighbour)
    stages = MEASURED["gemm", str(like)]
    assert ops.choose("gemm", parsed, 90, device="NVIDIA H200").name == max(stages, key=stages.get)


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        ("2048x2048x2048", "fp32_pipeline"),  # a tile for each multiprocessor, instead of two of warp_tiles
        ("32768x128x2048", "fitted_pipeline"),  # two tiles of either: those of fp32_pipeline are half empty
        ("4096x4096x2047", "realigned_pipeline"),  # rows that no tensor map takes
        ("1024x1024x1024", "fitted_pipeline"),
        ("1024x1024x512", "fitted_pipeline"),  # half of the device would have no tile of 128 rows and columns
        ("2048x2048x8", "short_k"),  # most of it is to store C
        ("2048x2048x24", "vectorized"),
        ("300x300x999", "split_warp_tiles"),  # copies of rows would take as long
    ],
)
def test_products_of_fp32_get_the_stage_whose_tiles_take_the_least_time(problem, expected):
    single = GemmProblem.parse(f"{problem},dtype=fp32,out=fp32")
    assert ops.choose("gemm", single, 90).name == expected


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("shape", ["1x8192x8192", "8192x16x8192", "3x1471x9161", "1471x3x9161"])
def test_few_rows_or_columns_get_the_stage_that_reads_the_large_operand_once(shape, dtype):
    for layout in ("nn", "nt"):
        problem = GemmProblem.parse(f"{shape},dtype={dtype},out={dtype},layout={layout}")
        chosen = ops.choose("gemm", problem, 90, device="NVIDIA H200").name
        if dtype == "fp32" and (problem.k % 4 or layout == "nn"):  # rows that begin anywhere, or columns of B
            assert chosen in ("thread_columns", "few_vectors", "split_tiles", "shifted_pipeline", "fitted_pipeline")
        elif shape == "8192x16x8192":
            assert chosen in ("few_vectors", "fitted_pipeline" if dtype == "fp32" else "streamed")
        else:
            assert chosen in ("few_vectors", "one_vector") and (chosen != "one_vector" or problem.m == 1)


BOTH = ("bf16", "fp32")


def test_a_c_of_another_type_gets_what_one_of_the_same_type_does():
    for size in ("4096x4096x4096", "64x64x999", "512x512x4096"):
        chosen = {ops.choose("gemm", GemmProblem.parse(f"{size},dtype=bf16,out={out}"), 90).name for out in BOTH}
        assert len(chosen) == 1


def test_the_limits_of_a_grid_are_those_that_a_launch_is_checked_against():
    assert emulator.H200.max_grid == MOST_BLOCKS


@pytest.mark.parametrize(
    ("problem", "refused"),
    [
        (GemmProblem(m=9_000_000, n=24, k=7), "split_tiles"),
        (GemmProblem(m=9_000_000, n=24, k=7, dtype="fp32"), "warp_tiles"),
        (GemmProblem(m=24, n=9_000_000, k=7), "naive"),
        (GemmProblem(m=9_000_000, n=24, k=8), "cp_async"),
        (ScaledGemmProblem(m=9_000_000, n=8, k=16), "naive"),
    ],
    ids=str,
)
def test_a_stage_whose_grid_no_device_takes_is_not_chosen(problem, refused):
    operation = "gemm" if isinstance(problem, GemmProblem) else "gemm_fp8"
    (beyond,) = registry.select([f"{operation}:{refused}"])
    assert beyond.supports(problem) is None
    assert "blocks in y; a device takes 65,535" in beyond.beyond_limits(problem)
    stage = ops.choose(operation, problem, 90)
    assert stage.name != refused
    assert all(n <= most for n, most in zip(stage.plan(problem).launches[0].grid, MOST_BLOCKS, strict=True))


def test_a_grid_may_be_as_large_as_the_limit():
    (stage,) = registry.select(["gemm_fp8:naive"])
    rows = stage.parameters["BLOCK_Y"] * 65_535
    assert stage.beyond_limits(ScaledGemmProblem(m=rows, n=1, k=7)) is None
    assert stage.beyond_limits(ScaledGemmProblem(m=rows + 1, n=1, k=7)) == (
        "the grid of gemm_fp8_naive has 65,536 blocks in y; a device takes 65,535"
    )


def test_where_no_stage_can_be_launched_the_limits_are_said():
    with pytest.raises(
        ValueError, match=r"naive: the grid of gemm_naive has 562,500 blocks in y; a device takes 65,535"
    ):
        ops.choose("gemm", GemmProblem(m=9_000_000, n=9_000_000, k=7), 90)
    with pytest.raises(ValueError, match=r"an argument does not hold its number: .* 3000000000 .* int32"):
        ops.choose("gemm", GemmProblem(m=3_000_000_000, n=8, k=7), 90)
    with pytest.raises(ValueError, match=r"on this device$"):
        ops.choose("gemm_fp8", ScaledGemmProblem(m=8, n=8, k=8), 80)


def test_arrays_of_another_library_are_refused():
    with pytest.raises(TypeError, match=r"gemm: a is a numpy.ndarray; it has to be an array on a GPU"):
        ops.gemm(np.ones((2, 2), np.float32), np.ones((2, 2), np.float32))


def test_matvec_and_vector_add_are_what_they_say(place, rng):
    a, b = rng.integers(-2, 3, 1000).astype(np.float32), rng.integers(-2, 3, (77, 1000)).astype(np.float32)
    assert np.array_equal(place.download(ops.matvec(place.upload(a), place.upload(b))), reference.matvec(a, b))
    assert np.array_equal(place.download(ops.vector_add(place.upload(a), place.upload(a))), 2 * a)


@pytest.mark.parametrize(("m", "n", "k"), [(5, 7, 33), (130, 264, 272)])
def test_gemm_fp8_is_the_scaled_product_of_what_the_bytes_stand_for(place, rng, m, n, k):
    a, b = (rng.integers(-2, 3, shape).astype(ml_dtypes.float8_e4m3fn) for shape in ((m, k), (n, k)))
    a_scale, b_scale = (np.exp2(rng.integers(-1, 2, rows)).astype(np.float32) for rows in (m, n))
    given = [place.upload(x) for x in (a.view(np.uint8), b.view(np.uint8), a_scale, b_scale)]
    c = ops.gemm_fp8(*given, out_dtype=np.float32)
    assert np.array_equal(place.download(c), reference.scaled_gemm(a, b, a_scale, b_scale))
    assert ops.gemm_fp8(*given).dtype == BFLOAT16


def test_arrays_that_start_anywhere_get_a_stage_that_takes_them():
    aligned = GemmProblem(m=64, n=64, k=640, dtype="bf16")
    assert ops.choose("gemm", aligned, 90, alignment=16).name == "small_tiles"
    assert ops.choose("gemm", aligned, 90, alignment=2).name == "warp_parallel"


def test_the_first_call_of_a_process_waits_for_no_package_that_it_does_not_need():
    asked = (
        "import sys, workbench.ops; print(*{'cupy', 'hypothesis', 'tabulate', 'scipy', 'torch'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []

"""conv2d: its definition, what rejects broken kernels, and `workbench.ops.conv2d`."""

from __future__ import annotations

import dataclasses
import fcntl
import itertools
import math
import os

import numpy as np
import pytest
from planted import broken_verdict

import workbench
from workbench import ops, reference
from workbench.catalogue import registry
from workbench.devices import open_device
from workbench.harness import Case
from workbench.kernels.conv2d import CONV2D, Activation, Conv2dProblem, Layout
from workbench.kernels.conv2d.estimate import (
    THREADS,
    TILES,
    TILES_OF_ONE,
    fitted_to_shares,
    no_eights,
    no_k_tiles,
    pad_channels,
    padded,
)
from workbench.kernels.conv2d.operation import sizes
from workbench.kernels.conv2d.problem import SHAPES, touched
from workbench.kernels.conv2d.wgmma import im2col
from workbench.model.dtypes import BF16
from workbench.model.launch import H200, ceil_div
from workbench.model.problem import ProblemError, Tier
from workbench.toolchain.compiler import translate_source

PROBLEMS = [
    Conv2dProblem(images=2, height=9, width=8, channels=8, filters=9, bias=True, activation=Activation.RELU, seed=1),
    Conv2dProblem(height=9, width=11, channels=3, filters=8, taps_x=5, stride_y=2, dilation_x=2, dtype="fp16", seed=2),
    Conv2dProblem(images=2, height=8, width=9, channels=4, filters=3, groups=3, layout=Layout.NCHW, seed=3),
    Conv2dProblem(height=9, width=9, filters=1, groups=16, bias=True, activation=Activation.GELU, dtype="fp32", seed=4),
    Conv2dProblem(height=12, width=12, channels=16, filters=8, stride_y=2, stride_x=2, pad_y=0, pad_x=2, seed=5),
]


@pytest.mark.parametrize(
    ("stride", "pad", "dilation", "groups"),
    [((1, 1), (0, 0), (1, 1), 1), ((2, 1), (1, 0), (1, 3), 2), ((1, 3), (2, 4), (2, 1), 3)],
)
def test_the_reference_is_the_sum_over_taps_and_channels(rng, stride, pad, dilation, groups):
    x, f = rng.integers(-3, 4, (2, 7, 9, groups, 3)), rng.integers(-3, 4, (groups, 2, 3, 2, 3))
    found = reference.conv2d(x, f, stride=stride, pad=pad, dilation=dilation)
    reach = [dilation[0] * 2 + 1, dilation[1] + 1]
    size = [(n + 2 * p - m) // s + 1 for n, p, m, s in zip((7, 9), pad, reach, stride, strict=True)]
    assert found.shape == (2, *size, groups, 2)
    for n, p, q, g, k in np.ndindex(found.shape):
        total = 0
        for r, s in itertools.product(range(3), range(2)):
            row, column = p * stride[0] - pad[0] + r * dilation[0], q * stride[1] - pad[1] + s * dilation[1]
            if 0 <= row < 7 and 0 <= column < 9:
                total += int(x[n, row, column, g] @ f[g, k, r, s])
        assert found[n, p, q, g, k] == total


def test_depthwise_is_a_group_a_channel(rng):
    x, f = rng.integers(-3, 4, (2, 7, 9, 5, 1)), rng.integers(-3, 4, (5, 1, 3, 3, 1))
    alone = [reference.conv2d(x[..., g : g + 1, :], f[g : g + 1], pad=(1, 1)) for g in range(5)]
    assert np.array_equal(reference.conv2d(x, f, pad=(1, 1)), np.concatenate(alone, axis=3))


def test_bias_and_activation_follow_the_sum():
    x = np.array([-1.0, 0.0, 0.5, 2.0]).reshape(1, 1, 4, 1, 1)
    f, bias = np.ones((1, 1, 1, 1, 1)), np.array([[-0.5]])
    sums = [-1.5, -0.5, 0.0, 1.5]
    for activation, wanted in {
        "none": sums,
        "relu": [0.0, 0.0, 0.0, 1.5],
        "gelu": [z * (0.5 + math.erf(z / 2**0.5) / 2) for z in sums],
    }.items():
        found = reference.conv2d(x, f, bias, activation=activation)
        assert found.ravel() == pytest.approx(wanted, abs=1e-15)


def test_gelu_of_the_exact_tier_is_exact():
    problem = dataclasses.replace(PROBLEMS[3], tier=Tier.EXACT)
    inputs = problem.inputs()
    linear = dataclasses.replace(problem, activation=Activation.RELU)
    assert np.array_equal(problem.reference(inputs)["y"], linear.reference(inputs)["y"])
    assert np.any(problem.reference(inputs)["y"] > 0)


@pytest.mark.parametrize("tier", [Tier.EXACT, Tier.BOUNDED])
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_every_wrong_answer_is_rejected(problem, tier):
    rejected, accepted = Case.of(problem.with_tier(tier)).negative_controls()
    assert accepted == []
    assert rejected >= 14


def test_what_is_no_convolution_and_what_32_bits_do_not_count_is_said():
    with pytest.raises(ProblemError, match="filters of 3x3 taps, 6 and 1 apart, are larger than the image of 8x8"):
        Conv2dProblem(height=8, width=8, dilation_y=6)
    with pytest.raises(ProblemError, match="stride_x is 0"):
        Conv2dProblem(stride_x=0)
    large = Conv2dProblem(images=2**20, height=64, width=64)
    with pytest.raises(OverflowError):
        sizes(large)
    for stage in CONV2D.stages:
        assert stage.supports(large) or "an argument does not hold its number" in str(stage.beyond_limits(large))


def test_the_suite_is_that_of_the_catalogue():
    for problem, (n, c, hw, k, taps, stride, _, groups) in zip(CONV2D.suite, SHAPES, strict=True):
        arrays = problem.arrays()
        assert arrays["x"].shape == (n, hw, hw, c) and arrays["f"].shape == (k, taps, taps, c // groups)
        assert arrays["y"].shape == (n, hw // stride, hw // stride, k)


@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
@pytest.mark.parametrize("activation", ["none", "gelu"])
def test_conv2d_of_arrays(place, rng, layout, activation):
    x, f = (rng.standard_normal(shape).astype(BF16.numpy) for shape in ((2, 9, 7, 6), (8, 3, 2, 3)))
    bias = rng.standard_normal(8).astype(BF16.numpy)
    given = [a if layout == "nhwc" else a.transpose(0, 3, 1, 2) for a in (x, f)]
    how = {"stride": (2, 1), "padding": (1, 0), "dilation": 2}
    found = ops.conv2d(*map(place.upload, (*given, bias)), **how, groups=2, activation=activation, layout=layout)
    right = reference.conv2d(
        x.reshape(2, 9, 7, 2, 3),
        f.reshape(2, 4, 3, 2, 3),
        bias.reshape(2, 4),
        stride=(2, 1),
        pad=(1, 0),
        dilation=(2, 2),
        activation=activation,
    )
    y = place.download(found).astype(np.float64)
    assert np.allclose(
        y if layout == "nhwc" else y.transpose(0, 2, 3, 1), right.reshape(*right.shape[:3], 8), 0.01, 0.03
    )


def test_a_convolution_of_one_tap_is_a_product(place, rng):
    x, f, bias = (rng.standard_normal(shape).astype(BF16.numpy) for shape in ((2, 9, 7, 72), (200, 1, 1, 72), 200))
    given = [place.upload(array) for array in (x, f, bias)]
    assert ops.conv2d.prepare(*given, activation="gelu").stage.operation == "gemm"
    assert ops.conv2d.prepare(*given, stride=2).stage.operation == "conv2d"
    odd = [place.upload(np.zeros(shape, BF16.numpy)) for shape in ((2, 100, 90, 7), (9, 1, 1, 7))]
    assert ops.conv2d.prepare(*odd).stage.operation == "conv2d"  # rows of so many pixels begin anywhere
    assert ops.load("conv2d", stage="im2col_tma", unverified=True).prepare(*given).stage.operation == "conv2d"
    found = place.download(ops.conv2d(*given, activation="gelu")).astype(np.float64)
    right = reference.conv2d(x[..., None, :], f[None], bias[None], activation="gelu")[..., 0, :]
    assert found.shape == right.shape and np.allclose(found, right, 0.01, 0.03)


def test_the_numpy_baseline_is_right_and_the_others_say_what_they_round():
    baselines = {b.name: b for b in registry.operations()["conv2d"].baselines}
    for problem in PROBLEMS:
        assert workbench.baseline_error(baselines["NumPy"], problem) == ""
    for problem in CONV2D.suite:
        assert all(baselines[name].refuses(problem) is None for name in ("cuDNN", "PyTorch", "Triton"))
    biased, gelu = PROBLEMS[0], dataclasses.replace(PROBLEMS[3], dtype="fp16")
    assert baselines["cuDNN"].refuses(biased) is None  # with ReLU both are in the call
    assert "before the bias is added" in str(baselines["PyTorch"].refuses(biased))
    assert "before it goes through GELU" in str(baselines["cuDNN"].refuses(gelu))


def _stage(name, **parameters):
    return next(stage for stage in CONV2D.stages if stage.name == name).with_parameters(parameters)


ODD = Conv2dProblem(images=2, height=9, width=11, channels=8, filters=9, stride_x=2, dilation_y=2, groups=1)


def _run(stage, problem, inputs, device):
    """The output of a stage for inputs that no problem draws."""
    arrays = problem.arrays()
    storage = {name: array.poisoned() if array.output else array.pack(inputs[name]) for name, array in arrays.items()}
    compiled = translate_source(stage.path, stage.defines(problem))
    bound = open_device(device).bind(compiled, stage.plan(problem), arrays, storage)
    try:
        bound.run()
        return arrays["y"].view(bound.read("y"))
    finally:
        bound.close()


ALONE = {"channels": 1, "filters": 1, "groups": 8}
SPECIAL = {
    "depthwise": ALONE,
    "depthwise_tma": ALONE | {"dilation_y": 1},
    "pointwise": dict.fromkeys(("taps_y", "taps_x"), 1) | dict.fromkeys(("pad_y", "pad_x"), 0),
}
"""What stages take that do not take every convolution of 8 channels."""

DEVICES = ["emulator", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", [stage.name for stage in CONV2D.stages])
def test_what_is_not_finite_reaches_the_outputs_that_see_it_and_no_others(name, device):
    size = {"images": 2, "height": 9, "width": 11, "stride_x": 2, "dilation_y": 2, "activation": Activation.RELU}
    problem = Conv2dProblem(**size | {"channels": 8, "filters": 9} | SPECIAL.get(name, {}))
    inputs = {name: values.astype(np.float64) for name, values in problem.inputs().items()}
    middle = problem.taps_y // 2, problem.taps_x // 2
    inputs["x"][0, 4, 6, 3], inputs["x"][1, 0, 0, 7], inputs["f"][5, *middle, 0] = np.nan, np.inf, -np.inf
    inputs = {name: values.astype(BF16.numpy) for name, values in inputs.items()}
    y = _run(_stage(name), problem, inputs, device).astype(np.float64)
    right = problem.reference(inputs)["y"]
    assert np.array_equal(np.isfinite(y), np.isfinite(right)) and 0 < np.isfinite(right).mean() < 1
    assert np.array_equal(np.isnan(y), np.isnan(right)) and np.isnan(right).any()


@pytest.fixture
def much_memory(tmp_path_factory):
    """Tests that take much memory take turns, also those of other workers of pytest-xdist; what a GPU lent for one is
    given back."""
    folder = tmp_path_factory.getbasetemp()
    with (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder).joinpath("much-memory").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
        import cupy

        cupy.get_default_memory_pool().free_all_blocks()


@pytest.mark.gpu
@pytest.mark.usefixtures("much_memory")
@pytest.mark.parametrize("name", [stage.name for stage in CONV2D.stages])
def test_arrays_of_more_elements_than_32_bits_count(name):
    """x and y have 2.15 billion elements; what is not 0 is at their end."""
    split = ALONE if name.startswith("depthwise") else {"channels": 8, "filters": 8}
    along = {"taps_y": 2 if name == "halo" else 1, "taps_x": 1} | dict.fromkeys(("pad_y", "pad_x"), 0)
    problem = Conv2dProblem(height=16400, width=16384, **along, **split)
    inputs = {name: np.zeros(array.shape, BF16.numpy) for name, array in problem.arrays().items() if array.given}
    assert inputs["x"].size > 2**31
    inputs["x"][0, -1, -1], inputs["f"][...] = 1, 3
    y = _run(_stage(name), problem, inputs, "cuda")
    assert np.array_equal(y[0, -1, -1].astype(np.float64), np.full(8, 3.0 * problem.channels))
    assert not y.view(np.uint16)[0, :-1].any() and not y.view(np.uint16)[0, -1, :-1].any()


TILES_OF_SIXTEENS = ((64, 64), (80, 240), (128, 32), (144, 48), (192, 176), (208, 80), (240, 16), (256, 176))
CUT = {"height": 11, "width": 16, **ALONE, "groups": 24, "stride_y": 2, "stride_x": 2, "dtype": "fp16"}
TALL = {"images": 1, "height": 81, "width": 47, **ALONE, "groups": 56, "stride_y": 2, "stride_x": 2, "bias": False}
COLUMN = {"height": 13, "width": 11, "channels": 24, "taps_x": 1, "pad_x": 0}
"""Other taps than of a column are other coordinates of a box, whatever its size."""


@pytest.mark.parametrize(
    ("name", "parameters", "fields"),
    [
        ("depthwise_tma", {"COLUMNS": 7, "STRIPS": 1}, CUT),
        ("depthwise_tma", {"COLUMNS": 1, "STRIPS": 5, "BAND": 4}, CUT),
        # several warps, the last one in part, share buffers that are filled more than once
        ("depthwise_tma", {"COLUMNS": 4, "STRIPS": 7, "BAND": 40}, TALL),
        ("halo", {"TILE_M": 128, "WIDE": 1}, {"height": 12, "width": 17, "channels": 72, "filters": 24}),
        (
            "split_k",
            {"SPLITS": 5, "TILE_M": 128, "TILE_N": 64},
            {"channels": 72, "filters": 80, "taps_y": 2},
        ),
        *(  # 1, 1, 2 and 3 times 16 channels are multiplied only once, however blocks share them
            (
                "flexible_tiles",
                {"SPLITS": 3, "TILE_M": 80, "TILE_N": 48},
                {"channels": channels, "filters": 40, "taps_y": 2, "taps_x": 2},
            )
            for channels in (104, 112, 96, 80, 64, 40)
        ),
        (  # its tiles end with a group
            "flexible_tiles",
            {"TILE_M": 64, "TILE_N": 112},
            {"height": 6, "width": 6, "channels": 64, "filters": 128, "groups": 2, **SPECIAL["pointwise"]},
        ),
        *(  # boxes of 32, 16 and 8 channels, of which a k-tile has several taps, shared and not
            (name, {"SPLITS": splits, "TILE_M": height, "TILE_N": 48}, {"channels": channels, "filters": 40})
            for name, splits, height, channels in (
                ("several_taps", 2, 128, 32),
                ("several_taps", 1, 192, 48),
                ("several_taps", 1, 256, 24),
                ("padded_taps", 2, 128, 30),
            )
        ),
        *(
            (name, {"TILE_M": height, "TILE_N": width}, {**COLUMN, "filters": width + 40})
            for name, tiles in (
                ("im2col_tma", TILES),
                ("ping_pong", TILES_OF_ONE),
                ("flexible_tiles", TILES_OF_SIXTEENS),
            )
            for height, width in tiles
        ),
    ],
    ids=str,
)
def test_a_stage_of_any_sizes_is_right(name, parameters, fields):
    problem = Conv2dProblem(**{"images": 2, "height": 9, "width": 9, "bias": True, **fields})
    assert workbench.verify(_stage(name, **parameters), device="emulator", problem=problem).ok


def test_a_tile_is_chosen_of_which_multiprocessors_have_as_many():
    chosen = {(p.filters, p.height): _stage("im2col_tma").sizes(p) for p in CONV2D.suite[:4] + CONV2D.suite[5:8]}
    tiles = {key: (size["BLOCK_M"], size["BLOCK_N"]) for key, size in chosen.items()}
    assert tiles[256, 56] == (128, 256) and tiles[320, 64] == (256, 160) and tiles[64, 56] == (256, 64)
    assert tiles[256, 28] == (128, 128)  # 392 tiles, 2.97 a multiprocessor, where 196 wide ones are 1.48


BROKEN = {
    "few_channels": {"channels": 5},
    "narrow_copies": {"channels": 4},
    "depthwise": ALONE | {"groups": 24},
    "depthwise_tma": ALONE | {"images": 1, "height": 420, "width": 3},  # every buffer is filled several times
    "pointwise": SPECIAL["pointwise"] | {"channels": 40, "filters": 9},
    "halo": {"channels": 328},
    "several_taps": {"channels": 48},
    "naive": {"images": 1, "channels": 6, "filters": 8, "groups": 2, "stride_y": 2, "dilation_y": 3, "pad_y": 2},
}
"""What those have that do not have 136 channels of images of 9 x 9."""


@pytest.mark.parametrize(
    ("name", "right", "broken", "verdict"),
    [
        ("tensor_core", "there && c.inside(origin.top + down, origin.left + right)", "there", "out_of_bounds"),
        ("tensor_core", "  cp_async_wait<STAGES - 2>();", "", "in_flight"),
        ("tensor_core", "const bool there = channel < c.group_channels;", "const bool there = true;", "out_of_bounds"),
        ("few_channels", "there ? filters : 0", "there ? filters - 1 : 0", "mismatch"),
        ("few_channels", "there ? filters : 0", "filters", "out_of_bounds"),
        ("few_channels", "    __syncthreads();  // the distances", "    // the distances", "uninitialised"),
        ("few_channels", "    __syncthreads();  // this k-tile", "    // this k-tile", "race"),
        ("narrow_copies", "    cp_async_wait<BUFFERS - 2>();\n", "", "in_flight"),
        ("narrow_copies", "  __syncthreads();  // everyone is done with the k-tiles\n", "", "race"),
        ("depthwise", "if (column + i >= c.columns) break;", "", "race"),
        ("depthwise", "static_cast<unsigned>(at) < static_cast<unsigned>(c.width)", "true", "out_of_bounds"),
        ("depthwise_tma", "  memory.ring.wait(from);\n  load(0);", "  load(0);", "race"),
        ("depthwise_tma", "  mbarrier_wait(memory.weighted, 0);\n", "", "in_flight"),
        ("depthwise_tma", "        memory.ring.release(from.stage);\n", "", "deadlock"),
        ("depthwise_tma", "            if (q < stored)\n", "", "race"),
        ("pointwise", "pixel < c.pixels && channel < CHANNELS", "channel < CHANNELS", "out_of_bounds"),
        ("pointwise", "channel < CHANNELS && filter < FILTERS", "channel < CHANNELS", "out_of_bounds"),
        ("halo", "channel < c.group_channels && c.inside(down, right)", "channel < c.group_channels", "out_of_bounds"),
        ("halo", "      cp_async_wait<STAGES - 2>();\n", "", "in_flight"),
        ("halo", "      __syncthreads();  // these filters", "      // these filters", "race"),
        ("split_k", "  named_sync<THREADS>(NAME);  // all have", "  // all have", "race"),
        ("split_k", "first = static_cast<long long>(all) * split / g.splits;", "first = 0;", "mismatch"),
        ("im2col_tma", "      consumed.release_previous();\n", "", "deadlock"),
        ("im2col_tma", "      wgmma_wait<0>();\n", "", "accumulator_in_flight"),
        ("im2col_tma", "          turn ^= 1;\n", "", "in_flight"),
        ("im2col_tma", "g.bias && at < g.c.filters ?", "g.bias ?", "out_of_bounds"),
        ("ping_pong", "      consumed.pass();\n", "", "deadlock"),
        ("im2col_tma", "r * c.dilation_y, s * c.dilation_x", "s * c.dilation_y, r * c.dilation_x", "mismatch"),
        ("several_taps", "s == c.taps_x) s = 0, ++r", "s == c.taps_x) s = 0", "mismatch"),
        ("several_taps", " << 2 >> 2 | SWIZZLE << 62", "", "descriptor"),
        ("naive", "r * c.dilation_y", "r * c.stride_y", "mismatch"),
        ("naive", "weights + r * at.f_row", "weights + (c.taps_y - 1 - r) * at.f_row", "mismatch"),
        ("naive", "n < c.group_channels", "n < c.group_channels - (c.group_channels > 1)", "mismatch"),
        ("naive", "filter / c.group_filters * c.group_channels", "0", "mismatch"),
        ("naive", "if (!c.inside(i, j)) continue;", "if (!c.inside(i, j - 1)) continue;", "out_of_bounds"),
        ("naive", "completed(sum, bias, filter)", "activate<ACTIVATION>(sum)", "mismatch"),
    ],
)
def test_a_hazard_or_fault_of_a_kernel_is_named(name, right, broken, verdict):
    size = {"images": 4, "height": 9, "width": 9, "channels": 136, "filters": 16, "bias": True}
    problem = Conv2dProblem(**size | BROKEN.get(name, {}))
    assert broken_verdict(_stage(name), right, broken, problem=problem) == verdict


def test_what_an_im2col_map_does_not_reach_is_said():
    assert im2col(ODD) is None
    for fields, words in (
        ({"stride_y": 9, "height": 20}, "at most 8 pixels"),
        ({"pad_x": 129}, "corners of 8 bits"),
        ({"dilation_y": 65, "height": 300}, "corners of 8 bits"),
    ):
        assert words in (im2col(dataclasses.replace(ODD, **fields)) or "")
    stage = _stage("im2col_tma")
    for fields, words in (
        ({"channels": 12}, "16 bytes of a pixel are 8 channels of a group, which has 12"),
        ({"groups": 2}, "would reach into the next group"),
        ({"dtype": "fp32"}, "not fp32"),
        ({"layout": Layout.NCHW}, "layout nhwc"),
    ):
        assert words in (stage.supports(dataclasses.replace(ODD, **fields)) or "")
    assert stage.supports(dataclasses.replace(ODD, channels=64, filters=64, groups=2)) is None
    assert "one channel and one filter" in str(_stage("depthwise").supports(ODD))


def test_the_stage_that_is_preferred_takes_the_problem():
    def chosen(**fields):
        return ops.choose("conv2d", Conv2dProblem(**{"height": 9, "width": 9} | fields), 90, 16).name

    assert chosen(channels=64, filters=64) == "ping_pong"
    assert chosen(images=300, channels=512, filters=512) == "im2col_tma"
    assert chosen(channels=64, filters=64, stride_x=9) == "narrow_copies"
    assert chosen(images=300, channels=3, filters=16) == "few_channels"
    assert chosen(channels=16, filters=16, dtype="fp32") == chosen(channels=3, layout=Layout.NCHW) == "smem_tiling"
    assert chosen(groups=16) == "depthwise_tma" and chosen(groups=15) == chosen(groups=16, dilation_x=2) == "depthwise"
    assert chosen(channels=32, filters=16, **SPECIAL["pointwise"]) == "pointwise"
    assert chosen(channels=64, filters=64, **SPECIAL["pointwise"]) == "im2col_tma"  # boxes of TMA are full
    wide = {"images": 56, "taps_y": 5, "taps_x": 5, "pad_y": 2, "pad_x": 2, "channels": 80, "filters": 8}
    assert chosen(height=32, width=32, **wide) == "halo"
    assert chosen(**wide) == "flexible_tiles"  # rectangles of 8 x 16 would be mostly outside
    assert chosen(images=24, height=120, width=120, channels=32, filters=72) == "several_taps"
    assert chosen(images=8, height=48, width=48, channels=30, filters=96, taps_y=5, pad_y=2) == "padded_taps"


def test_blocks_of_depthwise_tma_are_cut_for_registers_and_for_few_images():
    stage = _stage("depthwise_tma")
    catalogue, alone = CONV2D.suite[9], dataclasses.replace(CONV2D.suite[9], images=1)
    size = stage.sizes(catalogue)
    assert size["COLUMNS"] == 2 and size["BAND"] == 56  # more sums would leave a multiprocessor 8 warps
    assert stage.plan(catalogue).launches[0].grid[0] == 32 * 6 * 28 // size["STRIPS"]
    assert stage.sizes(alone)["BAND"] < 28 and stage.plan(alone).launches[0].grid[0] > 132
    assert stage.with_parameters({"COLUMNS": 7}).constraint(catalogue, {"COLUMNS": 7, "STRIPS": 0, "BAND": 0})
    for fields, words in (
        ({"taps_x": 9}, "no registers for 3 x 9 taps"),
        ({"stride_y": 3}, "strides to be at most 2"),
        ({"groups": 12}, "a multiple of 16 bytes"),
    ):
        problem = Conv2dProblem(**{"height": 9, "width": 9, "groups": 16} | fields)
        assert words in str(stage.supports(problem))


def test_warps_of_halo_have_more_outputs_where_blocks_are_many():
    few = Conv2dProblem(images=1, height=89, width=89, channels=56, filters=32, taps_y=5, taps_x=5, pad_y=2, pad_x=2)
    stage, many = _stage("halo"), dataclasses.replace(few, images=32)
    assert (stage.sizes(few)["WARPS_M"], stage.sizes(many)["WARPS_M"]) == (4, 4)
    assert (stage.sizes(few)["BLOCK_M"], stage.sizes(many)["BLOCK_M"]) == (64, 128)


def test_the_least_bytes_are_those_of_pixels_and_taps_that_meet(rng):
    for _ in range(300):
        drawn = rng.integers([1, 1, 1, 1, 0, 1], [12, 8, 6, 5, 7, 5])
        extent, windows, taps, stride, pad, dilation = (int(n) for n in drawn)
        meetings = [(p * stride - pad + r * dilation, r) for p in range(windows) for r in range(taps)]
        inside = [(pixel, tap) for pixel, tap in meetings if 0 <= pixel < extent]
        wanted = len({pixel for pixel, _ in inside}), len({tap for _, tap in inside})
        assert touched(extent, windows, taps, stride, pad, dilation) == wanted


def test_a_filter_of_one_tap_and_stride_2_reads_a_quarter_of_the_pixels():
    strided = Conv2dProblem(images=64, height=56, width=56, channels=256, filters=512)
    strided = dataclasses.replace(strided, taps_y=1, taps_x=1, stride_y=2, stride_x=2, pad_y=0, pad_x=0, bias=True)
    assert strided.cost.bytes == 2 * (64 * 28 * 28 * 256 + 256 * 512 + 512 + 64 * 28 * 28 * 512)
    one = Conv2dProblem(images=3, channels=5, filters=7, groups=2)  # of 3 x 3 taps one lies on the pixel
    assert one.cost.bytes == 2 * (3 * 10 + 14 * 5 + 3 * 14)


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"images": 1, "channels": 342, "filters": 16, "taps": 5}, "narrow_copies"),  # few tiles, long k
        ({"images": 4, "channels": 8, "filters": 24, "taps": 5}, "narrow_copies"),  # boxes of 64 would be empty
        ({"images": 8, "channels": 15, "filters": 16, "taps": 5}, "padded_taps"),  # k-tiles would be empty
        ({"images": 8, "channels": 15, "filters": 16, "taps": 5, "groups": 2}, "padded_channels"),
        ({"images": 4, "channels": 456, "filters": 176, "taps": 5}, "flexible_tiles"),  # no copy for whole eights
        ({"images": 64, "channels": 250, "filters": 250}, "padded_im2col"),
    ],
)
def test_layers_that_tma_cannot_take_or_fill_are_copied(fields, wanted):
    taps = fields.pop("taps", 3)
    problem = Conv2dProblem(height=48, width=48, taps_y=taps, taps_x=taps, pad_y=taps // 2, pad_x=taps // 2, **fields)
    assert ops.choose("conv2d", problem, 90, 16).name == wanted
    assert ops.choose("conv2d", problem, 90, 2).name == "smem_tiling"  # elements lie anywhere


@pytest.mark.long
@pytest.mark.parametrize(("splits", "channels"), [(2, 36), (7, 21)])  # 9 k-tiles, and 5
def test_blocks_that_share_k_add_up_all_of_it(splits, channels):
    stage = _stage("narrow_copies").with_parameters({"SPLITS": splits, "TILE_M": 128, "TILE_N": 32})
    problem = Conv2dProblem(images=2, height=9, width=9, channels=channels, filters=33, taps_y=5, pad_y=2, bias=True)
    tiles, blocks = stage.plan(problem).launches[0].grid[:2]
    assert (tiles, blocks) == (4, splits if splits == 2 else 5)
    assert workbench.verify(stage, device="emulator", problem=problem).ok


def test_few_tiles_are_shared_among_blocks_and_many_are_not():
    few = Conv2dProblem(height=64, width=64, channels=424, filters=88, taps_y=5, taps_x=5, pad_y=2, pad_x=2)
    *tile, shares = fitted_to_shares(few)
    assert shares > 1 and 100 <= few.tiles(*tile) * shares <= H200.multiprocessors
    assert [fitted_to_shares(p)[2] for p in CONV2D.suite[:8]] == [1] * 8
    assert _stage("split_k").plan(few).launches[0].grid == (few.tiles(*tile) * shares, 1, 1)


def test_flexible_tiles_fit_filters_and_multiprocessors():
    for filters, channels, height in ((72, 304, 121), (504, 72, 64), (96, 256, 75)):
        problem = Conv2dProblem(images=7, height=height, width=height, channels=channels, filters=filters)
        size = _stage("flexible_tiles").sizes(problem)
        tiles = problem.tiles(size["BLOCK_M"], size["BLOCK_N"])
        assert -filters % size["BLOCK_N"] < 32
        assert tiles / (ceil_div(tiles, H200.multiprocessors) * H200.multiprocessors) > 0.9
    assert ops.choose("conv2d", problem, 90, 16).name == "flexible_tiles"


def test_a_padded_array_has_the_channels_and_zeros():
    problem = Conv2dProblem(height=3, width=5, channels=5, filters=2, groups=3, taps_y=2, dtype="fp16")
    launch, arrays = pad_channels(problem, padded(problem))
    assert {name: array.shape for name, array in arrays.items()} == {
        "padded_x": (1, 3, 5, 24),
        "padded_f": (6, 2, 3, 8),
    }
    assert launch.grid[0] * THREADS >= 3 * 5 * 3 + 6 * 2 * 3  # a vector a pixel of a group, and a tap of a filter
    assert no_eights(problem) is None and "nothing is to be padded" in (no_eights(padded(problem)) or "")
    wide, arrays = pad_channels(problem, padded(problem, 64))
    assert (arrays["padded_x"].shape, arrays["padded_f"].shape) == ((1, 3, 5, 192), (6, 2, 3, 64))
    assert wide.grid[0] > launch.grid[0] and no_k_tiles(padded(problem, 64)) and not no_k_tiles(padded(problem))

"""im2col maps over random corners, strides and offsets: the emulator and a GPU against windows that NumPy takes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from trials import Trial, launch

from workbench.devices import Device, open_device
from workbench.model.launch import ceil_div
from workbench.model.tensor_map import Im2col, TensorMap

PIXELS = 24
RUNS = range(24)


@pytest.fixture(params=["emulator", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Device:
    return open_device(request.param)


def drawn(seed: int) -> Trial:
    """A tile of a random map that begins at a random pixel, and what is in it: the pixel of each output of a
    convolution whose windows begin at `lower`, `steps` apart, as far as `upper`, moved by the offsets of a tap."""
    rng = np.random.default_rng(seed)
    space, channels = int(rng.integers(1, 4)), int(rng.choice([4, 8]))
    sizes = [int(n) for n in rng.integers(1, 10, space)]
    lower = [int(n) for n in rng.integers(-2, 2, space)]
    # at least one window along each dimension
    upper = [int(rng.integers(max(-2, low - size + 1), 3)) for low, size in zip(lower, sizes, strict=True)]
    steps, offsets = ([int(n) for n in rng.choice(of, space)] for of in ([1, 1, 2, 3, 8], [0, 1, 1, 2, 3]))
    images, most = int(rng.integers(1, 4)), int(rng.choice([4, 8, 12]))
    x = rng.standard_normal((images, *sizes, most)).astype(np.float32)

    counts = [ceil_div(n + u - low, step) for n, u, low, step in zip(sizes, upper, lower, steps, strict=True)]
    outputs = list(itertools.product(range(images), *map(range, counts)))
    start = int(rng.integers(max(1, len(outputs) // 2)))
    channel = 4 * int(rng.integers(most // 4))
    tile = np.zeros((PIXELS, channels), np.float32)
    for row, (image, *output) in enumerate(outputs[start : start + PIXELS]):
        place = [low + o * step + by for low, o, step, by in zip(lower, output, steps, offsets, strict=True)]
        if all(0 <= at < n for at, n in zip(place, sizes, strict=True)):
            seen = x[(image, *place)][channel : channel + channels]
            tile[row, : len(seen)] = seen
    image, *first = outputs[start]
    at = [image, *(low + o * step for low, o, step in zip(lower, first, steps, strict=True)), channel, *offsets]
    box = Im2col(tuple(lower), tuple(upper), channels, PIXELS)
    tensor_map = TensorMap("from", box, swizzle=0, element_strides=(1, *steps, 1))
    given = launch("multicast", 32, tensor_map, "image", "at", blocks=2, cluster=2)
    inputs = {"from": x, "at": np.array(at, np.int64).astype(np.uint32)}
    expected = {"image": tile.view(np.uint32).reshape(-1)}
    return Trial("tma_im2col.cu", given, inputs, expected, {"RANK": space + 2, "WORDS": tile.size})


@pytest.mark.parametrize("seed", RUNS)
def test_a_tile_has_the_windows_of_a_convolution(seed: int, device: Device) -> None:
    drawn(seed).run(device)


def test_the_tiles_are_partly_outside_and_go_on_into_other_images() -> None:
    """What is drawn is worth drawing: most tiles have zeros and numbers, and every rank occurs."""
    trials = [drawn(seed) for seed in RUNS]
    filled = [np.count_nonzero(t.expected["image"]) / t.expected["image"].size for t in trials]
    assert sum(0 < share < 1 for share in filled) >= 12
    assert {t.defines["RANK"] for t in trials} == {3, 4, 5}

"""`workbench.ops.conv2d` against cuDNN on layers of known networks and on the timed problems of the operation: makes
`reports/conv2d-layers.md`.

    python benchmarks/conv2d_layers.py measure OUTPUT.json [--only resnet50 suite ...]   # on a machine with a GPU
    python benchmarks/conv2d_layers.py write [OUTPUT.json]                               # the page, of that file alone

Five layers of each network are drawn with a seed, so that nobody chooses them; of the timed problems all ten are taken.
Each is solved by the stage that `workbench.ops` chooses for it on that device, timed cold and interleaved with cuDNN as
in every bench, and its answer is compared with NumPy's again afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import recorded
from gemm_suite import Product, compared, measure

from workbench.kernels.conv2d import CONV2D, Conv2dProblem

RECORD = Path(__file__).parents[1] / "reports/conv2d-layers.json"

SEED, DRAWN = 37, 5
"""Of the drawing, and how many layers of each network."""

Layer = tuple[int, int, int, int, int, int]
"""All channels, height and width, all filters, taps, stride, groups. Odd taps are padded by
their half, even ones not."""

NETWORKS: dict[str, tuple[int, tuple[Layer, ...]]] = {
    "resnet50": (
        64,
        (
            (3, 224, 64, 7, 2, 1),
            (64, 56, 64, 1, 1, 1),
            (64, 56, 64, 3, 1, 1),
            (64, 56, 256, 1, 1, 1),
            (256, 56, 64, 1, 1, 1),
            (256, 56, 128, 1, 1, 1),
            (128, 56, 128, 3, 2, 1),
            (256, 56, 512, 1, 2, 1),
            (128, 28, 128, 3, 1, 1),
            (128, 28, 512, 1, 1, 1),
            (512, 28, 128, 1, 1, 1),
            (256, 28, 256, 3, 2, 1),
            (512, 28, 1024, 1, 2, 1),
            (256, 14, 256, 3, 1, 1),
            (256, 14, 1024, 1, 1, 1),
            (1024, 14, 256, 1, 1, 1),
            (512, 14, 512, 3, 2, 1),
            (1024, 14, 2048, 1, 2, 1),
            (512, 7, 512, 3, 1, 1),
            (512, 7, 2048, 1, 1, 1),
        ),
    ),
    "convnext": (
        64,
        (
            (3, 224, 96, 4, 4, 1),
            (96, 56, 96, 7, 1, 96),
            (96, 56, 384, 1, 1, 1),
            (384, 56, 96, 1, 1, 1),
            (96, 56, 192, 2, 2, 1),
            (192, 28, 192, 7, 1, 192),
            (192, 28, 768, 1, 1, 1),
            (192, 28, 384, 2, 2, 1),
            (384, 14, 384, 7, 1, 384),
            (1536, 14, 384, 1, 1, 1),
            (384, 14, 768, 2, 2, 1),
            (768, 7, 768, 7, 1, 768),
        ),
    ),
    "unet": (
        8,
        (
            (4, 64, 320, 3, 1, 1),
            (320, 64, 320, 3, 1, 1),
            (320, 64, 320, 3, 2, 1),
            (320, 32, 640, 3, 1, 1),
            (640, 32, 640, 3, 1, 1),
            (1280, 16, 1280, 3, 1, 1),
            (2560, 16, 1280, 3, 1, 1),
            (1920, 32, 640, 3, 1, 1),
            (960, 64, 320, 3, 1, 1),
            (640, 64, 320, 1, 1, 1),
            (1280, 8, 1280, 3, 1, 1),
            (320, 64, 4, 3, 1, 1),
        ),
    ),
    "efficientnet": (
        64,
        (
            (3, 224, 32, 3, 2, 1),
            (32, 112, 32, 3, 1, 32),
            (32, 112, 16, 1, 1, 1),
            (16, 112, 96, 1, 1, 1),
            (96, 112, 96, 3, 2, 96),
            (24, 56, 144, 1, 1, 1),
            (144, 56, 144, 5, 2, 144),
            (240, 28, 240, 3, 2, 240),
            (80, 14, 480, 1, 1, 1),
            (672, 14, 672, 5, 2, 672),
            (192, 7, 1152, 1, 1, 1),
            (320, 7, 1280, 1, 1, 1),
        ),
    ),
}
"""ResNet-50, ConvNeXt-T, the U-Net of Stable Diffusion 1 and EfficientNet-B0: images, and convolutions that differ."""


def problem(images: int, layer: Layer) -> Conv2dProblem:
    """A layer of so many images, in bf16."""
    channels, extent, filters, taps, stride, groups = layer
    numbers = {"taps": taps, "stride": stride, "pad": taps // 2 if taps % 2 else 0}
    along: dict[str, Any] = {f"{name}_{axis}": value for name, value in numbers.items() for axis in "yx"}
    size: dict[str, Any] = {"channels": channels // groups, "filters": filters // groups, "groups": groups}
    return Conv2dProblem(images=images, height=extent, width=extent, **size, **along)


def layers(only: list[str]) -> Iterator[Product]:
    """Those that are drawn, of the networks that are named, or of all."""
    rng = np.random.default_rng(SEED)
    for network, (images, choice) in NETWORKS.items():
        for place in sorted(rng.choice(len(choice), DRAWN, replace=False)):
            if not only or network in only:
                yield "conv2d", problem(images, choice[place])


TIMED = "suite"
"""The group of the timed problems, beside the networks."""


def problems(only: list[str]) -> Iterator[Product]:
    """The layers that are drawn, and all timed problems; of the groups that are named, or of all."""
    yield from layers(only) if set(only) != {TIMED} else ()
    if not only or TIMED in only:
        yield from (("conv2d", timed) for timed in CONV2D.suite)


def page(record: dict[str, Any]) -> str:
    """The Markdown page."""
    suite = {str(timed): timed for timed in CONV2D.suite}
    drawn = [row for row in record["rows"] if row["problem"] not in suite]
    timed = [row for row in record["rows"] if row["problem"] in suite]
    dense = [row for row in timed if suite[row["problem"]].groups == 1]
    depthwise = [row for row in timed if row not in dense]
    parts = [
        "# Convolutions of known networks beside cuDNN\n",
        "Written by `benchmarks/conv2d_layers.py` from [the JSON beside it](conv2d-layers.json). Layers are drawn with "
        "a seed. Each is computed by the stage that `workbench.ops.conv2d` takes for it and timed interleaved with "
        "cuDNN; above 1 ours is faster. Cold: the L2 is flushed before each sample, medians; sustained: launches back "
        "to back.\n",
        recorded.made_on(record),
    ]
    if drawn:
        found = compared(drawn, "cuDNN")
        parts += [found.table, *found.means("layers")]
    if timed:
        found = compared(timed, "cuDNN")
        parts += [
            "## The timed problems\n",
            "Those of `workbench bench conv2d`, all of them.\n",
            found.table,
            *found.means("problems"),
            *compared(dense, "cuDNN").means("dense problems"),
            *compared(depthwise, "cuDNN").means("depthwise problems"),
        ]
    return "\n".join(parts)


if __name__ == "__main__":
    only = {"nargs": "*", "default": [], "choices": [*NETWORKS, TIMED]}
    recorded.main(__doc__, RECORD, lambda o: measure(o.file, problems(o.only)), page, only=only)

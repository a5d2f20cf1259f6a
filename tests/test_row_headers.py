"""The device headers of row operations, each in a kernel of its own, against NumPy: in the emulator, and on a GPU."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from functools import reduce

import numpy as np
import pytest
from test_headers import WRAPPER
from trials import SOURCES, Trial, distinct, launch, nothing, whole

from workbench import reference
from workbench.devices import Device, open_device
from workbench.model.dtypes import BF16, FP16, FP32
from workbench.toolchain.compiler import INCLUDE


def _composed(functions: np.ndarray) -> np.ndarray:
    """The functions x -> a x + b, (n, 2), one after the other."""
    return reduce(lambda f, g: np.array([g[0] * f[0], g[0] * f[1] + g[1]]), functions)


def _functions(count: int) -> np.ndarray:
    rng = np.random.default_rng(count)
    return np.stack([rng.choice([-1, 1], count), rng.integers(-2, 3, count)], axis=1).astype(np.float32)


def row_reduce() -> Iterator[Trial]:
    for members, holders in ((1, 32), (4, 64), (32, 64), (64, 64), (256, 256), (1024, 1024)):
        defines = {"OF_A_ROW": members, "HOLDERS": holders}
        x = whole((holders,), FP32, 3)
        groups = x.reshape(-1, members)
        y = np.stack([np.repeat(f(groups, axis=1), members) for f in (np.sum, np.max)], axis=1)
        yield Trial("row_reduce.cu", launch("reduced", holders, "x", "y"), {"x": x}, {"y": y}, defines)
        x = _functions(holders)
        y = np.concatenate([np.tile(_composed(group), (members, 1)) for group in x.reshape(-1, members, 2)])
        given = launch("ordered", holders, "x", "y")
        yield Trial("row_reduce.cu", given, {"x": x}, {"y": y.astype(np.float32)}, defines)
    y = np.array([0, -np.inf, np.nan], np.float32)
    yield Trial("row_reduce.cu", launch("empty", 1, "y"), {}, {"y": y}, {"OF_A_ROW": 32, "HOLDERS": 32})


def cluster_reduce() -> Iterator[Trial]:
    for blocks in (1, 2, 3, 8):
        x = _functions(blocks)
        y = np.tile(_composed(x), (blocks, 64, 1)).astype(np.float32)
        given = launch("reduced", 64, "x", "y", blocks=blocks, cluster=blocks)
        yield Trial("cluster_reduce.cu", given, {"x": x}, {"y": y}, {"BLOCKS": blocks})
        x = _functions(5 * blocks).reshape(5, blocks, 2)
        y = np.tile(np.array([_composed(turn) for turn in x])[:, None], (blocks, 1, 64, 1)).astype(np.float32)
        given = launch("in_turns", 64, "x", "y", np.int32(5), blocks=blocks, cluster=blocks)
        yield Trial("cluster_reduce.cu", given, {"x": x}, {"y": y.reshape(blocks, 5, 64, 2)}, {"BLOCKS": blocks})


def row() -> Iterator[Trial]:
    for dtype, count in ((FP32, 4), (FP16, 8), (BF16, 4)):
        defines = {"TYPE": dtype.cuda, "N": count}
        for start, to in ((0, 0), (1, 1), (count - 1, 2), (3, count + 3)):
            for columns in (1, 2, count - 1, count, 3 * count + 1, 40 * count):
                x = distinct((start + columns,), dtype)
                y = nothing((to + columns + 1,), dtype)
                y[to : to + columns] = x[start:]
                together = np.array([start % count == to % count, 4], np.uint32)
                even = start % count == to % count == columns % count == 0
                for part, whole_vectors in itertools.product((3, 64), range(1 + even)):
                    blocks = -(-(columns + count) // (count * part))
                    numbers = (np.int32(start), np.int32(to), np.int32(columns), np.int32(part))
                    given = launch("copy", 32, "x", "y", "together", *numbers, blocks=blocks)
                    arrays = {"y": y, "together": together}
                    yield Trial("row.cu", given, {"x": x}, arrays, defines | {"EVEN": whole_vectors})
        for start, columns, even in ((0, 5, 0), (3, 2 * count, 0), (1, 32 * count - 1, 0), (0, 3 * count, 1)):
            x = distinct((start + columns,), dtype)
            y = np.full(32 * count, 7, dtype.numpy)
            head = start % count
            y[head : head + columns] = x[start:]
            given = launch("loaded", 32, "x", "y", np.int32(start), np.int32(columns))
            yield Trial("row.cu", given, {"x": x}, {"y": y}, defines | {"EVEN": even})


def softmax_row() -> Iterator[Trial]:
    inf, nan = np.inf, np.nan
    x = np.array(
        [
            [0, 0, 0, 0, 0, 0, 0, 0],
            [-inf] * 8,
            [-inf, -inf, -inf, -inf, 3, 3, -inf, 3],
            [2, -inf, 2, -inf, -inf, -inf, -inf, -inf],
            [-300, -300, 5, -300, 5, -300, -300, -300],
            [inf, 0, 0, 0, 0, 0, 0, 0],
            [0, 0, 0, 0, nan, 0, 0, 0],
        ],
        np.float32,
    )
    usual = [[0, 8], [-inf, 0], [3, 3], [2, 2], [5, 2]]
    y = np.array([[*s, *s, *s, 1 / s[1] if s[1] else 0, s[0] + np.log(s[1]) if s[1] else -inf] for s in usual])
    yield Trial("softmax_row.cu", launch("states", 5, "x", "y"), {"x": x[:5]}, {"y": y.astype(np.float32)})
    # what a sum with NaN or +inf is, is not said; the result is NaN by every way
    last = {"x": np.stack([x[5], x[6]])}
    y = np.array([[inf, 7, inf, 7, inf, nan, nan, nan], [0, nan, 0, nan, 0, nan, nan, nan]], np.float32)
    y[0, 1], y[0, 3] = 1, nan
    yield Trial("softmax_row.cu", launch("states", 2, "x", "y"), last, {"y": y})
    x = np.array([[0, 0, -inf, -inf], [-inf] * 4, [0, -inf, -inf, -inf], [inf, 0, 0, 0]], np.float32)
    p = np.array([[0.5, 0.5, 0, 0], [0] * 4, [1, 0, 0, 0], [nan] * 4], np.float32)
    yield Trial("softmax_row.cu", launch("chances", 4, "x", "p"), {"x": x}, {"p": p})
    x = np.array([[-300, -300, -inf, -inf], [-inf] * 4], np.float32)  # of a part that is masked there is nothing
    yield Trial("softmax_row.cu", launch("part", 2, "x", "y"), {"x": x}, {"y": np.array([0.5, 0], np.float32)})


def norm_row() -> Iterator[Trial]:
    for first, columns in ((0, 8), (-2, 8), (-2, 2), (0, 4), (8, 12), (8, 8), (-4, 4)):
        column = first + np.arange(8)
        inside = (column >= 0) & (column < columns)
        x = np.where(inside, np.array([4, -8, 12, 4, 20, 4, -4, 8], np.float32), 0).astype(np.float32)
        held = x[inside].astype(np.float64)
        if held.size not in (0, 1, 2, 4, 8):
            continue  # of six elements the mean is rounded
        mean = held.mean() if held.size else 0.0
        moments = [held.size, mean, ((held - mean) ** 2).sum()]
        y = np.array([*moments, *moments, (x * x).sum(), *moments], np.float32)
        for even in range(1 + (first >= 0 and first % 4 == columns % 4 == 0)):
            given = launch("sums", 1, "x", "y", np.int32(first), np.int32(columns))
            yield Trial("norm_row.cu", given, {"x": x}, {"y": y}, {"EVEN": even})
            if held.size == columns:
                given = launch("held_row", 1, "x", "y", np.int32(first), np.int32(columns))
                yield Trial("norm_row.cu", given, {"x": x}, {"y": y[:3]}, {"EVEN": even})
    x, w, b = (whole((4,), FP32, seed) for seed in (1, 2, 3))
    y = np.stack([x * 0.5 * w, (x - 3) * 0.5 * w + b, x + b]).astype(np.float32)
    given = launch("results", 1, "x", "w", "b", "y", np.float32(3), np.float32(0.5))
    yield Trial("norm_row.cu", given, {"x": x, "w": w, "b": b}, {"y": y}, {"EVEN": 0})


def rotate() -> Iterator[Trial]:
    for dtype, count in ((FP32, 4), (BF16, 8)):
        for half in (3, count, 5 * count - 1):
            x, cos, sin = (whole(shape, dtype, seed) for seed, shape in enumerate(((2 * half,), (half,), (half,))))
            for packed in (0, 1):
                right = reference.rotary(x[None], cos[None], sin[None], interleaved=bool(packed))[0]
                given = launch("rotate", 8, "x", "cos", "sin", "y", np.int32(half))
                arrays = {"x": x, "cos": cos, "sin": sin}
                for even in range(1 + (half % count == 0)):
                    defines = {"TYPE": dtype.cuda, "N": count, "NEIGHBOURS": packed, "EVEN": even}
                    yield Trial("rotate.cu", given, arrays, {"y": right.astype(dtype.numpy)}, defines)


def reduce_ops() -> Iterator[Trial]:
    x = whole((8, 4), FP32, 2)
    x[1, 2], x[2, 0], x[3, 0], x[4] = np.nan, np.nan, np.inf, -np.inf
    y = np.stack([x.sum(axis=1), x.max(axis=1), *[np.maximum(x[:, 0], 1)] * 2], axis=1)
    yield Trial("reduce_ops.cu", launch("both", 8, "x", "y"), {"x": x}, {"y": y})


def row_scan() -> Iterator[Trial]:
    for holders in (32, 96, 1024):
        x = whole((holders,), FP32, holders)
        lanes = np.cumsum(x.reshape(-1, 32), axis=1).reshape(-1)
        y = np.stack([lanes, np.cumsum(x) - x, np.full(holders, x.sum())], axis=1).astype(np.float32)
        defines = {"HOLDERS": holders, "OF_A_ROW": 32}
        yield Trial("row_scan.cu", launch("scans", holders, "x", "y"), {"x": x}, {"y": y}, defines)
    for members, holders in ((1, 32), (4, 64), (32, 32), (64, 64), (1024, 1024)):
        x = whole((holders // members, 3 * members), FP32, members)
        before = (np.cumsum(x, axis=1) - x).reshape(-1, 3, members).transpose(0, 2, 1).reshape(holders, 3)
        y = np.column_stack([before, np.repeat(x.sum(axis=1), members)]).astype(np.float32)
        defines = {"HOLDERS": holders, "OF_A_ROW": members}
        yield Trial("row_scan.cu", launch("rounds", holders, "x", "y"), {"x": x}, {"y": y}, defines)
    x = whole((5, 8), FP32, 1)
    stored = {"y": 100 + np.cumsum(x, axis=1, dtype=np.float32), "last": x.sum(axis=1)}
    yield Trial("row_scan.cu", launch("vectors", 5, "x", "y", "last"), {"x": x}, stored, defines)
    x = whole((5, 4), FP32, 2)
    stored = {"y": 100 + np.cumsum(x, axis=1, dtype=np.float32), "all": x.sum(axis=1)}
    yield Trial("row_scan.cu", launch("held", 5, "x", "y", "all"), {"x": x}, stored, defines)


def gradient_row() -> Iterator[Trial]:
    x, dy, w = (whole((4,), FP32, seed) for seed in (1, 2, 3))
    n, g = (x - 2) * 0.5, w * dy
    y = np.stack([x * (dy - 3), 0.5 * (g - 3 - n * 4)]).astype(np.float32)
    sums = np.array([(x * dy).sum(), 1 + g.sum(), 2 + (g * n).sum()], np.float32)
    numbers = [np.float32(v) for v in (2, 0.5, 3, 4)]
    given = launch("gradients", 1, "x", "dy", "w", "y", "sums", *numbers)
    yield Trial("gradient_row.cu", given, {"x": x, "dy": dy, "w": w}, {"y": y, "sums": sums}, {"OF_A_ROW": 1})
    x = np.array([4, -8, 12, 4, 20, 4, -4, 8], np.float32)
    dy, w = (whole((8,), FP32, seed) for seed in (4, 5))

    def state(part: slice) -> list[float]:
        held, g = x[part].astype(np.float64), (w * dy)[part]
        off = held - held.mean()
        return [held.size, held.mean(), (off**2).sum(), g.sum(), (g * off).sum()]

    y = np.array([state(slice(4)), state(slice(4, 8)), state(slice(8)), state(slice(8))], np.float32)
    for members in (1, 2, 32):
        given = launch("states", 32, "x", "dy", "w", "y")
        yield Trial("gradient_row.cu", given, {"x": x, "dy": dy, "w": w}, {"y": y}, {"OF_A_ROW": members})
    x, dy, w = whole((2, 256), FP32, 1), whole((2, 256), FP32, 2), whole((256,), FP32, 3)
    y = np.array([[2, 0.5, 1, 7], [2, 0.5, np.inf, (w * dy * (x - 2))[1].sum() / 512]], np.float32)
    given = launch("retaken", 64, "x", "dy", "w", "y", np.int32(2), np.int32(256))
    yield Trial("gradient_row.cu", given, {"x": x, "dy": dy, "w": w}, {"y": y}, {"OF_A_ROW": 1})
    x = whole((128, 2), FP32, 6)
    for members in (4, 32, 64, 128):
        y = x.reshape(-1, members, 2).sum(axis=0)
        yield Trial("gradient_row.cu", launch("added", 128, "x", "y"), {"x": x}, {"y": y}, {"OF_A_ROW": members})


def cross_entropy() -> Iterator[Trial]:
    inf, nan = np.inf, np.nan
    x = np.array([2, 2, -inf, -inf, 0], np.float32)
    given = {
        "x": x,
        "labels": np.array([0, -1, 0, 0, 0], np.int32).view(np.uint32),
        "top": np.array([3, 3, 3, -inf, inf], np.float32),
        "sum": np.array([1, 1, 1, 0, 1], np.float32),
    }
    y = np.array([[1, 3], [0, 3], [inf, 3], [inf, -inf], [nan, nan]], np.float32)
    yield Trial("cross_entropy.cu", launch("losses", 5, *given, "y"), given, {"y": y})


HEADERS = (
    row_reduce,
    cluster_reduce,
    row,
    softmax_row,
    norm_row,
    rotate,
    reduce_ops,
    row_scan,
    gradient_row,
    cross_entropy,
)


@pytest.fixture(params=["emulator", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Device:
    return open_device(request.param)


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header.__name__)
def test_the_functions_of_a_header_do_what_they_say(header: Callable[[], Iterator[Trial]], device: Device) -> None:
    for trial in header():
        trial.run(device)


def test_every_function_has_a_trial() -> None:
    used = "".join((SOURCES / f"{header.__name__}.cu").read_text() for header in HEADERS)
    inside = "".join((INCLUDE / f"tile/{header.__name__}.cuh").read_text() for header in HEADERS)
    names = {
        name
        for header in (*HEADERS, "online_softmax")
        for name in WRAPPER.findall((INCLUDE / f"tile/{getattr(header, '__name__', header)}.cuh").read_text())
    }
    assert len(names) > 15
    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", used + inside)] == []

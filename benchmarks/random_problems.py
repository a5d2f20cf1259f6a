"""`workbench.ops` beside the libraries of PyTorch on problems that nobody chose: makes `reports/random-problems.md`.

    python benchmarks/random_problems.py measure OUTPUT.json [--seed N] [--count N] [--only gemm-bf16 ...]   # on a GPU
    python benchmarks/random_problems.py write [OUTPUT.json]                  # the page, of that file and those before

The record keeps, of every device, the last measurement of every kind of problem.

Extents are drawn evenly by their logarithm, one third of them as they fall, the others as multiples of 8; one third of
matrices have gaps between their rows. Each call is timed with the device's events, the L2 flushed before, in turns with
the library's call for the same arrays, whose answer it has to match.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import recorded
from tabulate import tabulate

from workbench import ops
from workbench.devices import open_device

RECORD = Path(__file__).parents[1] / "reports/random-problems.json"
SAMPLES, FLUSHED_BYTES = 7, 1 << 28
"""Of a call, cold; what is written before each of them."""

TOLERANCE = {"bfloat16": 0.02, "float16": 0.005, "float32": 1e-4}
"""Largest distance of two answers of a type, of the norm of the library's."""

Call = Callable[[], Any]


@dataclass(frozen=True)
class Problem:
    """A call of ours, and one of a library for the same arrays."""

    label: str
    function: Any
    arrays: tuple[Any, ...]
    theirs: Call
    options: Mapping[str, Any] = field(default_factory=dict)

    def ours(self) -> Any:
        """The answer; of attention without the logarithms."""
        found = self.function(*self.arrays, **self.options)
        return found[0] if isinstance(found, tuple) else found

    def chosen(self) -> dict[str, Any]:
        """Which stage solves it, what it is asked, and the microseconds that are predicted, if any are."""
        found = ops.explain(self.function, *self.arrays, **self.options)
        return {"stage": found.stage.name, "asked": str(found.problem), "predicted": found.us}


class Draw:
    """Random extents and arrays of one type."""

    def __init__(self, rng: np.random.Generator, torch: Any, dtype: str) -> None:
        self.rng, self.torch, self.dtype = rng, torch, getattr(torch, dtype)

    def extent(self, most: int, least: int = 1) -> int:
        found = int(np.exp(self.rng.uniform(np.log(least), np.log(most + 1))))
        return found if self.rng.random() < 1 / 3 or found < 8 else found // 8 * 8

    def matrix(self, rows: int, columns: int) -> Any:
        gap = int(self.rng.integers(1, 9)) * 8 if self.rng.random() < 1 / 3 else 0
        return self.torch.randn(rows, columns + gap, device="cuda", dtype=self.dtype)[:, :columns]

    def array(self, *shape: int) -> Any:
        return self.torch.randn(*shape, device="cuda", dtype=self.dtype)


def product(d: Draw) -> Problem:
    """A matrix product: extents from 1 to 16384, nn or nt."""
    m, n, k = (d.extent(16384) for _ in "mnk")
    nt = bool(d.rng.random() < 0.5)
    a, b = d.matrix(m, k), d.matrix(*((n, k) if nt else (k, n)))
    label = f"{m}x{n}x{k} {'nt' if nt else 'nn'}{' padded' if a.stride(0) > k or b.stride(0) > b.shape[1] else ''}"
    return Problem(label, ops.gemm, (a, b), lambda: d.torch.matmul(a, b.T if nt else b), {"trans_b": nt})


def matvec(d: Draw) -> Problem:
    n, k = d.extent(1 << 17), d.extent(1 << 15)
    x, w = d.array(k), d.array(n, k)
    return Problem(f"{n}x{k}", ops.matvec, (x, w), lambda: d.torch.mv(w, x))


def rows(d: Draw) -> tuple[int, int]:
    """Of a matrix of at most 2^27 elements."""
    columns = d.extent(1 << 17, 16)
    return d.extent(max(1, min(1 << 17, (1 << 27) // columns))), columns


def softmax(d: Draw) -> Problem:
    r, c = rows(d)
    x = d.array(r, c)
    return Problem(f"{r}x{c}", ops.softmax, (x,), lambda: d.torch.softmax(x, -1))


def rms_norm(d: Draw) -> Problem:
    r, c = rows(d)
    x, w = d.array(r, c), d.array(c)
    call = d.torch.nn.functional.rms_norm
    return Problem(f"{r}x{c}", ops.rms_norm, (x, w), lambda: call(x, (c,), w, 1e-6), {"eps": 1e-6})


def layer_norm(d: Draw) -> Problem:
    r, c = rows(d)
    x, w, b = d.array(r, c), d.array(c), d.array(c)
    call = d.torch.nn.functional.layer_norm
    return Problem(f"{r}x{c}", ops.layer_norm, (x, w, b), lambda: call(x, (c,), w, b, 1e-5), {"eps": 1e-5})


def transpose(d: Draw) -> Problem:
    r, c = rows(d)
    x = d.array(r, c)
    copied = d.torch.contiguous_format  # of a single row or column contiguous() would copy nothing
    return Problem(f"{r}x{c}", ops.transpose, (x,), lambda: x.T.clone(memory_format=copied))


def scan(d: Draw) -> Problem:
    r, c = rows(d)
    x = d.array(r, c).abs()
    return Problem(f"{r}x{c}", ops.scan, (x,), lambda: x.cumsum(-1))


def attention(d: Draw) -> Problem:
    """Self-attention, so that PyTorch's mask is ours."""
    dim = int(d.rng.choice((64, 128)))
    length = d.extent(8192, 16)
    heads = d.extent(32)
    batch = d.extent(max(1, min(64, (1 << 25) // (length * heads * dim))))
    causal = bool(d.rng.random() < 0.5)
    q, k, v = (d.array(batch, heads, length, dim) for _ in "qkv")
    call = d.torch.nn.functional.scaled_dot_product_attention
    label = f"b{batch} h{heads} s{length} d{dim}{' causal' if causal else ''}"
    return Problem(label, ops.attention, (q, k, v), lambda: call(q, k, v, is_causal=causal), {"causal": causal})


def conv2d(d: Draw) -> Problem:
    taps, stride = int(d.rng.choice((1, 3, 5))), int(d.rng.choice((1, 1, 2)))
    extent, channels, filters = d.extent(128, 7), d.extent(512, 8), d.extent(512, 8)
    images = d.extent(max(1, min(64, (1 << 26) // (extent * extent * max(channels, filters)))))
    x, f = d.array(images, extent, extent, channels), d.array(filters, taps, taps, channels)
    named, pad = (x.permute(0, 3, 1, 2), f.permute(0, 3, 1, 2)), taps // 2
    call = d.torch.nn.functional.conv2d
    return Problem(
        f"n{images} c{channels} {extent}x{extent} k{filters} {taps}x{taps} stride {stride}",
        ops.conv2d,
        (x, f),
        lambda: call(*named, stride=stride, padding=pad).permute(0, 2, 3, 1),
        {"stride": stride, "padding": pad},
    )


KINDS: dict[str, tuple[Callable[[Draw], Problem], str, str]] = {
    "gemm-bf16": (product, "bfloat16", "cuBLAS"),
    "gemm-fp16": (product, "float16", "cuBLAS"),
    "gemm-fp32": (product, "float32", "cuBLAS, without TF32"),
    "matvec-bf16": (matvec, "bfloat16", "cuBLAS"),
    "matvec-fp32": (matvec, "float32", "cuBLAS"),
    "softmax": (softmax, "bfloat16", "PyTorch"),
    "rms_norm": (rms_norm, "bfloat16", "PyTorch"),
    "layer_norm": (layer_norm, "bfloat16", "PyTorch"),
    "transpose": (transpose, "bfloat16", "PyTorch"),
    "scan": (scan, "float32", "CUB"),
    "attention": (attention, "bfloat16", "PyTorch's choice of cuDNN and FlashAttention-2"),
    "conv2d": (conv2d, "bfloat16", "cuDNN"),
}
"""Of every kind of problem what draws it, the type of its arrays, and the library behind PyTorch's call."""


def drawer(name: str, seed: int) -> Callable[[], Problem]:
    """What draws problems of a kind, one after the other, the same ones of a seed."""
    import torch

    draw, dtype, _ = KINDS[name]
    given = Draw(np.random.default_rng((seed, list(KINDS).index(name))), torch, dtype)
    return lambda: draw(given)


class Stopwatch:
    """Microseconds of a call on the device, cold."""

    def __init__(self, torch: Any, flushed_bytes: int = FLUSHED_BYTES) -> None:
        self.torch = torch
        self.flushed = torch.empty(flushed_bytes, dtype=torch.uint8, device="cuda")

    def sample(self, call: Call) -> float:
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.flushed.fill_(0)  # takes longer than the host does for the call: nothing waits for that
        begin.record()
        call()
        end.record()
        end.synchronize()
        return float(1000 * begin.elapsed_time(end))

    def medians(self, calls: Sequence[Call]) -> list[float]:
        """Of several calls, in turns."""
        samples = [[self.sample(call) for call in calls] for _ in range(SAMPLES)]
        return [statistics.median(times) for times in zip(*samples, strict=True)]


def apart(torch: Any, ours: Any, theirs: Any) -> float:
    """The distance of two answers, of the norm of theirs."""
    ours, theirs = ours.double(), theirs.double()
    size = torch.linalg.vector_norm(theirs).item() or 1.0
    return float(torch.linalg.vector_norm(ours - theirs).item() / size)


def measure(options: argparse.Namespace) -> None:
    """Fill the record."""
    import torch

    torch.backends.cudnn.benchmark = True
    run = recorded.begin(open_device("cuda").info(), "rows")
    run |= {"seed": options.seed, "torch": torch.__version__}
    watch = Stopwatch(torch)
    for name, (_, dtype, _) in KINDS.items():
        if options.only and name not in options.only:
            continue
        draw = drawer(name, options.seed)
        for _ in range(options.count):
            row: dict[str, Any] = {"kind": name}
            try:
                problem = draw()
                row["problem"], row["apart"] = problem.label, apart(torch, problem.ours(), problem.theirs())
                if row["apart"] <= TOLERANCE[dtype]:
                    row["us"], row["theirs"] = watch.medians((problem.ours, problem.theirs))
                    row |= problem.chosen()
            except (ValueError, torch.OutOfMemoryError) as error:
                row["refused"] = str(error).splitlines()[0]
            run["rows"].append(row)
            torch.cuda.empty_cache()
        recorded.save({"runs": [run]}, options.file)
        print(name, summary(name, run["rows"]), flush=True)


def of_kind(name: str, rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    return (row for row in rows if row["kind"] == name)


def summary(name: str, rows: list[dict[str, Any]]) -> list[str]:
    """A line of the table: how many, and theirs / ours as geometric mean, 5th percentile and worst."""
    every = list(of_kind(name, rows))
    ratios = sorted(row["theirs"] / row["us"] for row in every if "us" in row)
    wrong = sum("apart" in row and "us" not in row for row in every)
    if not ratios:
        return [name, KINDS[name][2], "0", str(wrong), "-", "-", "-"]
    figures = statistics.geometric_mean(ratios), float(np.percentile(ratios, 5)), ratios[0]
    return [name, KINDS[name][2], str(len(ratios)), str(wrong), *(f"{figure:.2f}" for figure in figures)]


def merge(before: recorded.Record, record: recorded.Record) -> recorded.Record:
    """The runs of before without what has been measured again on the same device, behind those of the record."""
    runs = list(record["runs"])
    for run in before["runs"]:
        again = {
            r["kind"] for new in record["runs"] if new["device"]["name"] == run["device"]["name"] for r in new["rows"]
        }
        if rows := [row for row in run["rows"] if row["kind"] not in again]:
            runs.append(run | {"rows": rows})
    return {"runs": runs}


def of_device(runs: list[dict[str, Any]]) -> str:
    """The tables of the runs on one device."""
    kinds = [(name, run) for name in KINDS for run in runs if any(of_kind(name, run["rows"]))]
    table, worst = [], []
    for name, run in kinds:
        made = run["environment"]
        table.append([*summary(name, run["rows"]), str(run["seed"]), f"`{made['commit'][:12]}`, {made['date'][:10]}"])
        timed = [row for row in of_kind(name, run["rows"]) if "us" in row]
        for row in sorted(timed, key=lambda row: row["theirs"] / row["us"])[:3]:
            us, theirs = row["us"], row["theirs"]
            stage = f"`{row['stage']}`" if "stage" in row else "-"
            worst.append([name, row["problem"], stage, f"{us:.1f}", f"{theirs:.1f}", f"{theirs / us:.2f}"])
    device = runs[0]["device"]
    headers = ["problems", "beside", "timed", "wrong", "geometric mean", "5th percentile", "worst", "seed", "commit"]
    slowest = ["", "problem", "stage", "us", "theirs", "ratio"]
    return "\n".join(
        (
            f"## {device['name']}\n",
            f"Driver {device['driver']}, PyTorch {', '.join(sorted({run['torch'] for run in runs}))}.\n",
            tabulate(table, headers, tablefmt="pipe", disable_numparse=True) + "\n",
            "The slowest three of each:\n",
            tabulate(worst, slowest, tablefmt="pipe", disable_numparse=True) + "\n",
        )
    )


def page(record: recorded.Record) -> str:
    """The Markdown page."""
    devices = dict.fromkeys(run["device"]["name"] for run in record["runs"])
    return "\n".join(
        (
            "# Random problems beside the libraries\n",
            "Written by `benchmarks/random_problems.py` from [the JSON beside it](random-problems.json). Extents are "
            "drawn evenly by their logarithm, from the seed in the table; one third of them is odd, one third of "
            "matrices has gaps between rows. A ratio is the library's time divided by ours: above 1 ours is faster. A "
            f"time is the median of {SAMPLES} calls, alternating with the library's, between events of the device, "
            "with the L2 flushed before each.\n",
            *(of_device([run for run in record["runs"] if run["device"]["name"] == name]) for name in devices),
        )
    )


if __name__ == "__main__":
    recorded.main(
        __doc__,
        RECORD,
        measure,
        page,
        merge=merge,
        seed={"type": int, "default": 0},
        count={"type": int, "default": 100},
        only={"nargs": "*", "default": [], "choices": list(KINDS)},
    )

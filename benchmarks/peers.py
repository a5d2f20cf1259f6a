"""`workbench.ops` beside the best libraries on known problems, all in one run: makes `reports/peers.md`.

    python benchmarks/peers.py measure OUTPUT.json [--only attention ...]   # on a machine with a GPU
    python benchmarks/peers.py write [OUTPUT.json]                          # the page, of that file and those before

The problems are those of attention, its gradients, decoding and Mamba-2 that FlashAttention-3, cuDNN and
flash-linear-attention are compared on elsewhere. Each call is timed with the device's events, the L2 flushed before, in
turns with the libraries' calls for the same arrays, and its first output has to match the first library's. What a
library does not take, or is not installed, has no time. The record keeps the last measurement of every kind on every
device.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import recorded
from pandas import DataFrame
from random_calls import Call, Problem, library_call
from random_problems import TOLERANCE, WAIT, Stopwatch, apart, merge
from tabulate import tabulate

from workbench import ops
from workbench.devices import open_device
from workbench.report import frame

RECORD = Path(__file__).parents[1] / "reports/peers.json.gz"

FORWARD = (
    *((4, 16, 4096, 128), (1, 16, 16384, 128), (4, 32, 4096, 64), (1, 32, 16384, 64), (4, 8, 4096, 256)),
    *((1, 8, 16384, 256), (16, 16, 1024, 128), (32, 16, 512, 128)),
)
BACKWARD = ((4, 16, 4096, 128), (1, 16, 16384, 128), (4, 32, 4096, 64), (4, 8, 4096, 256))
"""Batch, heads, positions, dim: with a causal mask and without."""

DECODE = ((8, 8192), (64, 4096), (1, 131072))
"""Batch and keys of one row of 32 heads over 8, dim 128."""

SSD = ((16, 16, 1024, 64, 64), (16, 16, 4096, 64, 64), (16, 16, 8192, 64, 64), (1, 128, 16384, 64, 128))
"""Batch, heads, positions, headdim, dstate."""

Arrays = Mapping[str, Any]


@dataclass(frozen=True)
class Drawn:
    """A call of ours. `problem` says of it what arrays do not: how long packed sequences are."""

    label: str
    function: Any
    arrays: Arrays
    options: Mapping[str, Any]
    problem: Any = None


def normal(*shape: int) -> Any:
    import torch

    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def named(batch: int, heads: int, length: int, dim: int, causal: bool) -> str:
    return f"b{batch} h{heads} s{length} d{dim} {'causal' if causal else 'full'}"


def forward() -> Iterator[Drawn]:
    for batch, heads, length, dim in FORWARD:
        for causal in (False, True):
            arrays = {name: normal(batch, length, heads, dim) for name in "qkv"}
            options = {"layout": "bshd", "causal": causal}
            yield Drawn(named(batch, heads, length, dim, causal), ops.attention, arrays, options)


def decode() -> Iterator[Drawn]:
    for batch, keys in DECODE:
        arrays = {"q": normal(batch, 1, 32, 128)} | {name: normal(batch, keys, 8, 128) for name in "kv"}
        yield Drawn(f"b{batch} h32/8 s{keys} d128", ops.attention, arrays, {"layout": "bshd"})


def packed() -> Iterator[Drawn]:
    import torch

    operation = ops.attention_varlen.operation
    for p in operation.suite:
        arrays = {name: normal(*p.arrays()[name].shape) for name in "qkv"}
        arrays |= zip(("offsets_q", "offsets_k"), (torch.from_numpy(x).cuda() for x in p.offsets()), strict=True)
        yield Drawn(p.label, ops.attention_varlen, arrays, {"causal": p.causal}, p)


def backward() -> Iterator[Drawn]:
    for batch, heads, length, dim in BACKWARD:
        for causal in (False, True):
            options = {"causal": causal}
            arrays = {name: normal(batch, heads, length, dim) for name in "qkv"}
            o, lse = ops.attention(*arrays.values(), **options)
            arrays |= {"o": o, "lse": lse, "do": normal(batch, heads, length, dim)}
            yield Drawn(named(batch, heads, length, dim, causal), ops.attention_backward, arrays, options)


def ssd() -> Iterator[Drawn]:
    for batch, heads, length, headdim, dstate in SSD:
        arrays = {
            "x": normal(batch, length, heads, headdim),
            "log_a": -normal(batch, length, heads).float().abs() / 8,
            "b": normal(batch, length, heads, dstate) / dstate**0.5,
            "c": normal(batch, length, heads, dstate),
            "h0": normal(batch, heads, dstate, headdim).float(),
        }
        label = f"b{batch} h{heads} s{length} headdim {headdim} dstate {dstate}"
        yield Drawn(label, ops.ssd, arrays, {})


@dataclass(frozen=True)
class Kind:
    title: str
    draw: Callable[[], Iterator[Drawn]]
    libraries: tuple[str, ...]


KINDS = {
    "attention": Kind("Attention forward", forward, ("cuDNN", "FlashAttention-3")),
    "decode": Kind("Attention of one row", decode, ("cuDNN", "FlashAttention-3")),
    "packed": Kind("Attention of packed sequences", packed, ("FlashAttention-3", "PyTorch flash")),
    "backward": Kind("Gradients of attention", backward, ("cuDNN", "PyTorch flash")),
    "ssd": Kind("Mamba-2", ssd, ("flash-linear-attention",)),
}


def measure(options: argparse.Namespace) -> None:
    """Fill the record."""
    import torch

    run = recorded.begin(open_device("cuda").info(), "rows")
    run["torch"] = torch.__version__
    watch = Stopwatch(torch, wait=2 * WAIT)
    for kind in options.only or KINDS:
        for drawn in KINDS[kind].draw():
            run["rows"].append({"kind": kind} | timed(watch, KINDS[kind].libraries, drawn))
            recorded.save({"runs": [run]}, options.file)
            torch.cuda.empty_cache()
        print(kind, means(kind, run["rows"]), flush=True)


def timed(watch: Stopwatch, libraries: tuple[str, ...], call: Drawn) -> dict[str, Any]:
    """A row: what each library took, and what we did."""
    function, arrays, options = call.function, call.arrays, call.options
    theirs: dict[str, Call] = {}
    refused: dict[str, str] = {}
    ours = Problem(call.label, function, tuple(arrays.values()), lambda: None, options)
    problem = call.problem or function.prepare(*arrays.values(), **options).problem
    swapped = options.get("layout") == "bshd"  # libraries see heads before positions, in the same memory
    seen = {name: x.transpose(1, 2) for name, x in arrays.items()} if swapped else arrays
    for library in libraries:
        try:
            theirs[library] = library_call(function, library, problem, seen)
            theirs[library]()  # some choose or compile their kernel at the first call
        except (ValueError, ImportError, RuntimeError) as error:
            theirs.pop(library, None)
            refused[library] = str(error).splitlines()[0][:200]
    row: dict[str, Any] = {"problem": call.label, "refused": refused}
    if theirs:
        found, answer = (first_of(made()) for made in (ours.ours, next(iter(theirs.values()))))
        row["apart"] = apart(watch.torch, found.transpose(1, 2) if swapped else found, answer)
        if not row["apart"] <= TOLERANCE["bfloat16"]:
            return row
    us, *others = watch.medians((ours.ours, *theirs.values()))
    return row | ours.chosen() | {"us": us, "theirs": dict(zip(theirs, others, strict=True))}


def first_of(answer: Any) -> Any:
    """The first output. Others, such as the logarithms of attention, have other shapes in some libraries."""
    return answer[0] if isinstance(answer, tuple | list) else answer


def means(kind: str, rows: list[dict[str, Any]]) -> str:
    """A sentence: the geometric means of the ratios and the lowest of them."""
    timed = [row for row in rows if row["kind"] == kind and row.get("theirs")]
    ratios = DataFrame([{name: us / row["us"] for name, us in row["theirs"].items()} for row in timed])
    parts = []
    for library in (name for name in KINDS[kind].libraries if name in ratios):
        found = ratios[library].dropna()
        parts.append(f"{frame.geometric_mean(found):.3f} of {library} (lowest {found.min():.3f})")
    return f"Geometric means: {', '.join(parts)}." if parts else "No library was timed."


def tables(run: dict[str, Any]) -> Iterator[str]:
    """Of every kind on one device."""
    for kind, known in KINDS.items():
        rows = [row for row in run["rows"] if row["kind"] == kind]
        if not rows:
            continue
        cells = []
        for row in rows:
            theirs = [row.get("theirs", {}).get(library) for library in known.libraries]
            times = [f"{us:.1f}" if us else "-" for us in (row.get("us"), *theirs)]
            by_ours = [f"{us / row['us']:.2f}" if us else "-" for us in theirs]
            cells.append([row["problem"], f"`{row['stage']}`" if "stage" in row else "wrong", *times, *by_ours])
        made = run["environment"]
        headers = ["problem", "stage", "us", *known.libraries, *(f"{library} / ours" for library in known.libraries)]
        yield f"### {known.title}\n"
        yield f"Commit `{made['commit'][:12]}`, {made['date'][:10]}, PyTorch {run['torch']}. {means(kind, rows)}\n"
        yield tabulate(cells, headers, tablefmt="pipe", disable_numparse=True) + "\n"


def page(record: recorded.Record) -> str:
    """The Markdown page."""
    parts = [
        "# Known problems beside the best libraries\n",
        "Written by `benchmarks/peers.py` from [the JSON beside it](peers.json.gz). A time is a median of 7 calls in "
        "microseconds, with the L2 flushed before each, in turns with the libraries' calls for the same arrays. A "
        "ratio is the library's time divided by ours: above 1 ours is faster. The stage is what `workbench.ops` "
        "chooses.\n",
    ]
    for name in dict.fromkeys(run["device"]["name"] for run in record["runs"]):
        parts.append(f"## {name}\n")
        parts += [part for run in record["runs"] if run["device"]["name"] == name for part in tables(run)]
    return "\n".join(parts)


if __name__ == "__main__":
    only = {"nargs": "*", "default": [], "choices": list(KINDS)}
    recorded.main(__doc__, RECORD, measure, page, merge=merge, only=only)

"""The blocks of `examples/blocks` by `workbench.ops`, beside PyTorch and torch.compile: makes `reports/blocks.md`.

    python benchmarks/model_blocks.py measure OUTPUT.json [--mode max-autotune-no-cudagraphs]   # with a GPU
    python benchmarks/model_blocks.py write [OUTPUT.json]                                       # the page, of that file

`examples/blocks/compare.py` does the measuring. WORKBENCH_COMMIT names the commit where the files were copied to a
machine without their history. The record keeps the last measurement of every mode on every device.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import recorded
from tabulate import tabulate

from workbench.devices import open_device

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples/blocks"
RECORD = ROOT / "reports/blocks.json"

OURS = "workbench.ops"


def measure(options: argparse.Namespace) -> None:
    """Fill the record."""
    sys.path.insert(0, str(EXAMPLE))
    import compare
    import torch

    run = recorded.begin(open_device("cuda").info(), "rows")
    run |= {"torch": torch.__version__, "mode": options.mode}
    for row in compare.measured(options.mode):
        run["rows"].append(asdict(row))
        recorded.save({"runs": [run]}, options.file)
        print(row, flush=True)


def merge(before: recorded.Record, record: recorded.Record) -> recorded.Record:
    """New runs take the place of those on the same device in the same mode."""

    def kind(run: dict[str, Any]) -> tuple[str, str]:
        return run["device"]["name"], run["mode"]

    runs = {kind(run): run for record in (before, record) for run in record["runs"]}
    return {"runs": [runs[key] for key in sorted(runs)]}


def tables(run: dict[str, Any]) -> Iterator[str]:
    """Of passes as called, and as a graph: microseconds, and the faster of theirs divided by the faster of ours."""
    ways = list(run["rows"][0]["called"])
    theirs = [way for way in ways if not way.startswith(OURS)]
    for how, title in (("called", "As a program calls it"), ("replayed", "As a CUDA graph")):
        cells, ratios = [], []
        for row in run["rows"]:
            us = row[how]
            ratios.append(min(us[way] for way in theirs) / min(us[way] for way in ways if way not in theirs))
            size = f"{row['batch']} x {row['positions']}"
            cells.append([row["block"], size, *(f"{us[way]:,.0f}" for way in ways), f"{ratios[-1]:.2f}"])
        yield f"{title}; the geometric mean of the ratios is {statistics.geometric_mean(ratios):.2f}:\n"
        headers = ["block", "batch x positions", *(f"{way}, us" for way in ways), "theirs / ours"]
        align = ("left", *["right"] * (len(headers) - 1))
        yield tabulate(cells, headers, tablefmt="pipe", disable_numparse=True, colalign=align) + "\n"


def page(record: recorded.Record) -> str:
    """The Markdown page."""
    parts = [
        "# A transformer block and a Mamba-2 block\n",
        "Written by `benchmarks/model_blocks.py` from [the JSON beside it](blocks.json). It times the blocks of "
        "[`examples/blocks`](../examples/blocks/blocks.py), in bfloat16. They are as large as those of Llama 3 with 8 "
        "and of Mamba-2 with 2.7 thousand million weights. A time is a median of 15 samples, in turns, each of ten "
        "passes one after the other. The last column is the faster of PyTorch's two times divided by the faster of "
        "ours.\n",
        "Before a block is timed, its answers are compared with those of float64. *Error* is the root of the mean "
        "square of the difference, by that of what the block adds to its input. A run that ended early has fewer "
        "rows.\n",
    ]
    for run in record["runs"]:
        parts.append(f"## {run['device']['name']}, torch.compile in mode {run['mode']}\n")
        parts.append(recorded.made_on(run) + f"PyTorch {run['torch']}.\n")
        parts += tables(run)
        parts.append(errors(run))
    return "\n".join(parts)


def errors(run: dict[str, Any]) -> str:
    """A sentence on how exact the answers are."""
    shares = [row["errors"][OURS]["mean"] / row["errors"]["PyTorch"]["mean"] for row in run["rows"]]
    largest = max(row["errors"][OURS]["mean"] for row in run["rows"])
    return (
        f"The largest error by `{OURS}` is {largest:.4f}. Divided by that of PyTorch in bfloat16, errors are "
        f"{min(shares):.3f} to {max(shares):.3f}.\n"
    )


if __name__ == "__main__":
    mode = {"default": "default", "help": "of torch.compile"}
    recorded.main(__doc__, RECORD, measure, page, merge=merge, mode=mode)

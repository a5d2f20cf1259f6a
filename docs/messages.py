"""Writes docs/messages.md: one planted fault of each kind, and what `workbench verify` says of it.

    python docs/messages.py

tests/test_messages.py fails when the page is not what this writes.
"""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workbench import harness
from workbench.catalogue import registry
from workbench.devices.emulated import EmulatedDevice
from workbench.model import origin
from workbench.model.stage import Stage
from workbench.report.evidence import explain

PAGE = Path(__file__).parent / "messages.md"

MOST_WARP_INSTRUCTIONS = 1_000_000
"""Of a block before it counts as hung: the faults are small, and the page is written in seconds."""

ADD = "if (i < n) c[i] = from_float<IN>(to_float(a[i]) + to_float(b[i]));"
SUM = "sum += to_float(a[k]) * to_float(b[k * b_step]);"
KERNEL = 'extern "C" __global__'


@dataclass(frozen=True)
class Plant:
    """A fault: what it is, its stage, pieces of the source with what is put in their place, and a problem."""

    title: str
    spec: str
    changes: tuple[tuple[str, str], ...] = ()
    problem: str | None = None
    short_of_an_argument: bool = False


PLANTS = (
    Plant(
        "The last terms of the sum are dropped",
        "gemm:naive",
        (("k < K; ++k", "k < K / 4 * 4; ++k"),),
        "12x20x39,dtype=bf16,out=fp32",
    ),
    Plant("One past the end", "vector_add:naive", (("i < n", "i <= n"),)),
    Plant(
        "Nothing keeps a tile from being overwritten while it is read",
        "gemm:vectorized",
        (("    __syncthreads();  // everyone has read the k-tile before\n", ""),),
        "1x1x17,dtype=fp32,out=fp32",
    ),
    Plant("What nobody has written is read", "vector_add:naive", (("to_float(b[i])", "to_float(c[i])"),)),
    Plant("A loop without end", "vector_add:naive", ((ADD, "for (;;) __nanosleep(100);"),)),
    Plant(
        "An input is written to",
        "vector_add:naive",
        ((ADD, f"{ADD}\n  if (i < n) const_cast<IN*>(b)[i] = from_float<IN>(7.f);"), ("__restrict__ b", "b")),
    ),
    Plant(
        "The answer depends on who comes first",
        "matvec:naive",
        (
            (KERNEL, f"__device__ unsigned arrived;\n{KERNEL}"),
            (
                "c[n] = from",
                "if (sum != rintf(sum) && (atomicAdd(&arrived, 1u) & 32u)) sum = nextafterf(sum, 0.f);\n  c[n] = from",
            ),
        ),
        "256x64,dtype=fp32,out=fp32",
    ),
    Plant(
        "An answer is kept for the next launch",
        "vector_add:naive",
        (
            (KERNEL, f"__device__ float kept[4096];\n__device__ long long kept_n;\n{KERNEL}"),
            (
                ADD,
                "if (i < n && kept_n != n) kept[i] = to_float(a[i]) + to_float(b[i]);\n"
                "  if (i < n) c[i] = from_float<IN>(kept[i]);\n  __syncthreads();\n  if (i == 0) kept_n = n;",
            ),
        ),
        "40,dtype=fp32",
    ),
    Plant("A source that does not compile", "vector_add:naive", (("b[i])", "b[i]"),), "4,dtype=fp32"),
    Plant("An argument is forgotten", "vector_add:naive", short_of_an_argument=True),
)


@contextmanager
def sources() -> Iterator[Path]:
    """A copy of the CUDA sources, which every stage then has its own from."""
    kept = origin.SOURCES
    with tempfile.TemporaryDirectory() as folder:
        origin.SOURCES = Path(folder) / "cuda_src"
        shutil.copytree(kept, origin.SOURCES)
        try:
            yield origin.SOURCES
        finally:
            origin.SOURCES = kept


def message(plant: Plant) -> str:
    """What `workbench verify` prints about a plant."""
    kept = origin.SOURCES
    with sources() as folder:
        (stage,) = registry.select([plant.spec])
        text = stage.path.read_text()
        for old, new in plant.changes:
            assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in {stage.source}"
            text = text.replace(old, new)
        stage.path.write_text(text)
        if plant.short_of_an_argument:
            stage = _shortened(stage)
        problem = registry.operations()[stage.operation].problem.parse(plant.problem) if plant.problem else None
        device = EmulatedDevice(MOST_WARP_INSTRUCTIONS)
        result = harness.verify(stage, device, examples=12, seed=0, problem=problem)
        told = explain(stage.spec, result)
    for root in (folder.parent, kept.parent):
        told = told.replace(f"{root}/", "")
    return "\n".join(line.rstrip() for line in told.splitlines())


def _shortened(stage: Stage[Any]) -> Stage[Any]:
    plan = stage.plan_for

    def without_last(problem: Any, size: Mapping[str, int]) -> Any:
        launch: Any = plan(problem, size)
        return dataclasses.replace(launch, args=(*launch.args[:-2], np.int32(problem.n)))

    return dataclasses.replace(stage, plan_for=without_last)


def difference(plant: Plant) -> str:
    """The change to the source as a diff, or in words."""
    if plant.short_of_an_argument:
        return "The launch passes `a, b, n` to a kernel that takes `a, b, c, n`."
    lines = []
    for old, new in plant.changes:
        lines += [f"-{line}" for line in old.strip("\n").splitlines()]
        lines += [f"+{line}" for line in new.strip("\n").splitlines()]
    body = "\n".join(lines)
    return f"```diff\n{body}\n```"


def page() -> str:
    """The whole page."""
    parts = [
        "# What failures look like\n",
        "Ten faults, one of each kind, planted into stages that are right, and what `workbench verify` says of them",
        "in the emulator. `python docs/messages.py` writes this page.\n",
    ]
    for number, plant in enumerate(PLANTS, 1):
        parts.append(f"## {number}. {plant.title}\n")
        parts.append(f"In `{plant.spec}`:\n\n{difference(plant)}\n")
        parts.append(f"```text\n{message(plant)}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())

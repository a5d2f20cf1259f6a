"""`workbench.ops` on rows beside PyTorch and Liger, over a grid of rows and columns: makes `reports/rows.md`.

    python benchmarks/row_heat_map.py measure OUTPUT.json [--only softmax ...] [--seconds N]   # on a GPU
    python benchmarks/row_heat_map.py write [OUTPUT.json]      # the page and its charts, of that file alone

As `benchmarks/random_problems.py` does, whose stopwatch and tolerances it takes, it times calls with the device's
events, the L2 flushed before, all that solve a cell in turns. What is random there is a grid here, and answers are
compared with PyTorch's in float64. What has to be compiled is compiled before, in processes of its own. The file is
saved after each operation; another call with the same file goes on with it, if device and commit are the same.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import recorded
from pandas import DataFrame, Series
from random_calls import Call
from random_problems import SAMPLES, TOLERANCE, Stopwatch, apart
from tabulate import tabulate

from workbench import ops
from workbench.catalogue import registry
from workbench.devices import open_device
from workbench.kernels.rows.problem import RowProblem
from workbench.measure.baselines import Prepared, first_line, pytorch
from workbench.model.dtypes import dtype_of
from workbench.report import frame

RECORD = Path(__file__).parents[1] / "reports/rows.json.gz"

OPERATIONS = (
    *("softmax", "rms_norm", "layer_norm", "residual_rms_norm", "cross_entropy", "transpose", "reduce", "scan"),
    *("softmax_backward", "rms_norm_backward", "layer_norm_backward"),
)
TYPES = ("bf16", "fp32")
ROWS = (1, 16, 256, 4096, 1 << 16, 1 << 20)
COLUMNS = (64, 256, 1024, 4096, 1 << 14, 1 << 16, 1 << 20, 1 << 26)

MOST_BYTES, LARGE = 1 << 30, 256_000_000
"""That a cell has to move; and from which on its share of the copy's bandwidth is asked for."""

SLOWER, SHORT_OF_IT = 0.98, 0.95
"""Cells below this ratio are named; and large ones below this share of the copy."""

COMPILED = ((4096, 4096), (256, 1 << 16), (16, 1 << 20))
"""Rows and columns, of bf16, for which PyTorch's compiler is asked: it takes seconds for each."""

FLUSHED_BYTES, COPIED_BYTES = 1 << 30, 1 << 28
"""Written before each call: for longer than Python takes to enqueue the kernels of a gradient; and copied."""

OURS, LIGER, COMPILER = "ours", "Liger", "torch.compile"
LIBRARIES = ("PyTorch", "PyTorch autograd", LIGER, COMPILER)

Cell = dict[str, Any]
Answer = Mapping[str, Any]


@dataclass(frozen=True)
class Contestant:
    """What solves a cell; `answer` solves it once more and returns the outputs by name."""

    name: str
    call: Call
    answer: Callable[[], Answer]


def cells(name: str) -> Iterator[RowProblem]:
    """The problems of an operation on the grid that move at most `MOST_BYTES`."""
    kind = registry.operations()[name].problem
    for dtype in TYPES:
        out = dtype if dtype in kind.choices.get("out", ()) else "fp32"
        for rows in ROWS:
            for columns in COLUMNS:
                problem = kind(rows=rows, columns=columns, dtype=dtype, out=out)
                if problem.cost.bytes <= MOST_BYTES:
                    yield problem


def key(name: str, problem: RowProblem) -> Cell:
    """What tells a cell from others."""
    return {"operation": name, "dtype": problem.dtype, "rows": problem.rows, "columns": problem.columns}


def compiles(problem: RowProblem) -> bool:
    """Whether PyTorch's compiler is asked for this cell."""
    return problem.dtype == "bf16" and (problem.rows, problem.columns) in COMPILED


def asked(problem: RowProblem) -> set[str]:
    """The libraries that are asked: Liger not for the small ones, since it compiles for each length of rows."""
    left_out = set() if problem.rows >= 256 and problem.columns >= 1024 else {LIGER}
    return set(LIBRARIES) - left_out - (set() if compiles(problem) else {COMPILER})


# on the device


class Memory:
    """The arrays of a cell, inputs filled, in memory of PyTorch."""

    def __init__(self, torch: Any, name: str, problem: RowProblem) -> None:
        self.torch, self.name, self.problem = torch, name, problem
        self.arrays = problem.arrays()
        self.outputs = [n for n, array in self.arrays.items() if array.output]
        self.buffers = {
            n: torch.empty(array.nbytes, dtype=torch.uint8, device=pytorch.DEVICE) for n, array in self.arrays.items()
        }
        self.held = pytorch.tensors(self.arrays, self.buffers, pytorch.DEVICE)
        self.inputs = {n: value for n, value in self.held.items() if n not in self.outputs}
        torch.manual_seed(0)
        for value in self.inputs.values():
            if value.dtype.is_floating_point:
                value.normal_()
            else:
                value.random_(0, problem.columns)
        if name == "softmax_backward":
            self.held["y"].copy_(torch.softmax(self.held["y"].float(), -1))
        if name == "scan":
            self.held["x"].abs_()  # sums about 0 would be nothing but rounding

    def right(self) -> Answer:
        """PyTorch's answer in float64."""
        (declared,) = (b for b in registry.operations()[self.name].baselines if b.name == "PyTorch")
        wide = {n: v.double() if v.dtype.is_floating_point else v for n, v in self.inputs.items()}
        return declared.outputs(declared.call(self.problem, **declared.arguments(wide)), self.outputs)

    def ours(self) -> tuple[Contestant, str]:
        """`workbench.ops`, and the stage that it chooses."""
        function = getattr(ops, self.name)
        options = {"eps": self.problem.eps} if hasattr(self.problem, "eps") else {}
        call = partial(function, *self.inputs.values(), **options)
        names = ("y", "s") if self.name == "residual_rms_norm" else self.outputs

        def answer() -> Answer:
            found = call()
            return dict(zip(names, found if isinstance(found, tuple) else (found,), strict=True))

        return Contestant(OURS, call, answer), function.prepare(*self.inputs.values(), **options).stage.name

    def libraries(self, names: set[str]) -> Iterator[tuple[str, Callable[[], Contestant]]]:
        """What makes a contestant of each of these that is installed and takes the problem."""
        for declared in registry.operations()[self.name].baselines:
            if declared.name in names and declared.kind == "torch":
                runner = pytorch.Torch(declared)
                if runner.version() is not None and runner.refuses(self.problem) is None:
                    yield declared.name, partial(self._made, declared.name, runner.prepare)
        if self.name == "cross_entropy" and LIGER in names:
            with contextlib.suppress(ImportError):
                import liger_kernel.transformers.functional as liger

                yield LIGER, partial(self._loss, liger.liger_cross_entropy)

    def _made(self, name: str, prepare: Callable[..., Prepared]) -> Contestant:
        prepared = prepare(self.problem, self.arrays, self.buffers)

        def answer() -> Answer:
            for output in self.outputs:
                self.buffers[output].fill_(0xFF)  # NaN
            prepared.enqueue()
            prepared.deliver()
            return {output: self.held[output] for output in self.outputs}

        return Contestant(name, prepared.enqueue, answer)

    def _loss(self, function: Callable[..., Any]) -> Contestant:
        """Liger's loss alone: it returns no log-sum-exp."""
        labels = self.held["labels"].long()
        call = partial(function, self.held["x"], labels, reduction="none")
        return Contestant(LIGER, call, lambda: {"loss": call()})


def timed(
    contestants: Sequence[Contestant],
    right: Answer,
    tolerance: float,
    distance: Callable[[Any, Any], float],
    medians: Callable[[Sequence[Call]], list[float]],
) -> Cell:
    """The medians of those whose answer is right, by name, and what is the matter with the others."""
    cell: Cell = {}
    good: list[Contestant] = []
    for contestant in contestants:
        try:
            answer = contestant.answer()
            off = [distance(value, right[name]) for name, value in answer.items()]
        except Exception as error:  # of a library: any
            cell.setdefault("failed", {})[contestant.name] = first_line(error)[:200]
            continue
        if far := [distant for distant in off if not distant <= tolerance]:  # NaN is far, too
            cell.setdefault("wrong", {})[contestant.name] = f"{far[0]:.2g}"
        else:
            good.append(contestant)
    return cell | {"us": dict(zip((c.name for c in good), medians([c.call for c in good]), strict=True))}


def measured(torch: Any, watch: Stopwatch, name: str, problem: RowProblem) -> Cell:
    """A cell, with everything that is asked."""
    found = key(name, problem) | {"bytes": problem.cost.bytes}
    failed: dict[str, str] = {}
    try:
        memory = Memory(torch, name, problem)
        right = memory.right()
        contestant, found["stage"] = memory.ours()
        contestants = [contestant]
        for library, make in memory.libraries(asked(problem)):
            try:
                contestants.append(make())
            except Exception as error:  # as above
                failed[library] = first_line(error)[:200]
        tolerance = TOLERANCE[dtype_of(problem.dtype).torch]
        found |= timed(contestants, right, tolerance, partial(apart, torch), watch.medians)
        if problem.cost.bytes >= LARGE:
            found["copy"] = copied(torch, watch, problem.cost.bytes // 2)
    except Exception as error:  # too little memory, say: the other cells are measured all the same
        return found | {"refused": first_line(error)[:200]}
    return found | ({"failed": found.get("failed", {}) | failed} if failed else {})


def copied(torch: Any, watch: Stopwatch, nbytes: int = COPIED_BYTES) -> float:
    """Bandwidth of a copy in GB/s, read and written."""
    source, target = (torch.empty(nbytes, dtype=torch.uint8, device="cuda") for _ in range(2))
    (us,) = watch.medians([lambda: target.copy_(source)])
    return 2 * nbytes / us / 1e3


def warm(name: str, dtype: str, seconds: float) -> None:
    """Call once whatever compiles: the caches on disk have it then."""
    import torch

    until = time.monotonic() + seconds
    for problem in (p for p in cells(name) if p.dtype == dtype):
        if time.monotonic() > until:
            return
        with contextlib.suppress(Exception):  # it is said where it is measured
            memory = Memory(torch, name, problem)
            memory.ours()[0].call()
            for _, make in memory.libraries(asked(problem) & {LIGER, COMPILER}):
                make().call()
        torch.cuda.empty_cache()


def compile_ahead(names: Sequence[str], seconds: float) -> None:
    """Warm the caches in a process for each operation and type."""
    pairs = [(name, dtype, seconds) for name in names for dtype in TYPES]
    pool = ProcessPoolExecutor(min(len(pairs), os.cpu_count() or 1), get_context("spawn"))
    with pool, contextlib.suppress(BrokenExecutor):  # what one of them leaves is compiled later
        list(pool.map(warm, *zip(*pairs, strict=True)))


def begun(file: Path, record: recorded.Record) -> recorded.Record:
    """What the file holds, where it is of the same device, commit and libraries; else the empty record."""
    if not file.exists():
        return record
    before = recorded.read(file)

    def made_with(of: recorded.Record) -> list[Any]:
        return [of["device"]["name"], of["environment"]["commit"], of["torch"], of["liger_kernel"]]

    return before if made_with(before) == made_with(record) else record


def put(record: recorded.Record, cell: Cell) -> None:
    """Add a cell, in place of what was found of it before."""
    which = ("operation", "dtype", "rows", "columns")
    others = [other for other in record["cells"] if any(other[k] != cell[k] for k in which)]
    record["cells"] = [*others, cell]


def work(names: Sequence[str]) -> Iterator[tuple[str, list[RowProblem]]]:
    """In order: all cells of each operation, then those again for which PyTorch's compiler is asked."""
    for name in names:
        yield name, [p for p in cells(name) if not compiles(p)]
    for name in names:
        yield name, [p for p in cells(name) if compiles(p)]


def measure(options: argparse.Namespace) -> None:
    """Fill the record."""
    import torch

    until = time.monotonic() + options.seconds
    record = recorded.begin(open_device("cuda").info(), "cells")
    liger = pytorch.version_of("liger_kernel") if find_spec("liger_kernel") else ""
    record = begun(options.file, record | {"torch": torch.__version__, "liger_kernel": liger, "copy": {}})
    names = options.only or OPERATIONS
    compile_ahead(names, options.seconds / 2)
    print(f"compiled, {until - time.monotonic():.0f} s are left", flush=True)
    watch = Stopwatch(torch, FLUSHED_BYTES)
    for name, problems in work(names):
        record["copy"].setdefault(name, copied(torch, watch))
        for problem in problems:
            if time.monotonic() > until:
                break
            put(record, measured(torch, watch, name, problem))
            torch.cuda.empty_cache()
        recorded.save(record, options.file)
        print(*(line for line in table(record) if line[0] == name), f"{until - time.monotonic():.0f} s", flush=True)


# the page


def beside(cell: Cell) -> tuple[str, float] | None:
    """The fastest library of a cell, and how many times its time ours is; None where one of them has none."""
    us = dict(cell.get("us", {}))
    ours = us.pop(OURS, None)
    if ours is None or not us:
        return None
    best = min(us, key=us.__getitem__)
    return best, us[best] / ours


def share(record: recorded.Record, cell: Cell) -> float | None:
    """Of the bandwidth of the copy of as many bytes where that was timed, else of the one timed with the operation."""
    ours = cell.get("us", {}).get(OURS)
    return None if ours is None else cell["bytes"] / ours / 1e3 / cell.get("copy", record["copy"][cell["operation"]])


def mean(values: Series) -> str:
    """The geometric mean, as a cell of a table."""
    return f"{frame.geometric_mean(values):.2f}" if len(values) else "-"


def label(cell: Cell) -> str:
    return f"{cell['rows']}x{cell['columns']}"


def found_of(record: recorded.Record, name: str, dtype: str) -> list[Cell]:
    return [cell for cell in record["cells"] if (cell["operation"], cell["dtype"]) == (name, dtype)]


def figures(record: recorded.Record) -> Iterator[tuple[str, str, DataFrame]]:
    """The cells of each operation and type that were measured, with what is said of them: the fastest library and how
    many times its time ours is, the share of the copy, and whether our answer was none or a wrong one."""
    rows = []
    for cell in record["cells"]:
        us, (library, ratio) = cell.get("us", {}), beside(cell) or ("", math.nan)
        bad = OURS in {**cell.get("wrong", {}), **cell.get("failed", {})}
        more = {"library": library, "ratio": ratio, "share": share(record, cell), "bad": bad}
        rows.append({**cell, **more, "label": label(cell), "ours": us.get(OURS), "theirs": us.get(library)})
    groups = dict(list(DataFrame(rows).groupby(["operation", "dtype"], sort=False)))
    yield from ((*key, groups[key]) for key in itertools.product(OPERATIONS, TYPES) if key in groups)


def table(record: recorded.Record) -> Iterator[list[str]]:
    """The rows of the table of means, those of operations that were measured."""
    for name, dtype, found in figures(record):
        beside_one, large = found[found.ratio.notna()], found[found.bytes >= LARGE]
        worst = beside_one.sort_values("ratio", kind="stable").head(1)
        yield [
            name,
            dtype,
            f"{len(beside_one)} of {sum(problem.dtype == dtype for problem in cells(name))}",
            str(found.bad.sum()),
            mean(beside_one.ratio),
            mean(large.ratio.dropna()),
            mean(large.share.dropna()),
            next((f"{row.ratio:.2f} ({row.label})" for row in worst.itertuples()), "-"),
        ]


def slowest(record: recorded.Record) -> Iterator[list[str]]:
    """The three slowest cells of each operation and type that are slower than a library."""
    for name, dtype, found in figures(record):
        slow = found.sort_values("ratio", kind="stable").head(3)
        for row in slow[slow.ratio < SLOWER].itertuples():
            times = f"{row.ours:.1f}", f"{row.bytes / row.ours / 1e3:,.0f}", f"{row.theirs:.1f}"
            yield [name, dtype, row.label, row.stage, *times, row.library, f"{row.ratio:.2f}"]


def short_of_the_copy(record: recorded.Record) -> Iterator[list[str]]:
    """The large cells that are slower than a copy should be, with their stages."""
    for name, dtype, found in figures(record):
        short = found[(found.bytes >= LARGE) & (found.share < SHORT_OF_IT)]
        for row in short.sort_values("share", kind="stable").itertuples():
            times = f"{row.ours:.1f}", f"{row.bytes / row.ours / 1e3:,.0f}"
            yield [name, dtype, row.label, row.stage, *times, f"{row.share:.2f}"]


def troubles(record: recorded.Record) -> Iterator[list[str]]:
    """Who did not solve cells, and what was the matter in the first of them."""
    seen: dict[tuple[str, str, str], list[str]] = {}
    for cell in record["cells"]:
        said = {who: f"off by {off} of the norm" for who, off in cell.get("wrong", {}).items()}
        said |= cell.get("failed", {}) | ({OURS: cell["refused"]} if "refused" in cell else {})
        for who, what in said.items():
            seen.setdefault((cell["operation"], cell["dtype"], who), []).append(f"{label(cell)}: {what}")
    for (name, dtype, who), cases in seen.items():
        yield [name, dtype, who, str(len(cases)), cases[0].replace("|", "/")]


def chart(name: str) -> str:
    """The file of an operation's heat map, beside the page."""
    return f"rows-{name}.png"


def draw(record: recorded.Record, folder: Path) -> list[Path]:
    """A heat map of each operation that was measured."""
    import grids

    from workbench.report import plots

    written = []
    for name in (n for n in OPERATIONS if any(cell["operation"] == n for cell in record["cells"])):
        panels = []
        for dtype in TYPES:
            ratios, shares, words = {}, {}, {}
            for cell in found_of(record, name, dtype):
                place = ROWS.index(cell["rows"]), COLUMNS.index(cell["columns"])
                pair, part = beside(cell), share(record, cell)
                if pair:
                    ratios[place] = pair[1]
                if part:
                    shares[place] = part
                words[place] = "alone" if part else "wrong" if OURS in cell.get("wrong", {}) else "failed"
            panels.append(grids.Grid(f"{dtype}: fastest library / ours", grids.RATIO, ratios, words))
            panels.append(grids.Grid(f"{dtype}: percent of the copy", grids.SHARE, shares, words))
        made = grids.figure(panels, ("rows", ROWS), ("columns", COLUMNS))
        written.append(plots.save(made, folder / chart(name)))
    return written


def page(record: recorded.Record) -> str:
    """The Markdown page."""

    def shown(rows: Iterator[list[str]], *headers: str) -> str:
        return tabulate(list(rows), headers, tablefmt="pipe", disable_numparse=True) + "\n"

    copies = list(record["copy"].values())
    liger = f", liger_kernel {record['liger_kernel']}" if record["liger_kernel"] else ", without Liger"
    compiled = ", ".join(f"{rows}x{columns}" for rows, columns in COMPILED)
    means = "geometric mean", "from 256 MB on", "share of the copy from 256 MB on", "worst"
    parts = [
        "# Operations on rows, over rows and columns\n",
        f"Written by `benchmarks/row_heat_map.py` from [the JSON beside it]({RECORD.name}). A ratio is the time of the "
        "fastest library divided by ours: above 1 ours is faster. A time is the median of "
        f"{SAMPLES} calls, alternating with the others, between events of the device, the L2 flushed before each.\n",
        "The libraries are PyTorch (for gradients of norms, what its autograd calls), Liger from 256 rows and 1024 "
        f"columns on, and torch.compile for bf16 of {compiled}. Autograd and Liger get the statistics of the forward "
        "pass for their gradients; our kernels compute them. Liger's cross entropy computes the loss alone. Answers "
        "are compared with those of PyTorch in float64, and a wrong answer has no time.\n",
        f"A copy of {2 * COPIED_BYTES / 1e6:.0f} MB, read and written, ran at {min(copies):,.0f} to {max(copies):,.0f} "
        "GB/s. *Share of the copy* compares with that, or with a copy of as many bytes where the file has one; it may "
        "be above 1 where results stay in the L2.\n",
        recorded.made_on(record) + f"PyTorch {record['torch']}{liger}.\n",
        shown(table(record), "", "", "cells", "wrong", *means),
        "## The slowest cells\n",
        f"The three lowest ratios of each operation and type, if they are below {SLOWER}.\n",
        shown(slowest(record), "", "", "cell", "stage", "us", "GB/s", "theirs, us", "library", "ratio"),
    ]
    if rows := list(short_of_the_copy(record)):
        parts += ["## Slower than the copy\n", f"Cells from {LARGE / 1e6:.0f} MB on below {SHORT_OF_IT} of the copy.\n"]
        parts += [shown(iter(rows), "", "", "cell", "stage", "us", "GB/s", "share of the copy")]
    if rows := list(troubles(record)):
        parts += ["## Not solved\n", shown(iter(rows), "", "", "by", "cells", "the first")]
    for name in dict.fromkeys(cell["operation"] for cell in record["cells"]):
        parts += [f"## `{name}`\n", f"![Ratio and share of {name} over rows and columns]({chart(name)})\n"]
    return "\n".join(parts)


if __name__ == "__main__":
    recorded.main(
        __doc__,
        RECORD,
        measure,
        page,
        draw,
        only={"nargs": "*", "default": [], "choices": list(OPERATIONS)},
        seconds={"type": float, "default": 500.0},
    )

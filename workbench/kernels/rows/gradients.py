"""What the gradients of the norms share: their inputs and the ladder of their stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from ...model.arrays import Array, Arrays
from ...model.distributions import Distribution
from ...model.dtypes import FP32
from ...model.launch import H200, Argument, Launch, Plan, ceil_div, machine, scaled
from ...model.operation import Operation
from ...model.parts import Axis
from ...model.stage import every_problem
from . import groups, ladder
from .problem import SUITE, RowProblem, draw_rows

HELD = {"THREADS": 128, "VECTORS": 2, "MOST": 4}
"""Threads of the smallest block; vectors of x and of dy that a thread holds, where more threads can be had, and at
most."""

ADDED_UP = {"MULTIPROCESSORS": H200.multiprocessors, "ADDERS": 512}
FUSED = {"THREADS": 256, "VECTORS": 4, "MOST": 4, "WAVES": 1, **ADDED_UP, "FETCH": 0}
"""As before; how often all multiprocessors are full of blocks that share the rows; threads of a block that adds up what
they keep; whether there is room for the next row, at the cost of blocks, or only where registers are left."""

FEWEST_ADDED, ADDING = 8, 512
"""Of the columns that a block adds up: as many as one sector of memory holds sums; blocks that do so at once."""

FEW_TURNS = 3
"""Of clusters that take rows alternately: that many, or fewer, are as many in all of them, so that there are fewer
clusters, each of which keeps sums."""

FEW_EVEN = groups.MANY
"""With fewer rows long ones are `narrow`, though they are whole vectors of 16 bytes: layer norm's gradients of
25584x2632 take 224 us as they are, and 277 so; RMS norm's of 256x1024 11 and 9.7 (H200)."""

NARROW_HELD, MOST_NARROW = 8, groups.MOST_THREADS * 16
"""Elements of x that a thread holds of a narrow row, where more threads can be had; columns of the longest one."""

NARROW_GROUPS = (2, 4, 8, 16, 32, 128, 256, 512)
"""Threads that share a narrow row."""

SPLIT = {"THREADS": 256, "VECTORS": 4, "TARGET": 1056, "NARROWEST": 8, "UNROLL": 2}
"""As before; the least number of blocks that few rows are split into; threads of the smallest group that shares a row
in the second kernel, and rows that a thread of it loads at once."""

FILLED = 128
"""Multiprocessors that clusters of more than two blocks can fill."""

CLUSTERED = {**FUSED, "THREADS": 128, "LARGEST": 8, "FILLED": FILLED}
"""As `FUSED`; the most blocks of a cluster; `FILLED`."""

FETCHED = {"VECTORS": 4, "STAGES": 3, "MOST": 512, "RESIDENT": 1, **ADDED_UP}
"""As `ladder.PREFETCHED`; as `FUSED`."""

MOST_FETCHED = 32
"""Elements of x and of dy that a thread holds: it keeps the sums of as many columns."""

WORTH_FETCHING = {1: 2**14 + 1, 2: 2**13}
"""Bytes of a row from which on it is fetched ahead, by the sums of a column: RMS norm's gradients of 16384x8192 take
209 us so, and 205 in `fused`, those of 11928x9512 197 and 240 (bf16, H200)."""

MOST_AHEAD = 2**15
"""Columns of a row up to which rows are fetched ahead. Longer ones are split, however many rows there are: RMS norm's
gradients of 2048x65536 took 443 us fetched ahead, and 343 split, those of 257x20872 25 and 31, of 576x73472 174 and 131
(bf16, H200)."""

ALONE = {"THREADS": 512, "VECTORS": 4, "MOST": 4}
"""Of the one cluster that takes all rows: threads of its largest block; as `HELD`."""

ALONE_SHAPES = ((128, 1), (256, 2), (256, 4), (512, 2))
"""Threads of its blocks, and vectors that each holds while there are threads: the best of these is taken."""

MOST_ALONE, MOST_KEPT = 2**20, 2**15
"""Elements of the largest matrix that one cluster takes; bytes of the sums that a block keeps in shared memory."""

SMALL, FEW_LOADS = 2**16, 4
"""Elements of the largest matrix for which it is preferred, if its threads load at most so many vectors of x."""

MOST_OF_LANES = 128
"""Vectors of a row that lanes of a warp hold, four each."""

REGISTERS, LEAST_REGISTERS = 2**16, 40
"""Of a multiprocessor; of a thread, however few elements it holds."""

SECTOR = 32
"""Bytes that memory moves at once."""


@dataclass(frozen=True)
class NormGradientProblem(ladder.NormProblem):
    """x, dy, dx: (rows, columns), x and dy with `pad_x` elements between their rows, dx with `pad_y`; w, dw and, where
    there is one, db: (columns,). Gradients are of type `out`."""

    operations: ClassVar[int] = 8
    gradients: ClassVar[tuple[str, ...]] = ("dw",)
    distributed: ClassVar[tuple[str, ...]] = ("x", "dy")
    taken: ClassVar[tuple[str, ...]] = ("x", "w", "dy")
    result: ClassVar[str] = "dx"

    def arrays(self) -> dict[str, Array]:
        row = Array((self.columns,), self.out_type, output=True)
        return super().arrays() | dict.fromkeys(self.gradients, row)

    def axes(self) -> tuple[Axis, ...]:
        return (replace(super().axes()[0], sums=self.gradients),)

    def inputs(self) -> Arrays:
        rng = self.rng()
        x, w = self.draw_rows(rng), self.weights(rng)
        return {"x": x, "w": w, "dy": draw_rows(rng, (self.rows, self.columns), self.in_type)}

    def controls(self, inputs: Arrays, expected: Arrays, power: Any) -> dict[str, Arrays]:
        """Answers that are wrong for every gradient of a norm. `power`: of each row, what eps is added to."""
        zeros = {name: np.zeros_like(value) for name, value in expected.items()}
        wrong = {name: expected | {"dx": value} for name, value in ladder.common_controls(expected["dx"]).items()}
        for name in self.gradients:
            wrong[f"{name} forgotten"] = expected | {name: zeros[name]}
            wrong[f"{name} shifted"] = expected | {name: np.roll(expected[name], 1)}
        wrong["weights forgotten"] = expected | {"dx": self.reference({**inputs, "w": np.ones(self.columns)})["dx"]}
        if np.any(power < 4 * self.eps32):
            with np.errstate(divide="ignore", invalid="ignore"):
                wrong["eps forgotten"] = expected | {"dx": replace(self, eps=0.0).reference(inputs)["dx"]}
        return wrong


G = TypeVar("G", bound=NormGradientProblem)

ONE_WAY = 0.25
"""What an equal term adds to the error of a sum in order, in unit roundoffs of the sum: all terms between two powers of
two are rounded in one direction, by half of a unit roundoff of the partial sum in the mean. Sums in fp32 of 131,071
equal rows were off by 0.13 a term in NumPy, and by 0.024 in a kernel that adds up parts."""


def sum_bound(terms: np.ndarray[Any, Any], off: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Error of sums over the rows of `terms`, (rows, columns), each of which is off by at most `off`."""
    rounding = (4 * np.sqrt(len(terms)) + 4) * np.abs(terms).sum(axis=0) + ONE_WAY * len(terms) * np.abs(
        terms.sum(axis=0)
    )
    error: np.ndarray[Any, Any] = FP32.unit_roundoff * rounding + off.sum(axis=0) + len(terms) * FP32.smallest
    return error


def operation(problem: type[G], name: str, summary: str, states: int, state: int) -> Operation[G]:
    """The operation, with its ladder. Of each row `states` numbers say how it was normalised, and of a part of one
    `state` numbers what it adds to its row."""
    operation = ladder.row_operation(
        problem, name, summary, fastest, suite=ladder.timed(SUITE[:4]), work=(12_000, 2_000_000), eps=ladder.EPSILONS
    )
    _declare_separate(operation, states)
    _declare_fused(operation)
    _declare_cluster(operation)
    _declare_split(operation, state)
    _declare_one_cluster(operation)
    _declare_prefetch(operation)
    return operation


def _declare_separate(operation: Operation[G], states: int) -> None:
    """The stages that have a kernel for dx, which leaves how rows were normalised, and one for the other gradients."""
    name, problem = operation.name, operation.problem
    gradients = problem.gradients

    def columns(p: G, size: Mapping[str, int], each: int) -> Launch:
        shape = np.int32(p.rows), np.int32(p.columns), np.int64(p.ldx)
        grid = (ceil_div(p.columns, each), 1, 1)
        return Launch(f"{name}_columns", grid, (size["THREADS"], 1, 1), ("x", "dy", "states", *gradients, *shape))

    def both(rows: Launch, p: G, size: Mapping[str, int], each: int) -> Plan:
        scratch = {"states": Array((p.rows, states), FP32, output=True)}
        return Plan((rows, columns(p, size, each)), scratch=scratch)

    arrays = ("x", "w", "dy", "dx", "states")

    @operation.stage(
        "naive",
        idea="one thread takes one row, and then one column",
        parameters={"THREADS": 128},
        supports=groups.few_enough,
        alignment=4 * states,
    )
    def naive(p: G, size: Mapping[str, int]) -> Plan:
        rows = ladder.thread_rows(f"{name}_naive", p, size, (*arrays, *p.scalars()))
        return both(rows, p, size, size["THREADS"])

    @operation.stage(
        "warp_row",
        after="naive",
        idea="a warp shares a row; the warps of a block share columns",
        parameters={"THREADS": 256},
        space={"THREADS": ladder.THREADS[1:]},
        supports=every_problem,
    )
    def warp_row(p: G, size: Mapping[str, int]) -> Plan:
        rows = ladder.warp_rows(f"{name}_warp_row", p, size, (*arrays, *p.scalars()))
        return both(rows, p, size, ladder.WARP)

    @operation.stage(
        "registers",
        after="warp_row",
        idea="threads hold the rows in registers, so they are read once for dx",
        parameters=HELD,
        sizes=groups.block,
        supports=groups.fits(groups.block, HELD, "a block"),
        edge_cases=(
            problem(rows=2, columns=10_000, dtype="bf16", out="bf16"),
            problem(rows=3, columns=5001, dtype="fp32", out="fp32"),
            problem(rows=127, columns=1, dtype="bf16", distribution=Distribution.SUBNORMAL),
        ),
        alignment=16,
    )
    def registers(p: G, size: Mapping[str, int]) -> Plan:
        rows = ladder.held_rows(f"{name}_registers", p, size, (*arrays, *p.scalars()))
        return both(rows, p, size, ladder.WARP)


def _declare_fused(operation: Operation[G]) -> None:
    """The stage that reads x and dy once for all gradients."""
    name, problem = operation.name, operation.problem
    gradients = problem.gradients

    def size_of(p: RowProblem, size: Mapping[str, int]) -> dict[str, int]:
        return with_added(p, fused_sizes(p, size, len(gradients)))

    @operation.stage(
        "fused",
        after="registers",
        idea="a block adds up dw in registers, row after row, so rows are read once for all gradients",
        parameters=FUSED,
        sizes=size_of,
        supports=groups.fits(lambda p, size: kept(p, size, len(gradients)), FUSED, "a block"),
        edge_cases=(
            problem(rows=3, columns=8000, dtype="bf16", out="bf16"),
            problem(rows=2100, columns=9, dtype="fp32", out="fp32"),
            # narrow: of 2, 4 and 8 bytes
            problem(rows=9, columns=1655, dtype="bf16", out="bf16", pad_x=3),
            problem(rows=70, columns=334, dtype="fp16"),
            problem(rows=3, columns=2766, dtype="fp32", out="fp32"),
            problem(rows=2, columns=9001, dtype="fp32", out="fp32"),  # more than is narrow
        ),
    )
    def fused(p: G, size: Mapping[str, int]) -> Plan:
        return kept_sums(f"{name}_fused", p, size, scaled(size["MULTIPROCESSORS"]) * size["RESIDENT"] * size["WAVES"])


def kept_sums(kernel: str, p: NormGradientProblem, size: Mapping[str, int], most: int, shared_bytes: int = 0) -> Plan:
    """A kernel whose clusters, at most `most` of them, take rows alternately and store what they keep of the columns,
    and one that adds that up."""
    at_once = ceil_div(p.rows, size["THREADS"] // size.get("GROUP", size["THREADS"]))
    turns = ceil_div(at_once, most)
    clusters = ceil_div(at_once, turns) if turns <= FEW_TURNS else most
    blocks, block = size.get("BLOCKS", 1), (size["THREADS"], 1, 1)
    args: tuple[Argument, ...] = ("x", "w", "dy", "dx", "partial", *p.scalars())
    first = Launch(kernel, (clusters * blocks, 1, 1), block, args, shared_bytes=shared_bytes, cluster=(blocks, 1, 1))
    extent = np.int32(p.columns), np.int32(clusters)
    combine = f"{kernel.rsplit('_', 1)[0]}_combine"
    grid = (ceil_div(places(p, size), size["ADDED"]), 1, 1)
    second = Launch(combine, grid, (size["ADDERS"], 1, 1), ("partial", *p.gradients, *extent))
    partial = Array((clusters * places(p, size), len(p.gradients)), FP32, output=True)
    return Plan((first, second), scratch={"partial": partial})


def places(p: RowProblem, size: Mapping[str, int]) -> int:
    """For the sums of the columns that the threads of a row have, also of those behind the last column."""
    return size.get("GROUP", size["THREADS"]) * size.get("BLOCKS", 1) * size["VECTORS"] * width(p, size)


def width(p: RowProblem, size: Mapping[str, int]) -> int:
    """Elements of the vectors that rows are moved by."""
    return size.get("ROW_VECTOR_BYTES", groups.row_bytes(p)) // p.widest


def fetched_sizes(p: RowProblem, size: Mapping[str, int], sums: int) -> dict[str, int]:
    """As `prefetch_sizes`, with no more blocks than a multiprocessor has registers for, by what compilers made of
    kernels with 12 to 32 elements a thread. Where it has several, one stage is enough, since one works while another
    waits; and where several share a row, whose w comes from the L1, which has the rest of the memory: layer norm's of
    4853x19888 take 211 us with one stage, and 273 with three (bf16, H200)."""
    found = ladder.prefetch_sizes(p, size, arrays=2)
    registers = 36 + (12 + sums * groups.width(p)) * found["VECTORS"]
    blocks = max(1, min(found["RESIDENT"], REGISTERS // (found["THREADS"] * registers)))
    alone = blocks == found["BLOCKS"] == 1
    return {**found, "RESIDENT": blocks, "STAGES": found["STAGES"] if alone else min(1, found["STAGES"])}


def with_added(p: RowProblem, size: Mapping[str, int]) -> dict[str, int]:
    """The same; ADDED: the columns that a block of the second kernel adds up, few where all blocks work at once so, at
    most one a lane."""
    few = (each for each in (FEWEST_ADDED, 2 * FEWEST_ADDED) if places(p, size) <= ADDING * each)
    return {**size, "ADDED": next(few, ladder.WARP)}


def _declare_cluster(operation: Operation[G]) -> None:
    """The stage whose clusters share long rows."""
    name, problem = operation.name, operation.problem

    def size_of(p: RowProblem, size: Mapping[str, int]) -> dict[str, int]:
        return with_added(p, clustered(p, size, len(problem.gradients)))

    @operation.stage(
        "cluster",
        after="fused",
        idea="the blocks of a cluster share long rows",
        parameters=CLUSTERED,
        space={"THREADS": (128, 256, 512), "VECTORS": (1, 2, 4), "FETCH": (0, 1)},
        sizes=size_of,
        supports=groups.fits(size_of, CLUSTERED, "a cluster"),
        architecture=90,
        edge_cases=(
            problem(rows=3, columns=20_000, dtype="bf16", out="bf16"),
            problem(rows=2, columns=9001, dtype="fp32", out="fp32"),
        ),
    )
    def cluster(p: G, size: Mapping[str, int]) -> Plan:
        whole = scaled(size["MULTIPROCESSORS"]) if size["BLOCKS"] <= 2 else scaled(size["FILLED"])
        return kept_sums(f"{name}_cluster", p, size, whole * size["RESIDENT"] // size["BLOCKS"])


def _declare_prefetch(operation: Operation[G]) -> None:
    """The stage that fetches rows ahead."""
    name, problem = operation.name, operation.problem

    def size_of(p: RowProblem, size: Mapping[str, int]) -> dict[str, int]:
        return with_added(p, {**size, **fetched_sizes(p, size, len(problem.gradients))})

    @operation.stage(
        "prefetch",
        after="cluster",
        idea="bulk copies fetch the next rows of x and dy while threads work on one",
        parameters=FETCHED,
        space={"VECTORS": (1, 2, 4), "STAGES": (1, 2, 3), "MOST": (128, 256, 512), "RESIDENT": (1, 2, 3)},
        sizes=size_of,
        supports=ladder.prefetch_fits(FETCHED, arrays=2, most=MOST_FETCHED),
        edge_cases=(
            problem(rows=300, columns=16, dtype="bf16", out="bf16"),
            problem(rows=3, columns=20_480, dtype="fp32", out="fp32"),
        ),
    )
    def fetched(p: G, size: Mapping[str, int]) -> Plan:
        most = scaled(size["MULTIPROCESSORS"]) if size["BLOCKS"] <= 2 else scaled(FILLED)
        memory = ladder.bytes_ahead(p, size, arrays=2)
        return kept_sums(f"{name}_prefetch", p, size, most * size["RESIDENT"] // size["BLOCKS"], memory)


def _declare_one_cluster(operation: Operation[G]) -> None:
    """The stage that solves a small problem with one cluster."""
    name, problem = operation.name, operation.problem
    sums = len(problem.gradients)

    def size_of(p: RowProblem, size: Mapping[str, int]) -> dict[str, int]:
        return alone(p, size, sums)

    def supports(p: RowProblem) -> str | None:
        if p.rows * p.columns > MOST_ALONE:
            return f"{p.rows} rows of {p.columns} columns are too many for one cluster"
        size = size_of(p, ALONE)
        held = size["GROUP"] * size["VECTORS"] * width(p, size)
        if size["BLOCKS"] > 1 and 4 * sums * held > MOST_KEPT:
            return f"the sums of {p.columns} columns are more than a block keeps in shared memory"
        return groups.fits(lambda p, size: kept(p, size, sums), ALONE, "a block")(p)

    @operation.stage(
        "one_cluster",
        after="fused",
        idea="one cluster takes a small matrix, without a second launch",
        parameters=ALONE,
        space={"THREADS": (128, 256, 512), "VECTORS": (1, 2, 4)},
        sizes=size_of,
        supports=supports,
        architecture=90,
        edge_cases=(
            problem(rows=1, columns=8000, dtype="bf16", out="bf16"),
            problem(rows=90, columns=100, dtype="fp32", out="fp32"),
            problem(rows=40, columns=1001, dtype="bf16", out="fp32"),
            problem(rows=2100, columns=9, dtype="fp32", out="fp32"),
        ),
    )
    def one_cluster(p: G, size: Mapping[str, int]) -> Launch:
        blocks = size["BLOCKS"]
        args: tuple[Argument, ...] = ("x", "w", "dy", "dx", *problem.gradients, *p.scalars())
        return Launch(f"{name}_one_cluster", (blocks, 1, 1), (size["THREADS"], 1, 1), args, cluster=(blocks, 1, 1))


def _declare_split(operation: Operation[G], state: int) -> None:
    """The stage that splits rows over all blocks."""
    name, problem = operation.name, operation.problem
    gradients = problem.gradients

    @operation.stage(
        "split_rows",
        after="registers",
        idea="few rows are split over all blocks; then columns are split, so no partial sums of dw are stored",
        parameters=SPLIT if len(gradients) == 1 else {**SPLIT, "UNROLL": 4},
        space={"THREADS": (128, 256, 512), "VECTORS": (1, 2, 4), "TARGET": (528, 1056, 2112), "UNROLL": (1, 2, 4)},
        sizes=split,
        supports=groups.worth_splitting,
        edge_cases=(
            problem(rows=1, columns=30_000, dtype="bf16", out="bf16"),
            problem(rows=2, columns=9001, dtype="fp32", out="fp32"),
            problem(rows=300, columns=1032, dtype="bf16", out="bf16"),
            # an infinite dy, of which parts say another sign than the row
            problem(rows=1, columns=509, dtype="fp32", out="fp32", distribution=Distribution.NON_FINITE, seed=3989),
        ),
    )
    def split_rows(p: G, size: Mapping[str, int]) -> Plan:
        count, launch = ladder.on_parts(p, size)
        columns, ldx = np.int32(p.columns), np.int64(p.ldx)
        first = launch(f"{name}_parts", ("x", "w", "dy", "states", columns, ldx))
        wide = ceil_div(ceil_div(p.columns, groups.width(p)), size["GROUP"])  # in groups
        each = ceil_div(wide, scaled(size["TARGET"]))
        args: tuple[Argument, ...] = ("x", "w", "dy", "states", "dx", *gradients, np.int32(p.rows), columns, ldx)
        args = (*args, np.int64(p.ldy), np.int32(count), np.int32(each * size["GROUP"]), np.float32(p.eps))
        second = Launch(f"{name}_gradients", (ceil_div(wide, each), 1, 1), (size["THREADS"], 1, 1), args)
        return Plan((first, second), scratch={"states": Array((p.rows * count, state), FP32, output=True)})


def split(p: RowProblem, size: Mapping[str, int]) -> dict[str, int]:
    """GROUP threads that share a row in the second kernel: all of a block have the same one, or as many rows as there
    are, and small groups where there would be few blocks; SHARE threads that combine the parts of a row."""
    threads = size["THREADS"]
    group = threads // min(groups.power_of_two(p.rows), threads // ladder.WARP)
    least = machine().multiprocessors * groups.width(p)
    while group > size["NARROWEST"] and p.rows * group > threads and p.columns < least * group:
        group //= 2
    count, _ = groups.parts(p, size)
    share = threads if p.rows == 1 else min(ladder.WARP, groups.power_of_two(count))
    return {**size, "GROUP": group, "SHARE": share}


def kept(p: RowProblem, size: Mapping[str, int], sums: int) -> dict[str, int]:
    """GROUP threads that hold a row, VECTORS vectors each, in blocks of THREADS, of which RESIDENT fit on a
    multiprocessor; AHEAD: with the next row, too. `sums` are kept of every column."""
    count = ceil_div(p.columns, groups.width(p))  # every row begins with the first vector of its first thread
    return resident(
        groups.shared(count, size["THREADS"], size["VECTORS"], groups.MOST_THREADS), p, sums, size.get("FETCH", 0)
    )


def fused_sizes(p: RowProblem, size: Mapping[str, int], sums: int) -> dict[str, int]:
    """The same, in smaller blocks where rows are few: as many as there are multiprocessors. With two sums of fp32 a
    thread of a long row has fewer columns, and the next row instead."""
    count = ceil_div(p.columns, groups.width(p))
    if count > MOST_OF_LANES and sums > 1 and p.widest == 4 and p.rows >= groups.MANY:
        return kept(p, {**size, "THREADS": 128, "VECTORS": 2, "FETCH": 1}, sums)
    few = odd(p) or (count >= MOST_OF_LANES and p.rows < FEW_EVEN and p.columns <= MOST_NARROW)
    chosen = narrow(p, size["THREADS"], NARROW_HELD) if few else kept(p, size, sums)
    if chosen["GROUP"] <= ladder.WARP and _blocks(p, chosen) < machine().multiprocessors:
        while chosen["THREADS"] > 2 * ladder.WARP and _blocks(p, chosen) < machine().multiprocessors:
            chosen["THREADS"] //= 2
        found = resident(chosen, p, sums, size["FETCH"])
        return {**found, "RESIDENT": min(2, found["RESIDENT"])}
    return narrow_resident(p, {**size, **chosen}, sums) if few else chosen


def odd(p: RowProblem) -> bool:
    """Whether rows are `narrow` because they are not whole vectors of 16 bytes: 11720x3492 takes 146 us so, and 228
    otherwise, 69928x215 47 and 95 (layer norm, H200)."""
    return p.columns <= MOST_NARROW and not groups.defines(p)["EVEN"]


def narrow(p: RowProblem, threads: int, held: int) -> dict[str, int]:
    """GROUP threads that hold a row in VECTORS vectors each, of so few bytes that the row is whole vectors and that few
    threads are without work: `held` elements while there are threads, in blocks of `threads` where lanes share a row.
    Of 16 bytes that begin anywhere a thread moves each element by itself, and its neighbours do not move those beside
    it."""
    extents = p.columns, p.ldx, p.ldy
    widths = [n for n in (8, 4, 2, 1) if n * p.widest <= 16 and groups.even(n, *extents)]
    group = next((g for g in NARROW_GROUPS if g * held >= p.columns), groups.MOST_THREADS)

    def elements(n: int) -> int:
        return n * ceil_div(ceil_div(p.columns, n), group)

    step = min(widths, key=lambda n: (ceil_div(elements(n), 4), -n))
    group = max(group, SECTOR // (step * p.widest))
    threads = group if group > ladder.WARP else threads
    shape = {"GROUP": group, "VECTORS": ceil_div(ceil_div(p.columns, step), group), "THREADS": threads}
    return {**shape, "ROW_VECTOR_BYTES": step * p.widest, "EVEN": 1}


def narrow_resident(p: RowProblem, chosen: Mapping[str, int], sums: int) -> dict[str, int]:
    """With the blocks that fit on a multiprocessor; AHEAD: with the next row, where one follows and there is room. The
    registers that a thread needs are an estimate, by what compilers made of kernels with 3 to 16 elements."""
    threads, elements = chosen["THREADS"], chosen["VECTORS"] * width(p, chosen)

    def fit(ahead: int) -> int:
        registers = max(LEAST_REGISTERS, 14 + elements * (3 + sums + (1 + sums) * ahead))
        return REGISTERS // (threads * 8 * ceil_div(registers, 8))

    blocks = max(1, fit(chosen["FETCH"]))
    several = p.rows > scaled(chosen["MULTIPROCESSORS"]) * blocks * (threads // chosen["GROUP"])
    return {**chosen, "RESIDENT": blocks, "AHEAD": int(several and fit(1) >= blocks)}


def _blocks(p: RowProblem, size: Mapping[str, int]) -> int:
    """That have rows at once."""
    return ceil_div(p.rows * size["GROUP"], size["THREADS"])


def clustered(p: RowProblem, size: Mapping[str, int], sums: int) -> dict[str, int]:
    """The same, of as few BLOCKS of a cluster as hold a row with so many threads and vectors, or of at most LARGEST
    with more vectors."""
    count, blocks = ceil_div(p.columns, groups.width(p)), 1
    while blocks < size["LARGEST"] and size["THREADS"] * size["VECTORS"] * blocks < count:
        blocks *= 2
    chosen = groups.shared(ceil_div(count, blocks), size["THREADS"], size["VECTORS"], size["THREADS"])
    return resident(chosen, p, sums, size["FETCH"]) | {"BLOCKS": blocks}


def alone(p: RowProblem, size: Mapping[str, int], sums: int) -> dict[str, int]:
    """GROUP threads that hold a row, VECTORS vectors each, in BLOCKS blocks of THREADS that take all rows; AHEAD: with
    the next row, where there is one. Threads and vectors are those with which a thread loads fewest vectors."""
    shapes = (s for s in ALONE_SHAPES if s[0] <= size["THREADS"] and s[1] <= size["VECTORS"])
    return min((_alone(p, threads, vectors, sums) for threads, vectors in shapes), key=lambda found: loads(p, found))


def _alone(p: RowProblem, threads: int, vectors: int, sums: int) -> dict[str, int]:
    if odd(p):
        chosen = narrow(p, threads, vectors * groups.width(p))
    else:
        chosen = kept(p, {"THREADS": threads, "VECTORS": vectors}, sums)
    at_once = chosen["THREADS"] // chosen["GROUP"]
    blocks = min(groups.MOST_BLOCKS, groups.power_of_two(ceil_div(p.rows, at_once)))
    room = held_registers(p, chosen) * chosen["THREADS"] <= REGISTERS // 8
    return {**chosen, "BLOCKS": blocks, "AHEAD": int(room and p.rows > at_once * blocks)}


def loads(p: RowProblem, size: Mapping[str, int]) -> int:
    """Vectors of x that a thread of the one cluster loads, of 16 bytes or of so many elements."""
    vectors = ceil_div(size["VECTORS"] * width(p, size), groups.width(p))
    return vectors * ceil_div(p.rows, size["THREADS"] // size["GROUP"] * size["BLOCKS"])


def held_registers(p: RowProblem, size: Mapping[str, int]) -> int:
    """Of what a thread holds of a row of x and of dy."""
    return 2 * ceil_div(width(p, size) * p.widest, 4) * size["VECTORS"]


def resident(chosen: dict[str, int], p: RowProblem, sums: int, fetch: int) -> dict[str, int]:
    """With the blocks that fit on a multiprocessor. The registers that a thread needs are an estimate from above for
    rows of whole vectors. Those of a next row that begins anywhere take three times as many until they are shifted."""
    of_vectors = held_registers(p, chosen)
    of_next = of_vectors if {**groups.defines(p), **chosen}["EVEN"] else 3 * of_vectors
    registers = 24 + of_vectors + 2 * chosen["VECTORS"] * width(p, chosen) * sums
    blocks = max(1, REGISTERS // (chosen["THREADS"] * (registers + fetch * of_next)))
    ahead = chosen["THREADS"] * blocks * (registers + of_next) <= REGISTERS
    return {**chosen, "RESIDENT": blocks, "AHEAD": int(ahead)}


def fastest(p: NormGradientProblem) -> tuple[str, ...]:
    """As measured on an H100 and an H200: one cluster where its threads load few vectors; the longest rows are split,
    and shorter ones where they are few and have two sums of a column, since a block would store these once for each or
    two of them; long ones that every multiprocessor has one of are fetched ahead; the others are kept by blocks."""
    small = p.rows * p.columns <= SMALL and loads(p, alone(p, ALONE, len(p.gradients))) <= FEW_LOADS
    small = small and not (
        p.rows >= scaled(groups.ENOUGH) and groups.vectors(p) >= ladder.WARP
    )  # a warp a row, or more
    row, single = p.columns * p.in_type.itemsize, len(p.gradients) == 1
    few = not single and p.rows < groups.MANY and p.columns > MOST_NARROW
    fetched = p.rows >= machine().multiprocessors and row >= WORTH_FETCHING[len(p.gradients)]
    unfit = not single and p.columns > MOST_NARROW and not groups.defines(p)["EVEN"]
    return (
        *(("one_cluster",) if small else ()),
        *(("split_rows",) if few or p.columns > MOST_AHEAD else ()),
        *(("prefetch",) if fetched else ()),
        *(("registers",) if unfit else ()),
        "fused",
        *(("cluster",) if p.rows >= groups.MANY and single and p.in_type.itemsize == 4 else ()),
        "split_rows",
        "registers",
        "warp_row",
    )

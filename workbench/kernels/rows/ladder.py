"""Operations on rows, and the stages that their ladders share: a thread, a warp or a group of threads takes a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from ...model.arrays import Array
from ...model.dtypes import FP32
from ...model.launch import Argument, Launch, Plan, ceil_div, machine
from ...model.operation import Operation
from ...model.problem import Size, Tier
from ...model.stage import every_problem
from . import groups
from .problem import SUITE, RowProblem, draw_rows, row_problems

WARP = 32

THREADS = (64, 128, 256, 512, 1024)
HELD = {"THREADS": 128, "VECTORS": 4}
"""Threads of the smallest block; vectors that a thread holds, where more threads can be had."""

CLUSTERED = {**HELD, "LARGEST": 256}
"""As before; the largest block while there are more of them to be had for a row."""

SPLIT = {"THREADS": 256, "VECTORS": 4, "TARGET": 4224}
"""As before; the least number of blocks that few rows are split into."""

R = TypeVar("R", bound=RowProblem)


def timed(shapes: Sequence[tuple[int, int]]) -> tuple[tuple[str, int, int], ...]:
    """These rows and columns of both types that are timed."""
    return tuple((dtype, *shape) for dtype in ("bf16", "fp32") for shape in shapes)


def row_operation(
    problem: type[R],
    name: str,
    summary: str,
    fastest: tuple[str, ...] | Callable[[R], tuple[str, ...]],
    *,
    suite: Sequence[tuple[str, int, int]] = timed(SUITE),
    defines: Callable[[R], Mapping[str, str | int]] = groups.defines,
    work: tuple[int, int] = (20_000, 4_000_000),
    **drawn: Sequence[Any],
) -> Operation[R]:
    """An operation on rows. It is timed on the types, rows and columns of `suite`, with outputs of the same type where
    there is a choice. `work` is that of random problems in the emulator and on a GPU; `drawn` are strategies of more
    fields."""

    def of(dtype: str, rows: int, columns: int) -> R:
        out: dict[str, Any] = {"out": dtype} if dtype in problem.choices.get("out", ()) else {}
        return problem(rows=rows, columns=columns, dtype=dtype, **out)

    return Operation(
        name=name,
        summary=summary,
        problem=problem,
        problems=row_problems(problem, **drawn),
        suite=tuple(of(*shape) for shape in suite),
        defines=defines,
        emulator_size=Size(extent=6000, work=work[0]),
        cuda_size=Size(extent=200_000, work=work[1]),
        metric="GB/s",
        fastest=fastest,
    )


# ------------------------------------------------------------------------------------------------------------- launches


class PartsLaunch(Protocol):
    """A launch with a block for each part of every row."""

    def __call__(self, kernel: str, args: tuple[Argument, ...], after: tuple[Argument, ...] = ()) -> Launch: ...


def thread_rows(kernel: str, p: RowProblem, size: Mapping[str, int], args: tuple[Argument, ...]) -> Launch:
    """A thread takes a row."""
    return Launch(kernel, (ceil_div(p.rows, size["THREADS"]), 1, 1), (size["THREADS"], 1, 1), args)


def warp_rows(kernel: str, p: RowProblem, size: Mapping[str, int], args: tuple[Argument, ...]) -> Launch:
    """A warp takes a row."""
    return Launch(kernel, (ceil_div(p.rows, size["THREADS"] // WARP), 1, 1), (size["THREADS"], 1, 1), args)


def held_rows(kernel: str, p: RowProblem, size: Mapping[str, int], args: tuple[Argument, ...]) -> Launch:
    """GROUP threads of each of BLOCKS blocks, which are a cluster, take a row."""
    blocks = ceil_div(p.rows, size["THREADS"] // size["GROUP"]) * size["BLOCKS"]
    return Launch(kernel, (blocks, 1, 1), (size["THREADS"], 1, 1), args, cluster=(size["BLOCKS"], 1, 1))


def on_parts(p: RowProblem, size: Mapping[str, int]) -> tuple[int, PartsLaunch]:
    """Into how many parts a row is split, and what launches a kernel with a block for each part of every row. The
    kernel gets that number and the vectors of a part after its `args`, and before what else it is given."""
    count, each = groups.parts(p, size)
    split = np.int32(count), np.int32(each)

    def launch(kernel: str, args: tuple[Argument, ...], after: tuple[Argument, ...] = ()) -> Launch:
        return Launch(kernel, (p.rows * count, 1, 1), (size["THREADS"], 1, 1), (*args, *split, *after))

    return count, launch


# --------------------------------------------------------------------------------------------------------------- stages


def declare_first(
    operation: Operation[R],
    *arrays: Argument,
    warp: str = "a warp shares a row: its lanes read neighbouring elements",
    online: str | None = None,
    vectorized: str = "16 bytes a load and a store",
    vectors: tuple[int, ...] = (),
) -> None:
    """The stages before a row is held in registers. `arrays` are the kernels' first arguments. `warp`, `online` and
    `vectorized` are ideas: without the second one there is no such stage. `vectors` are the numbers of vectors that the
    last stage may load at once, where it has a choice."""
    name = operation.name

    def warp_row(stage: str) -> Callable[[R, Mapping[str, int]], Launch]:
        return lambda p, size: warp_rows(f"{name}_{stage}", p, size, (*arrays, *p.scalars()))

    @operation.stage(
        "naive", idea="one thread takes one row", parameters={"THREADS": 128}, supports=groups.few_enough, alignment=1
    )
    def naive(p: R, size: Mapping[str, int]) -> Launch:
        return thread_rows(f"{name}_naive", p, size, (*arrays, *p.scalars()))

    operation.stage(
        "warp_row",
        after="naive",
        idea=warp,
        parameters={"THREADS": 256},
        space={"THREADS": THREADS},
        supports=every_problem,
    )(warp_row("warp_row"))
    if online:
        operation.stage("online", after="warp_row", idea=online)(warp_row("online"))
    operation.stage(
        "vectorized",
        after="online" if online else "warp_row",
        idea=vectorized,
        parameters={"THREADS": 256, "VECTORS": 4} if vectors else None,
        space={"THREADS": THREADS, "VECTORS": vectors} if vectors else None,
        alignment=16,
    )(warp_row("vectorized"))


def declare_held(
    operation: Operation[R],
    *arrays: Argument,
    most: int = groups.MOST_VECTORS,
    held: Mapping[str, int] = HELD,
    clustered: Mapping[str, int] = CLUSTERED,
    several: bool = False,
    edge_cases: tuple[R, ...] = (),
    of_cluster: tuple[R, ...] | None = None,
) -> None:
    """The stages that hold a row in registers, or `several` rows. A thread of a cluster holds at most `most` vectors,
    if blocks of 512 threads can hold a row so. `held` and `clustered` are their parameters. `edge_cases` are those of
    both stages, if `of_cluster` does not name others for the second."""
    name, problem = operation.name, operation.problem
    row, long_rows = ("the rows in registers, so they are", "long rows") if several else (
        "the row in registers, so it is", "a long row"
    )  # fmt: skip

    def size_of(p: RowProblem, size: Mapping[str, int]) -> dict[str, int]:
        enough = groups.vectors(p) <= groups.MOST_BLOCKS * groups.MOST_THREADS * most
        return groups.cluster(p, {**size, "MOST": most} if enough else size)

    @operation.stage(
        "registers",
        after="vectorized",
        idea=f"threads hold {row} read once",
        parameters=held,
        sizes=groups.block,
        supports=groups.fits(groups.block, held, "a block"),
        edge_cases=edge_cases
        or (
            problem(rows=2, columns=20_000, dtype="bf16", out="bf16"),
            problem(rows=3, columns=9001, dtype="fp32", out="fp32"),
        ),
    )
    def registers(p: R, size: Mapping[str, int]) -> Launch:
        return held_rows(f"{name}_registers", p, size, (*arrays, *p.scalars()))

    @operation.stage(
        "cluster",
        after="registers",
        idea=f"the blocks of a cluster share {long_rows}",
        parameters=clustered,
        sizes=size_of,
        supports=groups.fits(size_of, clustered, "a cluster"),
        architecture=90,
        edge_cases=of_cluster,
    )
    def cluster(p: R, size: Mapping[str, int]) -> Launch:
        return held_rows(f"{name}_cluster", p, size, (*arrays, *p.scalars()))


def declare_split(
    operation: Operation[R],
    first: tuple[Argument, ...],
    second: tuple[Argument, ...],
    state: int,
    *,
    kept: str = "states",
    output: str = "y",
    after: str = "vectorized",
    then: str = "scales the parts",
    sums: bool = False,
    parameters: Mapping[str, int] = SPLIT,
    edge_cases: tuple[R, ...] = (),
) -> None:
    """The stage that splits rows over all blocks. `first` are the arrays that its first kernel gets before what is
    `kept` of the parts, `state` numbers each, or one that is no row of its own where that is 0, and `second` those of
    the second kernel around it, which `then` says what it does. With `sums` the first kernel writes rows that the
    second one reads. Without `edge_cases` a few long rows are some."""
    name, problem = operation.name, operation.problem

    @operation.stage(
        "split_rows",
        after=after,
        idea=f"few rows are split over all blocks; a second kernel {then}",
        parameters=parameters,
        space={"THREADS": THREADS, "VECTORS": (1, 2, 4), "TARGET": (1056, 2112, 4224)},
        supports=groups.worth_splitting,
        sizes=lambda p, size: {},
        edge_cases=edge_cases
        or (
            problem(rows=1, columns=60_000, dtype="bf16", out="bf16"),
            problem(rows=2, columns=9001, dtype="fp32", out="fp32"),
            problem(rows=2, columns=2047, dtype="bf16", out="bf16", pad_x=1),  # y has one vector more than x
        ),
    )
    def split_rows(p: R, size: Mapping[str, int]) -> Plan:
        count, launch = on_parts(p, size)
        columns, ldx, ldy = np.int32(p.columns), np.int64(p.ldx), np.int64(p.ldy)
        strides = ((ldx, ldy), (ldy,)) if sums else ((ldx,), (ldx, ldy))
        parts = launch(f"{name}_parts", (*first, kept, columns, *strides[0]))
        scaled = launch(f"{name}_scale", (*second, kept, output, columns, *strides[1]), p.scalars()[4:])
        shape = (p.rows * count, state) if state else (p.rows * count,)
        return Plan((parts, scaled), scratch={kept: Array(shape, FP32, output=True)})


# ------------------------------------------------------------------------------------------ rows that are fetched ahead


PREFETCHED = {"VECTORS": 8, "STAGES": 1, "MOST": 512, "RESIDENT": 2}
"""Vectors that a thread holds; rows in shared memory, where there is room; threads of the largest block, and how many
of those a multiprocessor has: they wait for their rows in turns, so that one row ahead is enough. Layer norm of
4096x20480 takes 199 us so, and 249 with three blocks of 256 threads, RMS norm 178 and 205 (fp32, H200)."""

ELSE = 7 * 1024
"""Bytes of a multiprocessor's shared memory in which no rows are fetched ahead."""

MOST_HELD = 64
"""Elements of a row that a thread holds."""


def prefetch_sizes(p: RowProblem, size: Mapping[str, int], arrays: int = 1) -> dict[str, int]:
    """At most MOST threads of a block, VECTORS of each, in RESIDENT blocks of a multiprocessor, or more smaller ones;
    and as few BLOCKS that share a row as leave room for STAGES of their parts of so many arrays, or for one at
    least."""
    count, of_vector = groups.vectors(p), arrays * groups.width(p) * p.in_type.itemsize
    blocks = 1
    while True:
        each = ceil_div(count, blocks)
        threads = min(size["MOST"], max(128, groups.power_of_two(ceil_div(each, size["VECTORS"]))))
        held, resident = ceil_div(each, threads), size["RESIDENT"] * size["MOST"] // threads
        stages = min(size["STAGES"], (machine().shared_bytes - ELSE) // resident // (held * threads * of_vector))
        if blocks == groups.MOST_BLOCKS and not stages and size["RESIDENT"] > 1:
            return prefetch_sizes(p, {**size, "RESIDENT": size["RESIDENT"] - 1}, arrays)
        if blocks == groups.MOST_BLOCKS or (stages and held <= size["VECTORS"]):
            return {"THREADS": threads, "VECTORS": held, "BLOCKS": blocks, "STAGES": stages, "RESIDENT": resident}
        blocks *= 2


def worth_fetching(p: RowProblem) -> bool:
    """Whether blocks that take row after row are faster than those that hold one each, as measured on an H100 and an
    H200: rows are many, and longer than what a block holds with little per thread."""
    return p.rows >= groups.MANY and p.columns > (2**15 if p.in_type.itemsize == 2 else 17_000)


def bytes_ahead(p: RowProblem, size: Mapping[str, int], arrays: int = 1) -> int:
    """Of the shared memory of a block that fetches rows of so many arrays ahead."""
    return arrays * size["STAGES"] * size["VECTORS"] * size["THREADS"] * groups.width(p) * p.in_type.itemsize


def prefetch_fits(
    size: Mapping[str, int], arrays: int = 1, most: int = MOST_HELD
) -> Callable[[RowProblem], str | None]:
    """Why rows of so many arrays cannot be fetched ahead by bulk copies into shared memory, where a thread holds at
    most so many elements of each, as `supports` says it."""

    def refuse(p: RowProblem) -> str | None:
        whole = 16 // p.in_type.itemsize
        if not groups.even(max(whole, groups.width(p)), p.columns, p.ldx) or p.ldy % groups.width(p):
            return f"rows of {p.columns} elements, {p.ldx} apart, are not made of whole vectors of 16 bytes"
        chosen = prefetch_sizes(p, size, arrays)
        if not chosen["STAGES"] or chosen["VECTORS"] * groups.width(p) > most:
            return f"{p.columns} columns are more than a cluster holds while it fetches the next row"
        return None

    return refuse


def declare_prefetch(
    operation: Operation[R],
    *arrays: Argument,
    parameters: Mapping[str, int] = PREFETCHED,
    edge_cases: tuple[R, ...] = (),
) -> None:
    """Declare it, with the first arguments of its kernel and more edge cases."""
    problem, kernel = operation.problem, f"{operation.name}_prefetch"

    @operation.stage(
        "prefetch",
        after="registers",
        idea="persistent blocks: bulk copies fetch the next rows while threads work on one",
        parameters=parameters,
        space={"VECTORS": (4, 8), "STAGES": (1, 2, 3), "MOST": (256, 512, 1024), "RESIDENT": (1, 2, 3)},
        sizes=prefetch_sizes,
        supports=prefetch_fits(parameters),
        architecture=90,
        edge_cases=(
            *edge_cases,
            problem(rows=300, columns=16, dtype="bf16", out="bf16"),
            problem(rows=3, columns=20_480, dtype="fp32", out="fp32"),
        ),
    )
    def prefetch(p: R, size: Mapping[str, int]) -> Launch:
        blocks = size["BLOCKS"]
        return Launch(
            kernel,
            (p.rows * blocks, 1, 1),
            (size["THREADS"], 1, 1),
            (*arrays, *p.scalars()),
            shared_bytes=bytes_ahead(p, size),
            cluster=(blocks, 1, 1),
            persistent=True,
        )


# ---------------------------------------------------------------------------------------------------------------- norms


EPSILONS = (1e-6, 1e-5, 1e-2)
"""What is drawn for eps: the usual ones, and one that every row shows."""


@dataclass(frozen=True)
class NormProblem(RowProblem):
    """A norm of the rows of x, (rows, columns), with weights w, (columns,), of the same type.

    NaN and infinities do what arithmetic with them does: a row with NaN becomes NaN."""

    eps: float = 1e-6

    tiers: ClassVar[tuple[Tier, ...]] = (Tier.BOUNDED,)
    not_exact: ClassVar[str] = "the reciprocal square root of a mean plus eps is rounded"
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"eps": (0.0, 1.0)}

    @property
    def eps32(self) -> float:
        """The eps that kernels get, of fp32."""
        return float(np.float32(self.eps))

    def weights(self, rng: np.random.Generator) -> np.ndarray[Any, Any]:
        """(columns,) weights around 1."""
        w = 1 + 0.25 * draw_rows(rng, (1, self.columns), FP32)[0]
        rounded: np.ndarray[Any, Any] = w.astype(self.in_type.numpy)
        return rounded

    def scalars(self) -> tuple[np.generic, ...]:
        return (*super().scalars(), np.float32(self.eps))


def common_controls(y: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Answers that are wrong for every operation with an output like its input."""
    return {
        "all zeros": np.zeros_like(y),
        "last column dropped": np.where(np.arange(y.shape[1]) == y.shape[1] - 1, 0.0, y),
        "last row missing": np.concatenate([y[:-1], np.zeros_like(y[-1:])]),
    }


def fastest_of_norms(p: NormProblem) -> tuple[str, ...]:
    """Rows are held by a block each, or fetched ahead where they are many and long; few long ones are held by clusters,
    or else split."""
    return (*(("prefetch",) if worth_fetching(p) else ()), *held_first(p), "split_rows", "vectorized")


def held_first(p: RowProblem) -> tuple[str, ...]:
    """Those of the stages that hold rows that are worth it, in order."""
    return ("registers", "cluster") if p.rows >= groups.MANY or groups.by_block(p) else ("cluster",)


def fastest_of_larger_norms(p: NormProblem) -> tuple[str, ...]:
    """As `fastest_of_norms`, of norms with more numbers or arrays: a cluster that holds rows of 100,000 columns has one
    block a multiprocessor then, and is slower than two kernels."""
    first = ("registers",) if p.rows >= groups.MANY else held_first(p)
    return (*first, "split_rows", "cluster", "vectorized")

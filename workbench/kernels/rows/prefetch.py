"""The stage that fetches rows ahead, of operations on rows: blocks stay and take row after row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from ...model.launch import Argument, Launch, ceil_div
from ...model.machine import machine
from ...model.operation import Operation
from . import groups
from .problem import RowProblem

P = TypeVar("P", bound=RowProblem)

PARAMETERS = {"VECTORS": 8, "STAGES": 1, "MOST": 512, "RESIDENT": 2}
"""Vectors that a thread holds; rows in shared memory, where there is room; threads of the largest block, and how many
of those a multiprocessor has: they wait for their rows in turns, so that one row ahead is enough. Layer norm of
4096x20480 takes 199 us so, and 249 with three blocks of 256 threads, RMS norm 178 and 205 (fp32, H200)."""

ELSE = 7 * 1024
"""Bytes of a multiprocessor's shared memory in which no rows are fetched ahead."""

MOST_HELD = 64
"""Elements of a row that a thread holds."""


def sizes(p: RowProblem, size: Mapping[str, int], arrays: int = 1) -> dict[str, int]:
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
            return sizes(p, {**size, "RESIDENT": size["RESIDENT"] - 1}, arrays)
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


def fits(size: Mapping[str, int], arrays: int = 1, most: int = MOST_HELD) -> Callable[[RowProblem], str | None]:
    """Why rows of so many arrays cannot be fetched ahead by bulk copies into shared memory, where a thread holds at
    most so many elements of each, as `supports` says it."""

    def refuse(p: RowProblem) -> str | None:
        whole = 16 // p.in_type.itemsize
        if not groups.even(max(whole, groups.width(p)), p.columns, p.ldx) or p.ldy % groups.width(p):
            return f"rows of {p.columns} elements, {p.ldx} apart, are not made of whole vectors of 16 bytes"
        chosen = sizes(p, size, arrays)
        if not chosen["STAGES"] or chosen["VECTORS"] * groups.width(p) > most:
            return f"{p.columns} columns are more than a cluster holds while it fetches the next row"
        return None

    return refuse


def declare(
    operation: Operation[P],
    *arrays: Argument,
    parameters: Mapping[str, int] = PARAMETERS,
    edge_cases: tuple[P, ...] = (),
) -> None:
    """Declare it, with the first arguments of its kernel and more edge cases."""
    problem, kernel = operation.problem, f"{operation.name}_prefetch"

    @operation.stage(
        "prefetch",
        after="registers",
        idea="persistent blocks: bulk copies fetch the next rows while threads work on one",
        parameters=parameters,
        space={"VECTORS": (4, 8), "STAGES": (1, 2, 3), "MOST": (256, 512, 1024), "RESIDENT": (1, 2, 3)},
        sizes=sizes,
        supports=fits(parameters),
        architecture=90,
        edge_cases=(
            *edge_cases,
            problem(rows=300, columns=16, dtype="bf16", out="bf16"),
            problem(rows=3, columns=20_480, dtype="fp32", out="fp32"),
        ),
    )
    def prefetch(p: P, size: Mapping[str, int]) -> Launch:
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

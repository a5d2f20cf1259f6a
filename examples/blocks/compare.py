"""Compares the blocks by `workbench.ops` with the same blocks in plain PyTorch, as they are and by `torch.compile`.

    python compare.py [--mode max-autotune-no-cudagraphs]

A block's answer has to be as near to that of float64 as the answer of PyTorch in bfloat16 is. Then its passes are
timed: one after the other, as a program calls them, and as a CUDA graph, where the time of the host does not count.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import plain
import torch
from blocks import Block, MambaBlock, TransformerBlock
from torch import Tensor

from workbench import ops

Make = Callable[..., Block]
Call = Callable[[], Tensor]

THEIRS, OURS = "PyTorch", "workbench.ops"

MAKE: dict[str, Make] = {
    "transformer": partial(TransformerBlock, width=4096, heads=32, key_heads=8, hidden=14336),
    "Mamba-2": partial(MambaBlock, width=2560, inner=5120, headdim=64, dstate=128),
}
"""Blocks as large as those of Llama 3 with 8 and of Mamba-2 with 2.7 thousand million weights."""

SIZES = ((1, 256), (1, 2048), (4, 4096))
"""Batch and positions."""

PASSES, TURNS = 10, 15
"""Passes of a sample, and samples of each contestant."""


@dataclass(frozen=True)
class Error:
    """How far an answer is from the right one: the root of the mean square, and the largest, by the root of the mean
    square of what the block adds to its input."""

    mean: float
    largest: float


def error(answer: Tensor, right: Tensor, x: Tensor) -> Error:
    apart, size = answer.double() - right, (right - x.double()).square().mean().sqrt()
    return Error((apart.square().mean().sqrt() / size).item(), (apart.abs().max() / size).item())


class Contest:
    """A block, made once for each set of operators, with the same random weights and input."""

    def __init__(self, make: Make, batch: int, positions: int, device: str = "cuda", seed: int = 0) -> None:
        torch.manual_seed(seed)
        with torch.device(device):
            self.ours = make(operators=ops).to(torch.bfloat16)
            self.plain = make(operators=plain).to(torch.bfloat16)
            self.plain.load_state_dict(self.ours.state_dict())
            self.x = torch.randn(batch, positions, self.ours.width, dtype=torch.bfloat16)
        self.make = make

    def right(self) -> Tensor:
        """What the block should answer, in float64, one sequence at a time."""
        with torch.device(self.x.device):
            block = self.make(operators=plain).double()
        block.load_state_dict(self.ours.state_dict())
        return torch.cat([block(sequence[None].double()) for sequence in self.x])

    def ways(self, mode: str = "default") -> dict[str, Call]:
        """The ways to make a pass, by name."""
        compiled = partial(torch.compile, fullgraph=True, dynamic=False, mode=mode)
        blocks = {
            THEIRS: self.plain,
            "torch.compile": compiled(self.plain),
            OURS: self.ours,
            f"{OURS}, torch.compile": compiled(self.ours),
        }
        return {name: torch.inference_mode()(partial(block, self.x)) for name, block in blocks.items()}

    def errors(self, *calls: Call) -> list[Error]:
        """Of the answers of these calls."""
        right = self.right()
        return [error(call(), right, self.x) for call in calls]


def right_enough(ours: Error, theirs: Error) -> bool:
    """Roundings differ, so that errors do by chance: the largest of millions more than their mean."""
    return ours.mean <= 1.1 * theirs.mean and ours.largest <= 2 * theirs.largest


def captured(call: Call) -> Call:
    """What repeats the launches of a call without the host, into the same answer."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        answer = call()

    def replay() -> Tensor:
        graph.replay()
        return answer

    return replay


def medians(calls: dict[str, Call]) -> dict[str, float]:
    """The microseconds of a pass of each, in turns."""
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(TURNS):
        for name, call in calls.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(PASSES):
                call()
            end.record()
            end.synchronize()
            samples[name].append(1000 * begin.elapsed_time(end) / PASSES)
    return {name: statistics.median(times) for name, times in samples.items()}


@dataclass(frozen=True)
class Row:
    """A block of one size, by way: its error, and microseconds of a pass."""

    block: str
    batch: int
    positions: int
    errors: dict[str, Error]
    called: dict[str, float]
    replayed: dict[str, float]


def measured(mode: str = "default") -> Iterator[Row]:
    """Every block of every size. Raises ArithmeticError for an answer that is not right."""
    for name, make in MAKE.items():
        for batch, positions in SIZES:
            torch.compiler.reset()  # it compiles a function for a few shapes, and then no more
            contest = Contest(make, batch, positions)
            calls = contest.ways(mode)
            errors = dict(zip(calls, contest.errors(*calls.values()), strict=True))
            for way, found in errors.items():
                if not right_enough(found, errors[THEIRS]):
                    raise ArithmeticError(
                        f"{name}, {batch} x {positions}: {found} by {way}, {errors[THEIRS]} by {THEIRS}"
                    )
            called = medians(calls)
            replayed = medians({way: captured(call) for way, call in calls.items()})
            yield Row(name, batch, positions, errors, called, replayed)
            del contest, calls
            torch.cuda.empty_cache()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", default="default", help="of torch.compile")
    mode = parser.parse_args().mode
    if not torch.cuda.is_available():
        raise SystemExit("compare.py times kernels on a GPU, and PyTorch finds none here")
    for row in measured(mode):
        print(f"{row.block}, batch {row.batch}, {row.positions} positions")
        for way, us in row.called.items():
            print(
                f"  {way:28} {us:9,.0f} us, {row.replayed[way]:9,.0f} us as a graph, error {row.errors[way].mean:.5f}"
            )


if __name__ == "__main__":
    main()

"""Kernels of ``torch.compile`` where PyTorch has no GPU: Inductor writes Triton for the CPU as it does for a GPU."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["CONFIGURATION", "HEURISTICS", "bench_instead", "inductor_for_triton"]

CONFIGURATION = "torch._inductor.config"
HEURISTICS = "torch._inductor.runtime.triton_heuristics"


@contextmanager
def inductor_for_triton() -> Iterator[None]:
    """Inductor writes Triton for the CPU, and compiles in this process, whose Triton has a target for it."""
    with sys.modules[CONFIGURATION].patch(cpu_backend="triton", compile_threads=1, autotune_local_cache=False):
        yield


@contextmanager
def bench_instead(bench: Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], float]) -> Iterator[None]:
    """Inductor's autotuner with another function that times a launcher: gets the tuner, the launcher and arguments."""
    tuner = sys.modules[HEURISTICS].CachingAutotuner
    held = tuner.bench

    def timed(self: Any, launcher: Any, *args: Any, with_profiler: bool = False, **options: Any) -> float:
        return bench(self, launcher, args, options)

    tuner.bench = timed
    try:
        yield
    finally:
        tuner.bench = held

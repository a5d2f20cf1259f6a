"""What a verification changes of its process while it lasts: how Hypothesis draws, and the threads of NumPy.

Hypothesis draws the same problems from a seed, whatever else is loaded, and in quiet."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import hypothesis
import threadpoolctl
from hypothesis import HealthCheck, Phase, configuration
from hypothesis.internal.conjecture import providers

from ..toolchain.compiler import cache_folder


def _once(change: Callable[[], AbstractContextManager[Any]]) -> Callable[[], AbstractContextManager[None]]:
    """A change of the process that several threads want at once: the first makes it, the last puts it back."""
    made, lock, threads = contextlib.ExitStack(), threading.Lock(), 0

    @functools.wraps(change)
    @contextlib.contextmanager
    def changed() -> Iterator[None]:
        nonlocal threads
        with lock:
            if not threads:
                made.enter_context(change())
            threads += 1
        try:
            yield
        finally:
            with lock:
                threads -= 1
                if not threads:
                    made.close()

    return changed


@_once
@contextlib.contextmanager
def same_everywhere() -> Iterator[None]:
    """What Hypothesis keeps is in the cache of the workbench and not in `.hypothesis` of the working directory. It does
    not draw numbers of the modules that happen to be loaded, as it does by default: to look for them takes 0.15 s, and
    with others loaded one seed would draw other problems. `literals` has those of the stage."""
    inside: dict[str, Any] = vars(providers)
    before: dict[str, Any] = {n: inside[n] for n in ("_get_local_constants", "CONSTANTS_CACHE") if n in inside}
    if before:
        inside |= {"_get_local_constants": type(inside["_local_constants"]), "CONSTANTS_CACHE": {}}
    home = vars(configuration).get("__hypothesis_home_directory")
    configuration.set_hypothesis_home_dir(cache_folder() / "hypothesis")
    try:
        yield
    finally:
        configuration.set_hypothesis_home_dir(home)
        inside |= before


@_once
def one_thread() -> AbstractContextManager[Any]:
    """Let NumPy's BLAS use one thread. Products of random problems are small, and several problems are solved at once:
    more threads wait for each other, which takes two to six times the processor time."""
    limits: AbstractContextManager[Any] = threadpoolctl.threadpool_limits(1, user_api="blas")
    return limits


def settings(wanted: int) -> hypothesis.settings:
    """Those of a search for so many problems that differ."""
    return hypothesis.settings(
        max_examples=2 * wanted,  # duplicates do not count
        database=None,
        deadline=None,
        verbosity=hypothesis.Verbosity.quiet,
        report_multiple_bugs=False,
        print_blob=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )

"""How Hypothesis draws for a verification: the same problems from a seed, whatever else is loaded, and in quiet."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, configuration
from hypothesis.internal.conjecture import providers

from ..toolchain.compiler import cache_folder

_drawing, _lock = contextlib.ExitStack(), threading.Lock()
_threads = 0
"""Threads that draw; what the first of them replaces, the last one puts back."""


@contextlib.contextmanager
def same_everywhere() -> Iterator[None]:
    """What Hypothesis keeps is in the cache of the workbench and not in `.hypothesis` of the working directory. It does
    not draw numbers of the modules that happen to be loaded, as it does by default: to look for them takes 0.15 s, and
    with others loaded one seed would draw other problems. `literals` has those of the stage."""
    global _threads
    with _lock:
        if not _threads:
            _drawing.enter_context(_replaced())
        _threads += 1
    try:
        yield
    finally:
        with _lock:
            _threads -= 1
            if not _threads:
                _drawing.close()


@contextlib.contextmanager
def _replaced() -> Iterator[None]:
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

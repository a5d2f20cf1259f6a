"""What takes long the first time, done when this module is imported: commands fork their processes from there.

No module with declarations is imported, so that each process reads those as they are, and no CUDA context is made,
which would not survive a fork."""

from __future__ import annotations

import contextlib
import gc

import hypothesis
from hypothesis import strategies as st

from ..devices import DeviceUnavailable
from ..judge import forensics
from ..measure import places, timing
from ..records import environment
from ..toolchain import compiler
from . import api

__all__ = ["api", "environment", "forensics", "places", "timing"]


def _draw_once() -> None:
    @hypothesis.settings(max_examples=2, database=None, deadline=None)
    @hypothesis.given(st.integers())
    def test(_: int) -> None:
        pass

    test()


_draw_once()
with contextlib.suppress(ImportError):
    import cupy as cupy
with contextlib.suppress(compiler.CompilerUnavailable):  # who needs it says what is missing
    compiler.load()
with contextlib.suppress(DeviceUnavailable):
    from ..devices import emulated as emulated
gc.freeze()  # a collection in a fork would copy the pages of all objects

"""Devices that need neither a GPU nor the emulator: they solve vector_add in NumPy, rightly or wrongly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from synthetic import EMULATOR, H200

from workbench.compiler import Compiled
from workbench.devices import Fault
from workbench.launch import Array, Plan
from workbench.results import DeviceInfo, Verdict


class NumpyDevice:
    """Adds vectors. `wrong_after` elements of a vector are right, the others one too large; `fault` ends every run."""

    architecture = 90

    def __init__(self, name: str = "emulator", *, wrong_after: int | None = None, fault: str | None = None) -> None:
        self.name, self.wrong_after, self.fault = name, wrong_after, fault
        self.lost = False

    def info(self) -> DeviceInfo:
        return H200 if self.name == "cuda" else EMULATOR

    def bind(
        self,
        compiled: Compiled,
        plan: Plan,
        arrays: Mapping[str, Array],
        storage: Mapping[str, np.ndarray[Any, Any]],
        seed: int = 0,
    ) -> NumpyDevice:
        total = (storage["a"].astype(np.float64) + storage["b"].astype(np.float64)).astype(storage["c"].dtype)
        if self.wrong_after is not None:
            total[self.wrong_after :] += 1
        self._memory = {**storage, "c": total}
        return self

    def run(self) -> None:
        if self.fault:
            raise Fault(Verdict.RACE, self.fault)

    def read(self, name: str) -> np.ndarray[Any, Any]:
        return self._memory[name]

    def close(self) -> None:
        pass

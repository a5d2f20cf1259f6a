"""What the hardware counts of a point, by ncu: what the emulator does not have, such as hits in the L2.

    python -m workbench.experiments.hardware EXPERIMENT SERIES VALUE

launches one point once. This is what ncu watches."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from ..model.problem import Problem
from ..model.stage import Stage
from ..toolchain import ncu
from ..toolchain.compiler import compile_stage
from .base import Experiment

SECONDS = 120.0
"""How long ncu may take for a point."""


def count(experiment: Experiment, stage: Stage[Any], problem: Problem, value: int) -> dict[str, int] | str:
    """The experiment's metrics of one cold launch on a GPU, by name; a text says why there are none."""
    (launch,) = stage.plan(problem).launches
    command = [sys.executable, "-m", __name__, experiment.name, stage.name, str(value)]
    metrics = [f"{name}.sum" for name in experiment.metrics]
    try:
        path = ncu.find()
    except ncu.NcuUnavailable as error:
        return str(error)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "ncu.csv"
        kernels, trouble = ncu.collect(path, metrics, f"^{launch.kernel}$", command, log, SECONDS, flush=True)
    found = kernels[0]["metrics"] if len(kernels) == 1 else {}  # and more than it was asked for
    if missing := [name for name in experiment.metrics if name not in found]:
        # what ncu says is full of paths, and records are published
        return trouble.partition(":")[0] or f"ncu saw {len(kernels)} launches, and counted no {missing[0]}"
    return {name: int(found[name]) for name in experiment.metrics}


def launch_point(name: str, series: str, value: str) -> None:
    """Launch one point once, on the problem that is timed. Raises what a device raises."""
    from ..devices.cuda import CudaDevice
    from . import select

    (experiment,) = select([name])
    (declared,) = (stage for stage in experiment.operation.stages if stage.name == series)
    stage, _, problem = experiment.at(declared, int(value))
    arrays, inputs = problem.arrays(), problem.inputs()
    storage = {array: arrays[array].pack(values) for array, values in inputs.items()}
    device = CudaDevice(bare=True)
    bound = device.bind(compile_stage(stage, problem, device.architecture), stage.plan(problem), arrays, storage)
    bound.run()
    bound.close()


if __name__ == "__main__":
    launch_point(*sys.argv[1:])

"""The command line. Every command is a few calls into the rest of the package.

Exit codes: 0 all pass, 1 something failed or the machine cannot do it, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import click

from .. import __version__
from . import compare, emulate, experiment, export, history, inspect, mutate, setup, tune, verify, watch
from .errors import WorkbenchGroup


@click.group(cls=WorkbenchGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="workbench")
def main() -> None:
    """Develop CUDA kernels in stages: verified against NumPy on random problems, then timed, then reported.

    SPEC names what to work on: an operation (`gemm`), a stage (`gemm:tma_pipeline`), or a stage of every operation
    that has it (`naive`). Without SPEC, a command works on every stage. In a project (a folder whose pyproject.toml has
    a `[tool.workbench]`), it works on every stage of the project.

    Exit codes: 0 all pass, 1 something failed, 2 wrong usage, 130 interrupted.
    """


_SECTIONS: dict[str, dict[click.Command, str]] = {
    "Develop a kernel": {
        setup.new_: "Write the files of a new operation or stage.",
        setup.import_: "Turn a KernelBench or gpu-mode task into an operation.",
        verify.verify: "Check stages against NumPy on random problems.",
        verify.replay: "Solve a failing problem of a stage again.",
        watch.watch: "Verify a stage whenever its source is saved.",
        inspect.inspect: "Show registers, spills, occupancy, PTX and SASS.",
        emulate.profile_: "Count what each source line of a stage executes.",
        emulate.trace: "Write the timeline of a stage for a trace viewer.",
        compare.diff: "Show two stages side by side.",
    },
    "Measure": {
        verify.run: "Verify, time where there is a GPU, write the report.",
        verify.bench: "Verify stages, then time those that passed.",
        tune.tune: "Search for the fastest parameters of stages.",
        compare.compare: "Say whether one run is as fast as another.",
        compare.report: "Write the report again from saved results.",
        experiment.experiment: "Show what makes a kernel fast, one effect at a time.",
    },
    "Check the checks": {
        verify.agree: "Compare the GPU with the emulator on equal problems.",
        mutate.mutate: "Change sources and see whether verification notices.",
    },
    "Use kernels elsewhere": {
        emulate.emulate: "Execute any .cu or .ptx file on the CPU.",
        export.export: "Write an operation as a Python package.",
    },
    "Look around": {
        setup.list_stages: "List operations and their stages.",
        history.history: "Show the kept versions of stages and their times.",
        history.restore: "Bring back a kept version of a stage.",
        setup.doctor: "Say what this machine can do and what is missing.",
    },
}
for _title, _commands in _SECTIONS.items():
    main.add_section(_title, _commands)

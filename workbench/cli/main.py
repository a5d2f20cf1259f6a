"""The command line. Every command is a few calls into the rest of the package.

Exit codes: 0 all pass, 1 something failed or the machine cannot do it, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import click

from .. import __version__
from .errors import Commands, WorkbenchGroup

SECTIONS = {
    "Begin": {
        "demo": ("demo", "Name a planted fault in ten seconds, with no file of yours."),
        "emulate": ("emulate", "Execute any .cu or .ptx file on the CPU, and name its hazards."),
        "check": ("check", "Read the launches of a PyTorch extension; propose commands."),
        "capture": ("capture", "Run a program that was built for CUDA without a GPU."),
    },
    "Develop a kernel": {
        "new": ("setup", "Write the files of a new operation or stage."),
        "import": ("setup", "Turn a KernelBench or gpu-mode task into an operation."),
        "verify": ("verify", "Check stages against NumPy on random problems."),
        "replay": ("verify", "Solve a failing problem of a stage again."),
        "watch": ("watch", "Verify a stage whenever its source is saved."),
        "inspect": ("inspect", "Show registers, spills, occupancy, PTX and SASS."),
        "profile": ("profile", "Count what each source line of a stage executes."),
        "trace": ("profile", "Write the timeline of a stage for a trace viewer."),
        "diff": ("compare", "Show two stages side by side."),
    },
    "Measure": {
        "run": ("verify", "Verify, time where there is a GPU, write the report."),
        "bench": ("verify", "Verify stages, then time those that passed."),
        "tune": ("tune", "Search for the fastest parameters of stages."),
        "compare": ("compare", "Say whether one run is as fast as another."),
        "report": ("compare", "Write the report again from saved results."),
        "experiment": ("experiment", "Show what makes a kernel fast, one effect at a time."),
    },
    "Check the checks": {
        "agree": ("verify", "Compare the GPU with the emulator on equal problems."),
        "mutate": ("mutate", "Change sources and see whether verification notices."),
    },
    "Use kernels elsewhere": {
        "export": ("export", "Write an operation as a Python package."),
        "mcp": ("mcp", "Serve these tools to a programming agent."),
    },
    "Look around": {
        "list": ("setup", "List operations and their stages."),
        "history": ("history", "Show the kept versions of stages and their times."),
        "restore": ("history", "Bring back a kept version of a stage."),
        "doctor": ("setup", "Say what this machine can do and what is missing."),
    },
}
"""The sections of the help: each command, its module, and the sentence that says what it does."""


@click.group(cls=WorkbenchGroup, commands=Commands(SECTIONS), context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="workbench")
def main() -> None:
    """Develop CUDA kernels in stages: verified against NumPy on random problems, then timed, then reported.

    SPEC names what to work on: an operation (`gemm`), a stage (`gemm:tma_pipeline`), or a stage of every operation
    that has it (`naive`). Without SPEC, a command works on every stage. In a project (a folder whose pyproject.toml has
    a `[tool.workbench]`), it works on every stage of the project.

    Exit codes: 0 all pass, 1 something failed, 2 wrong usage, 130 interrupted.
    """

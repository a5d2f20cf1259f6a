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
    that has it (`naive`). Without SPEC it is every stage; in a project with a `[tool.workbench]` in its pyproject.toml,
    every stage of its own.

    Exit codes: 0 all pass, 1 something failed, 2 wrong usage, 130 interrupted.
    """


for _command in (
    setup.list_stages,
    verify.verify,
    verify.bench,
    verify.run,
    verify.agree,
    verify.replay,
    mutate.mutate,
    tune.tune,
    compare.compare,
    compare.diff,
    compare.report,
    history.history,
    history.restore,
    watch.watch,
    experiment.experiment,
    inspect.inspect,
    emulate.emulate,
    emulate.profile_,
    emulate.trace,
    export.export,
    setup.new_,
    setup.import_,
    setup.doctor,
):
    main.add_command(_command)

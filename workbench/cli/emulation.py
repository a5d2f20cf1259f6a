"""What `workbench emulate` does: launches kernels of any file in the emulator, and shows what was found.

It loads the emulator, and of the rest of the workbench only what an option asks for."""

from __future__ import annotations

import contextlib
import math
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from .. import __version__, emulator
from ..model.errors import WrongUsage, shown
from . import launches

if TYPE_CHECKING:
    from ..report.judged import Judged
    from ..triton.launching import Launched
    from .launches import Emulation


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The options of the command."""

    file: Path
    entry: str | None
    grid: str | None
    block: str | None
    cluster: str
    arguments: tuple[str, ...]
    shared: int
    defines: tuple[str, ...]
    include: tuple[Path, ...]
    flags: tuple[str, ...]
    variables: tuple[str, ...]
    steps: tuple[str, ...]
    stream: int | None
    programmatic: bool
    nvcc: bool
    arch: str | None
    as_compiled: bool
    printed: str | None
    max_seconds: float | None
    seed: int
    seeds: int
    slice: int | None
    witness: bool
    strict: bool
    suppress: tuple[str, ...]
    counters: bool
    triton: bool
    trace_file: Path | None
    blocks: tuple[int, ...]
    events: int
    as_json: bool
    sarif_file: Path | None

    def job(self, seed: int, program: emulator.Program | None = None) -> launches.Emulation:
        """The launches. The seed draws random arrays and the order of warps. Raises UsageError and OSError."""
        rng = np.random.default_rng(seed)
        grid = launches.parse_dimensions(self.grid or "", "--grid")
        if absent := [str(block) for block in self.blocks if block >= math.prod(grid)]:
            raise WrongUsage(
                f"there is no block {' and no block '.join(absent)}: the last one is {math.prod(grid) - 1}"
            )
        first = launches.Step(
            self.entry,
            grid,
            launches.parse_dimensions(self.block or "", "--block"),
            launches.parse_arguments(self.arguments, rng),
            self.shared,
            launches.parse_dimensions(self.cluster, "--cluster"),
            self.stream,
        )
        return launches.Emulation(
            self.file,
            launches.parse_steps(first, self.steps, rng, self.programmatic),
            [launches.parse_variable(text, rng) for text in self.variables],
            launches.parse_defines(self.defines),
            self.include,
            self.flags,
            seed,
            self.slice,
            self.counters,
            emulator.Traced(self.blocks or (0,), self.events) if self.trace_file and seed == self.seed else None,
            self.max_seconds,
            self.nvcc,
            self.strict,
            self.suppress,
            self.arch,
            not self.as_compiled and seed == self.seed,
            program,
        )


def emulate(**options: Any) -> None:
    """Execute the kernel of a file as the options say, and show what was found. Exits with 1 where it was a failure."""
    asked = Asked(**options)
    if asked.triton:
        return _emulate_triton(asked)
    if asked.grid is None or asked.block is None:
        launches.check_paths(asked.file, asked.include)
        said = launches.examples(asked.file, [str(folder) for folder in asked.include])
        hint: dict[str, Any] = {"param_hint": "--grid" if asked.grid is None else "--block", "param_type": "option"}
        raise click.MissingParameter(said, **hint)
    chosen = None if asked.printed is None else launches.parse_slice(asked.printed)
    job, reports = _run(asked)
    found = _witness(asked, job, reports) if asked.witness else None
    verdicts = _verdicts(asked, reports) if asked.as_json or asked.sarif_file else []
    shown = {a.name: a.array.reshape(-1)[chosen] for a in job.arguments if chosen is not None and a.array is not None}
    if asked.as_json:
        _print_document(asked, reports, {n: launches.plain(array) for n, array in shown.items()}, verdicts, found)
    else:
        _print_reports(asked, job.seed, reports)
        if asked.witness:
            _print_witness(job.seed, found)
        for name, array in shown.items():
            click.echo(f"{name}[{asked.printed}] = {' '.join(map(str, array))}")
        if asked.counters:
            _print_counters(asked.file, reports)
    if not all(report.ok for report in reports):
        raise click.exceptions.Exit(1)


def _run(asked: Asked) -> tuple[launches.Emulation, list[emulator.Report]]:
    """The launches with the first seed that finds a failure, otherwise those with the first seed. Arrays are saved."""
    job = asked.job(asked.seed)
    try:
        reports = job.run()
    except launches.NotExecuted as error:
        if error.verdict and (asked.as_json or asked.sarif_file):
            _refused(asked, error)
        raise
    if asked.trace_file is not None:
        _save_trace(asked.trace_file, reports)
    for seed in range(asked.seed + 1, asked.seed + asked.seeds):
        if not all(report.ok for report in reports):
            break
        later = asked.job(seed, job.program)
        found = later.run()
        if not all(report.ok for report in found):
            job, reports = later, found
    job.save()
    return job, reports


def _witness(asked: Asked, job: launches.Emulation, reports: Sequence[emulator.Report]) -> Witness | None:

    def run(given: int | None) -> tuple[launches.Emulation, list[emulator.Report]]:
        other = replace(asked, slice=given, trace_file=None, as_compiled=True).job(job.seed, job.program)
        return other, other.run()

    return search(job, reports, run)


def _print_witness(seed: int, found: Witness | None) -> None:
    """The witness, and the command that shows its element."""
    click.echo(str(found) if found else "witness: no race was found")
    if found and found.slice is not None:
        shown = [] if found.index is None else ["--print", f"{found.index}:{found.index + 1}"]
        order = ["--seed", str(seed), "--seeds", "1", "--slice", str(found.slice)]
        click.echo(f"again: {_again('--json', '--witness')} {' '.join([*order, *shown])}")


def _save_trace(file: Path, reports: Sequence[emulator.Report]) -> None:
    from ..inspect import profile
    from .console import notice

    found = profile.as_json([report.statistics for report in reports], reports[0].kernel)
    notice(profile.save(found, file))


def _print_counters(file: Path, reports: Sequence[emulator.Report]) -> None:
    from ..emulator.statistics import profile  # which few launches need
    from ..inspect.profile import listing

    for report in reports:
        for line in listing(profile(report.statistics), str(file)):
            click.echo(shown(line))


def _verdicts(asked: Asked, reports: Sequence[emulator.Report]) -> list[Judged]:
    """The verdicts of the launches, also as SARIF."""
    from ..report import judged
    from ..toolchain.findings import hazard_of  # for programs that read the result

    found = [
        judged.of_findings(
            report.kernel,
            [*map(hazard_of, report.findings)],
            "\n".join(map(str, report.findings)),
            _again(),
            asked.strict,
        )
        for report in reports
    ]
    _write_sarif(asked, found)
    return found


def _refused(asked: Asked, error: launches.NotExecuted) -> None:
    """The document and SARIF have the verdict of a source that cannot be executed; the error has its line."""
    from ..model.results import Verdict  # for programs that read the result
    from ..report import judged
    from . import documents

    found = judged.of_source(asked.entry or asked.file.name, Verdict(error.verdict), str(error), asked.file)
    error.file, error.line = found.file, found.line
    documents.judged([found])
    _write_sarif(asked, [found])


def _write_sarif(asked: Asked, verdicts: Sequence[Judged]) -> None:
    if asked.sarif_file and verdicts:
        from ..report import sarif  # which few launches need

        sarif.write(asked.sarif_file, verdicts, f"emulate/{verdicts[0].spec}", __version__)


def _again(*without: str) -> str:
    """The command that does the same once more, for a reader."""
    left_out = without or ("--json",)
    return shlex.join(["workbench", *(word for word in click.get_current_context().obj if word not in left_out)])


def _print_document(
    asked: Asked,
    reports: Sequence[emulator.Report],
    arrays: dict[str, list[Any]],
    verdicts: Sequence[Judged],
    witness: Witness | None,
) -> None:
    from . import documents

    first, *later = (report.as_dict() for report in reports)
    shown = asdict(witness) if witness else None
    documents.result({**first, "then": later, "arrays": arrays, "seeds": asked.seeds, "witness": shown}, verdicts)


def _print_reports(asked: Asked, seed: int, reports: Sequence[emulator.Report]) -> None:
    for report in reports:
        click.echo(shown(report.output), nl=False)
        click.echo(shown(str(report)))
    if asked.seeds > 1 and all(report.ok for report in reports):
        click.echo(f"{asked.seeds} orders of warps were tried, seeds {asked.seed} to {asked.seed + asked.seeds - 1}")
    elif seed != asked.seed:
        click.echo(f"seed {seed} is the first that finds it; again: --seed {seed} --seeds 1")


def _emulate_triton(asked: Asked) -> None:
    """The file under `workbench.triton.emulate`. Options that say how a kernel is launched are the file's to say."""
    file, target = asked.file, asked.arch or "sm_90a"
    launches.check_paths(file)
    context = click.get_current_context()
    taken = ("file", "triton", "arch", "as_json", "seed", "seeds", "max_seconds", "strict", "suppress")
    for parameter in context.command.params:
        name = parameter.name or ""
        given = context.get_parameter_source(name)
        if name not in taken and given is click.core.ParameterSource.COMMANDLINE:
            raise WrongUsage(f"{parameter.opts[0]} is not for --triton: {file} itself launches its kernels")
    from ..triton.script import run_script  # which no other command needs

    # what the file prints is no part of the JSON
    with contextlib.redirect_stdout(sys.stderr) if asked.as_json else contextlib.nullcontext():
        run = run_script(
            file,
            target,
            seed=asked.seed,
            orders=asked.seeds,
            max_seconds=asked.max_seconds,
            strict=asked.strict,
            suppress=asked.suppress,
        )
    own = sorted({launched.target for launched in run.launches} - {target})
    if own and context.get_parameter_source("arch") is click.core.ParameterSource.COMMANDLINE:
        message = f"{file} has contexts of its own, for {', '.join(own)}: --arch {target} is not for their launches"
        click.echo(message, err=True)
    if asked.as_json:
        from . import documents

        documents.result(run.as_dict(), [_of_triton(one, _again(), asked.strict) for one in run.launches])
    else:
        for launched in run.launches:
            click.echo(shown(launched.output), nl=False)
        click.echo(shown(str(run)))
    if not run.ok:
        raise click.exceptions.Exit(1)


def _of_triton(launched: Launched, again: str, strict: bool) -> Judged:
    """The verdict of one launch: of what was found, and of what differs from the reference."""
    from ..model.results import Verdict
    from ..report import judged
    from ..toolchain.findings import hazard_of  # for programs that read the result

    found = judged.of_findings(launched.kernel, [*map(hazard_of, launched.findings)], str(launched), again, strict)
    if found.ok and launched.differences:
        found = replace(found, code=Verdict.MISMATCH, ok=False, message="\n".join(launched.differences), replay=again)
        found.reward = 0.0
    return found


# what `workbench emulate --witness` does: it looks for two orders of warps in which a race gives two results.

# A race says that nothing orders two accesses. A witness shows it: the same launch on the same arrays, with the same
# seed, in an order in which an element becomes another value. What orders differ in is after how many instructions a
# warp gives way; the seed then draws which one is next. All else that a seed draws stays as it is.


SLICES = (*range(1, 33), 40, 55, 89, 144, 233, 377, 610, 987)
"""After how many instructions warps give way in the orders that are tried. The findings are of 2000."""
ENDS = "ends"
FINDINGS = (emulator.FindingKind.RACE, emulator.FindingKind.IN_FLIGHT)
"""What is about the order of two accesses."""

Arrays = dict[str, np.ndarray[Any, Any]]
Run = Callable[["int | None"], tuple["Emulation", Sequence[emulator.Report]]]
"""Executes the launches anew, with a slice."""


@dataclass(frozen=True)
class Witness:
    """Two results of one launch. Without one, `tried` orders gave the same.

    `values` are those of an element, or how the launches ended, in the order of the findings and with the `slice`.
    `atomics`: the launches have some, whose order may change results without a race."""

    tried: int
    slice: int | None = None
    array: str = ""
    index: int | None = None
    values: tuple[str, str] = ("", "")
    atomics: bool = False

    def __str__(self) -> str:
        if self.slice is None:
            return f"witness: none; in {self.tried} other orders of warps the arrays end as in this one"
        if self.index is None:
            return f"witness: the launch {self.values[0]}; with --slice {self.slice} it {self.values[1]}"
        first, other = self.values
        said = f"witness: {self.array}[{self.index}] becomes {first}; with --slice {self.slice} it becomes {other}"
        return said + "\n  the kernel has atomics, too, whose order may be the reason" * self.atomics


def search(job: Emulation, reports: Sequence[emulator.Report], run: Run) -> Witness | None:
    """A witness of the races that were found, or how many orders have shown none; None where there is no race."""
    if not any(finding.kind in FINDINGS for report in reports for finding in report.findings):
        return None
    ended, arrays = _end(reports), _arrays(job)
    opcodes = {opcode for report in reports for opcode in report.by_opcode()}
    atomics = any(opcode.startswith(("atom", "red")) for opcode in opcodes)
    for number, given in enumerate(SLICES, 1):
        other, found = run(given)
        if (end := _end(found)) != ended:
            return Witness(number, given, values=(ended, end), atomics=atomics)
        if ended != ENDS:
            continue  # arrays are as far as they were when it was stopped
        for name, array in _arrays(other).items():
            if (index := _first_difference(arrays[name], array)) is not None:
                values = str(arrays[name].reshape(-1)[index]), str(array.reshape(-1)[index])
                return Witness(number, given, name, index, values, atomics)
    return Witness(len(SLICES))


def _end(reports: Sequence[emulator.Report]) -> str:
    """How the launches end: well, or by what stopped one."""
    stopped = [report.findings[-1] for report in reports if report.statistics.stopped]
    return f"ends by {stopped[0].code} at {stopped[0].location}" if stopped else ENDS


def _arrays(job: Emulation) -> Arrays:
    return {argument.name: argument.array for argument in job.arguments if argument.array is not None}


def _first_difference(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> int | None:
    """The first element that differs in a bit."""
    raw = [np.ascontiguousarray(one).reshape(-1).view(np.uint8).reshape(one.size, -1) for one in (a, b)]
    differing = np.flatnonzero((raw[0] != raw[1]).any(axis=1))
    return int(differing[0]) if differing.size else None

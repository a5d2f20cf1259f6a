"""One call that runs a kernel on NumPy arrays and reports what was wrong with it.

y = np.empty_like(x)
report = launch("scale.cu", "scale", grid=4, block=256, args={"x": x, "y": Output(y), "n": x.size})
print(report)"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from os import PathLike
from typing import Any

import numpy as np

from .architectures import ArchitectureError, architecture
from .execution import Checks, Prepared, Series, prepare, run
from .explain.words import say_count
from .findings import Finding, Severity
from .launch_checks import DEFAULT_STREAM, ArgumentError, Dimensions, Event, LaunchError, Order, Port, whole_number
from .mangled import kernel_name_of, matches
from .memory import Allocation, Memory
from .passing import Arguments
from .program import Entry, Program
from .source import kernel_name, load, nothing
from .statistics import Counters, KernelFault, Statistics
from .trace import Traced
from .unoptimised import Beside
from .values import Argument, Array

MOST_WARP_INSTRUCTIONS = 100_000_000
"""Of one block, before it counts as hung: some seconds."""
HOST_READS, HOST_WRITES = -1, -2
"""Values of a copy that is an access of the host instead; see engine.hpp."""
MOST_FINDINGS = 20
"""Failures after which a launch ends, unless another number is asked for."""


@dataclass(slots=True)
class Report:
    """The result of a launch.

    ``findings`` lists what was found, of any severity, in the order found. ``strict``: whether strict findings are
    failures. ``statistics`` counts executed warp instructions, up to the finding that stopped the launch where one
    did. ``notes`` say what has not been judged, and what a user should know of how the source was compiled.
    ``str(report)`` is the whole of it as text."""

    kernel: str
    findings: list[Finding]
    statistics: Statistics
    arguments: dict[str, Array] = field(repr=False)
    strict: bool = False
    session: Session | None = field(default=None, repr=False)
    event: Event | None = field(default=None, repr=False)
    notes: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> Any:
        """What is not there yet: of a launch in a stream, which is executed now."""
        if name not in ("findings", "statistics", "arguments"):
            raise AttributeError(name)
        assert self.session is not None
        self.session._execute()
        return object.__getattribute__(self, name)

    @property
    def ok(self) -> bool:
        """Whether there is no failure: no error, and with strict rules no strict finding."""
        return not self.failures

    @property
    def failures(self) -> list[Finding]:
        """The findings that are failures: errors, and strict ones where strict rules were asked for."""
        failing = {Severity.ERROR, Severity.STRICT} if self.strict else {Severity.ERROR}
        return [finding for finding in self.findings if finding.severity in failing]

    @property
    def counters(self) -> Counters:
        """Exact counts of memory accesses and more. Raises ValueError unless the launch was asked for ``counters``."""
        return self.statistics.counters

    @property
    def output(self) -> str:
        """What the kernel printed, in the order of execution."""
        return self.statistics.output

    def by_line(self) -> Counter[tuple[str, int]]:
        """Executed warp instructions by file and line of the CUDA source."""
        return self.statistics.by_line()

    def by_opcode(self) -> Counter[str]:
        """Executed warp instructions by opcode."""
        return self.statistics.by_opcode()

    def as_dict(self) -> dict[str, Any]:
        """The report in types that JSON has."""
        counted: dict[str, Any] = {"counters": None, "counters_by_line": None}
        if self.statistics.counted is not None:
            lines = sorted(self.counters.by_line().items())
            counted["counters"] = dict(self.counters.totals())
            counted["counters_by_line"] = [{"file": file, "line": line, **found} for (file, line), found in lines]
        return {
            "kernel": self.kernel,
            "ok": self.ok,
            "output": self.output,
            "strict": self.strict,
            "findings": [{**asdict(f), "code": f.code, "text": str(f)} for f in self.findings],
            "stopped": self.statistics.stopped,
            "suppressed": len(self.statistics.suppressed),
            "suppressed_findings": [finding.headline for finding in self.statistics.suppressed],
            "unused_suppressions": list(self.statistics.unused),
            "notes": list(self.notes),
            "warp_instructions": self.statistics.warp_instructions,
            "resident_blocks": self.statistics.resident_blocks,
            "by_line": [
                {"file": file, "line": line, "warp_instructions": count}
                for (file, line), count in sorted(self.by_line().items())
            ],
            "by_opcode": dict(self.by_opcode().most_common()),
            **counted,
        }

    def __str__(self) -> str:
        executed = f"{self.statistics.warp_instructions:,} warp instructions"
        if self.statistics.stopped:
            executed = f"stopped after {executed}"
        failures = len(self.failures)
        if failures == 0:
            executed = f"no hazard found, {executed}"
        elif not (self.statistics.stopped and len(self.findings) == 1):
            executed = f"{say_count(failures, 'hazard')}, {executed}"
        if others := len(self.findings) - failures:
            executed += f", {say_count(others, 'finding')} that {'is' if others == 1 else 'are'} no failure"
        if suppressed := len(self.statistics.suppressed):
            executed += f", {suppressed} suppressed"
        hidden = [f"suppressed: {finding.headline}" for finding in self.statistics.suppressed]
        unused = [f"the suppression {text} matched nothing" for text in self.statistics.unused]
        notes = [f"note: {note}" for note in (*unused, *self.notes)]
        name = kernel_name_of(self.kernel)
        return "\n".join([*map(str, self.findings), f"{name.name}{name.arguments}: {executed}", *hidden, *notes])


def launch(
    source: str | PathLike[str] | Program,
    entry: str | None,
    grid: Dimensions,
    block: Dimensions,
    args: Sequence[Argument] | Mapping[str, Argument],
    *,
    shared: int = 0,
    cluster: Dimensions = (1, 1, 1),
    defines: Mapping[str, str | int] | None = None,
    include: Sequence[str | PathLike[str]] = (),
    options: Sequence[str] = (),
    arch: str | None = None,
    seed: int = 0,
    checks: Checks = Checks.ALL,
    raise_on_hazard: bool = False,
    strict: bool = False,
    suppress: str | Sequence[str] = (),
    max_findings: int = MOST_FINDINGS,
    counters: bool = False,
    trace: Traced | None = None,
    max_warp_instructions: int = MOST_WARP_INSTRUCTIONS,
    max_seconds: float | None = None,
    variables: Mapping[str, Argument] | None = None,
) -> Report:
    """Executes a kernel on NumPy arrays and reports its hazards.

    ``source`` is CUDA C++ or PTX as text, the path of a ``.cu`` or ``.ptx`` file, or a ``Program`` that ``load`` made
    (which saves compiling it again). ``entry`` names the kernel, also a template's instance such as ``scale<float>``;
    None stands for the only one. ``grid``, ``block`` and ``cluster`` are up to three numbers, x first; ``shared``
    bytes of dynamic shared memory; ``defines``, ``include`` and ``options``, such as ``-use_fast_math``, are for the
    compiler; ``arch`` is the device's architecture, such as ``sm_80``, as for ``load``. ``seed`` draws the order in
    which warps run: the same seed gives the same run. A block of more than ``max_warp_instructions``, or a launch of
    more than ``max_seconds``, counts as hung. ``counters`` fills ``Report.counters``, and ``trace`` records
    ``Report.statistics.timeline``, which ``chrome_trace`` makes into what a viewer opens.

    ``args`` has an ``Argument`` for each parameter, in their order. Findings call arrays ``a0``, ``a1``, ... after
    their position, or by their names when ``args`` is a mapping.

    ``variables`` gives ``__constant__`` and ``__device__`` variables their values, as ``Session.set`` does.

    What is found is in the report's ``findings``, or the first failure is raised as ``KernelFault`` when
    ``raise_on_hazard``; arrays then hold what had been stored. Errors are failures, and findings that PTX only forbids
    formally where ``strict``. ``suppress`` leaves findings out (``"race"``, ``"race@kernel.cu:42"``), as the comment
    ``// workbench: allow race`` on a line does. A launch goes on behind a failure where it can, up to ``max_findings``.
    Raises ``ArgumentError`` and ``LaunchError`` for what the device would refuse, and what ``load`` raises."""
    if isinstance(source, Program):
        source = _for_architecture(source, arch)
    else:
        source = load(source, defines=defines, include=include, options=options, entry=entry, arch=arch)
    asked: dict[str, Any] = {"cluster": cluster, "seed": seed, "checks": checks, "counters": counters, "trace": trace}
    asked.update(max_seconds=max_seconds, max_warp_instructions=max_warp_instructions)
    asked.update(raise_on_hazard=raise_on_hazard, strict=strict, suppress=suppress, max_findings=max_findings)
    session = Session(source)
    for name, value in (variables or {}).items():
        session.set(name, value)
    return session.launch(entry, grid, block, args, shared=shared, **asked)


@dataclass(slots=True)
class _Pending:
    """A launch or a copy that has not been executed yet, and the report that waits for it."""

    prepared: Prepared
    report: Report | None
    raise_on_hazard: bool = False


class Session:
    """Kernels on the same memory, one after the other or in streams.

    An array that several launches are given is the same memory in all of them, and what one has stored there, others
    read; elements that none has stored in an ``Output`` stay without a value. A launch without a stream has ended when
    the call returns: arrays hold what was stored, and what the host changes in them is stored before the next one.
    With a stream, launches and copies are executed by ``synchronize``, by the next launch without a stream, or when a
    report is looked at; arrays hold what was stored from then on. Those that nothing orders run at the same time.

    ``program`` is what ``load`` made; ``set`` gives a ``__constant__`` or ``__device__`` variable a value. ``findings``
    are those of copies and of the host; those of a launch are in its report."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.memory = Memory()
        self._arguments = Arguments(self.memory)
        self._order, self._series, self._base = Order(), Series(), 0  # and the series' first number in the order
        self._pending: list[_Pending] = []
        self.findings: list[Finding] = []
        self._ended = True  # all that has been given to streams, as far as it does not wait here

    def launch(
        self,
        entry: str | None,
        grid: Dimensions,
        block: Dimensions,
        args: Sequence[Argument] | Mapping[str, Argument],
        *,
        shared: int = 0,
        stream: int | None = None,
        programmatic: bool = False,
        after: Sequence[Event | Report] = (),
        raise_on_hazard: bool = False,
        strict: bool = False,
        max_findings: int = MOST_FINDINGS,
        max_warp_instructions: int | None = MOST_WARP_INSTRUCTIONS,
        unoptimised: bool = False,
        **options: Any,
    ) -> Report:
        """Executes a kernel and reports its hazards, as the function ``launch`` does.

        ``stream`` is a number: launches of one stream follow one another, and 0 is the default stream, which waits for
        all others and which all others wait for. ``after`` has events, or reports of launches in streams, that the
        launch waits for, too. A ``programmatic`` launch may begin before the one before it in its stream has ended, as
        with ``cudaLaunchAttributeProgrammaticStreamSerialization``: as soon as every block of that has called
        ``cudaTriggerProgrammaticLaunchCompletion()`` or ended. What it does before
        ``cudaGridDependencySynchronize()`` is in no order with what that one does.

        ``unoptimised``: races and barriers of the source are reported, too, that the compiler has optimised away.
        ``options`` are further ones of ``execute``: ``cluster``, ``seed``, ``time_slice``, ``checks``, ``counters``,
        ``trace``, ``suppress``, ``max_seconds``. It raises what ``launch`` raises, except errors of the source; of a
        launch in a stream, a hazard is raised when the launch is executed."""
        kernel = _find_entry(self.program, entry)
        given = dict(args) if isinstance(args, Mapping) else {f"a{number}": value for number, value in enumerate(args)}
        self._begin(programmatic)
        arguments = self._arguments.converted(kernel, given)
        asked = {**options, "shared_bytes": shared, "max_warp_instructions": max_warp_instructions, "strict": strict}
        asked["max_findings"] = max_findings
        registers = self.program.registers_per_thread.get(kernel.name)
        prepared = prepare(kernel, grid, block, arguments, memory=self.memory, registers_per_thread=registers, **asked)
        alone = stream is None and not self._pending
        beside = Beside.of(kernel, self.memory, (grid, block), arguments, asked, unoptimised) if alone else None
        report = Report.__new__(Report)
        report.kernel, report.strict, report.session, report.notes = kernel.name, strict, self, self.program.notes
        self._add(prepared, stream, programmatic, after, report, raise_on_hazard and beside is None)
        if stream is None:
            self._execute()
        if beside is not None:
            report.findings, notes = beside.judged(report.findings, unoptimised)
            report.notes += notes
            if raise_on_hazard and not report.ok:
                raise KernelFault(report.failures[0], report.statistics, report.findings)
        return report

    def copy(
        self,
        destination: Array,
        source: Array | int,
        *,
        stream: int | None = None,
        after: Sequence[Event | Report] = (),
    ) -> None:
        """Copies an array in a stream, as ``cudaMemcpyAsync`` does, or fills it with a byte, as ``cudaMemsetAsync``.

        ``destination`` and ``source`` are arrays of one size in bytes, or ``source`` is a number from 0 to 255. Their
        contents are those of the kernels' memory: what the host changes in ``source`` meanwhile is not seen. ``stream``
        and ``after`` are those of ``launch``: without a stream, the copy has ended when the call returns.
        Raises ``ArgumentError`` and ``LaunchError``."""
        self._begin()
        to = self._placed(destination)
        if isinstance(source, int):
            value = whole_number(source, "the byte that fills an array", 0, 255)
            part, label = (to.address, 0, to.nbytes, value), f"the memset of {to.name}"
        else:
            from_ = self._placed(source)
            part, label = (to.address, from_.address, to.nbytes, 0), f"the copy from {from_.name} to {to.name}"
            if from_.nbytes != to.nbytes:
                raise ArgumentError(f"{from_.name} has {from_.nbytes} bytes, and {to.name} {to.nbytes}: copy as many")
            if from_.written is not None and to.written is None:
                to.written = np.ones(to.nbytes, np.uint8)
        self._add(self._copying([part], label), stream, False, after)
        if stream is None:
            self._execute()

    def access(self, array: Array, *, write: bool = False) -> None:
        """The host reads or writes an array in pinned memory here, without a copy.

        That comes after what the host has waited for by ``synchronize``, and before the launches that follow."""
        self._begin()
        target = self._placed(array)
        kind = HOST_WRITES if write else HOST_READS
        label = f"the host's {'write to' if write else 'read of'} {target.name}"
        prepared = self._copying([(target.address, 0, target.nbytes, kind)], label)
        prepared.after = self._order.add_host()
        self._pending.append(_Pending(prepared, None))

    def event(
        self, stream: int = DEFAULT_STREAM, *, programmatic: bool = False, launch_completion: bool = False
    ) -> Event:
        """A point behind what has been given to a stream, for ``after`` of launches and copies in other streams.

        A ``programmatic`` one (``cudaLaunchAttributeProgrammaticEvent``) is passed as soon as every block of the last
        launch there has triggered or ended, one of ``launch_completion`` (``cudaLaunchAttributeLaunchCompletionEvent``)
        when its blocks have begun: nothing of the launch is visible then. What waits for the former waits for the end
        in ``cudaGridDependencySynchronize()``, but not for the latter; with both, which is ``triggerAtBlockStart`` of a
        programmatic event, it does. What is given to the stream later is not waited for. Raises ``LaunchError`` for a
        stream that is no number."""
        early = Port.BEGUN if launch_completion else Port.TRIGGERED
        port = early if programmatic else Port.BEGUN_ONLY if launch_completion else Port.ENDED
        return self._order.event(stream, port)

    def synchronize(self, event: Event | None = None) -> None:
        """Executes what has been given to streams, and lets the host wait for it, or for one event only.

        Arrays then hold what was stored. Raises ``KernelFault`` where ``raise_on_hazard`` was asked for."""
        self._execute(whole=event is not None)
        if event is None:
            self._order, self._base = Order(), 0
        else:
            self._order.wait(event)

    def _begin(self, programmatic: bool = False) -> None:
        """What the host has changed in arrays is stored, and what has ended is forgotten, unless it may be of use."""
        if self._pending:
            return
        self._arguments.refresh()
        if self._ended and not programmatic:
            self._order, self._base = Order(), 0

    def _execute(self, whole: bool = False) -> None:
        """Executes what waits, ``whole`` or in parts of which each comes after the one before."""
        pending, self._pending = self._pending, []
        order, faults = self._order, list[_Pending]()
        first = len(order.before) - len(pending)
        while pending:
            together = len(pending)
            if together > 1 and not whole:
                cuts = (node for node in range(first + 1, len(order.before)) if order.is_cut(node))
                together = next(cuts, len(order.before)) - first
            now, pending = pending[:together], pending[together:]
            if order.is_cut(first):
                self._series, self._base = Series(), first
            for one in now:
                one.prepared.after = [(n - self._base, how) for n, how in one.prepared.after if n >= self._base]
            for one, statistics in zip(now, run([one.prepared for one in now], self._series), strict=True):
                self.findings += statistics.findings if one.report is None else ()
                if one.report is not None:
                    one.report.findings, one.report.statistics = list(statistics.findings), statistics
                    one.report.arguments = dict(self._arguments.arrays)
            faults += [one for one in now if one.raise_on_hazard and one.report and not one.report.ok]
            first += together
        self._ended = not whole
        self._arguments.copy_back()
        for one in faults[:1]:
            assert one.report is not None
            one.prepared.rules.check(one.report.statistics)

    def _add(
        self,
        prepared: Prepared,
        stream: int | None,
        programmatic: bool,
        after: Sequence[Event | Report],
        report: Report | None = None,
        raise_on_hazard: bool = False,
    ) -> None:
        events = [one if isinstance(one, Event) else one.event for one in after]
        given = DEFAULT_STREAM if stream is None else stream
        behind = [event for event in events if event is not None]
        prepared.after = self._order.add(given, programmatic, behind, is_kernel=report is not None)
        if report is not None:
            report.event = Event((len(self._order.before) - 1,), order=self._order)
        prepared.stream = stream
        self._pending.append(_Pending(prepared, report, raise_on_hazard))

    def _placed(self, array: Array) -> Allocation:
        """Where an array lies. Raises ``ArgumentError``."""
        if not isinstance(array, np.ndarray):
            raise ArgumentError(f"an array is needed, such as a launch is given, and not {type(array).__name__}")
        known = self._arguments.placed.get(id(array))
        return known.allocation if known else self._arguments.place(f"array {len(self._arguments.placed) + 1}", array)

    def _copying(self, parts: Sequence[tuple[int, int, int, int]], label: str) -> Prepared:
        """What is executed in the place of a kernel: addresses to copy to and from, bytes, value of a memset."""
        prepared = prepare(nothing(), 1, 1, (), memory=self.memory, max_findings=MOST_FINDINGS)
        prepared.copies, prepared.label = parts, label
        return prepared

    def set(self, name: str, value: Argument) -> None:
        """Gives a ``__constant__`` or ``__device__`` variable a value, an array, a number, a ``Struct`` or bytes.

        An array that can be written holds what a ``__device__`` variable holds after each launch. Raises
        ``ArgumentError`` for a variable that there is not, and for a value of another size."""
        found = [v for v in self.program.variables.values() if name in (v.name, v.readable_name)]
        if len(found) != 1:
            listed = ", ".join(sorted(v.readable_name for v in self.program.variables.values())) or "none"
            what = "several variables are" if found else "no variable is"
            raise ArgumentError(f"{what} called {name!r}; those that kernels use are: {listed}")
        self._arguments.set_variable(self.program.variable(found[0].name, self.memory), found[0], value)


def _for_architecture(program: Program, arch: str | None) -> Program:
    """The program. Raises ``ArchitectureError`` where it is for another architecture than the one wanted."""
    if arch is not None and architecture(arch) != program.arch:
        raise ArchitectureError(f"the program is for {program.arch}: give arch={arch!r} to load")
    return program


def _find_entry(program: Program, wanted: str | None) -> Entry:
    names = program.entries.kernels
    if wanted is None and len(names) == 1:
        return program.entries[names[0]]
    found = kernel_name(program, wanted) if wanted is not None else None
    if found is not None:
        return program.entries[found]
    if not names and not program.templates:
        raise LaunchError("the source has no kernel: no function is __global__ (.entry in PTX)")
    listed = ", ".join(sorted(str(kernel_name_of(name)) for name in names)) or "only templates"
    fitting = [name for name in names if wanted is not None and matches(kernel_name_of(name), wanted)]
    if fitting:
        asked = f"{len(fitting)} kernels are called {wanted!r}"
    else:
        asked = f"there is no kernel {wanted!r}" if wanted is not None else "say which kernel is the entry"
    templates = [name for name in program.templates if wanted is None or wanted.split("::")[-1] == name]
    advice = "".join(
        f"; {name} is a template, of which an instance is named, {_example(program, name)}" for name in templates
    )
    raise LaunchError(f"{asked}; the source has: {listed}{advice}")


def _example(program: Program, template: str) -> str:
    launched = program.templates[template]
    return f"as its host code has it: {' or '.join(launched)}" if launched else f"such as {program.examples[template]}"

"""Triton's launches, taken to the emulator for as long as a context lasts."""

from __future__ import annotations

import importlib.abc
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ContextDecorator, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any, Literal

import numpy as np

from ..emulator import Finding, FindingKind, KernelFault, LaunchError, Memory, Report
from ..emulator.execution import Series
from ..emulator.findings import Severity
from ..emulator.standalone import MOST_FINDINGS
from ..model.errors import WrongUsage
from .arrays import Placement
from .host import copies, snapshot
from .host_reads import Follower, numpys_empty
from .launching import Compiled, Launched, LaunchFault, Mismatch, run
from .pallas import MODULE as PALLAS
from .pallas import pallas_emulated
from .taking_over import taken_over
from .target import Target, target_of
from .torch_cuda import cuda_emulated, has_cuda
from .tuners import bench_inductors, restore
from .unwritten import Unwritten

_LAUNCH_OPTIONS = ("strict", "suppress", "max_findings", "counters", "max_warp_instructions", "max_seconds")
_LONGEST_SERIES = 200
_CONTEXTS: list[Emulation] = []
"""Those that have been entered. The last one emulates launches, all of them have the reports."""


class Emulation(ContextDecorator):
    """What ``emulate`` returns: a context, or a decorator of a function, in which launches are emulated.

    ``launches`` lists them in their order, every configuration of an autotuner as one; ``str`` of it is a report."""

    def __init__(
        self, target: Target, reference: Any, tolerances: tuple[float | None, float | None], **how: Any
    ) -> None:
        self.target = target
        self.launches: list[Launched] = []
        self.host_findings: list[Finding] = []
        self.unwritten = Unwritten()
        self.benched: tuple[Any, int] = (None, 0)
        self.debug: bool = how["debug"]
        self._reference, self._tolerances, self._how = reference, tolerances, how
        self._stack = ExitStack()
        self._trials: list[Launched] | None = None
        self._series, self._arrays = Series(), list[Any]()  # of launches that may overlap with the next one

    @property
    def ok(self) -> bool:
        """Whether kernels were launched and no launch has a failure or a difference."""
        launched = any(one.report is not None or one.empty for one in self.launches)
        return launched and all(one.ok for one in self.launches) and not self.host_findings

    @property
    def findings(self) -> list[Finding]:
        """The findings of all launches, of any severity, and what the host reads that nobody has stored."""
        return [*(finding for launched in self.launches for finding in launched.findings), *self.host_findings]

    def as_dict(self) -> dict[str, Any]:
        """All launches in types that JSON has."""
        host = [str(finding) for finding in self.host_findings]
        return {"ok": self.ok, "launches": [launched.as_dict() for launched in self.launches], "host": host}

    def __str__(self) -> str:
        return "\n".join(map(str, (*self.launches, *self.host_findings))) or "no Triton kernel was launched"

    def __enter__(self) -> Emulation:
        self._stack.enter_context(taken_over(self))
        cuda = self._how["cuda"] == "emulated" or (self._how["cuda"] is None and not has_cuda())
        follower = Follower(self.unwritten, self._read_by_host) if self._how["empty"] == "unwritten" else None
        if follower is not None:
            self._stack.enter_context(numpys_empty(follower))
        if cuda or follower is not None:
            emulated = cuda_emulated(self.target, cuda, follower)
            self._enter_when_imported("torch", emulated)
        for module, context in (
            (PALLAS, pallas_emulated(self.target)),
            (CONFIGURATION, inductor_for_triton()),
            (HEURISTICS, bench_instead(partial(bench_inductors, self))),
        ):
            self._enter_when_imported(module, context)
        _CONTEXTS.append(self)
        self._stack.callback(_CONTEXTS.remove, self)
        return self

    def _enter_when_imported(self, module: str, context: AbstractContextManager[None]) -> None:
        self._stack.enter_context(when_imported(module, lambda: self._stack.enter_context(context)))

    def __exit__(self, *raised: Any) -> None:
        self._stack.__exit__(*raised)

    def _recreate_cm(self) -> Emulation:
        return Emulation(self.target, self._reference, self._tolerances, **self._how)

    def most_configurations(self, of_library: bool) -> int | None:
        """How many configurations of an autotuner are launched, None for all."""
        asked = self._how["configurations"]
        if asked is None:
            return 1 if of_library else None
        return {"first": 1, "all": None}.get(asked, asked)

    def last(self) -> Launched | None:
        """The launch before."""
        return self.launches[-1] if self.launches else None

    def tried(self, launch: Callable[[], Any]) -> list[Launched]:
        """Launches for a look at the findings: nothing is raised or kept."""
        self._trials = []
        try:
            launch()
            return self._trials
        finally:
            self._trials = None

    def reported(self, launched: Launched) -> None:
        """A launch has got another finding: raises what is to be raised."""
        if launched.failures and self._how["raise_on_hazard"]:
            raise LaunchFault(launched)

    def _read_by_host(self, finding: Finding) -> None:
        for context in _CONTEXTS:
            context.host_findings.append(finding)
        if self._how["raise_on_hazard"]:
            raise KernelFault(finding)

    def launch(self, kernel: Any, grid: Sequence[int], arguments: dict[str, Any]) -> None:
        """Runs a compiled kernel on arguments that are named after its parameters, as often as is asked for."""
        if not 1 <= len(grid) <= 3:
            raise LaunchError(f"a grid has one to three numbers, not {len(grid)}")
        x, y, z = (*(int(n) for n in grid), 1, 1)[:3]
        change = self._how["change_ptx"]
        compiled = Compiled.of(kernel, change(kernel.asm["ptx"]) if change is not None else None)
        launched = Launched(
            getattr(getattr(kernel.src, "fn", None), "__name__", kernel.metadata.name),
            (x, y, z),
            self.target.name,
            compiled.configuration(arguments),
            compiled.ptx,
            gluon=bool(getattr(getattr(kernel.src, "fn", None), "is_gluon", bool)()),
        )
        if self._trials is not None:
            self._trials.append(launched)
            launched.report, _ = self._executed(launched, compiled, arguments, self._how["seed"])
            return
        for context in _CONTEXTS:  # this one, and those around it
            context.launches.append(launched)
        if launched.empty:
            return
        reference = self._reference_of(launched.kernel)
        expected = expected_of(reference, launched.kernel, copies(arguments)) if reference is not None else {}
        before = snapshot([*arguments.values()]) if self._how["orders"] > 1 else []
        known = self.unwritten.saved()
        for order in range(self._how["orders"]):
            if order:
                restore(before)
                self.unwritten.restore(known)
            self._run(launched, compiled, arguments, expected, self._how["seed"] + order)
            if not launched.ok:
                break

    def _run(
        self,
        launched: Launched,
        compiled: Compiled,
        arguments: dict[str, Any],
        expected: Mapping[str, np.ndarray[Any, Any]],
        seed: int,
    ) -> None:
        try:
            launched.report, placement = self._executed(launched, compiled, arguments, seed)
        except LaunchError as error:
            launched.refused = str(error)
            raise
        if not launched.failures:
            launched.differences = differences(placement.arrays, expected, placement.missing(), *self._tolerances)
        self.reported(launched)
        if launched.differences and self._how["raise_on_hazard"]:
            raise Mismatch(launched)

    def _executed(
        self, launched: Launched, compiled: Compiled, arguments: dict[str, Any], seed: int
    ) -> tuple[Report, Placement]:
        """Runs a launch; where it goes beyond views and stays in their storage, again, as a device does it."""
        options = {name: self._how[name] for name in _LAUNCH_OPTIONS}

        def execute(whole: bool, **more: Any) -> tuple[Report, Placement]:
            placement = Placement(Memory(), self.unwritten, whole)
            placed = placement.arguments(arguments, self._how["reachable"])
            options.update(self._in_series(compiled, seed != self._how["seed"] or (whole and not storage), placement))
            given = {**options, "seed": seed, **more}
            return run(compiled, launched.grid, placed, placement, self.target, **given), placement

        storage = self._how["bounds"] == "storage"
        report, placement = execute(storage)
        if self._how["bounds"] is None:
            beyond = [
                finding
                for finding in report.findings
                if finding.kind == FindingKind.OUT_OF_BOUNDS
                and finding.address is not None
                and placement.goes_on(finding.address)
            ]
            if beyond:
                report, placement = execute(True)
                report.findings += [_beyond_its_view(finding) for finding in beyond]
        kinds = {finding.kind for finding in report.failures}
        if kinds == {FindingKind.INDEX_OVERFLOW}:  # LLVM computes modulo 2^32 where the index fits
            overflown, asked = report.failures[0], self._how["suppress"]
            asked = (asked,) if isinstance(asked, str) else tuple(asked)
            report, placement = execute(placement.whole, suppress=(*asked, str(FindingKind.INDEX_OVERFLOW)))
            report.findings.append(replace(overflown, severity=Severity.NOTE))
        placement.copy_back()
        return report, placement

    def _in_series(self, compiled: Compiled, again: bool, placement: Placement) -> dict[str, Any]:
        """What the launch follows: one with ``launch_pdl=True`` need not wait for the end of the one before."""
        if self._trials is not None:
            return {}
        last = len(self._series.launches) - 1
        again &= last >= 0
        programmatic = bool(getattr(compiled.metadata, "launch_pdl", False)) and 0 <= last < _LONGEST_SERIES
        if not (again or programmatic):
            self._series, self._arrays = Series(), []
        self._arrays += placement.arrays.values()  # kept, so that no other array has their place
        return {"series": self._series, "after": [(last, not again)] if again or programmatic else []}

    def _reference_of(self, kernel: str) -> Reference | None:
        found = self._reference.get(kernel) if isinstance(self._reference, Mapping) else self._reference
        return found


def emulate(
    target: str | int = "sm_90a",
    *,
    reference: Reference | Mapping[str, Reference] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    reachable: Sequence[Any] = (),
    raise_on_hazard: bool = True,
    strict: bool = False,
    suppress: str | Sequence[str] = (),
    max_findings: int = MOST_FINDINGS,
    debug: bool = False,
    seed: int = 0,
    orders: int = 1,
    counters: bool = False,
    change_ptx: Callable[[str], str] | None = None,
    max_warp_instructions: int | None = 100_000_000,
    max_seconds: float | None = None,
    configurations: Literal["first", "all"] | int | None = None,
    bounds: Literal["view", "storage"] | None = None,
    empty: Literal["written", "unwritten"] = "written",
    cuda: Literal["emulated", "absent"] | None = None,
) -> Emulation:
    """A context, or a decorator of a function, in which Triton's launches run in the emulator. No GPU is needed.

    ``kernel[grid](...)`` compiles as ever, for ``target``: ``sm_75``, ``sm_80``, ``sm_86``, ``sm_87``, ``sm_89``,
    ``sm_90a``, ``sm_100a``, ``sm_103a``, ``sm_110a``, ``sm_120a`` or ``sm_121a``. The PTX is executed on the arguments,
    NumPy arrays and PyTorch tensors on the CPU, in place. ``Output(array)`` as an argument is an array that holds
    nothing yet; what launches store in it is known to those after them. ``reachable`` lists arrays that kernels find by
    addresses in memory, such as the matrices of a grouped product; PyTorch's tensors are found without.

    ``configurations`` says how many of an autotuner's are launched, each on the same values: ``"all"``, the
    ``"first"`` that fits, or a number; None stands for the first in installed packages, and for all elsewhere. Arrays
    then hold what the last one left. An array that one configuration leaves changed for the next, and that neither
    ``reset_to_zero`` nor ``restore_value`` has, is named. ``bounds``: with ``"view"`` an access beyond a view is an
    error, with ``"storage"`` one beyond the memory that it is a view of; None: as a device does, which is the latter,
    and a note of the former.

    ``empty="unwritten"``: what ``torch.empty``, ``empty_like`` and ``new_empty`` make, and NumPy's, holds nothing
    either. What a kernel reads of it is named at the kernel's line, what Python reads, such as by ``sum()``, at that
    line; ``host_findings`` lists the latter. ``cuda``: with ``"emulated"`` PyTorch seems to have the target as a GPU,
    on which all tensors of the CPU lie, so that functions of libraries run as they are: ``torch.cuda``, ``is_cuda``,
    ``device="cuda"``; with ``"absent"`` it is as PyTorch has it, and None emulates one where PyTorch has none. What
    ``torch.compile`` makes on such a machine, and JAX's ``pallas_call`` for Triton, is launched here, too.

    ``reference`` gets a kernel's arguments by name, as they were before a launch, and returns a dictionary of what
    arrays hold after it, or is a dictionary of such functions by kernel. Elements may differ by ``atol + rtol * |x|``;
    unless given, ``rtol`` is 1e-10, 1e-4, 2e-2 or 0.13 for floats of 8, 4, 2 or 1 bytes, and integers are equal.

    A hazard is raised as ``LaunchFault``, a ``KernelFault``, at its line of Python; a wrong result as ``Mismatch``, an
    ``AssertionError``. With ``raise_on_hazard=False`` both are in ``launches``. ``strict``, ``suppress`` and
    ``max_findings`` are those of ``workbench.emulator.launch``; ``# workbench: allow race`` on a line suppresses, too.

    ``debug`` compiles ``tl.device_assert`` and checks of overflow, as ``TRITON_DEBUG=1`` does. ``orders`` is how often
    each launch runs, in orders of warps drawn from ``seed``, ``seed + 1`` and so on. ``counters`` counts accesses.
    ``change_ptx`` is given the PTX of each kernel and returns what is executed: to plant a fault, or try a remedy.
    ``max_warp_instructions`` of one block and ``max_seconds`` of a launch are when it counts as hung.

    Raises ``WrongUsage`` for a target that is not emulated, when it is entered ``TritonUnavailable``; a launch raises
    what Triton's compiler raises, and ``ArgumentError``, ``LaunchError`` and ``UnsupportedInstruction``."""
    _require("configurations", configurations, ("first", "all"), "a number from 1 on", number=True)
    _require("empty", empty, ("written", "unwritten"), "left out")
    _require("cuda", cuda, ("emulated", "absent"), "None for what PyTorch lacks")
    _require("bounds", bounds, ("view", "storage"), "None for what a device does")
    how = {
        "reachable": reachable,
        "raise_on_hazard": raise_on_hazard,
        "strict": strict,
        "suppress": suppress,
        "max_findings": max_findings,
        "debug": debug,
        "seed": seed,
        "orders": orders,
        "counters": counters,
        "change_ptx": change_ptx,
        "max_warp_instructions": max_warp_instructions,
        "max_seconds": max_seconds,
        "configurations": configurations,
        "bounds": bounds,
        "empty": empty,
        "cuda": cuda,
    }
    return Emulation(target_of(target), reference, (rtol, atol), **how)


def _beyond_its_view(finding: Finding) -> Finding:
    return replace(
        finding,
        severity=Severity.NOTE,
        message=f"{finding.message}; the storage that it is a view of goes on, so that a device does it",
        advice='emulate(bounds="view") takes it for an error',
    )


def _require(name: str, given: Any, known: tuple[str, ...], other: str, number: bool = False) -> None:
    if given is None or given in known or (number and type(given) is int and given >= 1):
        return
    raise WrongUsage(f"{name}={given!r} is none of {', '.join(map(repr, known))}, or {other}")


# kernels of ``torch.compile`` where PyTorch has no GPU: Inductor writes Triton for the CPU as it does for a GPU.


CONFIGURATION = "torch._inductor.config"
HEURISTICS = "torch._inductor.runtime.triton_heuristics"


@contextmanager
def inductor_for_triton() -> Iterator[None]:
    """Inductor writes Triton for the CPU, and compiles in this process, whose Triton has a target for it."""
    with sys.modules[CONFIGURATION].patch(cpu_backend="triton", compile_threads=1, autotune_local_cache=False):
        yield


@contextmanager
def bench_instead(bench: Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], float]) -> Iterator[None]:
    """Inductor's autotuner with another function that times a launcher: gets the tuner, the launcher and arguments."""
    tuner = sys.modules[HEURISTICS].CachingAutotuner
    held = tuner.bench

    def timed(self: Any, launcher: Any, *args: Any, with_profiler: bool = False, **options: Any) -> float:
        return bench(self, launcher, args, options)

    tuner.bench = timed
    try:
        yield
    finally:
        tuner.bench = held


# ----------------------------------------------------------------------- what is done when another package is imported


@contextmanager
def when_imported(name: str, then: Callable[[], Any]) -> Iterator[None]:
    """Calls a function now where a module has been imported, and otherwise when it is, until the context ends."""
    if name in sys.modules:
        then()
        yield
        return
    finder = _Finder(name, then)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        finder.leave()


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, then: Callable[[], Any]) -> None:
        self._name, self._then = name, then

    def leave(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        """That of the module, with a loader that calls the function when it has loaded."""
        if name != self._name:
            return None
        self.leave()
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                self._then()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


# -------------------------------------------- what a launch left in its arrays against a reference, element by element


Array = np.ndarray[Any, Any]
Reference = Callable[..., Mapping[str, Any]]
"""Gets a kernel's arguments by the names of its parameters, those that it takes, arrays as they were before the launch;
answers with what arrays hold afterwards, by name."""

_TOLERANCES = {8: (1e-10, 1e-12), 4: (1e-4, 1e-5), 2: (2e-2, 1e-2), 1: (0.13, 0.02)}
"""Relative and absolute, by bytes of an element."""


def expected_of(reference: Reference, kernel: str, arguments: Mapping[str, Any]) -> dict[str, Array]:
    """What the reference says of a launch. Raises ``WrongUsage`` where it cannot be asked or its answer is none."""
    parameters = inspect.signature(reference).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        taken = dict(arguments)
    else:
        taken = {name: arguments[name] for name in parameters if name in arguments}
        missing = [n for n, p in parameters.items() if n not in taken and p.default is inspect.Parameter.empty]
        if missing:
            raise WrongUsage(
                f"the reference of {kernel} takes {', '.join(missing)}, and the kernel's parameters are: "
                f"{', '.join(arguments)}"
            )
    answer = reference(**taken)
    if not isinstance(answer, Mapping):
        raise WrongUsage(
            f"the reference of {kernel} answers with {type(answer).__name__}; it has to be a dictionary from names of "
            "parameters to what those arrays hold afterwards"
        )
    return {name: np.asarray(_on_host(value)) for name, value in answer.items()}


def _on_host(value: Any) -> Any:
    return value.detach().cpu().double().numpy() if type(value).__module__.startswith("torch") else value


def differences(
    found: Mapping[str, Array],
    expected: Mapping[str, Array],
    unwritten: Mapping[str, Array],
    rtol: float | None,
    atol: float | None,
) -> list[str]:
    """A sentence for each array that is not as the reference has it.

    Raises ``WrongUsage`` where the reference speaks of what is not there."""
    sentences = []
    for name, wanted in expected.items():
        if name not in found:
            raise WrongUsage(f"the reference speaks of {name}, and the array arguments are: {', '.join(found)}")
        array = found[name]
        if wanted.shape != array.shape:
            raise WrongUsage(f"the reference has shape {wanted.shape} for {name}, which has {array.shape}")
        if name in unwritten:
            missing = unwritten[name]
            first = _position(np.argwhere(missing)[0])
            sentences.append(f"{name}: nothing was stored in {missing.sum()} of {array.size} elements, first {first}")
        elif sentence := _difference(name, array, wanted, rtol, atol):
            sentences.append(sentence)
    return sentences


def _difference(name: str, array: Array, wanted: Array, rtol: float | None, atol: float | None) -> str:
    if array.dtype.kind in "iub":
        wrong = array != wanted
        distance = np.abs(array.astype(np.float64) - wanted.astype(np.float64))
    else:
        relative, absolute = _TOLERANCES[array.itemsize]
        a, b = array.astype(np.float64), wanted.astype(np.float64)
        with np.errstate(invalid="ignore"):
            distance = np.where(a == b, 0.0, np.abs(a - b))
            bound = (absolute if atol is None else atol) + (relative if rtol is None else rtol) * np.abs(b)
            wrong = ~((distance <= bound) | (np.isnan(a) & np.isnan(b))) | (np.isinf(a) != np.isinf(b))
    if not wrong.any():
        return ""
    at = np.unravel_index(int(np.argmax(np.where(wrong, np.nan_to_num(distance, nan=np.inf), -1.0))), array.shape)
    first = _position(np.argwhere(wrong)[0])
    return (
        f"{name}: {wrong.sum()} of {array.size} elements are not as the reference has them, first {first}, "
        f"worst {_position(at)}: {array[at]}, and the reference {wanted[at]:.8g}"
    )


def _position(index: Any) -> str:
    return "".join(f"[{int(i)}]" for i in index) or "[]"

"""Triton's launches, taken to the emulator for as long as a context lasts."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ContextDecorator, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..emulator import Finding, LaunchError, Memory
from ..emulator.standalone import MOST_FINDINGS
from ..model.errors import WorkbenchError, WrongUsage
from .arrays import HostArray, Placement, copies, mapped, snapshot
from .compare import Reference, differences, expected_of
from .launching import Compiled, Launched, LaunchFault, Mismatch, run
from .target import Driver, Target, target_of

__all__ = ["Emulation", "TritonUnavailable", "emulate"]

_LAUNCH_OPTIONS = ("strict", "suppress", "max_findings", "counters", "max_warp_instructions", "max_seconds")
_CONTEXTS: list[Emulation] = []
"""Those that have been entered. The last one emulates launches, all of them have the reports."""


class TritonUnavailable(WorkbenchError):
    """Triton is not installed; the message says how to install it."""


class Emulation(ContextDecorator):
    """What ``emulate`` returns: a context, or a decorator of a function, in which launches are emulated.

    ``launches`` lists them in their order, every configuration of an autotuner as one; ``str`` of it is a report.
    """

    def __init__(
        self, target: Target, reference: Any, tolerances: tuple[float | None, float | None], **how: Any
    ) -> None:
        self.target = target
        self.launches: list[Launched] = []
        self._reference, self._tolerances, self._how = reference, tolerances, how
        self._stack = ExitStack()

    @property
    def ok(self) -> bool:
        """Whether kernels were launched and no launch has a failure or a difference."""
        return any(one.report is not None for one in self.launches) and all(one.ok for one in self.launches)

    @property
    def findings(self) -> list[Finding]:
        """The findings of all launches, of any severity."""
        return [finding for launched in self.launches for finding in launched.findings]

    def as_dict(self) -> dict[str, Any]:
        """All launches in types that JSON has."""
        return {"ok": self.ok, "launches": [launched.as_dict() for launched in self.launches]}

    def __str__(self) -> str:
        return "\n".join(map(str, self.launches)) or "no Triton kernel was launched"

    def __enter__(self) -> Emulation:
        self._stack.enter_context(_taken_over(self))
        return self

    def __exit__(self, *raised: Any) -> None:
        self._stack.close()

    def _recreate_cm(self) -> Emulation:
        return Emulation(self.target, self._reference, self._tolerances, **self._how)

    def launch(self, kernel: Any, grid: tuple[int, ...], arguments: dict[str, Any]) -> None:
        """Runs a compiled kernel on arguments that are named after its parameters, as often as is asked for."""
        if not 1 <= len(grid) <= 3:
            raise LaunchError(f"a grid has one to three numbers, not {len(grid)}")
        x, y, z = (*(int(n) for n in grid), 1, 1)[:3]
        change = self._how["change_ptx"]
        compiled = Compiled.of(kernel, change(kernel.asm["ptx"]) if change is not None else None)
        launched = Launched(
            getattr(kernel.src.fn, "__name__", kernel.metadata.name),
            (x, y, z),
            self.target.name,
            compiled.configuration(arguments),
            compiled.ptx,
        )
        for context in _CONTEXTS:  # this one, and those around it
            context.launches.append(launched)
        reference = self._reference_of(launched.kernel)
        expected = expected_of(reference, launched.kernel, copies(arguments)) if reference is not None else {}
        before = snapshot([*arguments.values()]) if self._how["orders"] > 1 else []
        for order in range(self._how["orders"]):
            _restore(before)
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
        placement = Placement(Memory())
        placed = placement.arguments(arguments, self._how["reachable"])
        options = {name: self._how[name] for name in _LAUNCH_OPTIONS}
        try:
            launched.report = run(compiled, launched.grid, placed, placement, self.target, seed=seed, **options)
        except LaunchError as error:
            launched.refused = str(error)
            raise
        if launched.failures:
            if self._how["raise_on_hazard"]:
                raise LaunchFault(launched)
            return
        launched.differences = differences(placement.arrays, expected, placement.unwritten(), *self._tolerances)
        if launched.differences and self._how["raise_on_hazard"]:
            raise Mismatch(launched)

    def _reference_of(self, kernel: str) -> Reference | None:
        found = self._reference.get(kernel) if isinstance(self._reference, Mapping) else self._reference
        return found

    def from_source(self, original: Callable[..., Any], function: Any, args: Any, grid: Any, options: Any) -> Any:
        """``kernel[grid](...)``: compiles for the arguments as Triton does, and launches."""
        named = inspect_arguments(function, args, options)
        placed = Placement(Memory()).arguments(named)
        given = [_by_name(placed, function, number) for number in range(len(args))]
        more = {name: placed.get(name, value) for name, value in options.items()}
        if self._how["debug"]:
            more.setdefault("debug", True)
        with _kept_by_file(function):
            kernel = original(function, *given, grid=grid, warmup=True, **more)
        self.launch(kernel, grid(named) if callable(grid) else _sequence(grid), named)
        return kernel

    def of_every_configuration(self, tuner: Any, args: Any, options: dict[str, Any]) -> Any:
        """An autotuner: launches each of its configurations on the same values of the arrays."""
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        try:
            chosen = tuner.prune_configs(options) if len(tuner.configs) > 1 else tuner.configs
            before, refused, kernel = snapshot([*args, *options.values()]), [], None
            for config in chosen:
                _restore(before)
                full = {**tuner.nargs, **options, **config.all_kwargs()}
                try:
                    with _hooks(tuner, config, full):
                        kernel = tuner.fn.run(*args, **{**options, **config.all_kwargs()})
                except _not_launched() as error:
                    refused.append(error)
                    if len(refused) == len(chosen):
                        raise
                    continue
                tuner.best_config = config
            return kernel
        finally:
            tuner.nargs = None


def inspect_arguments(function: Any, args: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by the names of the kernel's parameters, with defaults. Raises TypeError like a call."""
    named = {name: value for name, value in options.items() if name in function.signature.parameters}
    bound = function.signature.bind(*args, **named)
    bound.apply_defaults()
    return {name: mapped(value, lambda array, _: array, name) for name, value in bound.arguments.items()}


def _by_name(placed: Mapping[str, Any], function: Any, number: int) -> Any:
    names = list(function.signature.parameters)
    last = function.signature.parameters[names[-1]]
    if last.kind is last.VAR_POSITIONAL and number >= len(names) - 1:
        return placed[names[-1]][number - len(names) + 1]
    return placed[names[number]]


def _sequence(grid: Any) -> tuple[int, ...]:
    if isinstance(grid, int):
        raise LaunchError(f"a grid is a tuple or a function that returns one: write ({grid},)")
    return tuple(grid)


def _restore(before: list[tuple[Any, Any]]) -> None:
    for array, values in before:
        array[...] = values


@contextmanager
def _hooks(tuner: Any, config: Any, full: dict[str, Any]) -> Iterator[None]:
    """Around a launch: what the user has declared; what Triton adds by itself works on arrays of NumPy, too."""
    if config.pre_hook is not None:
        config.pre_hook(full)
    if tuner.user_defined_pre_hook:
        tuner.pre_hook(full)
    else:
        for array, _ in snapshot([full[name] for name in tuner.reset_to_zero if full.get(name) is not None]):
            array[...] = 0
    try:
        yield
    except Exception as error:
        if tuner.user_defined_post_hook:
            tuner.post_hook(full, exception=error)
        raise
    if tuner.user_defined_post_hook:
        tuner.post_hook(full, exception=None)


@contextmanager
def _kept_by_file(function: Any) -> Iterator[None]:
    """Triton's cache knows kernels by their text: the same text in another file has other lines in its PTX."""
    from triton import knobs

    file = hashlib.sha256(function.fn.__code__.co_filename.encode()).hexdigest()[:16]
    with knobs.cache.scope():
        knobs.cache.dir = str(Path(knobs.cache.dir) / "by_file" / file)
        yield


def _not_launched() -> tuple[type[Exception], ...]:
    """What a configuration may be refused with, as Triton's autotuner takes it."""
    from triton.compiler.errors import CompileTimeAssertionFailure
    from triton.runtime import errors

    return (LaunchError, CompileTimeAssertionFailure, errors.OutOfResources, getattr(errors, "PTXASError", LaunchError))


@contextmanager
def _taken_over(emulation: Emulation) -> Iterator[None]:
    """Triton with the driver of the emulation, and with launches that it gets."""
    try:
        import triton
        from triton.compiler import CompiledKernel
        from triton.runtime.autotuner import Autotuner
        from triton.runtime.jit import JITFunction
    except ImportError as error:
        raise TritonUnavailable(
            f"Triton cannot be imported ({error}); install it with: pip install 'kernel-workbench[triton]'"
        ) from None
    if os.environ.get("TRITON_INTERPRET", "0") not in ("", "0"):
        raise WrongUsage("TRITON_INTERPRET is set: kernels would run in Triton's interpreter; unset it")
    original, held = JITFunction.run, vars(triton.runtime.driver)
    previous = held.get("_active", held.get("active"))  # before Triton 3.6 the driver itself, made when it is used

    def run_function(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        if warmup:
            return original(self, *args, grid=grid, warmup=warmup, **options)
        return emulation.from_source(original, self, args, grid, options)

    def run_tuner(self: Any, *args: Any, **options: Any) -> Any:
        return emulation.of_every_configuration(self, args, options)

    def of_compiled(self: Any, grid: Any) -> Callable[..., None]:
        def launch(*args: Any, **_: Any) -> None:
            emulation.launch(self, _sequence(grid), dict(zip(self.src.signature, args, strict=False)))

        return launch

    with ExitStack() as stack:
        _CONTEXTS.append(emulation)
        stack.callback(_CONTEXTS.remove, emulation)
        triton.runtime.driver.set_active(Driver(emulation.target))
        stack.callback(triton.runtime.driver.set_active, previous)
        for owner, name, new in (
            (JITFunction, "run", run_function),
            (Autotuner, "run", run_tuner),
            (CompiledKernel, "__getitem__", of_compiled),
            *_descriptors(),
        ):
            stack.callback(setattr, owner, name, owner.__dict__[name])
            setattr(owner, name, new)
        yield


def _descriptors() -> list[tuple[type, str, Any]]:
    """Tensor descriptors that take arrays of NumPy."""
    try:
        from triton.tools.tensor_descriptor import TensorDescriptor
    except ImportError:  # an older Triton has none
        return []
    check, of_tensor = TensorDescriptor.__post_init__, TensorDescriptor.from_tensor

    @functools.wraps(check)
    def post_init(self: Any) -> None:
        if isinstance(self.base, np.ndarray):
            self.base = HostArray(self.base)
        check(self)

    @functools.wraps(of_tensor)
    def from_tensor(tensor: Any, block_shape: list[int], *args: Any, **options: Any) -> Any:
        if not isinstance(tensor, np.ndarray):
            return of_tensor(tensor, block_shape, *args, **options)
        strides = [step // tensor.itemsize for step in tensor.strides]
        return TensorDescriptor(tensor, list(tensor.shape), strides, block_shape, *args, **options)

    return [
        (TensorDescriptor, "__post_init__", post_init),
        (TensorDescriptor, "from_tensor", staticmethod(from_tensor)),
    ]


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
) -> Emulation:
    """A context, or a decorator of a function, in which Triton's launches run in the emulator. No GPU is needed.

    ``kernel[grid](...)`` compiles as ever, for ``target``: ``sm_80``, ``sm_86``, ``sm_89``, ``sm_90a``,
    ``sm_100a``, ``sm_103a`` or ``sm_120a``. The PTX is executed on the arguments, NumPy arrays and PyTorch tensors
    on the CPU, in place. ``Output(array)`` as an argument is an array that holds nothing yet. Every configuration
    of an autotuner is launched, each on the same values; arrays then hold what the last one left. ``reachable``
    lists arrays that kernels find by addresses in memory, such as the matrices of a grouped product; PyTorch's
    tensors are found without.

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
    what Triton's compiler raises, and ``ArgumentError``, ``LaunchError`` and ``UnsupportedInstruction``.
    """
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
    }
    return Emulation(target_of(target), reference, (rtol, atol), **how)

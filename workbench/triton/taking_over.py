"""Triton's launches, taken over while a context lasts."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..emulator import ArgumentError, LaunchError, Memory
from ..model.errors import WorkbenchError, WrongUsage
from .arrays import Placement
from .host import HostArray, mapped
from .launching import parameter_name
from .target import Driver, Target
from .tuners import Launching, bench, benchmarked, launch_configurations


class TritonUnavailable(WorkbenchError):
    """Triton is not installed; the message says how to install it."""


class Launcher(Launching, Protocol):
    """What gets the launches."""

    target: Target
    debug: bool

    def launch(self, kernel: Any, grid: Sequence[int], arguments: dict[str, Any]) -> None:
        """Runs a compiled kernel on arguments that are named after its parameters."""


@contextmanager
def taken_over(emulation: Launcher) -> Iterator[None]:
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
    original, compile_, held = JITFunction.run, triton.compile, vars(triton.runtime.driver)
    previous = held.get("_active", held.get("active"))  # before Triton 3.6 the driver itself, made when it is used

    def run_function(self: Any, *args: Any, grid: Any, warmup: bool = False, **options: Any) -> Any:
        return _from_source(emulation, original, self, args, None if warmup else grid, options)

    def run_tuner(self: Any, *args: Any, **options: Any) -> Any:
        return launch_configurations(emulation, self, args, options)

    def bench_tuner(self: Any, *args: Any, config: Any, **options: Any) -> list[float]:
        return bench(emulation, self, args, config, options)

    def compile_for_target(src: Any, target: Any = None, options: Any = None, **more: Any) -> Any:
        own = target is None or target.backend == "cpu"  # as Inductor has it where PyTorch has no GPU
        return compile_(src, triton.runtime.driver.active.get_current_target() if own else target, options, **more)

    def launch(kernel: Any, grid: Any, args: Sequence[Any]) -> None:
        names = [parameter_name(key) for key in kernel.src.signature]
        if any(kind != "constexpr" for kind in list(kernel.src.signature.values())[len(args) :]):
            raise ArgumentError(
                f"{kernel.name} takes {len(names)} arguments, with those of constexpr; {len(args)} are given"
            )
        emulation.launch(kernel, _sequence(grid), dict(zip(names, args, strict=False)))

    def of_compiled(self: Any, grid: Any) -> Callable[..., None]:
        return lambda *args, **_: launch(self, grid, args)

    def run_compiled(self: Any) -> Callable[..., None]:  # grid, stream, function, metadata twice and two hooks
        return lambda x, y, z, *args: launch(self, (x, y, z), args[6:])

    with ExitStack() as stack:
        triton.runtime.driver.set_active(Driver(emulation.target, benchmarked))
        stack.callback(triton.runtime.driver.set_active, previous)
        for owner, name, new in (
            (JITFunction, "run", run_function),
            (Autotuner, "run", run_tuner),
            (Autotuner, "_bench", bench_tuner),
            (triton, "compile", compile_for_target),
            (CompiledKernel, "__getitem__", of_compiled),
            (CompiledKernel, "run", property(run_compiled)),
            *_descriptors(),
        ):
            stack.callback(setattr, owner, name, owner.__dict__[name])
            setattr(owner, name, new)
        yield


def _from_source(
    emulation: Launcher, original: Callable[..., Any], function: Any, args: Any, grid: Any, options: Any
) -> Any:
    """``kernel[grid](...)``: compiles for the arguments as Triton does, and launches unless there is no grid."""
    for hook in function.pre_run_hooks:
        hook(*args, **options)
    named = _arguments(function, args, options)
    placed = Placement(Memory()).arguments(named, filled=False)
    given = [_by_name(placed, function, number) for number in range(len(args))]
    more = {name: placed.get(name, value) for name, value in options.items()}
    if emulation.debug:
        more.setdefault("debug", True)
    hooks, function.pre_run_hooks = function.pre_run_hooks, []
    try:
        with _kept_by_file(function):
            kernel = original(function, *given, grid=grid, warmup=True, **more)
    finally:
        function.pre_run_hooks = hooks
    if grid is not None:
        emulation.launch(kernel, _sequence(grid(named) if callable(grid) else grid), named)
    return kernel


def _arguments(function: Any, args: Any, options: Mapping[str, Any]) -> dict[str, Any]:
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


@contextmanager
def _kept_by_file(function: Any) -> Iterator[None]:
    """Triton's cache knows kernels by their text: the same text in another file has other lines in its PTX."""
    from triton import knobs

    file = hashlib.sha256(function.fn.__code__.co_filename.encode()).hexdigest()[:16]
    with knobs.cache.scope():
        knobs.cache.dir = str(Path(knobs.cache.dir) / "by_file" / file)
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

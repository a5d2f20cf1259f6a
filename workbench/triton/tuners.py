"""The configurations of autotuners: which are launched, and what one leaves for the next."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..emulator import Finding, FindingKind, LaunchError
from .host import Array, as_numpy, bytes_at, is_array, snapshot
from .launching import Launched
from .unwritten import Unwritten

_POISON = 0xA5
_NEVER = float("inf")


class Launching(Protocol):
    """What a tuner needs of an emulation."""

    unwritten: Unwritten
    benched: tuple[Any, int]

    def most_configurations(self, of_library: bool) -> int | None:
        """How many configurations are launched, None for all."""

    def tried(self, launch: Callable[[], Any]) -> list[Launched]:
        """Launches for a look at the findings: nothing is raised or kept."""

    def reported(self, launched: Launched) -> None:
        """A launch has got another finding."""

    def last(self) -> Launched | None:
        """The launch before."""


def launch_configurations(emulation: Launching, tuner: Any, args: Any, options: dict[str, Any]) -> Any:
    """``Autotuner.run``: launches configurations that fit, each on the same values of the arrays."""
    tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
    try:
        chosen = tuner.prune_configs(options) if len(tuner.configs) > 1 else tuner.configs
        most = emulation.most_configurations(_of_library(tuner))
        values = [*args, *options.values()]
        before, known = snapshot(values), emulation.unwritten.saved()
        refused, launched, kernel = [], 0, None

        def launch(config: Any) -> Any:
            restore(before)
            emulation.unwritten.restore(known)
            return _launch(tuner, config, args, options)

        for config in chosen:
            if launched == most:
                break
            after, stored = snapshot(values), emulation.unwritten.saved()
            try:
                kernel = launch(config)
            except not_launched() as error:
                restore(after)
                emulation.unwritten.restore(stored)
                refused.append(error)
                if len(refused) == len(chosen):
                    raise
                continue
            launched += 1
            tuner.best_config = config
        if launched > 1:
            _what_is_left(emulation, tuner, before, args, options)
        return kernel
    finally:
        tuner.nargs = None


def bench(emulation: Launching, tuner: Any, args: Any, config: Any, options: dict[str, Any]) -> list[float]:
    """``Autotuner._bench``, for subclasses with a ``run`` of their own: launches, and leaves arrays as they were.

    All configurations take the same time, those that do not fit, or are not to be launched, for ever."""
    most = emulation.most_configurations(_of_library(tuner))
    values = [*args, *options.values()]
    return [_benched(emulation, tuner.nargs, most, values, lambda: _launch(tuner, config, args, options))] * 3


def bench_inductors(emulation: Launching, tuner: Any, launcher: Any, args: Any, options: dict[str, Any]) -> float:
    """``CachingAutotuner.bench`` of Inductor, which is a library, in the same way."""
    most = emulation.most_configurations(True)
    return _benched(emulation, tuner, most, [*args], lambda: launcher(*args, **options, stream=0))


def _benched(emulation: Launching, key: Any, most: int | None, values: list[Any], launch: Callable[[], Any]) -> float:
    known_key, count = emulation.benched
    count = count if key is known_key else 0
    if count == most:
        return _NEVER
    before, known = snapshot(values), emulation.unwritten.saved()
    try:
        launch()
    except not_launched():
        return _NEVER
    finally:
        restore(before)
        emulation.unwritten.restore(known)
    emulation.benched = (key, count + 1)
    return 1.0


def benchmarked(call: Callable[[], Any], *_: Any, quantiles: Any = None, **__: Any) -> Any:
    """What an autotuner times kernels with: one launch, and a time that says nothing."""
    call()
    return [1.0] * len(quantiles) if quantiles else 1.0


def _launch(tuner: Any, config: Any, args: Any, options: Mapping[str, Any]) -> Any:
    with _hooks(tuner, config, {**tuner.nargs, **options, **config.all_kwargs()}):
        return tuner.fn.run(*args, **{**options, **config.all_kwargs()})


def restore(before: list[tuple[Array, Array]]) -> None:
    """Gives arrays the values of a snapshot."""
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


def not_launched() -> tuple[type[Exception], ...]:
    """What a configuration may be refused with, as Triton's autotuner takes it."""
    from triton.compiler.errors import CompileTimeAssertionFailure
    from triton.runtime import errors

    return (LaunchError, CompileTimeAssertionFailure, errors.OutOfResources, getattr(errors, "PTXASError", LaunchError))


# ------------------------------------------------------------------------- what one configuration leaves for the next
# Triton times its configurations on the same arrays, one after the other. What a kernel adds to has to be reset or
# restored between them, or the first result is wrong. Here the last configuration is launched once more, on what it has
# left. Where that gives another result, arrays that it has changed are made unwritten, which finds the line that reads
# them.


def _what_is_left(
    emulation: Launching, tuner: Any, before: list[tuple[Array, Array]], args: Any, options: dict[str, Any]
) -> None:
    last, config = emulation.last(), tuner.best_config
    listed = {*tuner.reset_to_zero, *tuner.restore_value}
    named = {**tuner.nargs, **{name: value for name, value in options.items() if name in tuner.arg_names}}
    arrays = {n: as_numpy(v) for n, v in named.items() if n not in listed and is_array(v)}
    held = {(array.ctypes.data, array.shape): values for array, values in before}
    first = {n: held[array.ctypes.data, array.shape] for n, array in arrays.items() if array.flags.writeable}
    changed = {n: arrays[n] for n, values in first.items() if not _same(arrays[n], values)}
    if last is None or not last.ok or not changed:
        return
    left, known = [(array, array.copy()) for array, _ in before], emulation.unwritten.saved()
    emulation.tried(lambda: _launch(tuner, config, args, options))
    twice = {n for n, array in changed.items() if not _close(array, _values_of(left, array))}
    found: list[Finding] = []
    if twice:
        restore(before)
        for name in twice:
            bytes_at(changed[name].ctypes.data, changed[name].nbytes)[:] = _POISON
            emulation.unwritten.declare(changed[name])
        for launched in emulation.tried(lambda: _launch(tuner, config, args, options)):
            found += [f for f in launched.findings if f.kind == FindingKind.UNINITIALISED and f.array in twice]
    restore(left)
    emulation.unwritten.restore(known)
    if found and last.report is not None:
        last.report.findings.append(_of_missing_reset(found[0]))
        emulation.reported(last)


def _values_of(left: list[tuple[Array, Array]], wanted: Array) -> Array:
    """The values of one array in a snapshot."""
    return next(values for array, values in left if array.ctypes.data == wanted.ctypes.data)


def _same(a: Array, b: Array) -> bool:
    return a.tobytes() == b.tobytes()


def _close(a: Array, b: Array) -> bool:
    if a.dtype.kind in "iub":
        return _same(a, b)
    return bool(np.allclose(a.astype(np.float64), b.astype(np.float64), rtol=1e-2, atol=1e-3, equal_nan=True))


def _of_missing_reset(finding: Finding) -> Finding:
    return replace(
        finding,
        message=f"{finding.message.partition(',')[0]}, where the configuration before has left its result: Triton "
        "times all configurations on the same arrays",
        advice=f"name {finding.array} in reset_to_zero or in restore_value of the autotuner",
        details=(),
    )


@functools.cache
def _is_installed(file: str) -> bool:
    """Whether a file belongs to an installed package: a folder above it lies beside the package's metadata."""
    return any(any(folder.glob("*.dist-info")) for folder in list(Path(file).parents)[:-1])


def _of_library(tuner: Any) -> bool:
    return _is_installed(tuner.base_fn.__code__.co_filename) if hasattr(tuner.base_fn, "__code__") else False

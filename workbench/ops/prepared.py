"""A class of calls that is ready to be launched."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..devices.ready import ReadyPlan
from ..model.arrays import Array
from ..model.calls import ArraySpec, Key, listed
from ..model.problem import Problem
from ..model.stage import Stage
from . import launched
from .arrays import Arrays

_zero: dict[tuple[str, int, int, int, str], tuple[Any, Any]] = {}
"""By kind of arrays, device, stream, thread and name: scratch that plans find zero and leave zero, and the stream,
which must live as long. The thread is 0 but where a stream's handle stands for one of every thread."""

PER_THREAD = 2
"""The handle of the default stream that every thread has of its own, cudaStreamPerThread."""

MOST_KEPT = 1 << 24
"""Bytes of inputs left out that are kept on a stream, all zero: of more, memory is cleared at every call."""

_captured: list[Any] = []
"""Memory of calls that were captured into graphs, which nobody tells when they go."""


@dataclass(frozen=True)
class HiddenArrays:
    """Arrays of a plan that are neither the caller's nor his results: what makes them at every call.

    `scratch` is memory that the launches hand data over in, `dropped` outputs that the caller does not get; `prepared`
    is made of the inputs on the host, inputs that the caller has `left_out` are zero, and the results at the places in
    `started` begin with the values of an input."""

    scratch: Mapping[str, Array]
    dropped: Mapping[str, Array]
    prepared: Mapping[str, Array]
    left_out: Mapping[str, Array]
    started: Mapping[int, ArraySpec]
    inputs: Mapping[str, ArraySpec]
    launches: int

    @property
    def any(self) -> bool:
        """Whether there are any."""
        return bool(self.scratch or self.dropped or self.prepared or self.left_out or self.started)

    @property
    def memory(self) -> tuple[tuple[int, bool], ...]:
        """The bytes of each, and whether these are zero on a stream before and after every call: where they are memory
        alone. Empty where something is computed or copied, or where zeros are of one call alone, or many."""
        of_one_call = self.launches > 1 and any(array.zero for array in self.scratch.values())
        many = sum(array.nbytes for array in self.left_out.values()) > MOST_KEPT
        if self.dropped or self.prepared or self.started or of_one_call or many:
            return ()
        scratch = [(array.nbytes, array.zero) for array in self.scratch.values()]
        return (*scratch, *((array.nbytes, True) for array in self.left_out.values()))  # which nobody writes


class Prepared:
    """A class of calls, ready: call it with arrays of the shapes, strides and dtypes that it was prepared for.

    `problem` is what is solved and `stage` what solves it; `key` is what the arrays agree in, and `asked` what the
    stage was chosen for: architecture and alignment, and the device by its full name. Calls may come from any thread.
    Raises ValueError for other arrays, and Fault (`workbench.devices`) for a launch that goes wrong."""

    def __init__(
        self,
        problem: Problem,
        stage: Stage[Any],
        asked: tuple[int, int, str],
        kind: Arrays,
        key: Key,
        inputs: Sequence[ArraySpec],
        results: Sequence[ArraySpec],
        collect: Callable[[Sequence[Any]], Any] | None,
        between: HiddenArrays,
    ) -> None:
        self.problem, self.stage, self.asked, self.key = problem, stage, asked, key
        self._kind, self._device, self._stream = kind, results[0].device, kind.stream
        self._makers = [kind.maker(spec) for spec in results]
        self._inputs = [spec.span for spec in inputs]
        self._results, self._spans = tuple(results), [spec.span for spec in results]
        self._collect = collect
        self._between, self._more = between, between.any
        self.hot: Any = None
        """What the function in C++ makes calls with, None where they go through Python."""
        self._plan: Callable[[list[int], int], None] = self._unbound

    def bind(
        self,
        ready: Callable[[Mapping[str, int], Sequence[int]], ReadyPlan],
        given: Sequence[Any],
        addresses: Sequence[int],
        out: Any,
    ) -> None:
        """Have the launches packed, by `ready`, for the places of arrays by name and the addresses that there are at a
        call with these arguments. The device is the current one."""
        between, now = self._between, list(addresses)
        results = [make(now) for make in self._makers] if out is None else listed(out)
        count = len(self._inputs)
        names = [str(spec.source) for spec in self._results]
        names += [*between.scratch, *between.dropped, *between.left_out, *between.prepared]
        index = {name: int(spec.source) for name, spec in between.inputs.items()}
        index |= {name: count + place for place, name in enumerate(names)}  # what is both is where the result is
        kept = self._fill(given, now, results, self._kind.stream(self._device) or 0)
        plan = ready(index, now)
        self.hot = launched.ready_class(
            self._kind.hot,
            plan,
            self._device,
            self._inputs,
            self._results,
            [self._kind.recipe(spec) for spec in self._results],
            self._collect,
            between,
            self._kind.bytes_recipe,
        )
        self._plan = plan
        del kept

    def _unbound(self, addresses: list[int], stream: int) -> None:
        raise RuntimeError(f"{self!r} has not been bound")

    def __call__(self, *arrays: Any, out: Any = None) -> Any:
        try:
            key, addresses = self._kind.read(arrays if out is None else (*arrays, *listed(out)))
        except (AttributeError, ValueError, LookupError):  # of another kind, or tensors that need a gradient
            key, addresses = (), []
        if key != self.key:
            raise ValueError(f"these arrays are not of the class that was prepared, {self.problem.label}")
        return self.launch(arrays, addresses, out)

    def launch(self, arrays: Sequence[Any], addresses: list[int], out: Any = None) -> Any:
        """Solve a call of this class. `addresses` are those of the inputs, and of `out` where it is given."""
        stream = self._stream(self._device)
        if stream is None:
            with self._kind.on(self._device):
                return self.launch(arrays, addresses, out)
        if out is not None:
            results: Sequence[Any] = listed(out)
            self._check_apart(addresses)
        elif self._collect is None:
            out = self._makers[0](addresses)
            results = (out,)
        else:
            results = [make(addresses) for make in self._makers]
            out = self._collect(results)
        if self._more:
            kept = self._fill(arrays, addresses, results, stream)
            self._plan(addresses, stream)
            del kept  # whoever gets that memory next uses it later on the same stream
        else:
            self._plan(addresses, stream)
        return out

    def _check_apart(self, addresses: Sequence[int]) -> None:
        """Raises ValueError for results over the memory of an input: kernels read inputs while they write."""
        inputs = self._inputs
        for first, span in zip(addresses[len(inputs) :], self._spans, strict=True):
            end = first + span
            for address, size in zip(addresses, inputs, strict=False):
                if address < end and first < address + size:
                    raise ValueError(f"out overlaps the memory of an input of {self.problem.label}: give other memory")

    def _fill(self, arrays: Sequence[Any], addresses: list[int], results: Sequence[Any], stream: int) -> list[Any]:
        """Make the arrays between, and append their addresses; they have to live until the launch."""
        kind, between = self._kind, self._between
        for place, spec in between.started.items():
            kind.copy(kind.view(arrays[int(spec.source)], spec), results[place])
        kept = [self._scratch(name, array, stream) for name, array in between.scratch.items()]
        kept += [self._memory(array.nbytes, False) for array in between.dropped.values()]
        kept += [self._memory(array.nbytes, True) for array in between.left_out.values()]
        if between.prepared:
            given = {name: kind.host(kind.view(arrays[int(s.source)], s)) for name, s in between.inputs.items()}
            values = self.problem.prepare(given)
            kept += [kind.upload(array.pack(values[name])) for name, array in between.prepared.items()]
        addresses += kind.addresses(kept)
        return kept

    def _scratch(self, name: str, array: Array, stream: int) -> Any:
        """Memory for a scratch array: fresh, or, where it has to be zero, kept by stream.

        What is captured into a graph may run beside the stream that it was captured from: it has its own."""
        if not array.zero or self._between.launches > 1 or self._kind.capturing():
            # between the launches of a call another thread may launch on the same stream
            return self._memory(array.nbytes, array.zero)
        return self._kept_zero(name, array, stream)[0]

    def _memory(self, nbytes: int, zero: bool) -> Any:
        """Fresh memory. A graph that it is captured into may run at any time later: it is kept for good where the graph
        does not own it."""
        made = self._kind.memory(nbytes, zero)
        if self._kind.capturing() and not self._kind.graph_owns_memory:
            _captured.append(made)
        return made

    def _kept_zero(self, name: str, array: Array, stream: int) -> tuple[Any, Any]:
        """Memory that is zero before and after every call on a stream, and the stream."""
        thread = threading.get_ident() if stream == PER_THREAD else 0
        key = (self._kind.name, self._device, stream, thread, name)
        if key not in _zero or _zero[key][0].nbytes < array.nbytes:
            _zero[key] = self._kind.memory(array.nbytes, True), self._kind.current_stream()
        return _zero[key]

    def _zeroed(self, stream: int) -> tuple[tuple[int, ...], Any]:
        """For the function in C++: the addresses of the scratch that has to be zero on a stream and of inputs that were
        left out, and what must live as long as they are used."""
        zero = {name: a for name, a in self._between.scratch.items() if a.zero} | dict(self._between.left_out)
        kept = [self._kept_zero(name, a, stream) for name, a in zero.items()]
        return tuple(self._kind.addresses([memory for memory, _ in kept])), kept

    def __repr__(self) -> str:
        return f"<{self.stage.spec} for {self.problem.label}>"

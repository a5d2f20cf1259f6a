"""The first call of a class: from its arrays and options to launches that are ready.

What later calls do not do is done here: checks, the problem, the choice of a stage, compilation, tensor maps, sizes of
grids. What comes out is found by later calls in `Function.ready`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, cast

from ..catalogue import registry
from ..devices.cuda import CudaDevice
from ..model import calls, errors
from ..model.calls import ArraySpec, Call, Function, Key, listed
from ..model.launch import Plan, planning_for
from ..model.operation import Operation
from ..model.problem import Problem
from ..model.stage import Stage
from ..toolchain.compiler import Compiled, compile_stage
from .arrays import Arrays, CupyArrays, is_cupy
from .choice import choose
from .prepared import HiddenArrays, Prepared
from .results import results_of
from .torch_arrays import TorchArrays, has_memory, is_tensor, torch
from .torch_library import deferred, recorded

MOST_CLASSES = 4096
"""Classes of calls that an operation keeps ready; where there are more, it begins anew."""

KINDS: dict[type, Arrays] = {}
"""How arrays of a type are read, of types that have been seen."""


@cache
def device_of(number: int) -> CudaDevice:
    """The device of this number, which is the current one."""
    return CudaDevice()


@cache
def _cupy() -> CupyArrays:
    return CupyArrays()


@cache
def _torch() -> TorchArrays:
    return TorchArrays(recorded)


def kind_of(array: Any) -> Arrays | None:
    """The kind that an array is of, or None where it is none that is known."""
    kind = type(array)
    if kind not in KINDS and is_cupy(kind):
        register(kind, _cupy())
    if kind not in KINDS and is_tensor(kind):
        register(kind, _torch(), read=has_memory(kind))
    return KINDS.get(kind)


def register(kind: type, arrays: Arrays, *, read: bool = True) -> None:
    """Have arrays of this type solved like these; without `read` none of them finds what is ready by itself."""
    KINDS[kind] = arrays
    if read:
        calls.READERS[kind] = arrays.read
        if arrays.call is not None:
            calls.HOT[kind] = arrays.call


def register_tensors() -> None:
    """Have tensors of PyTorch read from the first call on."""
    for kind in (torch().Tensor, torch().nn.Parameter):
        register(kind, _torch())


class Operators:
    """Makes calls of functions ready."""

    def __init__(self) -> None:
        self._compiled: dict[Any, Compiled] = {}

    def solve(self, function: Function, arrays: Sequence[Any], out: Any, options: Mapping[str, Any]) -> Any:
        if arrays and type(arrays[0]) in KINDS and KINDS[type(arrays[0])].deferred(arrays):
            return deferred(function, arrays, out, options)
        arrays, options = _bound(function, arrays, options)
        kind = kind_of(arrays[0])
        if kind is None and is_foreign(arrays[0]):
            return self._adopted(function, arrays, out, options)
        if kind is not None and kind.deferred(arrays):
            return deferred(function, arrays, out, options)
        ready, addresses = self._prepared(function, arrays, out, options)
        return ready.launch(arrays, addresses, out)

    def _adopted(self, function: Function, arrays: Sequence[Any], out: Any, options: Mapping[str, Any]) -> Any:
        """Solve a call with arrays of another library, as arrays of CuPy over the same memory."""
        taken = [adopted(function, name, array) for name, array in zip(function.arrays, arrays, strict=False)]
        if out is not None:
            over = tuple(adopted(function, "out", array) for array in listed(out))
            function(*taken, out=over if isinstance(out, tuple) else over[0], **options)
            return out
        found = function(*taken, **options)
        back = converter(arrays[0])
        if not isinstance(found, tuple):
            return back(found)
        several = [back(array) for array in found]
        return type(found)._make(several) if hasattr(found, "_make") else tuple(several)

    def prepare(self, function: Function, arrays: Sequence[Any], out: Any, options: Mapping[str, Any]) -> Prepared:
        arrays, options = _bound(function, arrays, options)
        kind = kind_of(arrays[0])
        if kind is not None and kind.deferred(arrays):
            name = function.operation.name
            raise ValueError(f"{name}: tensors that are traced or need a gradient: prepare under torch.no_grad()")
        return self._prepared(function, arrays, out, options)[0]

    def _prepared(
        self, function: Function, arrays: Sequence[Any], out: Any, options: Mapping[str, Any]
    ) -> tuple[Prepared, list[int]]:
        """What is ready for a call, made where it is the first of its class; and the addresses of its arrays."""
        given = (*arrays, *(() if out is None else listed(out)))
        kind = _kind(function, given, len(arrays))
        key, addresses = kind.read(given)
        known = (key, *options.items()) if options else key
        with function.lock:
            if known not in function.ready:
                if len(function.ready) >= MOST_CLASSES:
                    function.ready.clear()
                function.ready[known] = self._made(function, kind, arrays, out, options, key, addresses)
            return cast(Prepared, function.ready[known]), addresses

    def _chosen(
        self,
        among: Operation[Any],
        kind: Arrays,
        call: Call,
        key: Key,
        inputs: Sequence[ArraySpec],
        device: CudaDevice,
    ) -> tuple[Prepared, Plan]:
        """The stage for a call, of an operation's, and what it launches."""
        problem = call.problem
        results, collect = results_of(among.name, call, inputs[0].device)
        asked = device.architecture, key[-1], device.properties["name"].decode()
        stage = choose(among, problem, *asked)
        plan, arrays = stage.plan(problem), problem.arrays()
        place_of = {str(spec.source): place for place, spec in enumerate(results)}
        between = HiddenArrays(
            plan.scratch,
            {name: a for name, a in arrays.items() if a.output and name not in place_of},
            {name: a for name, a in arrays.items() if a.prepared and name not in call.inputs},
            {name: a for name, a in arrays.items() if a.given and name not in call.inputs},
            {place_of[name]: call.inputs[name] for name in place_of if arrays[name].inout},
            call.inputs,
            len(plan.launches),
        )
        return Prepared(problem, stage, asked, kind, key, inputs, results, collect, between), plan

    def _compile(self, stage: Stage[Any], problem: Problem, architecture: int) -> Compiled:
        """The stage compiled for a problem. Sources are read once for the same defines: that takes longer than the rest
        of a first call."""
        made_of = (architecture, stage.sources, stage.source, stage.code, *sorted(stage.defines(problem).items()))
        if made_of not in self._compiled:
            with errors.after(1.0, f"compiling {stage.spec} for {problem.label}, which is kept"):
                self._compiled[made_of] = compile_stage(stage, problem, architecture)
        return self._compiled[made_of]

    def _made(
        self,
        function: Function,
        kind: Arrays,
        inputs: Sequence[Any],
        out: Any,
        options: Mapping[str, Any],
        key: Key,
        addresses: Sequence[int],
    ) -> Prepared:
        """What is ready for the class of this call: chosen, compiled, and its launches packed."""
        name, count = function.operation.name, len(inputs)
        given = (*inputs, *(() if out is None else listed(out)))
        specs = [kind.spec(array, place) for place, array in enumerate(given)]
        call = function.build(*specs[:count], **{k: kind.option(v) for k, v in options.items()})
        if out is not None:
            _check_out(name, specs[count:], results_of(name, call, specs[0].device)[0])
        among = function.among
        if call.instead and among is function.operation:
            other, call = call.instead
            among = registry.operations()[other]
        with kind.on(specs[0].device):
            device = device_of(specs[0].device)
            with planning_for(device.machine):
                ready, plan = self._chosen(among, kind, call, key, specs[:count], device)
                compiled = self._compile(ready.stage, call.problem, device.architecture)
            arrays = {**call.problem.arrays(), **plan.scratch}
            ready.bind(lambda index, now: device.ready(compiled, plan, index, arrays, now), given, addresses, out)
        return ready


def _bound(
    function: Function, arrays: Sequence[Any], options: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arrays in the order of their parameters, without those left out at the end, and the options. Raises TypeError as
    Python does."""
    given = function.takes.bind(*arrays, **options).arguments
    found = tuple(given[name] for name in function.arrays if given.get(name) is not None)
    return found, {name: value for name, value in given.items() if name not in function.arrays}


def _kind(function: Function, given: Sequence[Any], count: int) -> Arrays:
    """The kind that all arrays of a call are of, `count` inputs and then results. Raises TypeError."""
    kind = kind_of(given[0])
    names = [*function.arrays[:count], *["out"] * len(given)]
    for array, called in zip(given, names, strict=False):
        if kind is None or kind_of(array) is not kind:
            found = f"{function.operation.name}: {called} is a {type(array).__module__}.{type(array).__name__}"
            wanted = f"the first array is one of {kind.name}" if kind else "it has to be an array on a GPU"
            raise TypeError(f"{found}; {wanted}")
    assert kind is not None
    return kind


def _check_out(name: str, out: Sequence[ArraySpec], results: Sequence[ArraySpec]) -> None:
    """Raises ValueError and TypeError for arrays that cannot hold the results."""
    if len(out) != len(results):
        raise ValueError(f"{name}: out has {len(out)} arrays; there are {len(results)} results")
    for given, right in zip(out, results, strict=True):
        if given.dtype != right.dtype:
            raise TypeError(f"{name}: out has dtype {given.dtype}; it has to be {right.dtype}")
        steps = [(a, b) for n, a, b in zip(right.shape, given.strides, right.strides, strict=False) if n > 1]
        if given.shape != right.shape or given.device != right.device or any(a != b for a, b in steps):
            raise ValueError(
                f"{name}: out has shape {given.shape}, strides {given.strides} bytes, on device {given.device}; it "
                f"has to have shape {right.shape} and strides {right.strides} on device {right.device}"
            )


# -------------------------------- arrays of other libraries: those of DLPack and those with `__cuda_array_interface__`


ON_GPU = (2, 13)
"""kDLCUDA and kDLCUDAManaged, of what `__dlpack_device__` returns."""


def is_foreign(array: Any) -> bool:
    """Whether an array of another library lies on a GPU, as far as it says so."""
    if hasattr(type(array), "__dlpack_device__") and hasattr(type(array), "__dlpack__"):
        return int(array.__dlpack_device__()[0]) in ON_GPU
    return hasattr(array, "__cuda_array_interface__")


def adopted(function: Function, name: str, array: Any) -> Any:
    """An array of CuPy over the same memory, ordered behind what the other library does there. Raises TypeError."""
    import cupy

    if not is_foreign(array):
        kind = type(array)
        found = f"{function.operation.name}: {name} is a {kind.__module__}.{kind.__name__}"
        raise TypeError(f"{found}; it has to be an array on a GPU")
    if hasattr(type(array), "__dlpack__"):
        return cupy.from_dlpack(array)
    return cupy.asarray(array)


def converter(array: Any) -> Callable[[Any], Any]:
    """What makes arrays of this one's library of CuPy's, over the same memory: by its `from_dlpack`, where the array or
    its package has one, or numba's `as_cuda_array`. Where there is nothing, results stay arrays of CuPy."""
    if hasattr(array, "__array_namespace__"):
        space = array.__array_namespace__()
        if hasattr(space, "from_dlpack"):
            return space.from_dlpack  # type: ignore[no-any-return]
    package = sys.modules.get(type(array).__module__.partition(".")[0])
    for holder in (package, getattr(package, "dlpack", None), getattr(package, "cuda", None)):
        for called in ("from_dlpack", "as_cuda_array"):
            if hasattr(holder, called):
                return getattr(holder, called)  # type: ignore[no-any-return]
    return lambda found: found

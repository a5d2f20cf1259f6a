"""The operations as operators of PyTorch, `torch.ops.workbench.NAME`: what `torch.compile` and autograd take.

An operator has the arrays of the function and its options, and returns the results. Its fake kernel says how results
lie in memory, for which the operation's own checks are asked; its gradient is another operation, where one is declared.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, cast

from ..catalogue import registry
from ..model.calls import ArraySpec, Function, Gradient, Gradients
from ..model.errors import WrongUsage
from .arrays import bits
from .results import results_of
from .torch_arrays import dtypes, spec_of, torch, torch_dtype

NAMESPACE = "workbench"

TYPES = {"bool": "bool", "int": "int", "float": "float", "str": "str", "Any": "ScalarType"}
"""Types of options as the schema of an operator spells them. What may be anything is a dtype."""

PAIR = "int | tuple[int, int]"
"""The type of an option that is one number or two, a list of two in a schema."""

_lock = threading.Lock()
_defined: dict[str, Operator] = {}


class SchemaError(WrongUsage, TypeError):
    """An option of a function has a type that PyTorch operators do not support."""


@cache
def _library() -> Any:
    return torch().library.Library(NAMESPACE, "FRAGMENT")


class Operator:
    """A function as an operator: `call` takes tensors and options, and `apply` those of a GPU, at once.
    `collect` puts several results together."""

    def __init__(self, function: Function) -> None:
        self.function, self.name = function, function.operation.name
        count, self.collect = _results(function)
        self._pairs = [name for name in function.options if str(function.takes.parameters[name].annotation) == PAIR]
        self._grad_enabled, self._no_grad = torch().is_grad_enabled, torch().no_grad
        library = _library()
        library.define(schema(function, count))
        library.impl(self.name, self._solve, "CUDA")
        t, name = torch().library, f"{NAMESPACE}::{self.name}"
        t.register_fake(name, self._fake, lib=library)
        t.register_autograd(name, self._backward, setup_context=self._save, lib=library)
        self.call = getattr(getattr(torch().ops, NAMESPACE), self.name)
        self._gradients: Gradients | None = None
        self.apply = self._recorder()

    def become(self, function: Function) -> None:
        """Solve calls like another function of this name. Raises SchemaError where it has other parameters."""
        if schema(function, _results(function)[0]) != schema(self.function, _results(self.function)[0]):
            raise SchemaError(f"{self.name} is an operator with other arrays or options already: rename the operation")
        self.function, self._gradients = function, None

    def _solve(self, *arrays: Any, **options: Any) -> Any:
        if self._grad_enabled():
            with self._no_grad():  # whatever the tensors say: gradients have been seen to
                return self._solve(*arrays, **options)
        while arrays[-1] is None:
            arrays = arrays[:-1]
        found = self.function(*arrays, **self._paired(options))
        return found if self.collect is None else tuple(found)

    def _paired(self, options: dict[str, Any]) -> dict[str, Any]:
        """The options as the function takes them: what PyTorch hands over as a list is a tuple."""
        for name in self._pairs:
            if name in options:
                options[name] = tuple(options[name])
        return options

    def _fake(self, *arrays: Any, **options: Any) -> Any:
        """Tensors like the results, without values."""
        specs = [spec_of(array, place) for place, array in enumerate(arrays) if array is not None]
        named = {name: dtypes()[v] if isinstance(v, torch().dtype) else v for name, v in self._paired(options).items()}
        results, _ = results_of(self.name, self.function.build(*specs, **named), specs[0].device)
        found = tuple(
            torch().empty_strided(
                spec.shape,
                tuple(step // spec.itemsize for step in spec.strides),
                dtype=torch_dtype(bits(spec.dtype)),
                device=arrays[0].device,
            )
            for spec in results
        )
        return found[0] if self.collect is None else found

    @property
    def gradients(self) -> Gradients:
        """How those of the arrays are computed."""
        if self._gradients is None:
            gradient = self.function.gradient
            by_operation = gradient is None or isinstance(gradient, Gradient)
            self._gradients = ByOperation(self.function) if by_operation else cast(Gradients, gradient)
        return self._gradients

    def _save(self, ctx: Any, inputs: Sequence[Any], keyword_only_inputs: Mapping[str, Any], output: Any) -> None:
        self._keep(ctx, inputs, output if self.collect else (output,), dict(keyword_only_inputs))

    def _backward(self, ctx: Any, *gradients: Any) -> Any:
        return tuple(self._solved(ctx, gradients[0], lambda name: operator(_called(name))))

    def _keep(self, ctx: Any, arrays: Sequence[Any], results: Sequence[Any], options: dict[str, Any]) -> None:
        """Keep what the gradients need. Of autograd's inputs the arrays are the first."""
        if self.collect:
            ctx.set_materialize_grads(False)
            ctx.mark_non_differentiable(*results[1:])
        saved, kept = self.gradients.saved(arrays, results, ctx.needs_input_grad, options)
        ctx.save_for_backward(*saved)
        ctx.kept = kept

    def _solved(self, ctx: Any, gradient: Any, called: Callable[[str], Any]) -> Sequence[Any]:
        """The gradients of the arrays; autograd gives them the dtypes of these."""
        if gradient is None:
            return (None,) * len(self.function.arrays)
        return self.gradients.solve(called, ctx.saved_tensors, ctx.kept, gradient, ctx.needs_input_grad)

    def _recorder(self) -> Callable[..., Any]:
        """What makes a call with tensors of a GPU, options last, and has autograd record it."""

        def forward(ctx: Any, *given: Any) -> Any:
            *arrays, options = given
            found = self.function(*arrays, **options)  # which records nothing in here
            self._keep(ctx, arrays, found if self.collect else (found,), options)
            return found

        def backward(ctx: Any, *gradients: Any) -> Any:
            return *self._solved(ctx, gradients[0], _called), None

        base, steps = torch().autograd.Function, {"forward": staticmethod(forward), "backward": staticmethod(backward)}
        made: Any = type(self.name, (base,), steps)
        apply = getattr(super(base, made), "apply")  # noqa: B009  # `recorded` has looked for transforms
        collect = self.collect
        return apply if collect is None else lambda *given: collect(apply(*given))

    @property
    def options(self) -> tuple[str, ...]:
        return self.function.options

    def __call__(self, *arrays: Any, **options: Any) -> Any:
        return self.call(*arrays, **options)


class ByOperation:
    """The gradients that another operation computes, as a function declares it."""

    def __init__(self, function: Function) -> None:
        self.name, self.declared = function.operation.name, cast(Gradient | None, function.gradient)
        if self.declared is None:
            return
        arrays, takes, gives = function.arrays, self.declared.takes, self.declared.gives
        results = [Gradient.result(place) for place in range(len(takes))]
        kept = [name for name in takes if name != Gradient.OF_RESULT]
        self.kept = [arrays.index(name) if name in arrays else ~results.index(name) for name in kept]
        self.place = takes.index(Gradient.OF_RESULT)
        self.gives = [gives.index(name) if name in gives else None for name in arrays]

    def saved(
        self, arrays: Sequence[Any], results: Sequence[Any], wanted: Sequence[bool], options: Mapping[str, Any]
    ) -> tuple[Sequence[Any], Any]:
        if self.declared is None:
            return (), None
        return [results[~place] if place < 0 else arrays[place] for place in self.kept], options

    def solve(
        self, called: Callable[[str], Any], saved: Sequence[Any], kept: Any, gradient: Any, wanted: Sequence[bool]
    ) -> Sequence[Any]:
        """Raises NotImplementedError where there is no operation for them."""
        if self.declared is None:
            raise NotImplementedError(f"{self.name} has no gradient here: call it under torch.no_grad()")
        function, dtype = called(self.declared.operation), saved[0].dtype
        given = [array.contiguous() for array in saved]
        given.insert(self.place, (gradient if gradient.dtype == dtype else gradient.to(dtype)).contiguous())
        passed = {k: v for k, v in kept.items() if k in function.options and k != "out_dtype"}
        found = function(*given, **passed)
        several = found if isinstance(found, tuple | list) else (found,)
        return [None if place is None else several[place] for place in self.gives]


@cache
def _called(name: str) -> Function:
    """The function of an operation that computes gradients."""
    return cast(Function, registry.operations()[name].called)


def recorded(function: Function, arrays: tuple[Any, ...], out: Any, options: dict[str, Any]) -> Any:
    """Make a call with tensors that need a gradient at once. Returns None where that is left to the operator: on
    another device, in a transform of functions, and where a mode sees operators.

    The dispatcher of PyTorch takes some 50 us of the host for an operator with an autograd of its own."""
    c = torch()._C
    if out is not None or not on_gpu(arrays[0]) or c._len_torch_dispatch_stack():
        return None
    if c._are_functorch_transforms_active():
        return None
    while arrays[-1] is None:
        arrays = arrays[:-1]
    return operator(function).apply(*arrays, options)


def on_gpu(array: Any) -> bool:
    return bool(array.is_cuda)


def deferred(function: Function, arrays: Sequence[Any], out: Any, options: Mapping[str, Any]) -> Any:
    """Solve a call by its operator. Raises ValueError where results are to be written to an array."""
    if out is not None:
        raise ValueError(
            f"{function.operation.name}: out= is not recorded: leave it out, or call under torch.no_grad()"
        )
    made = operator(function)
    found = made.call(*arrays, **options)
    return found if made.collect is None else made.collect(found)


def operator(function: Function | None) -> Operator:
    """The operator of a function, defined where it is asked for first. Raises SchemaError.

    Of functions with the same name, as of one that is loaded again, the operator solves calls like the last one."""
    assert function is not None
    name = function.operation.name
    if name not in _defined:
        with _lock:
            if name not in _defined:
                _defined[name] = Operator(function)
    if _defined[name].function is not function:
        _defined[name].become(function)
    return _defined[name]


def schema(function: Function, results: int) -> str:
    """The schema of an operator: `softmax(Tensor x, *, ScalarType? out_dtype=None) -> Tensor`. Raises SchemaError."""
    parameters = function.takes.parameters
    parts = [
        f"Tensor {name}" if parameters[name].default is inspect.Parameter.empty else f"Tensor? {name}=None"
        for name in function.arrays
    ]
    parts += ["*"] if function.options else []
    for name in function.options:
        text = str(parameters[name].annotation)
        if text == PAIR:
            parts.append(f"int[2] {name}={_literal(parameters[name].default)}")
            continue
        base, _, none = text.partition(" | ")
        if base not in TYPES or none not in ("", "None"):
            raise SchemaError(
                f"the option {name} of {function.operation.name} is of type {text}, which no operator has"
            )
        optional = "?" if none or base == "Any" else ""
        default = parameters[name].default
        value = "" if default is inspect.Parameter.empty else f"={_literal(default)}"
        parts.append(f"{TYPES[base]}{optional} {name}{value}")
    gives = "Tensor" if results == 1 else f"({', '.join(['Tensor'] * results)})"
    return f"{function.operation.name}({', '.join(parts)}) -> {gives}"


def _literal(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def _results(function: Function) -> tuple[int, Callable[[Sequence[Any]], Any] | None]:
    """How many results a function has, and what puts them together: those of a call with arrays of its suite's first
    problem, whose extents go together whatever the options are; as a caller's are, without gaps."""
    given = (array for array in function.operation.suite[0].arrays().values() if array.given)
    specs = [ArraySpec.whole(array.shape, bits(array.dtype.numpy), 0, i) for i, array in enumerate(given)]
    results, collect = results_of(function.operation.name, function.build(*specs), 0)
    return len(results), collect

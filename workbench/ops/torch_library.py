"""The operations as operators of PyTorch, `torch.ops.workbench.NAME`: what `torch.compile` and autograd take.

An operator has the arrays of the function and its options, and returns the results. Its fake kernel says how results
lie in memory, for which the operation's own checks are asked; its gradient is another operation, where one is declared.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from ..catalogue import registry
from ..model.calls import ArraySpec, Function
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
    """A function as an operator: `call` takes tensors and options. `collect` puts several results together."""

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

    def become(self, function: Function) -> None:
        """Solve calls like another function of this name. Raises SchemaError where it has other parameters."""
        if schema(function, _results(function)[0]) != schema(self.function, _results(self.function)[0]):
            raise SchemaError(f"{self.name} is an operator with other arrays or options already: rename the operation")
        self.function = function

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

    def _save(self, ctx: Any, inputs: Sequence[Any], keyword_only_inputs: Mapping[str, Any], output: Any) -> None:
        """What the gradient needs of a call."""
        gradient = self.function.gradient
        if gradient is None:
            return
        results = output if isinstance(output, tuple | list) else (output,)
        known = dict(zip(self.function.arrays, inputs, strict=True))
        known |= {gradient.result(place): result for place, result in enumerate(results)}
        ctx.mark_non_differentiable(*results[1:])
        ctx.saved = [name for name in gradient.takes if name in known]
        ctx.save_for_backward(*(known[name] for name in ctx.saved))
        ctx.dtypes = [None if array is None else array.dtype for array in inputs]
        ctx.options = dict(keyword_only_inputs)

    def _backward(self, ctx: Any, *gradients: Any) -> Any:
        """The gradients of the arrays. Raises NotImplementedError where there is no operation for them."""
        gradient = self.function.gradient
        if gradient is None:
            raise NotImplementedError(f"{self.name} has no gradient here: call it under torch.no_grad()")
        backward = operator(registry.operations()[gradient.operation].called)
        known = dict(zip(ctx.saved, ctx.saved_tensors, strict=True))
        dtype = next(iter(known.values())).dtype
        known[gradient.OF_RESULT] = gradients[0].to(dtype)
        options = {k: v for k, v in ctx.options.items() if k in backward.function.options and k != "out_dtype"}
        found = backward.call(*(known[name].contiguous() for name in gradient.takes), **options)
        by_name = dict(zip(gradient.gives, found if isinstance(found, tuple | list) else (found,), strict=True))
        return tuple(
            by_name[name].to(dtype) if name in by_name else None
            for name, dtype in zip(self.function.arrays, ctx.dtypes, strict=True)
        )


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

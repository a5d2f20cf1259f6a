"""A task of KernelBench or gpu-mode as the definition of an operation: its shapes, inputs and answers, by PyTorch.

What `workbench import` writes calls this. PyTorch is imported when it is first needed. Shapes are looked up on its
`meta` device, where nothing is computed."""

from __future__ import annotations

import ast
import contextlib
import importlib
import math
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from .arrays import Arrays
from .dtypes import DTYPES, DType
from .errors import WorkbenchError
from .problem import Size, extents

TYPES = {t.torch: t for t in DTYPES.values() if t.torch}
"""Element types by the names of PyTorch."""

MODULES = ("task", "utils")
"""Modules that gpu-mode has beside a task."""

MOST_LOOKS = 4096
"""Problems whose shapes are kept."""


class TaskError(WorkbenchError):
    """A task cannot be used, or PyTorch is missing; the message says what is wrong, and what would help."""


def torch() -> Any:
    """PyTorch. Raises TaskError where it is not installed."""
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        why = str(error).replace("; ", ", ")
        raise TaskError(
            f"PyTorch cannot be imported ({why}), by which the task is defined; install it with: pip install torch "
            "(the CPU's is enough: --index-url https://download.pytorch.org/whl/cpu)"
        ) from None


@dataclass(frozen=True)
class Seen:
    """An array as the task has it: shape and type; `role` is `input`, `parameter` (of the model) or `output`."""

    shape: tuple[int, ...]
    dtype: str
    role: str


@dataclass(frozen=True)
class Look:
    """The arrays of a task by name, and the operations of its products and convolutions."""

    arrays: dict[str, Seen]
    flops: int


@dataclass
class _Bound:
    """A task at one set of sizes: its arguments by name (tensors, and what is none), parameters, and what is called."""

    arguments: dict[str, Any]
    parameters: dict[str, Any]
    call: Callable[[Mapping[str, Any], Mapping[str, Any]], Any]


@dataclass(eq=False)
class TorchTask:
    """A task, in the file `path`. `sizes` are the whole numbers in it that a problem may replace, with its own values.

    Sizes are assigned at the top of a KernelBench task, `name = 64` or, an element each, `name = (64, 32)`; in gpu-mode
    they are the arguments of `generate_input`. The names of arrays are those of the arguments."""

    path: Path
    kind: str
    sizes: Mapping[str, int]
    fixed: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._looks: dict[tuple[int, ...], Look | TaskError] = {}
        self._made: tuple[tuple[Any, ...], _Bound] | None = None

    def at(self, problem: Any) -> tuple[int, ...]:
        """The sizes of a problem, in the order of `sizes`."""
        return tuple(getattr(problem, name) for name in self.sizes)

    def look(self, values: Sequence[int]) -> Look:
        """What there is at these sizes. Raises TaskError where the task refuses them."""
        key = tuple(values)
        if key not in self._looks:
            if len(self._looks) >= MOST_LOOKS:
                self._looks.clear()
            try:
                self._looks[key] = self._look(key)
            except TaskError as error:
                self._looks[key] = error
        found = self._looks[key]
        if isinstance(found, TaskError):
            raise found
        return found

    def seen(self, values: Sequence[int]) -> dict[str, Seen]:
        """All arrays at these sizes. Raises TaskError where the task refuses them."""
        return self.look(values).arrays

    def flops(self, problem: Any) -> int:
        """Operations of the products and convolutions of a problem; without any, the elements of its arrays. Raises
        TaskError."""
        found = self.look(self.at(problem))
        return found.flops or sum(math.prod(each.shape) for each in found.arrays.values())

    def possible(self, problem: Any) -> bool:
        """Whether the task has such a problem: sizes that do not go together are none.

        Raises TaskError where PyTorch is missing."""
        torch()
        try:
            self.seen(self.at(problem))
        except TaskError:
            return False
        return True

    def _look(self, values: tuple[int, ...]) -> Look:
        pytorch = torch()
        counter = importlib.import_module("torch.utils.flop_counter").FlopCounterMode(display=False)
        try:
            with _elsewhere("meta"), pytorch.no_grad():
                made = self._bind(values, 0)
                with counter:
                    answers = _outputs(made.call(made.arguments, made.parameters))
        except Exception as error:
            said = str(error).strip().splitlines() or [type(error).__name__]
            raise self._refused(values, said[0]) from None
        found = {}
        written = {id(answer) for answer in answers}
        for role, tensors in (("input", made.arguments), ("parameter", made.parameters)):
            for name, tensor in tensors.items():
                if isinstance(tensor, pytorch.Tensor) and id(tensor) not in written:
                    found[name] = _seen(tensor, role)
        for name, answer in zip(output_names(len(answers), found), answers, strict=True):
            found[name] = _seen(answer, "output")
        for name, seen in found.items():
            if 0 in seen.shape:  # on `meta` a convolution of less than its filter is no error
                raise self._refused(values, f"{name} has shape {seen.shape}, no elements")
        return Look(found, int(counter.get_total_flops()))

    def _refused(self, values: tuple[int, ...], why: str) -> TaskError:
        sizes = ", ".join(f"{name}={value}" for name, value in zip(self.sizes, values, strict=True))
        return TaskError(f"{self.path.name} has no shapes with {sizes or 'its sizes'}: {why}")

    def inputs(self, problem: Any, *, signs: bool = False) -> Arrays:
        """The inputs of a problem as the task draws them with the problem's seed, parameters of the model among them.

        With `signs` every other seed gives the elements of inputs random signs: `torch.rand` draws positive numbers
        alone, for which much is right that is wrong."""
        with _elsewhere("cpu"):
            made = self._bind(self.at(problem), problem.seed)
        names = {name: seen for name, seen in self.seen(self.at(problem)).items() if seen.role != "output"}
        values = {name: _array({**made.arguments, **made.parameters}[name]) for name in names}
        if signs and problem.seed % 2:
            rng = np.random.default_rng(problem.seed)
            for name, seen in names.items():
                if seen.role == "input" and seen.dtype.startswith(("fp", "bf", "e")):
                    drawn = rng.choice([-1, 1], size=values[name].shape)
                    values[name] = (values[name].astype(np.float64) * drawn).astype(values[name].dtype)
        return values

    def run(self, problem: Any, inputs: Arrays) -> Arrays:
        """The outputs for these inputs, by PyTorch on the CPU in float64; integers stay what they are."""
        pytorch = torch()
        wide = {
            name: pytorch.from_numpy(
                np.array(x if x.dtype.kind in "iub" else x.astype(np.float64))
            )  # a copy: the task may write to it
            for name, x in inputs.items()
        }
        floating = pytorch.float32 if any(x.dtype == pytorch.float32 for x in wide.values()) else pytorch.float64
        with _elsewhere("cpu"), pytorch.no_grad():
            made, seen = self._bind(self.at(problem), problem.seed, floating), self.seen(self.at(problem))
            for name, value in made.arguments.items():  # buffers that the task makes for its outputs
                if name not in seen and isinstance(value, pytorch.Tensor) and value.is_floating_point():
                    made.arguments[name] = value.to(floating)
            answers = self._called(made, seen, wide)
        return {name: _array(tensor) for name, tensor in answers.items()}

    def solved(self, problem: Any, arrays: Mapping[str, Any]) -> tuple[Any, ...]:
        """The outputs for these tensors, on the device where they are and in the task's own types, which a stage is
        timed beside. The model is made once a problem."""
        seen = self.seen(self.at(problem))
        device = next((arrays[name].device for name, each in seen.items() if each.role != "output"), "cpu")
        key = (*self.at(problem), str(device))
        if self._made is None or self._made[0] != key:
            with _elsewhere("cpu"):
                made = self._bind(self.at(problem), problem.seed)
            for name, value in made.arguments.items():  # buffers that the task makes for its outputs
                if isinstance(value, torch().Tensor):
                    made.arguments[name] = value.to(device)
            self._made = key, made
        with torch().no_grad():
            return tuple(self._called(self._made[1], seen, arrays).values())

    def _called(self, made: _Bound, seen: Mapping[str, Seen], tensors: Mapping[str, Any]) -> dict[str, Any]:
        arguments, parameters = dict(made.arguments), dict(made.parameters)
        for name, each in seen.items():
            if each.role != "output":
                where = arguments if each.role == "input" else parameters
                where[name] = tensors[name].reshape(where[name].shape)
        answers = _outputs(made.call(arguments, parameters))
        names = [name for name, each in seen.items() if each.role == "output"]
        return {name: a.reshape(seen[name].shape) for name, a in zip(names, answers, strict=True)}

    def _bind(self, values: tuple[int, ...], seed: int, floating: Any = None) -> _Bound:
        torch().manual_seed(seed)
        sizes = dict(zip(self.sizes, values, strict=True))
        return _kernelbench(self.path, sizes, floating) if self.kind == "kernelbench" else self._gpumode(sizes, seed)

    def _gpumode(self, sizes: Mapping[str, int], seed: int) -> _Bound:
        module = load(self.path)
        data = module["generate_input"](**sizes, **self.fixed, seed=seed)
        several = isinstance(data, tuple | list)
        names = argument_names(self.path, len(data) if several else 1)
        arguments = dict(zip(names, data if several else [data], strict=True))

        def call(given: Mapping[str, Any], _: Mapping[str, Any]) -> Any:
            return module["ref_kernel"](type(data)(given.values()) if several else given[names[0]])

        return _Bound(arguments, {}, call)


def _kernelbench(path: Path, sizes: Mapping[str, int], floating: Any) -> _Bound:
    module = load(path, tuple(sizes.items()))
    initial = module["get_init_inputs"]()
    model = module["Model"](**initial) if isinstance(initial, dict) else module["Model"](*initial)
    if floating is not None:
        model = model.to(floating)
    values = list(module["get_inputs"]())
    names = argument_names(path, len(values))
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    buffers = dict(model.named_buffers())
    counters = {name for name, tensor in buffers.items() if not tensor.dim()}  # of batches, which no answer depends on
    known = {_python(name, names): name for name, t in state.items() if t.numel() and name not in counters}

    def call(arguments: Mapping[str, Any], parameters: Mapping[str, Any]) -> Any:
        # a model may write to its buffers, running means, say
        given = {known[n]: tensor.clone() if known[n] in buffers else tensor for n, tensor in parameters.items()}
        return torch().func.functional_call(model, given, tuple(arguments.values()))

    return _Bound(dict(zip(names, values, strict=True)), {name: state[known[name]] for name in known}, call)


def _python(name: str, taken: Sequence[str]) -> str:
    made = name.replace(".", "_")
    return f"model_{made}" if made in taken or made[:1].isdigit() else made


def argument_names(path: Path, count: int) -> list[str]:
    """What the inputs are called: the parameters of `forward`, or what `ref_kernel` unpacks its data into."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef) and node.name == "Model":
            forward = (f for f in node.body if isinstance(f, ast.FunctionDef) and f.name == "forward")
            found = [a.arg for f in forward for a in f.args.args[1:]]
        elif isinstance(node, ast.FunctionDef) and node.name == "ref_kernel" and node.args.args:
            data = node.args.args[0].arg
            unpacked = (
                [t.id for t in a.targets[0].elts if isinstance(t, ast.Name)]
                for a in ast.walk(node)
                if isinstance(a, ast.Assign)
                and isinstance(a.targets[0], ast.Tuple)
                and isinstance(a.value, ast.Name)
                and a.value.id == data
            )
            found = next(unpacked, [data])
    plain = [name for name in found if name != "_"]
    return plain[:count] if len(plain) >= count else [f"x{i}" for i in range(count)]


def output_names(count: int, taken: Mapping[str, Any]) -> list[str]:
    """`out`, or `out0`, `out1` ... where there are several."""
    base = "out" if not any(name.startswith("out") for name in taken) else "result"
    return [base] if count == 1 else [f"{base}{i}" for i in range(count)]


def _outputs(answer: Any) -> list[Any]:
    found = [answer] if isinstance(answer, torch().Tensor) else list(answer) if isinstance(answer, tuple | list) else []
    if not found or not all(isinstance(each, torch().Tensor) for each in found):
        raise TaskError(f"the task returns {type(answer).__name__}; a tensor or a tuple of tensors is needed")
    return found


def _seen(tensor: Any, role: str) -> Seen:
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in TYPES:
        raise TaskError(f"the task has a tensor of {name}; the types are {', '.join(TYPES)}")
    return Seen(tuple(tensor.shape) or (1,), TYPES[name].name, role)


def _array(tensor: Any) -> np.ndarray[Any, Any]:
    """A tensor on the CPU as an array of its type, contiguous; a number has one element."""
    kind = TYPES[str(tensor.dtype).removeprefix("torch.")].numpy
    values = tensor.detach().contiguous()
    made = values.numpy() if kind.isbuiltin else values.float().numpy().astype(kind)
    return np.array(made).reshape(tuple(tensor.shape) or (1,))


# ------------------------------------------------------------------------------------------- what an operation needs


def around(own: int, size: Size, edges: tuple[int, ...], dimensions: int) -> st.SearchStrategy[int]:
    """Values of one of so many sizes of a task whose own value is `own`: small ones, edges, and its own and what is
    beside it where the device takes them."""
    most = max(1, min(size.extent, 2 * own))
    share = min(most, max(4, int(size.work ** (1 / max(1, dimensions)))))
    near = [value for value in (own // 2, own - 1, own, own + 1) if 1 <= value <= most]
    few = st.sampled_from(near) if near else st.just(most)
    return st.one_of(extents(Size(share, size.work), edges), st.integers(1, min(8, most)), few)


LEAST = 0.01
"""The least share of the absolute tolerance."""


def tolerated(expected: np.ndarray[Any, Any], dtype: DType, *, rtol: float, atol: float) -> np.ndarray[Any, Any]:
    """rtol |expected| + atol, and one rounding to `dtype`. `atol` is that of outputs of size 1: it is smaller where the
    root mean square of `expected` is, so that an answer of zeros does not pass, but not less than `LEAST` of it: what
    is left of terms that cancel has the error of the terms. Nothing is tolerated of integers."""
    if not dtype.is_float:
        return np.zeros(expected.shape)
    size = np.abs(np.where(np.isfinite(expected), expected, 0.0))
    largest = float(size.max(initial=0.0))
    typical = largest * float(np.sqrt(np.mean((size / largest) ** 2))) if largest > 0 else 0.0
    made: np.ndarray[Any, Any] = (
        (rtol + dtype.unit_roundoff) * size + atol * min(1.0, max(LEAST, typical)) + dtype.smallest
    )
    return made


def differing(controls: Mapping[str, Arrays], expected: Arrays) -> dict[str, Arrays]:
    """The negative controls that are wrong: relu(x) = x where every x happens to be positive."""

    def right(control: Arrays) -> bool:
        return all(np.array_equal(control[name], expected[name], equal_nan=True) for name in expected)

    return {name: control for name, control in controls.items() if not right(control)}


# ------------------------------------------------------------------------------------------------ the file of a task


@lru_cache(maxsize=64)
def _compiled(path: Path, _: int, sizes: tuple[tuple[str, int], ...]) -> types.CodeType:
    tree = ast.parse(path.read_text(), str(path))
    for name, value in sizes:
        replace_size(tree, name, value)
    return compile(ast.fix_missing_locations(tree), str(path), "exec")


def load(path: Path, sizes: tuple[tuple[str, int], ...] = ()) -> dict[str, Any]:
    """What the file of a task defines, with these whole numbers in place of its own.

    Of `MODULES`, what is not beside it is a stand-in: it judges, and is not needed."""
    module: dict[str, Any] = {"__name__": f"_task_{path.stem}", "__file__": str(path)}
    with _beside(path.parent):
        exec(_compiled(path, path.stat().st_mtime_ns, sizes), module)
    return module


def replace_size(tree: ast.Module, name: str, value: int) -> None:
    """Give a whole number at the top of a file another value: `n`, or an element of `shape = (a, b)`, `shape_0`."""
    for node in tree.body:
        if not isinstance(node, ast.Assign):
            continue
        given = node.value
        if isinstance(node.targets[0], ast.Tuple) and isinstance(given, ast.Tuple):  # height, width = 32, 32
            for i, each in enumerate(node.targets[0].elts):
                if isinstance(each, ast.Name) and each.id == name and i < len(given.elts):
                    given.elts[i] = ast.copy_location(ast.Constant(value), given)
        if not isinstance(node.targets[0], ast.Name):
            continue
        target = node.targets[0].id
        if target == name:
            node.value = ast.copy_location(ast.Constant(value), given)
        elif isinstance(given, ast.Tuple | ast.List) and name.rpartition("_")[0] == target:
            index = name.rpartition("_")[2]
            if index.isdigit() and int(index) < len(given.elts):
                given.elts[int(index)] = ast.copy_location(ast.Constant(value), given)


class _StandIn(types.ModuleType):
    """A module whose names are functions that return themselves, types of annotations and contexts that do nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Nothing()


class _Nothing(contextlib.nullcontext[None]):
    def __call__(self, *_: Any, **__: Any) -> _Nothing:
        return self

    def __getitem__(self, _: Any) -> _Nothing:
        return self


@contextlib.contextmanager
def _beside(folder: Path) -> Iterator[None]:
    """`MODULES` of the folder, `_utils.py` where they were copied there, can be imported, and are forgotten afterwards:
    every task has its own."""
    before = {name: sys.modules.pop(name) for name in MODULES if name in sys.modules}
    try:
        for name in MODULES:
            sys.modules[name] = _StandIn(name)
        for name in MODULES:
            files = (folder / f"{prefix}{name}.py" for prefix in ("_", ""))
            file = next((f for f in files if f.is_file()), None)
            if file:
                module = types.ModuleType(name)
                exec(compile(file.read_text(), str(file), "exec"), vars(module))
                sys.modules[name] = module
        yield
    finally:
        for name in MODULES:
            sys.modules.pop(name, None)
        sys.modules.update(before)


@contextlib.contextmanager
def _elsewhere(device: str) -> Iterator[None]:
    """Tensors that are made are on this device, whatever device the code asks for: tasks ask for `cuda`."""
    pytorch = torch()
    overrides = importlib.import_module("torch.overrides")

    class Moved(overrides.TorchFunctionMode):  # type: ignore[misc, name-defined]
        def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
            given = dict(kwargs or {})
            if function is pytorch.Tensor.cuda:
                return args[0]
            if function is pytorch.Tensor.to:
                args = tuple(device if isinstance(a, str | pytorch.device) else a for a in args)
            if given.get("device") is not None:
                given["device"] = device
            if device == "meta":
                given.pop("generator", None)
            return function(*args, **given)

    generator = pytorch.Generator

    class Kind(type):
        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, generator)

        def __call__(cls, *_: Any, **__: Any) -> Any:
            return generator()  # of the CPU, whatever device is asked for

    pytorch.Generator = Kind("Generator", (), {})
    try:
        with pytorch.device(device), Moved():
            yield
    finally:
        pytorch.Generator = generator

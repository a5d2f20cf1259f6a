"""`workbench import`: a task of KernelBench or gpu-mode becomes an operation of the project, in files to edit."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from math import prod
from pathlib import Path

from ..catalogue import registry
from ..model.dtypes import DTYPES
from ..model.torch_task import MODULES, torch
from .new import FILL_IN, CannotMake, Made, camel, check_name, shown, write_operation
from .tasks import Looked, Parsed, looked, parsed

TASK = "_definition.py"
"""The copy of a task beside the operation; nobody imports a module of such a name by itself."""

TOLERANCES = {"fp64": 1e-4, "fp32": 1e-4, "fp16": 1e-2, "bf16": 1e-2}
"""What KernelBench takes for right, relative and absolute, by the type of the inputs."""


def import_task(kind: str, path: Path, name: str | None = None) -> Made:
    """Write a folder with the operation that a task defines, a first source without its kernel, and a copy of the task.

    Raises CannotMake, TaskError, BadProject, OSError."""
    task = parsed(kind, path)
    name = name or _name_of(task.path if kind == "kernelbench" else path)
    check_name(name, "an operation")
    if name in registry.operations():
        raise CannotMake(f"there is an operation {name!r} already; give another name with --name")
    torch()
    seen = looked(task)
    made, folder, cuda = write_operation(name, files(name, task, seen))
    for module in MODULES:
        if kind == "gpumode" and (beside := task.path.with_name(f"{module}.py")).is_file():
            shutil.copyfile(beside, folder / f"_{module}.py")
    if not seen.sizes:
        made.next.append(
            "name the sizes of the task as whole numbers at its top, which get_inputs uses, and import it again: now "
            "its own sizes alone can be tried"
        )
    made.next += [
        f"look at the bound, and at which inputs are drawn, in {shown(folder / '__init__.py', made.root)}",
        f"write the kernel, in {shown(cuda / '1_naive.cu', made.root)}",
        f"workbench verify {name}",
    ]
    return made


def _name_of(path: Path) -> str:
    """`12_Gemm_Multiply.py` as the name of an operation."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", path.stem if path.suffix == ".py" else path.resolve().name)
    name = re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_").lstrip("0123456789_")
    if not name:
        raise CannotMake(f"{path} gives the operation no name; give one with --name")
    return name


def files(name: str, task: Parsed, seen: Looked) -> dict[str, str]:
    """The files of the operation, by their names."""
    return {
        "__init__.py": declaration(name, task, seen),
        "stages.py": stages(name, seen),
        "1_naive.cu": kernel(name, task, seen),
        TASK: task.path.read_text(),
        f"test_{name}.py": TEST.format(name=name),
    }


def _shape(seen: Looked, name: str) -> str:
    parts = ", ".join(part or "" for part in seen.shapes[name])
    return f"({parts},)" if len(seen.shapes[name]) == 1 else f"({parts})"


def _plainly(seen: Looked, name: str) -> str:
    """An array in words: `x: (batch, features) fp32`."""
    extents = [
        (part or str(at)).replace("self.", "")
        for part, at in zip(seen.shapes[name], seen.arrays[name].shape, strict=True)
    ]
    return f"{name}: ({', '.join(extents)}{',' if len(extents) == 1 else ''}) {seen.arrays[name].dtype}"


def _wrapped(parts: Sequence[str], left: str, right: str, indent: int = 0) -> str:
    """A Python literal of these parts, a line each where they are many."""
    line = f"{left}{', '.join(parts)}{',' if len(parts) == 1 and left == '(' else ''}{right}"
    if len(line) < 60:
        return line
    return "\n".join([left, *(f"{' ' * (indent + 4)}{part}," for part in parts), f"{' ' * indent}{right}"])


def declaration(name: str, task: Parsed, seen: Looked) -> str:
    """The module of the operation."""
    kind = f"{camel(name)}Problem"
    inputs = [n for n, s in seen.arrays.items() if s.role != "output"]
    outputs = [n for n, s in seen.arrays.items() if s.role == "output"]
    first = next((s.dtype for s in seen.arrays.values() if s.role == "input"), "fp32")
    rtol, atol = task.tolerances or (TOLERANCES.get(first, 1e-2),) * 2
    own = {k: v for k, v in (task.suite[0] if task.suite else task.sizes).items() if k in seen.sizes}
    arrays = []
    for n, each in seen.arrays.items():
        role = ", output=True" if each.role == "output" else ""
        arrays.append(f'            "{n}": Array({_shape(seen, n)}, dtype_of("{each.dtype}"){role}),')
    file = TASK
    suite = [{k: case[k] for k in seen.sizes} for case in task.suite]
    suite = [case for i, case in enumerate(suite) if case not in suite[:i]]
    fixed = {**{k: v for k, v in task.sizes.items() if k not in seen.sizes and task.kind == "gpumode"}, **task.fixed}
    tried = _tried_too(kind, task, seen)
    whose = "KernelBench" if task.kind == "kernelbench" else "gpu-mode"
    where = "the task's own" if task.tolerances else f"what KernelBench takes for right of {first}"
    return DECLARATION.format(
        name=name,
        kind=kind,
        constant=name.upper(),
        whose=whose,
        file=file,
        about=task.about or f"what {file} computes",
        lines="\n".join(f"    {_plainly(seen, n)}" for n in (*inputs, *outputs)),
        sizes="".join(f"\n    {k}: int = {v}" for k, v in own.items()) + ("\n" if own else ""),
        extents="".join(f'"{k}", ' for k in own).rstrip(" ") if len(own) == 1 else ", ".join(f'"{k}"' for k in own),
        arrays="\n".join(arrays),
        rtol=f"{rtol:g}",
        atol=f"{atol:g}",
        where=where,
        signs=seen.signs,
        why="        # torch.rand draws positive numbers alone, for which relu(x) = x\n" if seen.signs else "",
        flops=seen.flops or "TASK.flops(self)",
        task_sizes=_wrapped([f'"{k}": {v}' for k, v in own.items()], "{", "}"),
        fixed=f", {fixed!r}" if fixed else "",
        task_kind=task.kind,
        label=" ".join([*(["x".join(f"{{self.{k}}}" for k in own)] if own else []), first]),
        drawn="\n".join(f"        {k}=around({v}, size, edges, {len(own)})," for k, v in own.items()),
        tried=tried,
        dataclasses="dataclass, replace" if tried else "dataclass",
        suite=_wrapped([f"{kind}({', '.join(f'{k}={v}' for k, v in case.items())})" for case in suite], "(", ")", 4),
    )


def _tried_too(kind: str, task: Parsed, seen: Looked) -> str:
    """What draws the task's own tests, too, where it has some and the device takes them."""
    listed = [f"{kind}({', '.join(f'{k}={case[k]}' for k in seen.sizes)})" for case in task.tried]
    if not seen.sizes or not listed:
        return ""
    listed = list(dict.fromkeys(listed))
    return TRIED.format(tests=_wrapped(listed, "(", ")", 4))


def stages(name: str, seen: Looked) -> str:
    """The module of stages."""
    inputs = [n for n, s in seen.arrays.items() if s.role != "output"]
    outputs = [n for n, s in seen.arrays.items() if s.role == "output"]
    given = [*(f'"{n}"' for n in (*inputs, *outputs)), *(f"np.int32(p.{k})" for k in seen.sizes), "np.int64(count)"]
    return STAGES.format(
        name=name,
        kind=f"{camel(name)}Problem",
        constant=name.upper(),
        source=f"{name}/1_naive.cu",
        output=outputs[0],
        arguments=_wrapped(given, "(", ")", 4),
    )


def kernel(name: str, task: Parsed, seen: Looked) -> str:
    """The first source, without what the kernel does."""
    types = {n: DTYPES[s.dtype].cuda for n, s in seen.arrays.items()}
    arrays = [f"{'' if s.role == 'output' else 'const '}{types[n]}* {n}" for n, s in seen.arrays.items()]
    outputs = [n for n, s in seen.arrays.items() if s.role == "output"]
    headers = sorted({DTYPES[s.dtype].header for s in seen.arrays.values()} - {""})
    elements = prod(seen.arrays[outputs[0]].shape)
    return KERNEL.format(
        about=task.about or "what the task computes",
        shapes="\n".join(f"// {_plainly(seen, n)}" for n in seen.arrays),
        headers="".join(f"#include <{h}>\n" for h in headers) + ("\n" if headers else ""),
        name=name,
        parameters=",\n    ".join([*arrays, *(f"int {k}" for k in seen.sizes), "long long count"]),
        output=outputs[0],
        fill=FILL_IN,
        count=f"{elements:,}",
    )


DECLARATION = '''"""{about}.

Imported from a task of {whose}: {file}, which defines it by PyTorch. The files are yours to edit.
"""

from __future__ import annotations

from dataclasses import {dataclasses}
from math import prod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from hypothesis import strategies as st

from workbench import Array, Cost, Operation, Problem, Size, Tier, dtype_of
from workbench.model.torch_task import TorchTask, around, differing, tolerated

Arrays = dict[str, np.ndarray]

TASK = TorchTask(Path(__file__).with_name("{file}"), "{task_kind}", {task_sizes}{fixed})


@dataclass(frozen=True)
class {kind}(Problem):
    """
{lines}
    """
{sizes}
    extents: ClassVar[tuple[str, ...]] = ({extents})
    tiers: ClassVar[tuple[Tier, ...]] = (Tier.BOUNDED,)
    not_exact: ClassVar[str] = "PyTorch defines it, and nobody has said which inputs make every sum exact"

    @property
    def label(self) -> str:
        return f"{label}"

    def arrays(self) -> dict[str, Array]:
        return {{
{arrays}
        }}

    def inputs(self) -> Arrays:
        # as the task draws them, with the problem's seed. signs: every other seed gives their elements random signs
{why}        return TASK.inputs(self, signs={signs})

    def reference(self, inputs: Arrays) -> Arrays:
        # PyTorch on the CPU, in float64
        return TASK.run(self, inputs)

    def bound(self, inputs: Arrays, expected: Arrays) -> Arrays:
        # |got - reference| <= rtol |reference| + atol, and one rounding of the result. rtol and atol: {where}.
        # atol is relative to the size of the output where that is less than 1: else an answer of zeros would pass.
        # Tighter, for sums of K products: u sqrt(K) (|A||B|), u = 2^-24 in fp32; see workbench.dot_products
        return {{n: tolerated(x, self.arrays()[n].dtype, rtol={rtol}, atol={atol}) for n, x in expected.items()}}

    def negative_controls(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        return differing(super().negative_controls(inputs, expected), expected)

    @property
    def cost(self) -> Cost:
        moved = sum(prod(array.shape) * array.dtype.itemsize for array in self.arrays().values())
        return Cost({flops}, moved)


def problems(size: Size, edges: tuple[int, ...]) -> st.SearchStrategy[{kind}]:
    """Sizes below and around those of the task; what it refuses is no problem of it."""
    drawn = st.builds(
        {kind},
{drawn}
        seed=st.integers(0, 2**16),
    )
    found = drawn.filter(lambda p: TASK.possible(p) and p.cost.flops <= size.work)
{tried}    return found


{constant} = Operation(
    name="{name}",
    summary="{about}",
    problem={kind},
    problems=problems,
    suite={suite},
    defines=lambda p: {{}},
    emulator_size=Size(extent=256, work=200_000),
    cuda_size=Size(extent=4096, work=2**28),
)


@{constant}.baseline("PyTorch", requires="torch", vendor=True)
def pytorch(p: {kind}, **arrays: Any) -> Any:
    """The task's own definition, in its own types; `reward` in documents is relative to its time."""
    return TASK.solved(p, arrays)
'''

TRIED = """    tests = {tests}
    if tried := [p for p in tests if p.cost.flops <= size.work]:
        found |= st.builds(replace, st.sampled_from(tried), seed=st.integers(0, 2**16))
"""

STAGES = '''"""The stages of {name}. They run in a process of their own: no other module imports this one."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from workbench import Launch, ceil_div

from . import {constant}, {kind}


@{constant}.stage(
    "naive",
    source="{source}",
    idea="one thread computes one element",
    parameters={{"THREADS": 256}},
)
def naive(p: {kind}, size: Mapping[str, int]) -> Launch:
    count = prod(p.arrays()["{output}"].shape)
    blocks = ceil_div(count, size["THREADS"])
    arguments = {arguments}
    return Launch("{name}_naive", (blocks, 1, 1), (size["THREADS"], 1, 1), arguments)
'''

KERNEL = """// {about}.
{shapes}
//
// stage 1, naive: one thread computes one element of {output}.
//
// what limits it: {fill}.
{headers}extern "C" __global__ void {name}_naive(
    {parameters}) {{
  long long i = blockIdx.x * (long long)THREADS + threadIdx.x;
  if (i >= count) return;  // {count} elements in the task
  // {fill}: compute {output}[i]
}}
"""

TEST = '''"""Every stage computes what the task defines."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")


@pytest.mark.workbench("{name}")
def test_every_stage_computes_it(workbench_stage):
    workbench_stage.verify()
'''

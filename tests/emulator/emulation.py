"""What the tests of the emulator share: compiling CUDA C++ to PTX, and applying one PTX instruction to arrays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from cuda.pathfinder import find_nvidia_header_directory
from cupy.cuda import nvrtc

from workbench.emulator import FindingKind, KernelFault, Memory, Program, execute

Array = npt.NDArray[Any]

# PTX type of a register: (type of ld/st, NumPy type)
_TYPES: dict[str, tuple[str, str]] = {
    "u8": ("u8", "u1"),
    "s8": ("s8", "i1"),
    **{
        f"{kind}{bits}": (f"{kind}{bits}", f"{letter}{bits // 8}")
        for bits in (16, 32, 64)
        for kind, letter in ("uu", "si")
    },
    **{f"b{bits}": (f"b{bits}", f"u{bits // 8}") for bits in (8, 16, 32, 64)},
    "f32": ("f32", "f4"),
    "f64": ("f64", "f8"),
}


@cache
def ptx_of(source: str, *defines: str, name: str = "kernel.cu") -> str:
    """PTX that NVRTC makes of CUDA C++."""
    program = nvrtc.createProgram(source, name, (), ())
    options = (
        "-arch=sm_90a",
        "-std=c++17",
        "-lineinfo",
        f"-I{find_nvidia_header_directory('cudart')}",
        *(f"-D{define}" for define in defines),
    )
    try:
        nvrtc.compileProgram(program, options)
    except nvrtc.NVRTCError:
        raise AssertionError(nvrtc.getProgramLog(program)) from None
    text = nvrtc.getPTX(program)
    nvrtc.destroyProgram(program)
    return text.decode() if isinstance(text, bytes) else str(text)


@cache
def compile_cuda(source: str, *defines: str, name: str = "kernel.cu") -> Program:
    """A program for the emulator made of CUDA C++, with its source at hand for messages."""
    return Program.from_ptx(ptx_of(source, *defines, name=name), name, sources={name: source})


def line_of(source: str, marker: str) -> int:
    """The one line that holds the marker."""
    found = [number for number, line in enumerate(source.splitlines(), 1) if marker in line]
    assert len(found) == 1, f"{marker!r} is on lines {found}"
    return found[0]


def fault_of(kind: FindingKind, *args: Any, **options: Any) -> Any:
    """The finding of a launch that must end with a fault of the kind, by strict rules unless told otherwise."""
    try:
        execute(*args, **{"strict": True, **options})
    except KernelFault as fault:
        assert fault.finding.kind == kind, str(fault)
        return fault.finding
    raise AssertionError(f"the launch ended well, without {kind}")


def module(body: str, parameters: str = "", registers: str = "", *, before: str = "", directives: str = "") -> str:
    """A PTX module with one entry ``k``."""
    return f"""
.version 8.5
.target sm_90a
.address_size 64
{before}
.visible .entry k({parameters})
{directives}
{{
{registers}
{body}
}}
"""


@cache
def _apply_program(body: str, inputs: tuple[str, ...], outputs: tuple[str, ...], registers: str) -> Program:
    """One thread an element: loads %a, %b, ... , runs the body, stores %x, %y, ..."""
    pointers = [f"p{number}" for number in range(len(inputs) + len(outputs))]
    parameters = ", ".join([*(f".param .u64 {p}" for p in pointers), ".param .u32 count"])
    declared = [f".reg .{_register(t)} %{n};" for n, t in zip("abcdefgh", inputs, strict=False)]
    declared += [f".reg .{_register(t)} %{n};" for n, t in zip("xyzw", outputs, strict=False)]
    loads = [_load(n, t, p) for n, t, p in zip("abcdefgh", inputs, pointers, strict=False)]
    stores = [_store(n, t, p) for n, t, p in zip("xyzw", outputs, pointers[len(inputs) :], strict=False)]
    text = module(
        f"""
        mov.u32 %block, %ctaid.x;
        mov.u32 %size, %ntid.x;
        mov.u32 %index, %tid.x;
        mad.lo.u32 %index, %block, %size, %index;
        ld.param.u32 %count, [count];
        setp.ge.u32 %outside, %index, %count;
        @%outside bra $end;
        {" ".join(loads)}
        {body}
        {" ".join(stores)}
        $end: ret;
        """,
        parameters,
        "\n".join(
            [
                ".reg .b32 %index; .reg .b32 %block; .reg .b32 %size; .reg .b32 %count; .reg .pred %outside;",
                ".reg .b64 %pointer; .reg .b64 %offset; .reg .b32 %byte; .reg .pred %p; .reg .pred %q;",
                registers,
                *declared,
            ]
        ),
    )
    return Program.from_ptx(text, "apply.ptx")


def _register(type_name: str) -> str:
    return "pred" if type_name == "pred" else "b16" if type_name.endswith("8") and len(type_name) == 2 else type_name


def _address(type_name: str, pointer: str) -> str:
    size = 1 if type_name == "pred" else np.dtype(_TYPES[type_name][1]).itemsize
    offset = f"mul.wide.u32 %offset, %index, {size}; add.u64 %pointer, %pointer, %offset;"
    return f"ld.param.u64 %pointer, [{pointer}]; {offset}"


def _load(name: str, type_name: str, pointer: str) -> str:
    if type_name == "pred":
        return f"{_address(type_name, pointer)} ld.global.u8 %byte, [%pointer]; setp.ne.u32 %{name}, %byte, 0;"
    return f"{_address(type_name, pointer)} ld.global.{_TYPES[type_name][0]} %{name}, [%pointer];"


def _store(name: str, type_name: str, pointer: str) -> str:
    if type_name == "pred":
        return f"selp.u32 %byte, 1, 0, %{name}; {_address(type_name, pointer)} st.global.u8 [%pointer], %byte;"
    return f"{_address(type_name, pointer)} st.global.{_TYPES[type_name][0]} [%pointer], %{name};"


def apply(
    body: str,
    inputs: Sequence[tuple[str, Array]],
    outputs: str | Sequence[str],
    *,
    registers: str = "",
    block: int = 64,
) -> Any:
    """Runs PTX on arrays, one thread an element.

    ``inputs``: (register type, array) for %a, %b, ...; ``outputs``: types of %x, %y, ... Types are PTX's, and ``pred``
    takes and gives booleans. Returns one array, or a list of them when several outputs are asked for.
    """
    wanted = [outputs] if isinstance(outputs, str) else list(outputs)
    count = len(inputs[0][1])
    program = _apply_program(body, tuple(t for t, _ in inputs), tuple(wanted), registers)
    memory = Memory()
    arguments: list[Any] = []
    for type_name, array in inputs:
        raw = array.astype(np.uint8) if type_name == "pred" else array.view(_TYPES[type_name][1])
        assert len(raw) == count
        arguments.append(memory.upload(raw, type_name))
    results = []
    for type_name in wanted:
        dtype = np.dtype("u1" if type_name == "pred" else _TYPES[type_name][1])
        results.append((memory.allocate(count * dtype.itemsize, "out", element_size=dtype.itemsize), dtype, type_name))
    arguments += [allocation for allocation, _, _ in results]
    execute(program.entries["k"], -(-count // block), block, [*arguments, count], memory=memory)
    arrays = [memory.read(allocation, dtype, count) for allocation, dtype, _ in results]
    arrays = [a.astype(bool) if t == "pred" else a for a, (_, _, t) in zip(arrays, results, strict=True)]
    return arrays[0] if isinstance(outputs, str) else arrays

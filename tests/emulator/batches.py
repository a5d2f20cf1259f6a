"""Kernels made of forms: what is launched, in the same way, in the emulator and on a GPU."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt
from emulation import module
from form import Form, bits_of, register_of
from form_operands import operands
from memory_form_parts import CONSTANT, PARAMETER

from workbench.emulator import PixelBox

Array = npt.NDArray[Any]
BLOCK = 256


@dataclass(frozen=True)
class Tensor:
    """A tensor map as an argument: of the array that is argument ``array``; sizes innermost first, as the driver's."""

    array: int
    element_type: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...] | PixelBox
    swizzle: int = 0
    element_strides: tuple[int, ...] | None = None
    nan_fill: bool = False


@dataclass
class Kernel:
    """One launch of the entry ``k``. Arrays among the arguments are copied to the device and back."""

    text: str
    grid: int
    block: int
    arguments: list[Any]


@dataclass
class Batch:
    """Forms with the same operands in one kernel.

    ``offsets``: bytes where each output of each form begins; ``scopes``: the line of PTX that each form became.
    """

    forms: list[Form]
    arrays: list[Array]
    kernel: Kernel
    offsets: list[list[int]] = field(default_factory=list)
    scopes: list[str] = field(default_factory=list)

    def outputs(self, place: int, results: Sequence[Array]) -> list[Array]:
        """Bit patterns that the form at a place of the list gave."""
        raw, count = results[len(self.arrays)], len(self.arrays[0])
        found = []
        for kind, offset in zip(self.forms[place].outputs, self.offsets[place], strict=True):
            size = bits_of(kind) // 8
            found.append(raw[offset : offset + size * count].view(f"u{size}"))
        return found


# addresses of a thread's own cells, for forms that name them
_CELLS = """
mov.u32 %shared, tile; mul.lo.u32 %thread, %thread, 16; add.u32 %shared, %shared, %thread;
add.u32 %shared2, %shared, {tile};
mov.u32 %bar, bars; shr.u32 %thread, %thread, 1; add.u32 %bar, %bar, %thread;
cvt.u64.u32 %gshared, %shared; cvta.shared.u64 %gshared, %gshared;
cvt.u64.u32 %gbar, %bar; cvta.shared.u64 %gbar, %gbar;
ld.param.u64 %global, [cells]; cvta.to.global.u64 %global, %global;
mul.wide.u32 %offset, %index, 16; add.u64 %global, %global, %offset; cvta.global.u64 %gglobal, %global;
mov.u64 %local, stack; cvta.local.u64 %glocal, %local;
"""
_CELL_REGISTERS = """
.reg .b32 %shared; .reg .b32 %shared2; .reg .b32 %bar; .reg .b64 %global; .reg .b64 %local;
.reg .b64 %gshared; .reg .b64 %gglobal; .reg .b64 %glocal; .reg .b64 %gbar;
.shared .align 16 .b8 tile[{tiles}]; .shared .align 8 .b8 bars[{bars}]; .local .align 16 .b8 stack[16];
"""


def _scope(form: Form, number: int, in_place: str, offsets: Sequence[int]) -> str:
    """The form's text with registers of its own; ``in_place``: the operand whose register takes the result."""
    declared = " ".join(f".reg .{register_of(t)} %{n};" for n, t in zip("xyzw", form.outputs, strict=False))
    body = form.body
    if in_place:
        kind = register_of(form.outputs[0])
        body = f"mov.{kind} %x, %{in_place}; " + re.sub(rf"%{in_place}\b", "%x", body)
    stores = []
    for name, kind, offset in zip("xyzw", form.outputs, offsets, strict=False):
        size = bits_of(kind) // 8
        if kind == "pred":
            stores.append(f"selp.u32 %byte, 1, 0, %{name}; st.global.u8 [%to1+{offset}], %byte;")
        else:
            stores.append(f"st.global.b{8 * size} [%to{size}+{offset}], %{name};")
    text = f"{{ {declared} {form.extra} {body} {' '.join(stores)} }}"
    return re.sub(r"\$(\w+)", rf"$\g<1>_{number}", " ".join(text.split()))


def _loads(inputs: Sequence[str]) -> str:
    found = []
    for number, (name, kind) in enumerate(zip("abcdefgh", inputs, strict=False)):
        size = bits_of(kind) // 8
        found.append(
            f"ld.param.u64 %from, [p{number}]; mul.wide.u32 %offset, %index, {size}; add.u64 %from, %from, %offset;"
        )
        if kind == "pred":
            found.append(f"ld.global.u8 %byte, [%from]; setp.ne.u32 %{name}, %byte, 0;")
        else:
            found.append(f"ld.global.{f'b{8 * size}' if kind != 's8' else kind} %{name}, [%from];")
    return "\n".join(found)


def batch_of(forms: Sequence[Form], arrays: list[Array], *, in_place: Sequence[str] = ()) -> Batch:
    """One kernel, one thread an element, of forms with the same inputs.

    ``in_place`` names an operand for each, whose register takes the result, or has an empty word.
    """
    inputs, count = forms[0].inputs, len(arrays[0])
    assert count % BLOCK == 0
    offsets: list[list[int]] = []
    end = 0
    for form in forms:
        offsets.append([])
        for kind in form.outputs:
            offsets[-1].append(end)
            end += -(-count * bits_of(kind) // 8 // 256) * 256
    places = in_place or [""] * len(forms)
    scopes = [_scope(f, n, p, o) for n, (f, p, o) in enumerate(zip(forms, places, offsets, strict=True))]
    memory = any(re.search(r"%g?(shared|global|local|bar)|bank|block", form.body) for form in forms)
    tile = 16 * BLOCK
    parameters = [*(f".param .u64 p{n}" for n in range(len(inputs))), ".param .u64 out"]
    if memory:
        parameters += [".param .u64 cells", ".param .align 16 .b8 block[16]"]
    text = module(
        f"""
        mov.u32 %index, %ctaid.x; mov.u32 %size, %ntid.x; mov.u32 %thread, %tid.x;
        mad.lo.u32 %index, %index, %size, %thread;
        {_loads(inputs)}
        {_CELLS.format(tile=tile) if memory else ""}
        ld.param.u64 %from, [out];
        {" ".join(f"mul.wide.u32 %offset, %index, {n}; add.u64 %to{n}, %from, %offset;" for n in (1, 2, 4, 8))}
        """
        + "\n".join(scopes)
        + "\nret;",
        ", ".join(parameters),
        ".reg .b32 %index; .reg .b32 %size; .reg .b32 %byte; .reg .b32 %thread; .reg .b64 %from; .reg .b64 %offset;"
        ".reg .b64 %to<9>;"
        + " ".join(f".reg .{register_of(t)} %{n};" for n, t in zip("abcdefgh", inputs, strict=False))
        + (_CELL_REGISTERS.format(tiles=2 * tile, bars=8 * BLOCK) if memory else ""),
        before=f".const .align 16 .b8 bank[{len(CONSTANT)}] = {{{', '.join(map(str, CONSTANT))}}};" if memory else "",
    ).replace(".version 8.5", ".version 8.7")
    if any(form.newer for form in forms):
        text = text.replace("sm_90a", "sm_100a")
    results: list[Any] = [np.zeros(end, np.uint8)]
    if memory:
        results += [np.zeros(16 * count, np.uint8), PARAMETER.view("V16")]
    kernel = Kernel(text, count // BLOCK, BLOCK, [*arrays, *results])
    return Batch(list(forms), arrays, kernel, offsets, scopes)


def grouped(forms: Sequence[Form], most: int) -> list[list[Form]]:
    """Forms with the same operands together, at most so many in one group."""

    def key(form: Form) -> tuple[tuple[str, ...], str]:
        return form.inputs, form.operation if form.adjust else ""

    groups = [list(group) for _, group in groupby(sorted(forms, key=key), key)]
    return [group[first : first + most] for group in groups for first in range(0, len(group), most)]


def operands_of(form: Form, count: int, seed: int) -> list[Array]:
    arrays = operands(form.inputs, count, seed)
    if form.adjust:
        form.adjust(arrays)
    return arrays

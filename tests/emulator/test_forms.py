"""Every operation of the engine against its definition; the result also in the register of each operand.

The forms and their definitions are in ``forms.py``, ``memory_forms.py`` and ``cases.py``.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any

import emulation
import numpy as np
import pytest
from batches import batch_of, grouped, operands_of
from case import Case, unequal
from cases import GROUPS, cases
from differential import LANES, MEMORY, all_forms, differing, elements, far, numbers_of
from form import Array, Form, register_of
from machines import Emulated

from workbench.emulator import _engine, decode

COUNT = 256  # operands of a form

# operations without a form: those that end the launch or print, and what tests of their own define
ELSEWHERE = [
    (r"trap|brkpt", "test_findings", ["test_trap", "test_breakpoint"]),
    (r"malloc|free", "test_heap", ["test_memory_of_the_heap_outlives_a_launch"]),
    (r"assertfail", "test_findings", ["test_assertion"]),
    (r"fence\.proxy\.tensormap\.acquire", "test_tensor_edits", ["test_a_copy_uses_the_map_that_the_kernel_has_edited"]),
    (r"tcgen05\..*", "test_tcgen05", [ "test_products_by_each_operation", "test_loads_and_stores_of_each_shape",
        "test_loads_that_reduce", "test_copies_of_each_shape", "test_a_shift_moves_rows_down", ]),
    (r"clusterlaunchcontrol\..*", "test_launch_control",
        ["test_every_block_is_worked_on_once", "test_a_response_names_the_first_block"]),
    (r"cp\..*(gather4|scatter4|im2col::w)\b.*|mapa\.leader.*", "test_tensor_rows", [ "test_gather4_loads_four_rows",
        "test_gather4_for_several_blocks", "test_scatter4_stores_four_rows", "test_pixels_along_one_dimension",
        "test_a_pair_counts_its_bytes_in_one_block", ]),
    (r"(ld|st)\..*(v8\.|v4\.[bsuf]64).*|st\.bulk.*|redux\.sync\..*f32|mma\..*kind::.*", "test_blackwell_values", [
        "test_loads_and_stores_of_256_bits", "test_a_run_of_zeros", "test_reductions_of_floats",
        "test_products_of_bytes", "test_products_with_factors_of_blocks", ]),
    (r"printf", "test_language", ["test_printf_is_formatted_in_the_order_of_execution"]),
]  # fmt: skip


@cache
def cases_of(group: str) -> list[Case]:
    return list(cases(group, 1))


@cache
def forms_by_opcode() -> dict[str, list[Form]]:
    found: dict[str, list[Form]] = {}
    for form in [*all_forms(LANES), *all_forms(MEMORY)]:
        found.setdefault(form.operation.partition(".")[0], []).append(form)
    return found


TEXTURES = r"(tex|tld4|suld|sust)\..*"
"""Types, geometries and modes of a few functions: test_textures has each geometry, each mode and each kind of element,
and not all of their products."""


def test_every_operation_has_a_definition() -> None:
    defined = {form.operation for forms in forms_by_opcode().values() for form in forms}
    defined |= {name for group in GROUPS for case in cases_of(group) for name in case.operations}
    known = {name for name, _ in _engine.operations()}
    elsewhere = {name for name in known for pattern, *_ in ELSEWHERE if re.fullmatch(pattern, name)}
    missing = {name for name in known - defined - elsewhere if not re.fullmatch(TEXTURES, name)}
    assert not missing, f"{len(missing)} operations without a form: {sorted(missing)[:20]}"


@pytest.mark.parametrize(("pattern", "place", "tests"), ELSEWHERE)
def test_what_is_defined_elsewhere_runs_there(
    pattern: str, place: str, tests: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: set[str] = set()

    class Recorded(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            decoded.add(name)
            return super().__getitem__(name)

    table = Recorded(decode.operations())
    monkeypatch.setattr(decode, "operations", lambda: table)
    emulation.compile_cuda.cache_clear()
    for name in tests:
        test = getattr(import_module(place), name)
        for arguments in parameters_of(test):
            test(**arguments)
    defined = {form.operation for forms in forms_by_opcode().values() for form in forms}
    defined |= {name for group in GROUPS for case in cases_of(group) for name in case.operations}
    wanted = {n for n, _ in _engine.operations() if re.fullmatch(pattern, n)} - defined
    assert wanted, "operations that the engine has no more"
    left = wanted - decoded
    assert not left, f"{len(left)} operations that do not run in {place}: {sorted(left)[:10]}"


def parameters_of(test: Any) -> Iterator[dict[str, Any]]:
    """The arguments of each of a parametrized test's runs."""
    axes = []
    for mark in getattr(test, "pytestmark", []):
        names = mark.args[0].replace(" ", "").split(",") if isinstance(mark.args[0], str) else list(mark.args[0])
        rows = [row if len(names) > 1 else (row,) for row in mark.args[1]]
        axes.append([dict(zip(names, row, strict=True)) for row in rows])
    for choice in itertools.product(*axes):
        yield {name: value for part in choice for name, value in part.items()}


def wrong_results(form: Form, arrays: list[Array], found: list[Array]) -> Array:
    """Which results are not as defined."""
    rows = zip(*(a.tolist() for a in arrays), strict=True)
    results = [form.define(*row) for row in rows]
    columns = [results] if len(form.outputs) == 1 else list(zip(*results, strict=True))
    expected = [np.array(c, np.uint64).astype(f.dtype) for c, f in zip(columns, found, strict=True)]
    if form.near:
        near = form.near
        values = [numbers_of(elements(a, near.form), near.form) for a in (found[0], expected[0], arrays[-1])]
        return far(values[0], values[1], near, values[2])[0].any(1)
    wrong = np.zeros(len(arrays[0]), bool)
    for a, b in zip(found, expected, strict=True):
        wrong |= differing(a, b, form)[0]
    return wrong


def in_place(form: Form) -> list[str]:
    """Operands whose registers can take the result: of its width, for an instruction of registers alone."""
    if not form.plain or len(form.outputs) > 1 or register_of(form.outputs[0]) in ("b8", "pred"):
        return []
    kind = register_of(form.outputs[0])
    return [n for n, t in zip("abcdefgh", form.inputs, strict=False) if register_of(t) == kind]


@pytest.mark.parametrize("opcode", sorted(forms_by_opcode()))
def test_lanes(opcode: str) -> None:
    emulated = Emulated()
    for group in grouped(forms_by_opcode()[opcode], 100):
        arrays = operands_of(group[0], COUNT, 7)
        variants = [(form, place) for form in group for place in ["", *in_place(form)]]
        batch = batch_of([f for f, _ in variants], arrays, in_place=[p for _, p in variants])
        results = emulated.run(batch.kernel)
        plain: list[Array] = []
        for number, (form, place) in enumerate(variants):
            found = batch.outputs(number, results)
            if place:  # the same instruction, and so the same bits
                assert all(np.array_equal(a, b) for a, b in zip(found, plain, strict=True)), (form.body, place)
                continue
            plain = found
            wrong = np.flatnonzero(wrong_results(form, arrays, found))
            assert not len(wrong), [
                f"{form.body} of {[hex(a[i]) for a in arrays]} gives {[hex(f[i]) for f in found]}, "
                f"not {form.define(*(int(a[i]) for a in arrays))}"
                for i in wrong[:3]
            ]


@pytest.mark.parametrize("group", GROUPS)
def test_launches(group: str) -> None:
    emulated = Emulated()
    for case in cases_of(group):
        results = emulated.run(case.kernel)
        for number, (found, expected) in enumerate(zip(results, case.expected, strict=True)):
            if expected is None:
                continue
            if number in case.near:
                scale, bound = case.near[number]
                error = np.abs(found.astype(np.float64) - expected.astype(np.float64))
                assert np.all(error <= bound * scale), case.name
            else:
                assert not unequal(found, expected).any(), case.name

"""Every operation of the engine against its definition; the result also in the register of each operand.

The forms and their definitions are in ``forms.py``, ``memory_forms.py`` and ``cases.py``.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from batches import batch_of, grouped, operands_of
from cases import GROUPS, Case, cases, unequal
from differential import LANES, MEMORY, all_forms, differing, elements, far, numbers_of
from forms import Array, Form, register_of
from machines import Emulated

from workbench.emulator import _engine

COUNT, STEP = 256, 2  # operands of a form, and of how many one is compared with the definition: that takes the time
HERE = Path(__file__).parent

# operations that end the launch with a finding, and the tests of that
ELSEWHERE = {
    "trap": "test_findings.py::test_trap",
    "brkpt": "test_findings.py::test_trap",
    "assertfail": "test_findings.py::test_assertion",
}


@cache
def cases_of(group: str) -> list[Case]:
    return list(cases(group, 1))


@cache
def forms_by_opcode() -> dict[str, list[Form]]:
    found: dict[str, list[Form]] = {}
    for form in [*all_forms(LANES), *all_forms(MEMORY)]:
        found.setdefault(form.operation.partition(".")[0], []).append(form)
    return found


def test_every_operation_has_a_definition() -> None:
    defined = {form.operation for forms in forms_by_opcode().values() for form in forms}
    defined |= {name for group in GROUPS for case in cases_of(group) for name in case.operations}
    known = {name for name, _ in _engine.operations()}
    missing = known - defined - set(ELSEWHERE)
    assert not missing, f"{len(missing)} operations without a form: {sorted(missing)[:20]}"
    assert not set(ELSEWHERE) - known, "operations that the engine has no more"
    for place in ELSEWHERE.values():
        file, _, name = place.partition("::")
        assert f"def {name}(" in (HERE / file).read_text(), place


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
            checked, results_checked = ([np.ascontiguousarray(a[::STEP]) for a in x] for x in (arrays, found))
            wrong = np.flatnonzero(wrong_results(form, checked, results_checked))
            assert not len(wrong), [
                f"{form.body} of {[hex(a[i]) for a in checked]} gives {[hex(f[i]) for f in results_checked]}, "
                f"not {form.define(*(int(a[i]) for a in checked))}"
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

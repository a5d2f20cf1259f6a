"""What every lane-wise instruction of the engine computes: PTX text, operand types, a definition on Python's integers.

``forms_of`` makes ``Form``s from the name of an operation, by the rules of the PTX manual and without a look at the
engine. The NumPy tests (``test_forms.py``) and the comparison with a GPU (``differential.py``) are made from them.
Definitions take and give bit patterns; ``softfloat`` is what they know of floats.
"""

from __future__ import annotations

from collections.abc import Callable

from bit_forms import forms_of_bits
from comparison_forms import comparisons_of, move_form, selection_form
from conversion_forms import conversion_form
from float_forms import float_form
from form import Form
from integer_forms import integer_form


def forms_of(operation: str) -> list[Form]:
    """The forms of a lane-wise operation, several where an immediate matters; none for an operation of another kind."""
    base = operation.partition(".")[0]
    makers: dict[str, Callable[[str], Form | None]] = {
        "selp": selection_form,
        "slct": selection_form,
        "mov": move_form,
        "cvt": conversion_form,
    }
    if base in ("set", "setp"):
        return comparisons_of(operation)
    if base in makers:
        found = makers[base](operation)
        return [found] if found else []
    for maker in (integer_form, float_form):
        found = maker(operation)
        if found:
            return [found]
    return forms_of_bits(operation)

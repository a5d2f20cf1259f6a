"""Whether integers that an operation makes of NaN and infinities are defined."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np


@cache
def whole_of_nan(kind: type[Any]) -> bool:
    """Whether integers that are made of NaN and infinities are defined, as the place of a maximum is: none of them is
    converted, which gives one number on one device and another on the next."""
    try:
        problem = kind()
        arrays, drawn = problem.arrays(), problem.inputs()
        for number in (np.nan, np.inf, -np.inf):
            given = {n: np.full_like(v, number) if arrays[n].dtype.is_float else v for n, v in drawn.items()}
            with warnings.catch_warnings(record=True) as said, np.errstate(all="ignore", invalid="warn"):
                warnings.simplefilter("always")
                found = problem.reference(given)
            whole = (v for n, v in found.items() if arrays[n].dtype.numpy.kind in "iu")
            if any("in cast" in str(w.message) for w in said) or not all(np.isfinite(v).all() for v in whole):
                return False
    except Exception:  # it takes none
        return False
    return True

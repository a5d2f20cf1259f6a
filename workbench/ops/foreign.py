"""Arrays of other libraries: those of DLPack and those with `__cuda_array_interface__`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ..model.calls import Function

ON_GPU = (2, 13)
"""kDLCUDA and kDLCUDAManaged, of what `__dlpack_device__` returns."""


def is_foreign(array: Any) -> bool:
    """Whether an array of another library lies on a GPU, as far as it says so."""
    if hasattr(type(array), "__dlpack_device__") and hasattr(type(array), "__dlpack__"):
        return int(array.__dlpack_device__()[0]) in ON_GPU
    return hasattr(array, "__cuda_array_interface__")


def adopted(function: Function, name: str, array: Any) -> Any:
    """An array of CuPy over the same memory, ordered behind what the other library does there. Raises TypeError."""
    import cupy

    if not is_foreign(array):
        kind = type(array)
        found = f"{function.operation.name}: {name} is a {kind.__module__}.{kind.__name__}"
        raise TypeError(f"{found}; it has to be an array on a GPU")
    if hasattr(type(array), "__dlpack__"):
        return cupy.from_dlpack(array)
    return cupy.asarray(array)


def converter(array: Any) -> Callable[[Any], Any]:
    """What makes arrays of this one's library of CuPy's, over the same memory: by its `from_dlpack`, where the array or
    its package has one, or numba's `as_cuda_array`. Where there is nothing, results stay arrays of CuPy."""
    if hasattr(array, "__array_namespace__"):
        space = array.__array_namespace__()
        if hasattr(space, "from_dlpack"):
            return space.from_dlpack  # type: ignore[no-any-return]
    package = sys.modules.get(type(array).__module__.partition(".")[0])
    for holder in (package, getattr(package, "dlpack", None), getattr(package, "cuda", None)):
        for called in ("from_dlpack", "as_cuda_array"):
            if hasattr(holder, called):
                return getattr(holder, called)  # type: ignore[no-any-return]
    return lambda found: found

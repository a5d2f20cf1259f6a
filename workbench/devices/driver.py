"""The CUDA driver as `ReadyPlan` calls it: by its C functions, since a call of every wrapper takes as long as a launch.

One call of ctypes with four arguments takes 0.4 to 0.5 us where the classes of cuda-bindings take several.
"""

from __future__ import annotations

import ctypes
from functools import cache, cached_property
from typing import Any

from ..model.arrays import Array
from ..model.results import Verdict
from ..model.tensor_map import TensorMap
from . import tensor_maps
from .base import Fault

LIBRARY = "libcuda.so.1"


@cache
def _library() -> Any:
    """The driver's library. It lets other threads of Python run during a call: a launch may wait for the device."""
    library = ctypes.CDLL(LIBRARY)
    library.cuLaunchKernelEx.argtypes = [ctypes.c_void_p] * 4
    library.cuTensorMapReplaceAddress.argtypes = [ctypes.c_void_p] * 2
    library.cuCtxGetCurrent.argtypes = [ctypes.c_void_p]
    library.cuCtxSetCurrent.argtypes = [ctypes.c_void_p]
    library.cuGetErrorString.argtypes = [ctypes.c_int, ctypes.c_void_p]
    return library


class CudaDriver:
    """`ready.Driver` of the device that is current when it is made, whose context exists then. `verdicts` are what the
    errors of a running kernel are called."""

    def __init__(self, verdicts: dict[int, Verdict]) -> None:
        self._library, self._verdicts = _library(), verdicts
        self.launch = self._library.cuLaunchKernelEx
        self.replace_address = self._library.cuTensorMapReplaceAddress
        context = ctypes.c_void_p()
        if status := self._library.cuCtxGetCurrent(ctypes.byref(context)):
            raise Fault(Verdict.LAUNCH_ERROR, f"there is no CUDA context: {self.said(status)}")
        self._context = context

    @cached_property
    def entry_points(self) -> tuple[int | None, ...]:
        """The addresses of what C calls: the launch, the new address of a map, the current device, whether a stream is
        being captured."""
        called = (self.launch, self.replace_address, self._library.cuCtxGetDevice, self._library.cuStreamIsCapturing)
        return tuple(ctypes.cast(function, ctypes.c_void_p).value for function in called)

    def encode(self, spec: TensorMap, array: Array, address: int) -> bytes:
        return tensor_maps.encoded(spec, array, address).tobytes()

    def enter(self) -> int:
        return int(self._library.cuCtxSetCurrent(self._context))

    def failed(self, status: int, kernel: str) -> Fault:
        verdict = self._verdicts.get(status, Verdict.LAUNCH_ERROR)
        return Fault(verdict, f"the launch of {kernel} was rejected: {self.said(status)}")

    def said(self, status: int) -> str:
        """What the driver says of a status."""
        text = ctypes.c_char_p()
        self._library.cuGetErrorString(status, ctypes.byref(text))
        return f"{text.value.decode()} ({status})" if text.value else f"CUDA error {status}"

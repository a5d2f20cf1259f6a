"""Develop raw CUDA kernels in stages: property-tested against NumPy, then timed, with a GPU or without one.

What `__all__` lists is the public interface and follows semantic versioning (before 1.0 a new minor version may change
it, a patch may not), and so do `workbench.ops`, `workbench.emulator`, `workbench.triton`, the operations in
`workbench.kernels` (`GEMM`, `MATVEC`, `VECTOR_ADD`), the command line and the headers in `cuda_src/include`. Everything
else may change at any time."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .catalogue.registry import BadProject, UnknownSpec, operations
    from .devices import DeviceUnavailable
    from .judge.bounds import aligned_magnitudes, dot_products
    from .measure.baselines.pytorch import baseline_error
    from .model.arrays import Array, Arrays
    from .model.dtypes import BF16, DTYPES, E2M1, E4M3, E5M2, E8M0, FLOATS, FP16, FP32, FP64, TF32, DType, dtype_of
    from .model.launch import Launch, Machine, Plan, ceil_div, machine
    from .model.operation import Operation
    from .model.problem import Cost, Invariant, Problem, ProblemError, Size, Tier, draw_values, extents
    from .model.short import simple_operation
    from .model.stage import Stage
    from .model.tensor_map import Im2col, TensorMap
    from .report.frame import results
    from .run.api import Outcome, bench, verify

__version__ = "0.1.0"

_WHERE = {
    "run.api": ("Outcome", "bench", "verify"),
    "report.frame": ("results",),
    "judge.bounds": ("aligned_magnitudes", "dot_products"),
    "devices": ("DeviceUnavailable",),
    "measure.baselines.pytorch": ("baseline_error",),
    "model.dtypes": (
        "BF16",
        "DTYPES",
        "E2M1",
        "E4M3",
        "E5M2",
        "E8M0",
        "FLOATS",
        "FP16",
        "FP32",
        "FP64",
        "TF32",
        "DType",
        "dtype_of",
    ),
    "model.arrays": ("Array", "Arrays"),
    "model.launch": ("Launch", "Machine", "Plan", "ceil_div", "machine"),
    "model.tensor_map": ("Im2col", "TensorMap"),
    "model.problem": ("Cost", "Invariant", "Problem", "ProblemError", "Size", "Tier", "draw_values", "extents"),
    "model.short": ("simple_operation",),
    "model.stage": ("Stage",),
    "model.operation": ("Operation",),
    "catalogue.registry": ("BadProject", "UnknownSpec", "operations"),
}

__all__ = [
    "BF16",
    "DTYPES",
    "E2M1",
    "E4M3",
    "E5M2",
    "E8M0",
    "FLOATS",
    "FP16",
    "FP32",
    "FP64",
    "TF32",
    "Array",
    "Arrays",
    "BadProject",
    "Cost",
    "DType",
    "DeviceUnavailable",
    "Im2col",
    "Invariant",
    "Launch",
    "Machine",
    "Operation",
    "Outcome",
    "Plan",
    "Problem",
    "ProblemError",
    "Size",
    "Stage",
    "TensorMap",
    "Tier",
    "UnknownSpec",
    "aligned_magnitudes",
    "baseline_error",
    "bench",
    "ceil_div",
    "dot_products",
    "draw_values",
    "dtype_of",
    "extents",
    "machine",
    "operations",
    "results",
    "simple_operation",
    "verify",
]


def __getattr__(name: str) -> Any:
    for module, names in _WHERE.items():
        if name in names:
            return getattr(import_module(f".{module}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]

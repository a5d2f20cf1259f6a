"""An emulator of CUDA kernels: it executes PTX on a CPU and explains faults at their source line.

    report = launch("scale.cu", "scale", grid=4, block=256, args=[array, Output(result), array.size])
    print(report)

or, with memory that outlives a launch:

    program = Program.from_ptx(text)
    memory = Memory()
    a, b = memory.upload(array, "A"), memory.allocate(array.nbytes, "B")
    execute(program.entries["scale"], grid=4, block=256, args=[a, b, array.size], memory=memory)
    result = memory.read(b, array.dtype, array.shape)

It needs NumPy, and nothing else of this package. CUDA C++ also needs NVRTC; PTX does not."""

from importlib.util import find_spec
from pathlib import Path

if find_spec(f"{__name__}._engine") is None:
    raise ImportError(
        f"the emulator's engine is not built in {Path(__file__).parent}; build it with `pip install -e .` in "
        f"{Path(__file__).parents[2]}, or start Python in another folder, if the workbench is installed and these "
        "sources only hide it",
        name=f"{__name__}._engine",
    )

from .architectures import ARCHITECTURES, H200, ArchitectureError, DeviceLimits
from .decode import UnsupportedInstruction
from .execution import Checks, execute
from .findings import Finding, FindingKind, Severity
from .launch_checks import ArgumentError, LaunchError, check_arguments, check_launch
from .memory import Allocation, Memory, PixelBox, TensorMap
from .program import Entry, Program, Signature
from .ptx import Parameter, PtxSyntaxError, SourceLocation
from .source import CompileError, CompilerUnavailable, load, signatures
from .standalone import Report, Session, launch
from .statistics import Counters, KernelFault, Statistics
from .trace import Traced, chrome_trace
from .values import Argument, Output, Strided, Struct, SurfaceOf, TensorMapOf, TextureOf

__all__ = [
    "ARCHITECTURES",
    "H200",
    "Allocation",
    "ArchitectureError",
    "Argument",
    "ArgumentError",
    "Checks",
    "CompileError",
    "CompilerUnavailable",
    "Counters",
    "DeviceLimits",
    "Entry",
    "Finding",
    "FindingKind",
    "KernelFault",
    "LaunchError",
    "Memory",
    "Output",
    "Parameter",
    "PixelBox",
    "Program",
    "PtxSyntaxError",
    "Report",
    "Session",
    "Severity",
    "Signature",
    "SourceLocation",
    "Statistics",
    "Strided",
    "Struct",
    "SurfaceOf",
    "TensorMap",
    "TensorMapOf",
    "TextureOf",
    "Traced",
    "UnsupportedInstruction",
    "check_arguments",
    "check_launch",
    "chrome_trace",
    "execute",
    "launch",
    "load",
    "signatures",
]

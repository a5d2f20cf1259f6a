"""What this machine can do, what is missing, and the remedy."""

from __future__ import annotations

import importlib
import platform
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ..catalogue import registry
from ..devices import DeviceUnavailable
from ..records import store
from ..records.environment import core_count, cpu_model, package_version
from ..toolchain import compiler, disassembly, nvml


class State(StrEnum):
    """`missing` costs something, `optional` costs a nicety."""

    OK = "ok"
    MISSING = "missing"
    OPTIONAL = "optional"


ENGINE = "emulator engine"


@dataclass(frozen=True)
class Check:
    """One thing looked at: what was found and, where it is missing, what it is for and how to get it."""

    name: str
    state: State
    found: str
    remedy: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """All checks, and what follows from them."""

    checks: list[Check]
    can_emulate: bool
    can_time: bool

    @property
    def usable(self) -> bool:
        """Whether the main job can run here at all."""
        return self.can_emulate or self.can_time

    @property
    def summary(self) -> str:
        """One sentence."""
        if self.can_time:
            also = "" if self.can_emulate else " (without the emulator)"
            return f"This machine can verify and time stages on its GPU{also}."
        if self.can_emulate:
            return "This machine can verify stages in the emulator; nothing can be timed without a GPU."
        if any(c.name == ENGINE and c.state is State.OK for c in self.checks):
            return (
                "The emulator can execute PTX here, but no stage can be compiled for it: follow the remedies above, "
                "first those of NVRTC and of the CUDA headers."
            )
        return "This machine can neither use a GPU nor emulate one: follow the remedies above."


def examine(reports: Path) -> Diagnosis:
    """Look at everything the workbench uses; `reports` is the folder where reports would go. Never raises."""
    compile_checks = [_nvrtc(), _headers()]
    engine, gpu, cupy = _engine(), _gpu(), _package("CuPy", "cupy", "cupy-cuda13x", "run kernels on a GPU")
    writable = [
        _writable("kernel cache", compiler.cache_folder(), "set WORKBENCH_CACHE to a folder that can be written"),
        _writable("report folder", reports, "choose another with --output"),
    ]
    checks = [
        _python(),
        engine,
        *compile_checks,
        cupy,
        gpu,
        _package("cuda-bindings", "cuda.bindings.driver", "cuda-bindings", "make TMA tensor maps on a GPU"),
        _nvml(),
        _package("PyTorch", "torch", "torch", "compare with the vendor's libraries", State.OPTIONAL),
        _package("Triton", "triton", "triton", "emulate Triton kernels, or time them", State.OPTIONAL),
        _package("SciPy", "scipy", "scipy", "compare runs", State.OPTIONAL),
        _package("optuna", "optuna", "optuna", "search for the best parameters of a stage", State.OPTIONAL),
        _package("watchfiles", "watchfiles", "watchfiles", "verify a stage on every save", State.OPTIONAL),
        _package("Dask", "distributed", "distributed", "spread work over several machines", State.OPTIONAL),
        _disassembler(),
        _project(),
        *writable,
    ]
    compiles = all(c.state is State.OK for c in (*compile_checks, writable[0]))
    return Diagnosis(checks, compiles and engine.state is State.OK, compiles and gpu.state is State.OK)


def _python() -> Check:
    found = f"{platform.python_version()} on {cpu_model()}, {core_count()} cores"
    return Check("Python", State.OK, found)  # an older one than the package needs cannot have imported this module


def _engine() -> Check:
    try:
        engine = importlib.import_module("workbench.emulator._engine")
        return Check(ENGINE, State.OK, f"instruction set {engine.best_isa()}")
    except (ImportError, AttributeError) as error:
        remedy = "build it with: pip install . (it needs a C++17 compiler, for example the package g++)"
        return Check(ENGINE, State.MISSING, _first_line(error), remedy)


def _try(name: str, look: Callable[[], str], *wrong: type[Exception]) -> Check:
    try:
        return Check(name, State.OK, look())
    except wrong as error:
        found, _, remedy = str(error).partition("; ")
        return Check(name, State.MISSING, found, remedy)


def _nvrtc() -> Check:
    return _try("NVRTC", compiler.nvrtc_version, compiler.CompilerUnavailable)


def _headers() -> Check:
    return _try("CUDA headers", lambda: str(compiler.cuda_headers()), compiler.CompilerUnavailable)


def _gpu() -> Check:
    def look() -> str:
        from ..devices.cuda import CudaDevice

        info = CudaDevice().info()
        driver = f", driver {info.driver}" if info.driver else ""
        return f"{info.name}, {info.architecture}{driver}"

    return _try("GPU", look, DeviceUnavailable)


def _package(name: str, module: str, distribution: str, purpose: str, otherwise: State = State.MISSING) -> Check:
    try:
        importlib.import_module(module)
    except Exception as error:  # a half-installed package can raise anything
        return Check(name, otherwise, _first_line(error), f"to {purpose}: pip install {distribution}")
    return Check(name, State.OK, package_version(distribution) or "version unknown")


def _nvml() -> Check:
    if nvml.available():
        return Check("NVML", State.OK, "clocks, power and throttle reasons can be read")
    remedy = "to record clocks and know peaks: pip install nvidia-ml-py, on a machine with a GPU"
    return Check("NVML", State.OPTIONAL, "does not answer", remedy)


def _disassembler() -> Check:
    tool = disassembly.find()
    if tool:
        return Check("disassembler", State.OK, str(tool))
    found, _, remedy = disassembly.REMEDY.partition("; ")
    return Check("disassembler", State.OPTIONAL, found, f"for `inspect --sass`: {remedy}")


def _project() -> Check:
    found = registry.loaded()
    if found.troubles:
        return Check(
            "project", State.MISSING, "; ".join(found.troubles), "correct it: the other operations can be used"
        )
    if found.project is None:
        return Check(
            "project", State.OPTIONAL, "no [tool.workbench] here", "for kernels of your own: workbench new NAME"
        )
    own = ", ".join(found.own) or ("no operations yet" if found.project.kernels else "no kernels of its own")
    return Check("project", State.OK, f"{found.project.name}, with {own}")


def _writable(name: str, folder: Path, remedy: str) -> Check:
    # looking must not leave a trace: where the folder would have to be made, its parent is what counts
    there = next((p for p in (folder, *folder.absolute().parents) if p.exists()), folder)
    try:
        store.check_writable(there)
    except OSError as error:
        return Check(name, State.MISSING, f"{there}: {error.strerror or error}", remedy)
    return Check(name, State.OK, str(folder))


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else repr(error)

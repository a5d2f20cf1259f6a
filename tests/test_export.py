"""Operations written as packages: they run without the workbench, and give the answers of their stages."""

from __future__ import annotations

import ast
import ctypes
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cupy
import ml_dtypes
import numpy as np
import pytest
from emulated_gpu import EmulatedGpu
from test_loading import project, verified

from workbench import emulator, ops, reference
from workbench.catalogue import registry
from workbench.devices.ready import LaunchConfig
from workbench.ops import export
from workbench.toolchain.compiler import Compiled, compile_stage

__all__ = ["project"]

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
TYPES = {6: "float16", 7: "float32", 9: "bfloat16"}
"""Of CUtensorMapDataType."""


class EmulatedDriver:
    """What `runtime.Driver` does, in the memory of an emulated GPU; of a cubin it runs the PTX that it is made of."""

    architecture, multiprocessors = 90, 4

    def __init__(self, gpu: EmulatedGpu, compiled: dict[str, Compiled]) -> None:
        self.gpu, self.compiled = gpu, compiled
        self.entries: list[Any] = []
        self.maps: list[Any] = []

    def function(self, path: str, kernel: str, shared_bytes: int) -> int:
        compiled = self.compiled[Path(path).stem]
        assert Path(path).read_bytes() == compiled.cubin_path.read_bytes()
        program = emulator.Program.from_ptx(compiled.ptx, compiled.source)
        self.entries.append(program.entries[kernel])
        return len(self.entries)

    def resident(self, function: int, launch: dict[str, Any]) -> int:
        return 4

    def encode(self, layout: dict[str, Any], address: int) -> bytes:
        swizzle = (0, 32, 64, 128)[layout["swizzle"]]
        made = (layout["sizes"], layout["strides"], layout["box"], layout["element_strides"], swizzle)
        size = np.dtype(np.float32).itemsize if layout["data_type"] == 7 else 2
        self.maps.append((address + layout["offset"], size, made, TYPES[layout["data_type"]]))
        return (len(self.maps) - 1).to_bytes(128, "little")

    def replace_address(self, tensor_map: int, address: int) -> int:
        _, *rest = self.maps[int.from_bytes(ctypes.string_at(tensor_map, 8), "little")]
        self.maps.append((address, *rest))
        ctypes.memmove(tensor_map, (len(self.maps) - 1).to_bytes(128, "little"), 128)
        return 0

    def launch(self, config_at: int, function: int, parameters_at: int, extra: None) -> int:
        config, entry = LaunchConfig.from_address(config_at), self.entries[function - 1]
        places = (ctypes.c_void_p * len(entry.parameters)).from_address(parameters_at)
        given: list[Any] = []
        for place, parameter in zip(places, entry.parameters, strict=True):
            raw = ctypes.string_at(place, parameter.size)
            if parameter.size == 128:
                address, size, made, kind = self.maps[int.from_bytes(raw[:8], "little")]
                given.append(emulator.TensorMap(address, size, *made, element_type=kind))
            else:
                given.append(raw)
        emulator.execute(
            entry,
            tuple(config.grid),
            tuple(config.block),
            given,
            memory=self.gpu.memory,
            cluster=entry.cluster or (1, 1, 1),
            shared_bytes=config.shared_bytes,
        )
        return 0


@pytest.fixture
def exported(gpu: EmulatedGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Exports an operation, and returns the package, which finds the emulated GPU."""
    compiled: dict[str, Compiled] = {}

    def kept(*arguments: Any) -> Compiled:
        found = compile_stage(*arguments)
        return compiled.setdefault(found.key[:16], found)

    monkeypatch.setattr(export, "compile_stage", kept)
    monkeypatch.syspath_prepend(tmp_path)
    names = []

    def made(name: str, *problems: str, **how: Any) -> Any:
        names.append(f"exported_{name}")
        export.export(name, tmp_path / names[-1], problems, **how)
        package = importlib.import_module(names[-1])
        monkeypatch.setattr(package.runtime, "driver_of", lambda device: EmulatedDriver(gpu, compiled))
        kind = package.runtime.kind_of("cupy")
        monkeypatch.setattr(kind, "on", lambda device: gpu_context(), raising=False)
        monkeypatch.setattr(kind, "stream", lambda device: (gpu.stream, lambda: gpu.captured), raising=False)
        monkeypatch.setattr(kind, "copy", lambda a, b: gpu.memory.write(b.data.ptr, gpu.download(a)), raising=False)
        monkeypatch.setattr(kind, "memory", memory, raising=False)
        return package

    def memory(nbytes: int, zero: bool, device: int) -> Any:
        array = cupy.ndarray((nbytes,), np.uint8)
        if zero:
            gpu.memory.write(array.data.ptr, np.zeros(nbytes, np.uint8))
        return array

    yield made
    for name in [m for m in sys.modules if m.partition(".")[0] in names]:
        del sys.modules[name]


def gpu_context() -> Any:
    import contextlib

    return contextlib.nullcontext()


def test_a_package_imports_nothing_but_what_it_has_and_the_libraries_of_arrays(exported: Any) -> None:
    package = exported("softmax", "3x64,dtype=fp32,out=fp32")
    allowed = {"cupy", "torch", "numpy", "ml_dtypes", *sys.stdlib_module_names}
    for path in Path(package.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            assert {name.partition(".")[0] for name in names} <= allowed, path.name


def test_exported_products_are_right_at_every_address(exported: Any, gpu: Any, rng: Any) -> None:
    gemm = exported("gemm", "40x48x64,dtype=bf16,out=bf16", "33x17x65,dtype=fp32,out=fp32,layout=nn").gemm
    for _ in range(3):
        a, b = (rng.integers(-2, 3, shape).astype(BFLOAT16) for shape in ((40, 64), (48, 64)))
        keep = gpu.upload(a)  # noqa: F841  # the next one lies elsewhere
        found = gemm(gpu.upload(a), gpu.upload(b), out_type="bf16")
        assert found.dtype == BFLOAT16
        assert np.array_equal(gpu.download(found), reference.gemm(a, b, trans_b=True))
    a, b = (rng.integers(-2, 3, shape).astype(np.float32) for shape in ((33, 65), (65, 17)))
    assert np.array_equal(gpu.download(gemm(gpu.upload(a), gpu.upload(b), layout="nn")), a @ b)


def test_several_launches_scratch_and_outputs_are_exported(exported: Any, gpu: Any, rng: Any) -> None:
    reduce = exported("reduce", "5x40000,dtype=fp32,out=fp32,over=all").reduce
    x = rng.integers(-2, 3, (5, 40_000)).astype(np.float32)
    for captured in (False, False, True):
        gpu.captured = captured
        assert gpu.download(reduce(gpu.upload(x), over="all"))[0] == x.sum()
    norm = exported("residual_rms_norm", "4x64,dtype=fp32,out=fp32,eps=0.5").residual_rms_norm
    x, r = (rng.standard_normal((4, 64)).astype(np.float32) for _ in "xr")
    w = rng.standard_normal(64).astype(np.float32)
    found = norm(*map(gpu.upload, (x, r, w)), eps=0.5)
    assert np.allclose(gpu.download(found.y), reference.rms_norm(x + r, w, 0.5), 1e-5, 1e-5)
    assert np.array_equal(gpu.download(found.s), x + r)
    outs = tuple(gpu.upload(np.zeros((4, 64), np.float32)) for _ in found)
    assert norm(*map(gpu.upload, (x, r, w)), eps=0.5, out=outs) is outs
    assert np.array_equal(gpu.download(outs[norm.outputs._fields.index("s")]), x + r)


def test_what_was_not_exported_is_refused_with_what_was(exported: Any, gpu: Any) -> None:
    softmax = exported("softmax", "3x64,dtype=fp32,out=fp32").softmax
    with pytest.raises(ValueError, match=r"x \(4, 64\) float32 with .* was not exported. There are: rows=3,columns=64"):
        softmax(gpu.upload(np.zeros((4, 64), np.float32)))
    with pytest.raises(TypeError, match="no option axis"):
        softmax(gpu.upload(np.zeros((3, 64), np.float32)), axis=1)
    with pytest.raises(TypeError, match="x is of numpy; arrays are of cupy or torch"):
        softmax(np.zeros((3, 64), np.float32))
    with pytest.raises(ValueError, match="out has to be of shape"):
        softmax(gpu.upload(np.zeros((3, 64), np.float32)), out=gpu.upload(np.zeros((3, 65), np.float32)))
    with pytest.raises(ValueError, match="start at multiples of 16 bytes"):
        softmax(gpu.upload(np.zeros((3, 64), np.float32), align=4))
    with pytest.raises(TypeError, match="softmax takes x, and 2 arrays are given"):
        softmax(1, 2)


def test_a_projects_operation_is_exported_once_it_is_verified(project: Path, exported: Any, gpu: Any) -> None:
    with pytest.raises(ops.Unverified):
        exported("scaled_sum", "3x5,dtype=fp32")
    verified("scaled_sum")
    package = exported("scaled_sum", "3x5,dtype=fp32,factor=3", "3x5,dtype=fp32,factor=4,negative=true")
    x, w = np.ones((3, 5), np.float32), np.arange(5, dtype=np.float32)
    assert np.array_equal(gpu.download(package.scaled_sum(gpu.upload(x), gpu.upload(w), factor=3)), 3 * x + w)
    found = package.scaled_sum(gpu.upload(x), gpu.upload(w), factor=4, negative=True)
    assert np.array_equal(gpu.download(found), -4 * x + w)
    assert (Path(package.__file__).parent / "cuda/second.cu").is_file()
    with pytest.raises(export.ExportError, match="is there already and not empty"):
        exported("scaled_sum", "3x5,dtype=fp32")


def test_a_problem_that_no_stage_takes_is_named(exported: Any) -> None:
    with pytest.raises(export.ExportError, match=r"no stage of gemm_fp8 supports"):
        exported("gemm_fp8", "8x8x3000000000")


def test_a_package_that_would_solve_nothing_is_not_written(exported: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry.operations()["vector_add"], "suite", ())
    with pytest.raises(export.ExportError, match=r"vector_add: the operation has no suite of problems: name one"):
        exported("vector_add")


def test_an_export_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("new", "empty"):
        with pytest.raises(export.ExportError, match=r"no stage of gemm_fp8 supports"):
            export.export("gemm_fp8", tmp_path / name, ["8x8x32", "8x8x3000000000"])
    assert [path.name for path in tmp_path.rglob("*")] == ["empty"]


def test_blocks_of_a_persistent_launch_are_those_of_the_workbench(exported: Any) -> None:
    from workbench.model.launch import Launch

    runtime = exported("softmax", "3x64,dtype=fp32,out=fp32").runtime
    for grid, cluster, resident in ((10, 1, 4), (132, 2, 131), (7, 2, 1), (100, 4, 30), (3, 1, 200)):
        launch = Launch("k", (grid, 1, 1), (32, 1, 1), (), cluster=(cluster, 1, 1), persistent=True)
        about = {"grid": [grid, 1, 1], "cluster": [cluster, 1, 1]}
        assert runtime.even_blocks(about, resident) == launch.even_blocks(resident)


def test_the_command_writes_a_package_and_says_what_it_solves(workbench: Any, tmp_path: Path) -> None:
    result = workbench(
        "export", "softmax", "-o", "out/rows", "--problem", "3x64,dtype=fp32,out=fp32", "--stage", "naive"
    )
    assert result.exit_code == 0, result.output
    assert "softmax:naive for rows=3,columns=64,dtype=fp32" in result.output
    assert {p.name for p in (tmp_path / "out/rows").iterdir()} == {
        *("__init__.py", "runtime.py", "ready.py", "launches.json", "kernels", "cuda"),
    }
    again = workbench("export", "softmax", "-o", "out/rows")
    assert again.exit_code == 2 and "is there already and not empty" in again.output


@pytest.mark.long
def test_an_operator_of_pytorch_with_a_fake_kernel(exported: Any) -> None:
    torch = pytest.importorskip("torch")
    from torch._subclasses import FakeTensorMode

    package = exported("residual_rms_norm", "4x64,dtype=bf16,out=bf16")
    operator = package.residual_rms_norm.torch_operator("exported_of_a_test")
    with FakeTensorMode():
        x, w = (torch.empty(shape, device="cuda", dtype=torch.bfloat16) for shape in ((4, 64), (64,)))
        y, s = operator(x, x, w, out_type="bf16")
        assert y.shape == s.shape == (4, 64) and y.dtype == torch.bfloat16 and y.device.type == "cuda"
        other = torch.empty((2, 64), device="cuda", dtype=torch.bfloat16)
        with pytest.raises(ValueError, match="was not exported"):
            operator(other, other, w, out_type="bf16")


@pytest.mark.gpu
def test_a_package_solves_calls_on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: Any) -> None:
    problems = ("128x256x64,dtype=fp16,out=fp16", "2048x2048x64,dtype=fp16,out=fp16")
    export.export("gemm", tmp_path / "exported_on_gpu", problems)
    monkeypatch.syspath_prepend(tmp_path)
    gemm = importlib.import_module("exported_on_gpu").gemm
    for m, n in ((128, 256), (2048, 2048), (128, 256)):
        a, b = (rng.integers(-2, 3, shape).astype(np.float16) for shape in ((m, 64), (n, 64)))
        found = gemm(cupy.asarray(a), cupy.asarray(b), out_type="fp16")
        assert np.array_equal(found.get(), reference.gemm(a, b, trans_b=True))
    if "torch" in sys.modules:
        import torch

        found = gemm(torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda(), out_type="fp16")
        assert np.array_equal(found.cpu().numpy(), reference.gemm(a, b, trans_b=True))

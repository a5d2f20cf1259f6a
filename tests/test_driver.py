"""How the CUDA driver is called by its C functions: in the workbench, and in packages that it exports."""

from __future__ import annotations

import ctypes
import importlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cuda.bindings import driver as bindings
from fake_driver import FakeLibrary, numbers, store, text

from workbench.devices import Fault, cuda, ready
from workbench.model.results import Verdict
from workbench.ops import export


def library(monkeypatch: pytest.MonkeyPatch, **answers: Any) -> FakeLibrary:
    known = {"cuGetErrorString": text, "cuCtxGetCurrent": lambda place: store(place, 77)}
    made = FakeLibrary(**{**known, **answers})
    monkeypatch.setattr(cuda, "_library", lambda: made)
    return made


def test_the_context_that_is_current_at_first_is_entered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = library(monkeypatch)
    made = cuda.CudaDriver({})
    assert made.enter() == 0
    ((context,),) = fake.called("cuCtxSetCurrent")
    assert context.value == 77


def test_where_no_context_is_current_that_of_the_device_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    current: list[int | None] = [None]
    fake = library(monkeypatch, cuCtxGetCurrent=lambda place: store(place, current[0]))
    made = SimpleNamespace(free=lambda address: current.append(current.pop() or 78 + address))
    monkeypatch.setattr(cuda, "_runtime", lambda: made)
    cuda.CudaDriver({}).enter()
    ((context,),) = fake.called("cuCtxSetCurrent")
    assert context.value == 78


def test_a_kernel_is_loaded_once_and_its_shared_memory_never_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    named = {"cuModuleGetFunction": lambda place, module, name: store(place, 1000 + len(name))}
    fake = library(monkeypatch, **named)
    compiled: Any = SimpleNamespace(key="k", cubin_path="/k.cubin")
    made = cuda.CudaDriver({})
    for shared in (0, 100_000, 60_000, 200_000):
        assert made.function(compiled, "kernel", shared) == 1006
    assert made.function(compiled, "other", 0) == 1005
    ((_, path),) = fake.called("cuModuleLoad")
    assert path == b"/k.cubin" and len(fake.called("cuModuleGetFunction")) == 2
    assert fake.called("cuFuncSetAttribute") == [(1006, 8, 100_000), (1006, 8, 200_000)]
    library(monkeypatch, cuModuleLoad=lambda place, path: 200)
    with pytest.raises(Fault, match="kernel cannot be loaded: error number 200"):
        cuda.CudaDriver({}).function(compiled, "kernel", 0)


def test_errors_have_their_verdict_and_what_the_driver_says(monkeypatch: pytest.MonkeyPatch) -> None:
    library(monkeypatch)
    made = cuda.CudaDriver({700: Verdict.ILLEGAL_ACCESS})
    lost, other = made.failed(700, "k"), made.failed(1, "k")
    assert (lost.verdict, str(lost)) == (Verdict.ILLEGAL_ACCESS, "the launch of k was rejected: error number 700 (700)")
    assert other.verdict is Verdict.LAUNCH_ERROR
    library(monkeypatch, cuCtxGetCurrent=lambda place: 3)
    with pytest.raises(Fault, match="there is no CUDA context: error number 3"):
        cuda.CudaDriver({})


def test_a_launch_gives_the_driver_grid_block_shared_memory_and_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def launch(config_at: int, function: int, parameters_at: int, extra: None) -> None:
        config = ready.LaunchConfig.from_address(config_at)
        places = (ctypes.c_void_p * 2).from_address(parameters_at)
        pointer, scalar = ctypes.c_uint64.from_address(places[0]).value, ctypes.string_at(places[1], 4)
        sizes = (*config.grid, *config.block, config.shared_bytes, config.stream, config.attribute_count)
        seen.append((function, sizes, pointer, scalar))

    fake = library(monkeypatch, cuLaunchKernelEx=launch)
    args = (ready.Pointer(1), b"\1\2\3\4")
    launches = [ready.ReadyLaunch(name, n, (n, 2, 3), (32, 1, 1), 64, args) for n, name in ((5, "a"), (6, "b"))]
    plan = ready.ReadyPlan(cuda.CudaDriver({}), launches, [8, 9])
    plan([100, 200], 7)
    plan([101, 1 << 63], 0)
    assert seen[:2] == [(n, (n, 2, 3, 32, 1, 1, 64, 7, 0), 200, b"\1\2\3\4") for n in (5, 6)]
    assert seen[2][1][7] is None and seen[3][2] == 1 << 63
    assert not fake.called("cuCtxSetCurrent")


def test_a_programmatic_launch_has_the_attribute_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, ...]] = []

    def launch(config_at: int, function: int, parameters_at: int, extra: None) -> None:
        config = ready.LaunchConfig.from_address(config_at)
        for number in range(config.attribute_count):
            attribute = ready.LaunchAttribute.from_address(config.attributes + 72 * number)
            seen.append((function, attribute.id, attribute.value[0]))

    library(monkeypatch, cuLaunchKernelEx=launch)
    launches = [ready.ReadyLaunch(f"k{n}", n, (1, 1, 1), (32, 1, 1), 0, (), n == 6) for n in (5, 6)]
    ready.ReadyPlan(cuda.CudaDriver({}), launches, [])([], 7)
    serialization = bindings.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    assert seen == [(6, int(serialization), 1)]


def test_the_layout_of_the_configuration_is_that_of_the_driver() -> None:
    theirs = bindings.CUlaunchConfig()
    theirs.gridDimX, theirs.gridDimY, theirs.gridDimZ = 1, 2, 3
    theirs.blockDimX, theirs.blockDimY, theirs.blockDimZ, theirs.sharedMemBytes = 4, 5, 6, 7
    theirs.hStream = bindings.CUstream(8)
    raw = ctypes.string_at(theirs.getPtr(), ctypes.sizeof(ready.LaunchConfig))
    config = ready.LaunchConfig.from_buffer_copy(raw)
    assert (*config.grid, *config.block, config.shared_bytes, config.stream) == (1, 2, 3, 4, 5, 6, 7, 8)
    assert (config.attributes, config.attribute_count) == (None, 0)
    attribute = bindings.CUlaunchAttribute()
    attribute.id = bindings.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    attribute.value.programmaticStreamSerializationAllowed = 1
    raw = ctypes.string_at(attribute.getPtr(), ctypes.sizeof(ready.LaunchAttribute))
    assert raw == bytes(ready.PROGRAMMATIC)


# of an exported package


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of an exported package that calls the driver."""
    export.export("softmax", tmp_path / "exported_for_the_driver", ["3x64,dtype=fp32,out=fp32"])
    monkeypatch.syspath_prepend(tmp_path)
    package = importlib.import_module("exported_for_the_driver")
    yield package.runtime
    for name in [m for m in sys.modules if m.partition(".")[0] == "exported_for_the_driver"]:
        del sys.modules[name]


def device(runtime: Any, monkeypatch: pytest.MonkeyPatch, **answers: Any) -> tuple[FakeLibrary, Any]:
    attributes = {16: 132, 75: 9, 76: 0}
    known = {
        "cuDeviceGetAttribute": lambda place, which, handle: store(place, attributes[which]),
        "cuDevicePrimaryCtxRetain": lambda place, handle: store(place, 55),
        "cuModuleGetFunction": lambda place, module, name: store(place, 1000 + len(name)),
        "cuGetErrorString": text,
    }
    fake = FakeLibrary(**{**known, **answers})
    monkeypatch.setattr(runtime.ctypes, "CDLL", lambda name: fake)
    return fake, runtime.Driver(0)


def test_a_package_loads_a_kernel_once_and_never_lowers_its_shared_memory(
    runtime: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake, made = device(runtime, monkeypatch)
    assert (made.architecture, made.multiprocessors) == (90, 132)
    (tmp_path / "k.cubin").write_bytes(b"cubin")
    for shared in (0, 100_000, 60_000, 200_000):
        assert made.function(str(tmp_path / "k.cubin"), "kernel", shared) == 1006
    ((_, content),) = fake.called("cuModuleLoadData")
    assert content.value == b"cubin"
    assert [a[1:] for a in fake.called("cuFuncSetAttribute")] == [(8, 100_000), (8, 200_000)]
    assert {a[0].value for a in fake.called("cuCtxSetCurrent")} == {55}


def test_a_package_asks_how_many_blocks_and_clusters_fit(runtime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def clusters(place: Any, function: Any, config: Any) -> None:
        c = config._obj
        attribute = runtime.LaunchAttribute.from_address(c.attributes)
        seen.append((tuple(c.grid), c.attribute_count, attribute.id, list(attribute.value)[:3]))
        store(place, 60)

    blocks = lambda place, *_: store(place, 1)  # noqa: E731
    _, made = device(
        runtime,
        monkeypatch,
        cuOccupancyMaxActiveBlocksPerMultiprocessor=blocks,
        cuOccupancyMaxActiveClusters=clusters,
    )
    launch = {"block": [384, 1, 1], "grid": [500, 1, 1], "shared_bytes": 9, "cluster": [1, 1, 1]}
    assert made.resident(5, launch) == 132
    assert made.resident(5, {**launch, "cluster": [2, 1, 1]}) == 120
    assert seen == [((132, 1, 1), 1, 4, [2, 1, 1])]


def test_a_package_encodes_maps_tiled_and_im2col(runtime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def encoded(place: Any, *_: Any) -> None:
        assert place.value % 64 == 0
        ctypes.memmove(place.value, b"m" * 128, 128)

    fake, made = device(runtime, monkeypatch, cuTensorMapEncodeTiled=encoded, cuTensorMapEncodeIm2col=encoded)
    layout = {"interleave": 0, "swizzle": 3, "promotion": 2, "fill": 1, "data_type": 9, "sizes": [64, 40], "offset": 16}
    layout |= {"strides": [128], "element_strides": [1, 1]}
    assert made.encode({**layout, "box": [64, 8]}, 4096) == b"m" * 128
    ((_, kind, rank, address, sizes, strides, box, steps, *last),) = fake.called("cuTensorMapEncodeTiled")
    assert (kind, rank, address.value, last) == (9, 2, 4112, [0, 3, 2, 1])
    assert list(map(numbers, (sizes, strides, box, steps))) == [[64, 40], [128], [64, 8], [1, 1]]
    made.encode({**layout, "lower": [-1, -2], "upper": [0, 1], "channels": 64, "pixels": 32}, 4096)
    ((*_, lower, upper, channels, pixels, steps, _, _, _, _),) = fake.called("cuTensorMapEncodeIm2col")
    assert (numbers(lower), numbers(upper), channels, pixels) == ([-1, -2], [0, 1], 64, 32)
    with pytest.raises(runtime.LaunchError, match=r"cuInit: error number 100 \(CUDA error 100\)"):
        device(runtime, monkeypatch, cuInit=lambda flags: 100)


def test_numbers_of_a_map_are_those_that_the_workbench_gives_the_driver() -> None:
    from workbench.devices import tensor_maps
    from workbench.model.arrays import Array
    from workbench.model.dtypes import BF16
    from workbench.model.tensor_map import TensorMap

    found = tensor_maps.numbers(TensorMap("x", box=(8, 64), fill="nan", promotion=128), Array((40, 64), BF16, 72))
    assert found["strides"] == [144] and found["box"] == [64, 8] and found["sizes"] == [64, 40]
    assert {k: found[k] for k in ("data_type", "swizzle", "promotion", "fill", "interleave", "offset")} == {
        **{"data_type": 9, "swizzle": 3, "promotion": 2, "fill": 1, "interleave": 0, "offset": 0}
    }

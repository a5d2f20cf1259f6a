"""What kernels are given beyond arrays and numbers: structs, tables, strides, variables, and memory that is shared."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from emulation import line_of

from workbench.emulator import (
    ArgumentError,
    FindingKind,
    Output,
    Session,
    Strided,
    Struct,
    TensorMapOf,
    launch,
    load,
)

STRUCT = """
struct Inner { double scale; bool negate; };
struct Params { const float* x; int n; Inner inner; float* y; short tail[3]; };
extern "C" __global__ void by_value(Params p) {
    int i = threadIdx.x;
    if (i < p.n) p.y[i] = p.x[i] * p.inner.scale * (p.inner.negate ? -1 : 1) + p.tail[2];  // here
}
extern "C" __global__ void by_pointer(const Params* p) {
    int i = threadIdx.x;
    if (i < p->n) p->y[i] = p->x[i] * p->inner.scale * (p->inner.negate ? -1 : 1) + p->tail[2];
}
"""


def params(x: Any, y: Any, n: int) -> Struct:
    inner = {"scale": np.float64(2), "negate": True}
    return Struct(x=x, n=n, inner=inner, y=Output(y), tail=(np.int16(1), np.int16(2), np.int16(3)))


@pytest.mark.parametrize("kernel", ["by_value", "by_pointer"])
def test_a_struct_is_laid_out_as_in_cpp_with_pointers_in_it(kernel: str) -> None:
    x, y = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    p: Any = params(x, y, 8)
    assert launch(STRUCT, kernel, 1, 32, {"p": p if kernel == "by_value" else [p]}).ok
    assert np.array_equal(y, -2 * x + 3)


def test_an_array_in_a_struct_is_named_by_its_member() -> None:
    x, y = np.arange(8, dtype=np.float32), np.zeros(9, np.float32)
    (finding,) = launch(STRUCT, "by_value", 1, 32, {"p": params(x, y, 9)}).findings
    assert (finding.kind, finding.array, finding.index) == (FindingKind.OUT_OF_BOUNDS, "p.x", 8)
    assert finding.location.line == line_of(STRUCT, "// here")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Struct(x=None, n=1), "the struct that is given has 16 bytes: compare its members"),
        (Struct(n=2**40), r"p\.n: 1099511627776 does not fit into an int; write np.int64"),
        (Struct(n="text"), r"p\.n: str is not a member"),
        (Struct(n=np.array([None])), "Python objects"),
    ],
)
def test_a_struct_that_does_not_fit_is_refused(value: Struct, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        launch(STRUCT, "by_value", 1, 32, {"p": value})


TABLE = """
extern "C" __global__ void sum(const float* const* rows, int n, float* y) {
    float total = 0;
    for (int r = 0; r < n; ++r) total += rows[r][threadIdx.x];  // here
    y[threadIdx.x] = total;
}
"""


def test_a_list_is_a_table_of_pointers_in_memory() -> None:
    rows, y = [np.full(32, value, np.float32) for value in (1, 2, 3)], np.zeros(32, np.float32)
    assert launch(TABLE, "sum", 1, 32, {"rows": rows, "n": 3, "y": y}).ok
    assert (y == 6).all()
    (finding,) = launch(TABLE, "sum", 1, 32, {"rows": [rows[0], rows[1][:31].copy()], "n": 2, "y": y}).findings
    assert (finding.array, finding.index) == ("rows[1]", 31)
    (finding,) = launch(TABLE, "sum", 1, 32, {"rows": rows, "n": 4, "y": y}).findings
    assert (finding.array, finding.index) == ("rows", 3)
    with pytest.raises(ArgumentError, match="rows is an empty list"):
        launch(TABLE, "sum", 1, 32, {"rows": [], "n": 0, "y": y})


MAPS = """
struct alignas(64) CUtensorMap { unsigned long long opaque[16]; };
struct Pair { int which; CUtensorMap maps[2]; };
__device__ void copy(const CUtensorMap* map, float* y) {
    __shared__ alignas(128) float tile[64];
    __shared__ alignas(8) unsigned long long bar;
    unsigned to = (unsigned)__cvta_generic_to_shared(tile), at = (unsigned)__cvta_generic_to_shared(&bar);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at));
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 256;" ::"r"(at));
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
            " [%0], [%1, {%3, %3}], [%2];" ::"r"(to), "l"(map), "r"(at), "r"(0) : "memory");
    }
    __syncthreads();
    asm volatile("{.reg .pred p; L: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; @!p bra L;}" ::"r"(at)
                 : "memory");
    for (int i = threadIdx.x; i < 64; i += 32) y[i] = tile[i];
}
extern "C" __global__ void in_struct(const __grid_constant__ Pair pair, float* y) { copy(&pair.maps[pair.which], y); }
extern "C" __global__ void in_memory(const CUtensorMap* maps, int which, float* y) { copy(maps + which, y); }
extern "C" __global__ void by_value(const __grid_constant__ CUtensorMap map, float* y) { copy(&map, y); }
"""


@pytest.fixture(scope="module")
def maps() -> Any:
    return load(MAPS)


def test_tensor_maps_lie_in_structs_and_in_memory(maps: Any) -> None:
    a, b = (np.random.default_rng(seed).standard_normal((8, 8)).astype(np.float32) for seed in (0, 1))
    both = (TensorMapOf(a, (8, 8)), TensorMapOf(b, (8, 8)))
    for which, expected in enumerate((a, b)):
        y = np.zeros((8, 8), np.float32)
        assert launch(maps, "in_struct", 1, 32, {"pair": Struct(which=which, maps=both), "y": y}).ok
        assert np.array_equal(y, expected)
        y[:] = 0
        assert launch(maps, "in_memory", 1, 32, [list(both), which, y]).ok
        assert np.array_equal(y, expected)
    report = launch(maps, "in_memory", 1, 32, [list(both), 2, y])
    assert not report.ok  # there is no third


GRID = """
extern "C" __global__ void doubled(float* x, int rows, int columns, int pitch) {
    int c = threadIdx.x;
    for (int r = 0; r < rows; ++r)
        if (c < columns) x[r * pitch + c] *= 2;  // here
}
"""


def test_strides_are_kept_and_what_lies_between_has_no_value() -> None:
    whole = np.arange(80, dtype=np.float32).reshape(5, 16)
    before = whole.copy()
    part = whole[:, 2:10]
    assert launch(GRID, "doubled", 1, 32, {"x": Strided(part), "rows": 5, "columns": 8, "pitch": 16}).ok
    assert np.array_equal(part, 2 * before[:, 2:10])
    assert np.array_equal(whole[:, :2], before[:, :2])
    found = launch(GRID, "doubled", 1, 32, {"x": Strided(part), "rows": 5, "columns": 9, "pitch": 16}).findings
    # the ninth column has no value in the upper rows, and lies past the end in the last one
    assert {finding.kind for finding in found} == {FindingKind.UNINITIALISED, FindingKind.OUT_OF_BOUNDS}
    assert {finding.location and finding.location.line for finding in found} == {line_of(GRID, "// here")}
    (finding,) = launch(GRID, "doubled", 1, 32, {"x": part, "rows": 5, "columns": 8, "pitch": 16}).findings
    assert finding.kind == FindingKind.OUT_OF_BOUNDS  # packed, rows are 8 elements long
    with pytest.raises(ArgumentError, match="must not be negative"):
        Strided(whole[::-1])


def test_a_tensor_map_takes_the_strides_of_an_array(maps: Any) -> None:
    whole, y = np.arange(256, dtype=np.float32).reshape(16, 16), np.zeros((8, 8), np.float32)
    assert launch(maps, "by_value", 1, 32, [TensorMapOf(Strided(whole[::2, 4:12]), (8, 8)), y]).ok
    assert np.array_equal(y, whole[::2, 4:12])
    with pytest.raises(ArgumentError, match="elements of a row lie 8 bytes apart"):
        launch(maps, "by_value", 1, 32, [TensorMapOf(Strided(whole[:8, ::2]), (8, 8)), y])


VARIABLES = """
struct Table { float* data; int n; };
__constant__ float weights[4];
__constant__ float bias;
__constant__ Table table;
__device__ unsigned calls = 7;
extern "C" __global__ void apply(float* y) {
    int i = threadIdx.x;
    if (i == 0) atomicAdd(&calls, 1u);
    y[i] = weights[i % 4] + bias + table.data[i % table.n];  // here
}
"""


def test_variables_are_given_values_before_a_launch_and_read_after_it() -> None:
    y, data, calls = np.zeros(8, np.float32), np.float32([10, 20]), np.zeros(1, np.uint32)
    variables = {"weights": np.float32([1, 2, 3, 4]), "bias": 100, "table": Struct(data=data, n=2), "calls": calls}
    assert launch(VARIABLES, "apply", 1, 8, [y], variables=variables).ok
    assert np.array_equal(y, 100 + np.float32([11, 22, 13, 24] * 2))
    assert calls == 1
    variables["table"] = Struct(data=data, n=3)
    (finding,) = launch(VARIABLES, "apply", 1, 8, {"y": y}, variables=variables).findings
    assert (finding.array, finding.index) == ("table.data", 2)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("weight", 1, "no variable is called 'weight'; those that kernels use are: bias, calls, table, weights"),
        ("weights", np.zeros(3, np.float32), "weights has 16 bytes, and 12 are given"),
        ("calls", 1.5, "calls is an integer of 4 bytes, and 1.5 is given"),
    ],
)
def test_a_variable_that_is_not_there_or_does_not_fit_is_refused(name: str, value: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        launch(VARIABLES, "apply", 1, 8, [np.zeros(8, np.float32)], variables={name: value})


SEQUENCE = """
__device__ int launches;
extern "C" __global__ void produce(const float* x, float* y, int n) {
    if (threadIdx.x == 0) ++launches;
    __syncthreads();
    if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x] + launches;
}
extern "C" __global__ void consume(const float* y, float* z) { z[threadIdx.x] = 2 * y[threadIdx.x]; }  // here
"""


def test_kernels_of_a_session_work_on_the_same_memory() -> None:
    session = Session(load(SEQUENCE))
    x, y, z = (np.arange(32, dtype=np.float32) for _ in range(3))
    assert session.launch("produce", 1, 32, {"x": x, "y": Output(y), "n": 16}).ok
    report = session.launch("consume", 1, 32, {"y": y, "z": Output(z)})
    (finding,) = report.findings
    assert (finding.kind, finding.array, finding.index) == (FindingKind.UNINITIALISED, "y", 16)
    assert finding.location.line == line_of(SEQUENCE, "// here")
    x += 100  # what the host changes is there in the next launch
    assert session.launch("produce", 1, 32, {"x": x, "y": y, "n": 32}).ok
    assert session.launch("consume", 1, 32, {"y": y, "z": Output(z)}).ok
    assert np.array_equal(z, 2 * (np.arange(32) + 100 + 2))


class FakeTensor:
    """As much of a tensor of PyTorch as is asked for. Its module is named torch, which is not installed here."""

    def __init__(self, array: Any, dtype: str, device: str = "cpu") -> None:
        self.array, self.dtype, self.device = array, f"torch.{dtype}", device
        self.itemsize = array.itemsize

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data)

    def untyped_storage(self) -> FakeTensor:
        return self

    def detach(self) -> FakeTensor:
        return self

    def element_size(self) -> int:
        return int(self.array.itemsize)

    def view(self, dtype: str) -> FakeTensor:
        return FakeTensor(self.array.view(dtype), dtype)

    def numpy(self) -> Any:
        if "float8" in self.dtype or self.dtype == "torch.bfloat16":
            raise TypeError(f"Got unsupported ScalarType {self.dtype}")
        return self.array.view()


FakeTensor.__module__ = "torch"


def test_tensors_of_the_cpu_are_arrays(maps: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = ModuleType("torch")
    torch.int16, torch.uint8 = "int16", "uint8"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    x, y = FakeTensor(np.ones((4, 32), np.float32), "float32"), FakeTensor(np.zeros(32, np.float32), "float32")
    assert launch(GRID, "doubled", 1, 32, {"x": x, "rows": 4, "columns": 32, "pitch": 32}).ok
    assert (x.array == 2).all()
    halves = FakeTensor(np.ones(8, ml_dtypes.bfloat16), "bfloat16")
    source = "#include <cuda_bf16.h>\n__global__ void k(__nv_bfloat16* x) { x[threadIdx.x] *= __nv_bfloat16(3.0f); }"
    assert launch(source, "k", 1, 8, [halves]).ok
    assert (halves.array == 3).all()
    (finding,) = launch(
        SEQUENCE, "consume", 1, 32, {"y": y, "z": Output(FakeTensor(np.zeros(8, "f4"), "float32"))}
    ).findings
    assert (finding.array, finding.index) == ("z", 8)
    with pytest.raises(ArgumentError, match=r"a tensor lies on cuda:0.*tensor\.cpu\(\)"):
        launch(source, "k", 1, 8, [FakeTensor(np.zeros(8, np.uint16), "bfloat16", "cuda:0")])
    tile = FakeTensor(np.ones((8, 8), np.float32), "float32")
    assert launch(maps, "by_value", 1, 32, [TensorMapOf(tile, (8, 8)), Output(np.zeros(64, np.float32))]).ok

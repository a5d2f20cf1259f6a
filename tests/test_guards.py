"""What arrays on a GPU lie in: red zones that find writes outside, and NaN wherever nobody has written.

CuPy is stood in for by NumPy, but in tests of the GPU.
"""

from __future__ import annotations

import dataclasses
import shutil
import types

import numpy as np
import pytest

from workbench import emulator
from workbench.catalogue import registry
from workbench.devices import Fault, cuda, open_device
from workbench.devices.base import PATTERN, ZONE, shift
from workbench.devices.emulated import EmulatedDevice
from workbench.harness import run_problem
from workbench.judge.case import compare
from workbench.kernels.gemm import GemmProblem
from workbench.model.arrays import Array
from workbench.model.dtypes import BF16, DTYPES, FLOATS, FP32
from workbench.model.launch import Launch, Plan
from workbench.model.problem import Tier
from workbench.model.results import Verdict
from workbench.toolchain.compiler import INCLUDE, compile_source


class HostArray(np.ndarray):
    """What the CUDA device uses of a CuPy array."""

    def get(self):
        return np.array(self)

    def set(self, values):
        assert values.dtype == self.dtype
        assert values.shape == self.shape
        self[...] = values

    @property
    def data(self):
        return types.SimpleNamespace(ptr=self.ctypes.data)


class HostDevice:
    """What a plan uses of the CUDA device; fresh memory is full of zeros, which it must not stay.

    `kernel` is a function of the addresses of the arrays; `log` has what was launched.
    """

    lost = False

    def __init__(self, kernel=lambda pointers: None, bare=False):
        self.kernel, self.bare, self.log, self.allocated = kernel, bare, [], []

    def empty(self, nbytes):
        self.allocated.append(np.zeros(nbytes, np.uint8).view(HostArray))
        return self.allocated[-1]

    def filled(self, nbytes):
        memory = self.empty(nbytes)
        cuda.forget(memory)
        return memory

    @property
    def spoiler(self):
        return lambda: self.log.append("spoil")

    def prepare(self, compiled, launch, arrays, pointers):
        def start():
            self.log.append(launch.kernel)
            self.kernel(pointers)

        return start

    def synchronize(self):
        pass


def fill(memory, filler=b"\xff"):
    memory[:] = np.resize(np.frombuffer(filler, np.uint8), memory.size)


@pytest.fixture
def bind(monkeypatch):
    """A plan of two launches over A, 4 of fp32, and C, 3 x 5 of bf16 in rows of 8."""
    monkeypatch.setattr(cuda, "forget", fill)
    arrays = {"A": Array((4,), FP32), "C": Array((3, 5), BF16, 8, output=True)}
    storage = {"A": np.arange(4, dtype=np.float32), "C": arrays["C"].poisoned()}

    def bind_to(device, seed=0, alignments=None):
        launches = tuple(Launch(name, (1, 1, 1), (1, 1, 1), ("A", "C")) for name in ("first", "second"))
        return cuda.CudaPlan(device, None, Plan(launches, alignments=alignments or {}), arrays, storage, seed)

    return bind_to


@pytest.fixture
def launched(bind):
    """Run that plan; its kernel is a Python function of the address of one of the arrays."""

    def launch_with(kernel, name="C"):
        bound = bind(HostDevice(lambda pointers: kernel(pointers[name])))
        bound.run()
        return bound.read(name)

    return launch_with


def at(address, count):
    return np.ctypeslib.as_array((np.ctypeslib.ctypes.c_uint8 * count).from_address(address))


def poke(address, values):
    at(address, len(values))[:] = values


def test_what_is_written_inside_is_read_back_and_nothing_is_wrong(launched):
    read = launched(lambda c: poke(c, np.zeros(21 * 2, np.uint8)))
    assert read.dtype == BF16.numpy
    assert read.shape == (21,)
    assert not read.astype(np.float32).any()


@pytest.mark.parametrize(
    ("array", "offset", "says"),
    [
        ("A", 16, "0 bytes after the end of A"),
        ("A", -1, "1 bytes before the start of A"),
        ("C", 42, "0 bytes after the end of C, where C[21] of its storage would be"),
        ("C", 42 + 7, "7 bytes after the end of C, where C[24] of its storage would be"),
        ("C", 42 + ZONE - 1, f"{ZONE - 1} bytes after the end of C"),
        ("C", -1, "1 bytes before the start of C"),
        ("C", -ZONE, f"{ZONE} bytes before the start of C"),
    ],
)
def test_a_write_outside_names_array_and_offset(launched, array, offset, says):
    with pytest.raises(Fault, match=f"wrote outside of {array}: 1 bytes changed") as raised:
        launched(lambda start: poke(start + offset, np.zeros(1, np.uint8)), array)
    assert raised.value.verdict is Verdict.OUT_OF_BOUNDS
    assert says in str(raised.value)


@pytest.mark.parametrize("bare", [False, True])
def test_scratch_that_is_zero_begins_so_and_has_to_be_left_so(monkeypatch, bare):
    monkeypatch.setattr(cuda, "forget", fill)
    found = []
    flags = Array((3,), FP32, output=True, zero=True)
    device = HostDevice(lambda pointers: found.append(at(pointers["flags"], 12).copy()), bare)
    bound = cuda.CudaPlan(
        device, None, Plan((Launch("kernel", (1, 1, 1), (1, 1, 1), ("flags",)),)), {"flags": flags}, {}
    )
    for again in (bound.poison, lambda: bound.refill({}), lambda: None):
        bound.run()
        assert not found.pop().any()
        again()
    device.kernel = lambda pointers: poke(pointers["flags"] + 7, np.ones(1, np.uint8))
    with pytest.raises(
        Fault, match=r"has to be zero when it ends.*: 1 of its 3 elements are not, the first is flags\[1\]"
    ) as raised:
        bound.run()
    assert raised.value.verdict is Verdict.STALE


@pytest.mark.long
def test_a_flag_between_blocks_that_is_not_lowered_again_is_found(tmp_path):
    (stage,), lowered = registry.select(["gemm:stream_k"]), "if (threadIdx.x % roles::LANES == 0) *flag(block) = 0;"
    for headers in (INCLUDE, stage.path.parents[1]):
        shutil.copytree(headers, tmp_path, dirs_exist_ok=True)
    source = tmp_path / stage.path.relative_to(stage.path.parents[1])
    source.write_text(stage.path.read_text().replace(lowered, ""))
    assert source.read_text() != stage.path.read_text()
    changed = dataclasses.replace(stage, source=str(source))
    problem = GemmProblem.parse("m=136,n=768,k=328,dtype=bf16,out=bf16,layout=nt")
    failure = run_problem(changed, EmulatedDevice(persistent_blocks=4), problem).failure
    assert failure.verdict is Verdict.STALE
    assert "flags is zero when the plan begins and has to be zero when it ends" in failure.message


@pytest.mark.parametrize("left", [0, 5])
def test_scratch_that_is_not_left_zero_is_found_in_the_emulator_too(tmp_path, left):
    source = tmp_path / "count.cu"
    source.write_text(
        f'extern "C" __global__ void count(int* flags) {{\n  flags[1] += 5;\n  flags[1] -= {5 - left};\n}}\n'
    )
    plan = Plan(
        (Launch("count", (1, 1, 1), (1, 1, 1), ("flags",)),), {"flags": Array((3,), FP32, output=True, zero=True)}
    )
    bound = open_device("emulator").bind(compile_source(source, {}), plan, {}, {})
    if not left:
        bound.run()
        bound.refill({})
        bound.run()
        return
    with pytest.raises(Fault, match=r"1 of its 3 elements are not, the first is flags\[1\]") as raised:
        bound.run()
    assert raised.value.verdict is Verdict.STALE


@pytest.mark.parametrize("seed", range(4))
def test_there_are_no_zeros_around_an_array_nor_in_an_output(bind, seed):
    device = HostDevice()
    bound = bind(device, seed, {"A": 16, "C": 8})
    assert bound.read("A").tolist() == [0, 1, 2, 3]
    assert np.isnan(bound.read("C").astype(np.float32)).all()
    for memory, size in zip(device.allocated, (16, 42), strict=True):
        start = len(memory) - ZONE - size
        assert start > ZONE
        assert (memory[:start] >= 0xFE).all()
        assert (memory[-ZONE:] >= 0xFE).all()


def test_memory_that_is_given_back_holds_no_answer(bind):
    device = HostDevice(lambda pointers: poke(pointers["C"], np.zeros(42, np.uint8)))
    bound = bind(device)
    bound.run()
    bound.close()
    assert all((memory == 0xFF).all() for memory in device.allocated)


def test_shared_memory_is_spoilt_before_each_launch_that_is_verified_and_none_that_is_timed(bind):
    device = HostDevice()
    bound = bind(device)
    bound.run()
    assert device.log == ["spoil", "first", "spoil", "second"]
    device.log.clear()
    bound.enqueue()
    assert device.log == ["first", "second"]


def test_a_tool_that_watches_memory_sees_where_arrays_end_and_who_writes_first(bind):
    device = HostDevice(bare=True)
    bound = bind(device)
    bound.run()
    assert [len(memory) for memory in device.allocated] == [16, 42]
    assert bound.read("A").tolist() == [0, 1, 2, 3]
    assert not device.allocated[1].any()  # as it was allocated
    assert device.log == ["first", "second"]


@pytest.mark.parametrize("alignment", [1, 2, 4, 8, 16, 32, 64, 128])
def test_an_array_is_as_aligned_as_asked_for_and_no_better_and_moves_with_the_seed(alignment):
    starts = [ZONE + shift(alignment, seed) for seed in range(4)]
    assert len(set(starts)) == 4
    assert all(start % (2 * alignment) == alignment for start in starts)


def test_the_kernel_that_spoils_shared_memory_writes_all_of_it():
    compiled = compile_source(cuda.SPOIL_SHARED, {})
    program = emulator.Program.from_ptx(compiled.ptx, compiled.source)
    most = emulator.H200.shared_per_block
    (kernel,) = program.entries.values()
    words, memory = np.int32(most // 4), emulator.Memory()
    done = emulator.execute(kernel, (1, 1, 1), (256, 1, 1), [words], memory=memory, shared_bytes=most, counters=True)
    assert done.counters.totals()["shared_store_bytes"] == most


LOOK = """extern "C" __global__ void look(float* seen, int words) {
  extern __shared__ float shared[];
  for (int i = threadIdx.x; i < words; i += blockDim.x) seen[blockIdx.x * words + i] = shared[i];
}
"""


@pytest.mark.gpu
def test_a_kernel_finds_nan_in_shared_memory(tmp_path):
    (tmp_path / "look.cu").write_text(LOOK)
    device = cuda.CudaDevice()
    blocks, words = device.properties["multiProcessorCount"], 8192
    launch = Launch("look", (blocks, 1, 1), (256, 1, 1), ("seen", np.int32(words)), shared_bytes=4 * words)
    array = Array((blocks, words), FP32, output=True)
    bound = device.bind(compile_source(tmp_path / "look.cu", {}), Plan((launch,)), {"seen": array}, {})
    bound.buffers["seen"].fill(0)
    bound.run()
    assert np.isnan(bound.read("seen")).all()


BOTH = """extern "C" __global__ void both(float* sums) {
  extern __shared__ float given[];
  __shared__ float own[OWN];
  for (int i = threadIdx.x; i < OWN; i += blockDim.x) own[i] = i, given[i] = 2 * i;
  __syncthreads();
  for (int i = threadIdx.x; i < OWN; i += blockDim.x) sums[i] = own[OWN - 1 - i] + given[OWN - 1 - i];
}
"""


@pytest.mark.parametrize("where", ["emulator", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_static_and_dynamic_shared_memory_may_together_be_more_than_48_kb(where, tmp_path):
    (tmp_path / "both.cu").write_text(BOTH)
    words = 8192  # of each, 32 KB: neither is more
    launch = Launch("both", (1, 1, 1), (256, 1, 1), ("sums",), shared_bytes=4 * words)
    compiled = compile_source(tmp_path / "both.cu", {"OWN": words})
    bound = open_device(where).bind(compiled, Plan((launch,)), {"sums": Array((words,), FP32, output=True)}, {})
    bound.run()
    assert bound.read("sums").tolist() == [3.0 * i for i in reversed(range(words))]


@pytest.mark.parametrize("dtype", [t for t in DTYPES.values() if t.has_nan and not t.compute_only], ids=str)
def test_what_nothing_is_written_to_is_not_a_number(dtype):
    storage = Array((3,), dtype).poisoned()
    assert np.isnan(storage.astype(np.float64)).all()
    storage[0] = 1
    assert dtype.unwritten(storage).tolist() == [False, True, True]


@pytest.mark.parametrize("dtype", [t for t in DTYPES.values() if t.is_float and not t.compute_only], ids=str)
def test_a_nan_that_is_computed_is_not_taken_for_what_nobody_wrote(dtype):
    with np.errstate(invalid="ignore"):
        computed = [np.zeros(1, np.float32) / 0, -(np.zeros(1, np.float32) / 0), np.array([np.inf]) - np.inf]
    gpu = b"\xff" * (dtype.itemsize - 1) + b"\x7f"  # what a GPU gives
    values = [*(v.astype(dtype.numpy) for v in computed if dtype.itemsize > 1), np.frombuffer(gpu, dtype.numpy)]
    assert not any(dtype.unwritten(v).any() for v in values)


@pytest.mark.parametrize("dtype", [t for t in DTYPES.values() if not t.compute_only], ids=str)
def test_two_patterns_tell_apart_what_one_does_not(dtype):
    first, second = dtype.fillers
    assert len(first) == len(second) == dtype.itemsize
    assert not any(a == b for a, b in zip(*(v[:1] for v in dtype.fillers), strict=True))
    assert Array((2,), dtype, fill=second).unwritten(np.frombuffer(first + second, dtype.numpy)).tolist() == [0, 1]


@pytest.mark.parametrize("dtype", [t for t in DTYPES.values() if not t.is_float], ids=str)
def test_an_integer_or_bool_that_nobody_wrote_is_known_and_wrong(dtype):
    array = Array((2, 2), dtype, strides=(3, 1), output=True)
    storage = array.poisoned()
    array.view(storage)[:, 0] = 1
    got, right = array.view(storage), np.ones((2, 2))
    assert dtype.unwritten(got).tolist() == [[False, True], [False, True]]
    assert compare("x", array, got, right, np.zeros((2, 2)), Tier.EXACT).wrong_count == 2
    assert compare("x", array, got, right, np.zeros((2, 2)), Tier.BOUNDED).wrong_count == 2


@pytest.mark.parametrize("dtype", list(FLOATS.values()), ids=str)
def test_the_pattern_is_not_a_number_in_every_type_and_not_the_usual_one(dtype):
    values = PATTERN.view(dtype.numpy)
    assert np.isnan(values).all()
    assert values[:1].tobytes() != np.full(1, np.nan, dtype.numpy).tobytes()
    assert values[:1].tobytes() != b"\xff" * dtype.itemsize

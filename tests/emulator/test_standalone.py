"""One call runs a kernel on NumPy arrays: arguments in, arrays back, hazards in the report."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from emulation import line_of, ptx_of

from workbench.emulator import (
    ArgumentError,
    CompileError,
    CompilerUnavailable,
    FindingKind,
    KernelFault,
    LaunchError,
    Output,
    TensorMapOf,
    launch,
    load,
)

SCALE = """
#ifndef FACTOR
#define FACTOR 1
#endif
extern "C" __global__ void scale(const float* x, float* y, float f, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = FACTOR * f * x[i];  // here
}
"""


def xy(n: int = 100) -> tuple[Any, Any]:
    return np.arange(n, dtype=np.float32), np.full(n, -1, np.float32)


def test_arrays_are_copied_back_and_counts_are_in_the_report() -> None:
    x, y = xy()
    report = launch(SCALE, "scale", 4, 32, [x, y, 2, 100], defines={"FACTOR": 3})
    assert report.ok
    assert str(report).startswith("scale: no hazard found, ")
    assert np.array_equal(y, 6 * x)
    assert sum(report.by_line().values()) == report.statistics.warp_instructions == report.by_opcode().total()
    assert report.by_opcode()["st.global.f32"] == 4


def test_a_hazard_is_in_the_report_with_name_line_and_counts() -> None:
    x, y = xy()
    report = launch(SCALE, "scale", 4, 32, {"in": x, "out": y, "f": 1.0, "n": 101})
    (finding,) = report.findings
    assert (finding.kind, finding.array, finding.index) == (FindingKind.OUT_OF_BOUNDS, "in", 100)
    assert finding.location.line == line_of(SCALE, "// here")
    assert "if (i < n)" in finding.source_line
    assert report.statistics.warp_instructions > 0
    assert json.loads(json.dumps(report.as_dict()))["findings"][0]["text"] == str(finding)
    assert str(finding) in str(report)


def test_a_hazard_is_raised_when_asked_for_and_arrays_hold_what_was_stored() -> None:
    x, y = xy()
    with pytest.raises(KernelFault) as raised:
        launch(SCALE, "scale", (4,), (32, 1), [x, y, 1.0, 101], raise_on_hazard=True)
    assert raised.value.finding.array == "a0"
    assert np.any(y == x)


@pytest.mark.parametrize("suffix", [".cu", ".ptx"])
def test_a_file_is_compiled_or_taken_as_ptx_by_what_it_holds(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"scale{suffix}"
    path.write_text(SCALE if suffix == ".cu" else ptx_of(SCALE))
    for source in (path, str(path), path.read_text()):
        x, y = xy()
        assert launch(source, None, 4, 32, [x, y, 1.0, 100]).ok
        assert np.array_equal(x, y)


def test_headers_are_found_beside_the_source_and_in_the_given_folders(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "one.cuh").write_text("#define ONE 1\n")
    (tmp_path / "more" / "two.cuh").write_text("#define TWO 2\n")
    path = tmp_path / "k.cu"
    (tmp_path / "limits.h").write_text("#define LIMIT 0\n")  # in place of C's
    path.write_text(
        '#include "one.cuh"\n#include <two.cuh>\n#include "limits.h"\n'
        "__global__ void k(int* x) { *x = ONE + TWO + LIMIT; }\n"
    )
    x = np.zeros(1, np.int32)
    assert launch(path, "k", 1, 1, [x], include=[tmp_path / "more"]).ok
    assert x[0] == 3


def test_options_are_handed_to_the_compiler() -> None:
    source = 'extern "C" __global__ void k(float* x) { *x += *x; }'
    for options, flushed in (([], False), (["-use_fast_math"], True), (["--std=c++20", "-ftz=true"], True)):
        x = np.full(1, 1e-40, np.float32)
        assert launch(source, "k", 1, 1, [x], options=options).ok
        assert x[0] == (0 if flushed else np.float32(1e-40) * 2)
    with pytest.raises(CompileError, match="unrecognized option"):
        load(source, options=["-no-such-flag"])


def test_a_template_is_instantiated_and_a_program_is_run_again_without_compiling() -> None:
    source = "template <class T> __global__ void twice(T* x) { x[threadIdx.x] *= 2; }\n"
    for dtype, name in ((np.float32, "twice<float>"), (np.int64, "twice<long long>")):
        x = np.arange(32).astype(dtype)
        assert launch(source, name, 1, 32, [x]).ok
        assert np.array_equal(x, 2 * np.arange(32))
    program = load(SCALE)
    for n in (1, 33):
        x, y = xy(n)
        assert launch(program, "scale", 2, 32, [x, y, 1.0, n]).ok
        assert np.array_equal(x, y)


def test_an_output_read_before_it_was_written_is_a_hazard_and_elsewhere_keeps_its_values() -> None:
    source = "__global__ void k(float* y, int read) { y[read ? 1 : 0] = read ? y[0] : 7.f; }"
    y = np.full(3, 5, np.float32)
    assert launch(source, "k", 1, 1, [Output(y), 0]).ok
    assert y.tolist() == [7, 5, 5]
    assert launch(source, "k", 1, 1, [Output(y), 1]).findings[0].kind == FindingKind.UNINITIALISED
    assert launch(source, "k", 1, 1, [y, 1]).ok


def test_what_may_not_be_written_is_an_array_that_numpy_may_not_write() -> None:
    x, y = xy()
    y.flags.writeable = False
    assert launch(SCALE, "scale", 4, 32, [x, y, 1.0, 100]).findings[0].kind == FindingKind.READ_ONLY


def test_the_same_array_twice_is_the_same_memory() -> None:
    x, _ = xy()
    assert launch(SCALE, "scale", 4, 32, [x, x, 2.0, 100]).ok
    assert np.array_equal(x, 2 * np.arange(100))


def test_strided_arrays_and_every_shape_come_back_in_place() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    whole = np.zeros((3, 8), np.float32)
    assert launch(SCALE, "scale", 1, 32, [x, whole[:, ::2], 1.0, 12]).ok
    assert np.array_equal(whole[:, ::2], x)
    assert not whole[:, 1::2].any()
    scalar = np.array(3, np.float32)
    assert launch(SCALE, "scale", 1, 32, [np.array(4, np.float32), Output(scalar), 1.0, 1]).ok
    assert scalar == 4


def test_numbers_take_the_type_of_their_parameter() -> None:
    source = """
    #include <cuda_bf16.h>
    struct Pair { int a; float b; };
    __global__ void k(double* y, float f, double d, short s, unsigned char c, long long l, bool b, Pair p,
                      __nv_bfloat16 h, const int* null) {
        double values[] = {f, d, (double)s, (double)c, (double)l, (double)b, (double)p.a, p.b, (double)(float)h,
                           (double)(null == nullptr)};
        for (int i = 0; i < 10; ++i) y[i] = values[i];
    }
    """
    pair = np.array([(3, 0.5)], [("a", "i4"), ("b", "f4")])[0]
    wanted = [1, 0.25, -5, 200, -(2**40), 1, 3, 0.5, 1.5, 1]
    y = np.zeros(10)
    numbers: list[Any] = [1, np.float32(0.25), np.int64(-5), 200, -(2**40), True]
    assert launch(source, "k", 1, 1, [y, *numbers, pair, ml_dtypes.bfloat16(1.5), None]).ok
    assert y.tolist() == wanted
    numbers = [np.float64(1), 0.25, -5, np.uint8(200), np.int64(-(2**40)), np.True_]
    assert launch(source, "k", 1, 1, [y, *numbers, pair.tobytes(), ml_dtypes.bfloat16(1.5), 0]).ok
    assert y.tolist() == wanted


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.uint8])
@pytest.mark.parametrize("by_name", [False, True])
def test_a_tensor_map_covers_an_array_of_any_dtype(dtype: Any, by_name: bool) -> None:
    source = """
    struct alignas(64) Map { char bytes[128]; };
    __global__ void k(const __grid_constant__ Map map, ELEMENT* out) {
        __shared__ alignas(128) ELEMENT tile[8 * 32];
        __shared__ alignas(8) unsigned long long barrier;
        unsigned to = __cvta_generic_to_shared(tile), b = __cvta_generic_to_shared(&barrier);
        if (threadIdx.x == 0) {
            asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(b) : "memory");
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(b), "r"((int)sizeof(tile)));
            asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                "[%0], [%1, {%3, %4}], [%2];" :: "r"(to), "l"(&map), "r"(b), "r"(32), "r"(4) : "memory");
        }
        __syncthreads();
        asm volatile("{ .reg .pred P; L: mbarrier.try_wait.parity.shared.b64 P, [%0], 0; @!P bra L; }"
            :: "r"(b) : "memory");
        for (int i = threadIdx.x; i < 8 * 32; i += 32) out[i] = tile[i];
    }
    """
    element = {1: "unsigned char", 2: "unsigned short", 4: "unsigned"}[np.dtype(dtype).itemsize]
    array = np.arange(10 * 64).reshape(10, 64).astype(dtype)
    out = np.zeros((8, 32), dtype)
    spec = TensorMapOf("a" if by_name else array, (8, 32), shape=(9, 64))
    arguments: dict[str, Any] = {"map": spec, "out": Output(out)}
    if by_name:
        source = source.replace("ELEMENT* out)", "ELEMENT* out, const ELEMENT* a)")
        arguments["a"] = array
    report = launch(source, "k", 1, 32, arguments, defines={"ELEMENT": element})
    assert report.ok, str(report)
    wanted = np.zeros((8, 32), dtype)
    wanted[:5] = array[4:9, 32:]
    assert np.array_equal(out, wanted)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (lambda x, y: [x, y, 1.0], "4 parameters"),
        (lambda x, y: [x, y, 1.0, 4, 4], "4 parameters"),
        (lambda x, y: [1.5, y, 1.0, 4], "a0 of scale: the float 1.5 is given"),
        (lambda x, y: [x, y, x, 4], "an array is|passed by pointer"),
        (lambda x, y: [x, y, 1.0, x], "passed by pointer"),
        (lambda x, y: [x, y, 1e300, 4], "does not fit"),
        (lambda x, y: [x, y, 1.0, 2**32], "does not fit"),
        (lambda x, y: [x, y, "1", 4], "a2 of scale: str is not an argument"),
        (lambda x, y: [x, y, None, 4], "null pointer"),
        (lambda x, y: [x, y, b"123", 4], "3 bytes are given"),
        (lambda x, y: [x, x[1:], 1.0, 4], "views of the same memory"),
        (lambda x, y: [x, Output(x), 1.0, 4], "only one of them is an Output"),
        (lambda x, y: [np.array([None]), y, 1.0, 4], "Python objects"),
        (lambda x, y: [x.astype(x.dtype.newbyteorder()), y, 1.0, 4], "bytes in the other order"),
        (lambda x, y: [TensorMapOf("z", (1, 1)), y, 1.0, 4], "the array arguments are: a1"),
        (lambda x, y: [TensorMapOf(x, (8,), swizzle=7), y, 1.0, 4], "swizzle"),
        (lambda x, y: [TensorMapOf(x, (8, 8)), y, 1.0, 4], "must have 1 numbers"),
        (lambda x, y: [TensorMapOf(x, (8,)), y, 1.0, 4], "128 bytes"),
    ],
)
def test_a_wrong_argument_is_refused_with_what_would_be_right(arguments: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        launch(load(SCALE), "scale", 1, 32, arguments(*xy()))


def test_an_output_is_an_array_that_can_be_written() -> None:
    with pytest.raises(ArgumentError, match="holds a NumPy array"):
        Output([1, 2])  # type: ignore[arg-type]
    x, _ = xy()
    x.flags.writeable = False
    with pytest.raises(ArgumentError, match="writeable"):
        Output(x)


def test_a_source_that_does_not_compile_says_why() -> None:
    with pytest.raises(CompileError, match=r"undefined"):
        launch("__global__ void k() { undefined(); }", "k", 1, 1, [])


def test_a_kernel_that_is_not_there_is_named_with_those_that_are() -> None:
    for name in ("skale", None):
        with pytest.raises(LaunchError, match="the source has: a, b"):
            launch('extern "C" __global__ void a() {}\nextern "C" __global__ void b() {}', name, 1, 1, [])


def test_a_loop_without_end_is_found() -> None:
    source = "__global__ void k(volatile int* x) {\n    while (*x == 0) {}\n}"
    (finding,) = launch(source, "k", 1, 64, [np.zeros(1, np.int32)], max_warp_instructions=10_000).findings
    assert (finding.kind, finding.location.line) == (FindingKind.LIVELOCK, 2)


def test_without_the_compiler_ptx_runs_and_cuda_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    ptx = ptx_of(SCALE)
    monkeypatch.setitem(sys.modules, "cupy.cuda", None)
    with pytest.raises(CompilerUnavailable, match="pip install"):
        load(SCALE)
    x, y = xy()
    assert launch(ptx, "scale", 4, 32, [x, y, 1.0, 100]).ok


def test_the_emulator_imports_nothing_but_numpy_its_engine_and_itself() -> None:
    program = """
import sys, numpy
before = set(sys.modules)
import workbench.emulator
third = {m.partition(".")[0] for m in set(sys.modules) - before} - set(sys.stdlib_module_names)
ours = {m for m in set(sys.modules) - before if m.startswith("workbench.") and not m.startswith("workbench.emulator")}
assert third <= {"workbench", "numpy", "nanobind_backend"}, third  # the last is the engine's own
assert not ours, ours
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_file_may_begin_with_a_byte_order_mark_and_have_a_name_beyond_ascii(tmp_path: Path) -> None:
    path = tmp_path / "größe 模型.cu"
    (tmp_path / "half.h").write_text('\ufeff#define HALF 2\nstatic int host() { return std::stoi("2"); }\n', "utf-8")
    text = SCALE.replace("FACTOR * f", "f / HALF * 2")
    path.write_text(f'\ufeff#include "half.h"\n{text.lstrip()}'.replace("\n", "\r\n"), "utf-8", newline="")
    for source in (path, f"\ufeff{text.replace('HALF', '2')}"):
        x, y = xy()
        finding = launch(source, "scale", 4, 32, [x, y, 1, 101]).findings[0]
        assert finding.location.line == line_of(text, "// here")
        assert "f / " in finding.source_line
        assert source is not path or str(path) in str(finding)

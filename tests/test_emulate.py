"""`workbench emulate`: what its arguments mean, what it prints, and that every wrong one ends in a helpful message."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from click.testing import Result
from command_line import invoke, said

from workbench.cli import launches
from workbench.model.dtypes import BOOL, DTYPES, DType

SCALE = """
extern "C" __global__ void scale(const float* x, float* y, float f, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef TWICE
    f *= 2;
#endif
    if (i < n) y[i] = f * x[i];
}
"""
COPY = """
template <class T> __device__ void copy(const T* x, T* y) { y[threadIdx.x] = x[threadIdx.x]; }
extern "C" __global__ void copy1(const char* x, char* y) { copy(x, y); }
extern "C" __global__ void copy2(const short* x, short* y) { copy(x, y); }
extern "C" __global__ void copy4(const int* x, int* y) { copy(x, y); }
extern "C" __global__ void copy8(const long long* x, long long* y) { copy(x, y); }
"""
LAUNCH = ("scale.cu", "--grid", "2", "--block", "32")
RIGHT = ("--arg", "x:f32[50]=arange", "--arg", "y:f32[50] => y.npy", "--arg", "f32=0.5", "--arg", "i32=50")

Workbench = Callable[..., Result]


@pytest.fixture
def workbench(here: Path) -> Workbench:
    Path("scale.cu").write_text(SCALE)
    Path("copy.cu").write_text(COPY)

    def run(*arguments: str) -> Result:
        return invoke("emulate", *arguments)

    return run


def test_a_clean_run_prints_saves_and_ends_with_0(workbench: Workbench) -> None:
    result = workbench(*LAUNCH, *RIGHT, "--print", "2:5")
    assert result.exit_code == 0, result.output
    assert "scale: no hazard found" in result.stdout
    assert "y[2:5] = 1.0 1.5 2.0" in result.stdout
    assert np.array_equal(np.load("y.npy"), 0.5 * np.arange(50, dtype=np.float32))
    result = workbench(*LAUNCH, *RIGHT, "--print", "2:5", "--define", "TWICE", "--json")
    found = said(result)
    assert found["arrays"]["y"] == [2, 3, 4]
    assert found["ok"] is True
    assert sum(line["warp_instructions"] for line in found["by_line"]) == found["warp_instructions"]
    result = workbench(*LAUNCH, *RIGHT, "--option", "-DTWICE", "--option", "-use_fast_math", "--json")
    assert said(result)["arrays"] == {} and result.exit_code == 0


SEVERAL = """
#include <vector>
__constant__ float factor;
__constant__ float offsets[2];
__global__ void scale(const float* x, float* y, int n) {
    int i = threadIdx.x;
    if (i < n) y[i] = factor * x[i] + offsets[i % 2];
}
template <int N> __global__ void sum(const float* y, float* z) {
    for (int i = 0; i < N; ++i) z[0] = (i ? z[0] : 0) + y[i];  // here
}
int main() { std::vector<float> v(8); scale<<<1, 32>>>(nullptr, nullptr, 8); }
"""
SCALED = ("several.cu", "--entry", "scale", "--grid", "1", "--block", "32", "--set", "factor:f32=2")
SCALED += ("--set", "offsets:f32[2]=arange", "--arg", "x:f32[8]=ones", "--arg", "y:f32[8]", "--arg", "i32=8")


def test_launches_follow_one_another_on_the_same_memory(workbench: Workbench) -> None:
    Path("several.cu").write_text(SEVERAL)
    then = "sum<8> --grid 1 --block 1 --arg y --arg 'z:f32[1] => z.npy'"
    result = workbench(*SCALED, "--then", then, "--print", "0:1")
    assert result.exit_code == 0, result.output
    assert "z[0:1] = 20.0" in result.stdout
    assert np.load("z.npy") == 20
    assert result.stdout.count("no hazard found") == 2
    result = workbench(*SCALED, "--then", then, "--json")
    found = said(result)
    assert (found["kernel"], found["then"][0]["kernel"]) == ("_Z5scalePKfPfi", "_Z3sumILi8EEvPKfPf")
    result = workbench(*SCALED[:-1], "i32=7", "--then", then, "--then", "scale --grid 1 --block 1")
    assert result.exit_code == 1
    assert f"several.cu:{SEVERAL[: SEVERAL.index('// here')].count(chr(10)) + 1}: uninitialised" in result.stdout
    assert "y[7]" in result.stdout


STRUCTS = """
#include <cuda.h>
struct Inner { double scale; };
struct Params { const float* x; int n; Inner inner; };
__global__ void scale(Params p, float* y) { if (threadIdx.x < p.n) y[threadIdx.x] = p.inner.scale * p.x[threadIdx.x]; }
__global__ void first(const __grid_constant__ CUtensorMap map, const float* x, float* y) {
    __shared__ alignas(128) float tile[8];
    __shared__ alignas(8) unsigned long long bar;
    unsigned to = __cvta_generic_to_shared(tile), at = __cvta_generic_to_shared(&bar);
    if (threadIdx.x) return;
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at));
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 32;" ::"r"(at));
    asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3}], [%2];" ::"r"(to), "l"(&map), "r"(at), "r"(8) : "memory");
    asm volatile("{.reg .pred p; L: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; @!p bra L;}" ::"r"(at)
                 : "memory");
    y[0] = tile[0] - x[8];
}
__global__ void sampled(cudaTextureObject_t t, float* y) { y[0] = tex2D<float>(t, 3.0f, 2.0f); }
"""


def test_structs_and_tensor_maps_are_written_as_text(workbench: Workbench) -> None:
    Path("structs.cu").write_text(STRUCTS)
    struct = "p:{x:f32[8]=arange => x.npy; n:i32=8; inner:{s:f64=2}}"
    where = ("structs.cu", "--grid", "1", "--block", "32", "--entry")
    result = workbench(*where, "scale", "--arg", struct, "--arg", "y:f32[8] => y.npy", "--print", "1:3")
    assert result.exit_code == 0, result.output
    assert "p.x[1:3] = 1.0 2.0" in result.stdout
    assert "y[1:3] = 2.0 4.0" in result.stdout
    assert np.array_equal(2 * np.load("x.npy"), np.load("y.npy"))
    result = workbench(*where, "scale", "--arg", struct.replace("i32=8", "i32=9"), "--arg", "y:f32[9]")
    assert "out of bounds: reads 4 bytes at p.x[8]" in result.stdout
    maps = ("--arg", "x:f32[16]=arange as map[8]", "--arg", "x", "--arg", "y:f32[1]")
    result = workbench(*where, "first", *maps, "--print", "0:1")
    assert result.exit_code == 0, result.output
    assert "y[0:1] = 0.0" in result.stdout
    result = workbench(
        *where, "sampled", "--arg", "x:f32[4,8]=arange as texture linear", "--arg", "y:f32[1]", "--print", "0:1"
    )
    assert result.exit_code == 0, result.output
    assert "y[0:1] = 14.5" in result.stdout
    result = workbench(*where, "sampled", "--arg", "x:f32[4,8]=arange as texture bilinear", "--arg", "y:f32[1]")
    assert result.exit_code == 2 and "image:f32[64,64]=random as texture linear" in result.output
    result = workbench(*where, "first", "--arg", "f32=1 as map[8]", *maps[2:])
    assert result.exit_code == 2
    assert "a tensor map is of an array; write for example A:bf16[256,64]=random as map[64,64]" in result.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--then", "sum<8> --grid 1"), "Missing option '--block'. Write for example --then 'reduce --grid 1"),
        (("--then", "sum<8> --grid 1 --block 1 --arg w"), "there is no type 'w'"),
        (("--then", "sum<8> --grid 1 --block 1 --arg 'y"), "No closing quotation"),
        (("--set", "f32=2"), "names no variable"),
        (("--set", "factor:f32[1]"), "gives no value"),
        (("--set", "factors:f32=2"), "no variable is called 'factors'; those that kernels use are: factor, offsets"),
    ],
)
def test_a_wrong_launch_or_variable_says_what_would_be_right(
    workbench: Workbench, options: tuple[str, ...], message: str
) -> None:
    Path("several.cu").write_text(SEVERAL)
    result = workbench(*SCALED, *options)
    assert result.exit_code == 2
    assert message in result.output


def test_machine_code_ends_with_1_and_says_how_to_keep_ptx(workbench: Workbench) -> None:
    Path("scale.cubin").write_bytes(b"\x7fELF" + bytes(14) + b"\xbe\0" + bytes(100))
    result = workbench("scale.cubin", *LAUNCH[1:], *RIGHT)
    assert result.exit_code == 1
    assert "no PTX: compile it with -gencode arch=compute_90,code=compute_90" in result.output


def test_counters_stand_beside_the_source(workbench: Workbench) -> None:
    result = workbench(*LAUNCH, *RIGHT, "--counters")
    assert result.exit_code == 0, result.output
    assert "global store: 2 requests, 3.5 sectors each; 200B" in result.stdout  # 32 and 18 floats
    (line,) = [line for line in result.stdout.splitlines() if "if (i < n)" in line]
    assert " 3.5 " in line
    found = said(workbench(*LAUNCH, *RIGHT, "--counters", "--json"))
    assert found["counters"]["global_store_sectors"] == 7


def test_a_hazard_is_told_with_its_line_and_ends_with_1(workbench: Workbench) -> None:
    result = workbench(*LAUNCH, *RIGHT[:-1], "i32=51")
    assert result.exit_code == 1
    assert "scale.cu:7: out of bounds: reads 4 bytes at x[50]" in result.stdout
    found = said(workbench(*LAUNCH, *RIGHT[:-1], "i32=51", "--json", "--seed", "3"))
    assert found["ok"] is False
    assert (found["findings"][0]["array"], found["findings"][0]["seed"]) == ("x", 3)


def test_findings_are_suppressed_by_kind_and_line(workbench: Workbench) -> None:
    wrong = (*LAUNCH, *RIGHT[:-1], "i32=51")
    result = workbench(*wrong, "--suppress", "out_of_bounds@scale.cu:7")
    assert result.exit_code == 0, result.output
    assert "no hazard found" in result.stdout and "suppressed" in result.stdout
    result = workbench(*wrong, "--suppress", "race", "--strict")
    assert result.exit_code == 1
    assert result.stdout.rstrip().endswith("note: the suppression race matched nothing")
    result = workbench(*wrong, "--suppress", "outofbounds")
    assert result.exit_code == 2
    assert "names no kind of finding; the kinds are out_of_bounds, " in result.output


SINGLE = [t for t in DTYPES.values() if not t.compute_only and t is not BOOL and t.packing == 1]


@pytest.mark.parametrize("kind", SINGLE, ids=str)
def test_every_type_is_read_from_and_written_to_files(workbench: Workbench, kind: DType) -> None:
    dtype, type_name = kind.numpy, kind.name
    x = np.arange(-16, 16).astype(dtype)
    np.save("x.npy", x if dtype.isbuiltin == 1 else x.view(f"V{dtype.itemsize}"))
    entry = f"copy{dtype.itemsize}"
    arguments = ("copy.cu", "--entry", entry, "--grid", "1", "--block", "32")
    result = workbench(*arguments, "--arg", f"{kind.ptx}=@x.npy", "--arg", f"{type_name}[32] => y.npy")
    assert result.exit_code == 0, result.output
    assert np.load("y.npy").tobytes() == x.tobytes()
    assert type_name in workbench("--help").output


def test_fills_hold_what_they_say() -> None:
    def array(text: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        found = launches.parse_argument(text, 0, np.random.default_rng(0)).array
        assert found is not None
        return found

    assert array("f32[2,3]=ones").tolist() == [[1] * 3] * 2
    assert array("bf16[4]=arange").tolist() == list(range(4))
    assert array("bf16[4]=arange").dtype == ml_dtypes.bfloat16
    assert np.isnan(array("f16[4]=nan")).all()
    assert not array("u8[4]=zeros").any()
    assert abs(array("f32[4000]=random").std() - 1) < 0.1
    assert array("u8[4000]=random").max() == 255
    assert np.array_equal(array("i32[9]=random"), array("i32[9]=random"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--arg", "f3[4]"), "there is no type 'f3'; the types are fp64, fp32"),
        (("--arg", "f32[4]=one"), "there is no fill 'one'; the fills are zeros, ones"),
        (("--arg", "f32[4,x]"), "write for example f32[1024]=random"),
        (("--arg", "f32[-4]"), "not whole numbers"),
        (("--arg", "e2m1[4]"), "elements of e2m1 are packed: pass the bytes that hold them, as u8"),
        (("--arg", "f32"), "write f32=1 for a number or f32[1] for an array"),
        (("--arg", "f32[4]]"), "is not an argument; write for example"),
        (("--arg", "i32=1.5"), "'1.5' is not a number that i32 holds"),
        (("--arg", "u8=256"), "'256' is not a number that u8 holds"),
        (("--arg", "i32=1 => y.npy"), "only an array can be saved"),
        (("--arg", "i32[4]=nan"), "integers have no NaN"),
        (("--arg", "f32[99999999999]"), "2^33 are allowed"),
        (("--arg", "f32[4]=@scale.cu"), "scale.cu is not a .npy file"),
        (("--arg", "f64=@x.npy"), "x.npy holds float32, not float64"),
        (("--arg", "f32[5]=@x.npy"), "has the shape [4]"),
        (("--arg", "f32[4]", "--arg", "f32[4]"), "4 parameters"),
        (("--arg", "x:f32[4]", "--arg", "x:f32[4]"), "the same name"),
        (("--arg", "f32[4] => ."), "is a folder; name a file"),
        (("--arg", "f32[4] => none/y.npy"), "there is no folder none"),
        ((*RIGHT, "--trace", "none/t.json"), "there is no folder none"),
        ((*RIGHT, "--include", "none"), "--include none: there is no such folder"),
        ((*RIGHT, "--then", "scale '"), "No closing quotation. Write for example --then"),
        ((*RIGHT, "--print", "3"), "write for example --print 0:8"),
        ((*RIGHT, "--print", "4:2"), "has no elements"),
        ((*RIGHT, "--define", "1=2"), "write for example --define TILE=16"),
        ((*RIGHT, "--entry", "skale"), "the source has: scale"),
        ((*RIGHT, "--shared", "307200"), "232448 are allowed"),
        ((*RIGHT, "--grid", "0"), "1 to 2147483647 are allowed"),
        ((*RIGHT, "--block", "a"), "write for example --block 4,2"),
    ],
)
def test_wrong_usage_ends_with_2_and_says_what_would_be_right(
    workbench: Workbench, arguments: tuple[str, ...], message: str
) -> None:
    np.save("x.npy", np.zeros(4, np.float32))
    result = workbench(*LAUNCH, *arguments)
    assert result.exit_code == 2, result.output
    assert result.stderr.count("Error: ") == 1
    assert message in result.stderr


@pytest.mark.parametrize(
    ("code", "name", "text", "message"),
    [
        (1, "broken.cu", "__global__ void k() { none; }", "undefined"),
        (1, "broken.ptx", ".version 8.0\n.entry k() { bogus.f32 %f1; }", "%f1 is not declared"),
        (1, "new.ptx", ".version 8.0\n.entry k() { bogus.f32; }", "does not know the operation bogus.f32"),
        (1, "bytes.ptx", ".version 8.0\n\0\n", "bytes.ptx holds a zero byte: it is neither CUDA C++ nor PTX"),
        (1, "long.ptx", "x" * 1000, f"instead of '{'x' * 60}'"),
        (2, "none.cu", None, "there is no file none.cu"),
        (2, ".", None, ". is a folder; name a file"),
        (2, "empty.cu", "", "the source has no kernel"),
        (2, "device.cu", "__device__ int f(int a) { return a; }", "the source has no kernel"),
        (
            2,
            "two.cu",
            "__global__ void a() {} __global__ void b() {}",
            "which kernel is the entry; the source has: a(), b()",
        ),
    ],
)
def test_a_source_that_cannot_run_ends_with_1_and_wrong_usage_with_2(
    workbench: Workbench, code: int, name: str, text: str | None, message: str
) -> None:
    if text is not None:
        Path(name).write_text(text)
    result = workbench(name, "--grid", "1", "--block", "1")
    assert result.exit_code == code and result.stderr.count("Error: ") == 1 and message in result.stderr, result.output


def test_ptx_without_lines_of_a_source_is_its_own_source(workbench: Workbench) -> None:
    text = (Path(__file__).parent / "emulator/scale.ptx").read_text()
    Path("scale.ptx").write_text(text)
    arguments = ("--arg", "x:f32[1000]=ones", "--arg", "y:f32[1001]", "--arg", "f32=2", "--arg", "i32=1001")
    result = workbench("scale.ptx", "--grid", "4", "--block", "256", *arguments)
    assert result.exit_code == 1, result.output
    place, said, line = re.match(r"scale.ptx:(\d+): (out of bounds): .*\n +(.*)", result.stdout).groups()
    assert said and "ld.global.f32 %f1, [%d1];" == line == text.splitlines()[int(place) - 1].strip()


def test_a_header_that_is_a_pipe_is_refused(workbench: Workbench) -> None:
    os.mkfifo("pipe.cuh")
    Path("scale.cu").write_text(f'#include "pipe.cuh"\n{SCALE}')
    result = workbench(*LAUNCH, *RIGHT)
    assert result.exit_code == 1 and "pipe.cuh: it is not a regular file" in result.stderr.replace("\n", " ")

"""NVRTC makes PTX and a cubin without a GPU; the cache knows everything that goes into them."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workbench import Launch, Plan, simple_operation
from workbench.devices import Fault
from workbench.devices.emulated import EmulatedDevice
from workbench.sandbox import confine
from workbench.toolchain import compiler
from workbench.toolchain.compiler import CompileError, compile_source, translate_stage

SOURCE = """
#include "helper.cuh"
extern "C" __global__ void __launch_bounds__(128) scale(float* x) {
  __shared__ float tile[128];
  tile[threadIdx.x] = x[threadIdx.x] * FACTOR;
  __syncthreads();
  x[threadIdx.x] = helped(tile[127 - threadIdx.x]);
}
"""


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "helper.cuh").write_text("__device__ float helped(float x) { return x + 1; }\n")
    path = tmp_path / "scale.cu"
    path.write_text(SOURCE)
    return path


@pytest.fixture
def runs(monkeypatch):
    """Counts how often the compiler really ran."""
    count = []
    original = compiler._run_nvrtc
    monkeypatch.setattr(compiler, "_run_nvrtc", lambda *args: count.append(1) or original(*args))
    return count


def test_ptx_cubin_and_usage_come_out(source):
    compiled = compile_source(source, {"FACTOR": 2})
    assert ".visible .entry scale(" in compiled.ptx
    assert compiled.cubin_path.read_bytes()[:4] == b"\x7fELF"
    usage = compiled.usage["scale"]
    assert usage.static_shared == 512
    assert 0 < usage.registers < 64
    assert usage.spill_bytes == 0
    assert compiled.variant == "FACTOR=2"


def of(path: Path, code: str = "", factor: int = 2) -> Any:
    """A stage whose source is in `path`, and a problem of it."""
    if code:
        path.write_text(code)
    operation = simple_operation("scaled", "x: n fp32 -> y: n fp32")(lambda x: x)
    operation = dataclasses.replace(operation, defines=lambda p: {"FACTOR": factor}, sources=path.parent)
    launch = Launch("scale", (1, 1, 1), (128, 1, 1), ("x", "y"))
    return operation.stage("naive", source=path.name, idea="")(lambda p, size: launch), operation.problem()


def test_a_translated_source_has_the_same_ptx_and_is_assembled_where_that_is_asked_for(source, runs):
    translate_stage(*of(source, factor=3))
    translated = translate_stage(*of(source))
    assert translated.made is None
    assert len(runs) == 2
    compiled = compile_source(source, {"FACTOR": 2})
    assert translated.ptx == compiled.ptx
    assert translated.usage == compiled.usage
    assert translated.cubin_path == compiled.cubin_path
    assert translate_stage(*of(source)).key == compiled.key
    compiler._translate.cache_clear()
    assert translate_stage(*of(source)).made is not None
    assert len(runs) == 3


def test_what_was_assembled_after_all_is_assembled_at_once_in_the_next_variant(source, runs):
    translate_stage(*of(source, factor=3))
    assert translate_stage(*of(source)).made is None
    translate_stage(*of(source)).usage  # noqa: B018
    before = len(runs)
    assert translate_stage(*of(source, factor=5)).usage
    assert len(runs) == before + 1


def test_ptx_without_a_cubin_is_kept_and_made_again_where_it_is_damaged(source, runs):
    translate_stage(*of(source, factor=3))
    first = translate_stage(*of(source))
    (kept,) = compiler.cache_folder().glob("*.alone.ptx")
    for content in (kept.read_bytes(), kept.read_bytes()[:300], b""):
        kept.write_bytes(content)
        compiler._translate.cache_clear()
        assert translate_stage(*of(source)) == first
    assert len(runs) == 4


def test_what_ptxas_refuses_is_refused_where_ptx_is_executed_too(source):
    code = SOURCE.replace("__shared__", 'asm("mov.b32 %nothing, 0;"); __shared__')
    with pytest.raises(CompileError, match="nothing"):
        translate_stage(*of(source, code))


@pytest.mark.long
def test_a_name_that_nvcc_has_without_an_include_says_what_to_include(source):
    names = ("INFINITY", "NAN", "M_PI", "M_1_PI", "FLT_MAX", "INT_MAX", "UINT32_MAX")
    declared = [f"  double {name.lower()} = {name};\n" for name in names]
    declared += ["  uint32_t u = 1;\n", "  __half h = 1.f;\n", "  __nv_bfloat16 b = 1.f;\n"]
    text = f'extern "C" __global__ void k(float* x) {{\n{"".join(declared)}  x[0] = FACTOR;\n}}\n'
    source.write_text(text)
    with pytest.raises(CompileError) as refused:
        compile_source(source, {"FACTOR": 2})
    advice = [line for line in str(refused.value).splitlines() if ": add #include <" in line]
    assert [line.partition(":")[0] for line in advice] == [*names, "uint32_t", "__half", "__nv_bfloat16"]
    includes = dict.fromkeys(line.partition("add ")[2] for line in advice)
    source.write_text("\n".join([*includes, text]))
    assert compile_source(source, {"FACTOR": 2}).usage


def test_a_macro_may_have_any_value_and_there_is_a_cubin(source):
    assert compile_source(source, {"FACTOR": 2, "KIND": "compute_bound"}).cubin_path.read_bytes()[:4] == b"\x7fELF"


MANY_REGISTERS = """
extern "C" __global__ void scale(const float* x, float* y) {
  float kept[100];
#pragma unroll
  for (int i = 0; i < 100; ++i) kept[i] = x[(threadIdx.x + i * FACTOR) % 100];
  __syncthreads();
#pragma unroll
  for (int i = 99; i >= 0; --i) y[threadIdx.x] += kept[i] * kept[(i * 7) % 100];
}
"""


def test_registers_are_asked_for_where_the_launch_may_be_refused_for_them(source):
    translate_stage(*of(source, MANY_REGISTERS, factor=3))
    stage, problem = of(source)
    translated, arrays = translate_stage(stage, problem), problem.arrays()
    assert translated.made is None
    plan = Plan((dataclasses.replace(stage.plan(problem).launches[0], block=(1024, 1, 1)),))
    bound = EmulatedDevice().bind(translated, plan, arrays, {"x": np.zeros(1, np.float32)})
    with pytest.raises(Fault, match=r"1024 threads of \d+ registers need"):
        bound.run()


def test_a_source_that_has_changed_is_not_assembled_for_what_was_translated(source):
    translate_stage(*of(source, factor=3))
    translated = translate_stage(*of(source))
    source.write_text(SOURCE + "// changed\n")
    with pytest.raises(CompileError, match="has changed since it was read"):
        translated.usage  # noqa: B018


def test_spills_are_counted(source):
    """128 sums a thread do not fit into the 64 registers that a thread of 1,024 can have."""
    source.write_text("""
extern "C" __global__ void __launch_bounds__(1024) sums(const float* x, float* y, int n) {
  float sum[128] = {};
  for (int i = 0; i < n; ++i)
#pragma unroll
    for (int j = 0; j < 128; ++j) sum[j] += x[i * 128 + j] * x[j * 1024 + threadIdx.x];
#pragma unroll
  for (int j = 0; j < 128; ++j) y[j * 1024 + threadIdx.x] = sum[j];
}
""")
    usage = compile_source(source, {}).usage["sums"]
    assert usage.registers <= 64
    assert usage.spill_bytes > 0


def test_usage_comes_out_too_where_another_cache_was_lost(source, monkeypatch, tmp_path):
    """NVRTC keeps a cache of its own where there is a driver, which does not know what ptxas said."""
    first = compile_source(source, {"FACTOR": 2}).usage
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "empty"))
    compiler._compile.cache_clear()
    assert compile_source(source, {"FACTOR": 2}).usage == first


def test_the_same_source_compiles_once(source, runs):
    first = compile_source(source, {"FACTOR": 2})
    compiler._compile.cache_clear()
    assert compile_source(source, {"FACTOR": 2}) == first
    assert len(runs) == 1


@pytest.mark.parametrize("part", [".ptx", ".cubin", ".json"])
@pytest.mark.parametrize("left", [0.0, 0.5, None])
def test_a_damaged_entry_of_the_cache_is_made_again(source, runs, part, left):
    first = compile_source(source, {"FACTOR": 2})
    damaged = first.cubin_path.with_suffix(part)
    content = damaged.read_bytes()
    damaged.unlink()
    if left is not None:
        damaged.write_bytes(content[: int(len(content) * left)])
    for _ in range(2):
        compiler._compile.cache_clear()
        assert compile_source(source, {"FACTOR": 2}) == first
    assert damaged.read_bytes() == content
    assert len(runs) == 2


def test_damaged_code_that_came_as_a_string_is_written_again(source):
    folder = compiler.kept_source(SOURCE, "scale.cu")
    (folder / "scale.cu").write_text("")
    assert (compiler.kept_source(SOURCE, "scale.cu") / "scale.cu").read_text() == SOURCE


@pytest.mark.parametrize("what", ["source", "header", "define", "architecture", "compiler"])
def test_whatever_changes_the_binary_compiles_again(source, runs, monkeypatch, what):
    first = compile_source(source, {"FACTOR": 2})
    defines, architecture = {"FACTOR": 2}, 90
    if what == "source":
        source.write_text(SOURCE + "// changed\n")
    elif what == "header":
        (source.parent / "helper.cuh").write_text("__device__ float helped(float x) { return x + 2; }\n")
    elif what == "define":
        defines["FACTOR"] = 3
    elif what == "architecture":
        architecture = 100
    else:
        monkeypatch.setattr(compiler, "nvrtc_version", lambda: "99.9")
        compiler._compile.cache_clear()
    assert compile_source(source, defines, architecture).key != first.key
    assert len(runs) == 2


@pytest.mark.parametrize("part", ["scale.cu", "helper.cuh", "deeper.cuh"])
def test_sources_are_read_as_they_are_now(source, part):
    """Also where nothing but the content of a file tells that it has changed."""
    (source.parent / "helper.cuh").write_text('#include "deeper.cuh"\n')
    (source.parent / "deeper.cuh").write_text("// deeper\n")
    changed = source.parent / part
    before, status, digest = changed.read_bytes(), changed.stat(), compiler.source_digest(source)
    with changed.open("r+b") as file:
        file.write(before[:-2] + b"?\n")
    os.utime(changed, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert compiler.contents(source)[changed] == before[:-2] + b"?\n"
    assert compiler.source_digest(source) != digest
    changed.write_bytes(before)
    assert compiler.source_digest(source) == digest


def test_headers_are_looked_for_every_time(source):
    helper, nearer = source.parent / "include" / "helper.cuh", source.parent / "helper.cuh"
    helper.parent.mkdir()
    helper.write_text('#include "missing.cuh"\n')
    assert compiler.with_headers(source) == [source, nearer]
    nearer.unlink()
    assert compiler.with_headers(source) == [source, helper]
    (source.parent / "missing.cuh").touch()
    assert compiler.with_headers(source) == [source, helper, source.parent / "missing.cuh"]


KERNEL = 'extern "C" __global__ void k(int* x) { x[0] = A; }\n'


@pytest.mark.parametrize(
    "text",
    [
        '#include "part.cuh"\n',
        '  # /* also this */ include "part.cuh"\n',
        '%:include "part.cuh"\n',
        '#inc\\\nlude "part.cuh"\n',
        '#define NAME "part.cuh"\n#include NAME\n',
        "#define TEXT(x) #x\n#include TEXT(part.cuh)\n",
        '#define A 1\n#if __has_include("part.cuh")\n#undef A\n#define A 2\n#endif\n',
        "#define A 1\n#define TEXT(x) #x\n#if __has_include(TEXT(part.cuh))\n#undef A\n#define A 2\n#endif\n",
        '#define A 1\n#define HAS __has_include\n#if HAS("part.cuh")\n#undef A\n#define A 2\n#endif\n',
    ],
)
def test_the_digest_knows_what_the_compiler_reads_and_asks_for(text, source):
    source.write_text(text + KERNEL)
    part = source.parent / "part.cuh"
    seen = set()
    for content in (None, "", "#define A 5\n", "#define A 6\n"):
        if content is not None:
            part.write_text(content)
        seen.add(compiler.source_digest(source))
    assert len(seen) == 4


@pytest.mark.skipif(confine.landlock_version() < 1, reason="this kernel has no Landlock")
def test_a_name_that_is_computed_finds_nothing_outside_of_the_folders_of_headers(source, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "part.cuh"
    outside.write_text("#define A 5\n")
    literal = f'#include "{outside}"\n'
    source.write_text(literal + KERNEL)
    assert outside in compiler.contents(source) and ", 5" in compile_source(source, {}).ptx
    computed = f"#define TEXT(x) #x\n#define IN(x) TEXT(x)\n#define PLACE {outside}\n"
    asked = "#if __has_include(IN(PLACE))\n#define A 7\n#else\n#define A 8\n#endif\n#include <cuda_bf16.h>\n"
    source.write_text(computed + asked + KERNEL)
    assert ", 8" in compile_source(source, {}).ptx
    source.write_text(f"{computed}#include IN(PLACE)\n{KERNEL}")
    with pytest.raises(CompileError, match="cannot open source file"):
        compile_source(source, {})


def test_a_pipe_and_a_device_are_no_header(source):
    os.mkfifo(source.parent / "part.cuh")
    for name in (source.parent / "part.cuh", Path("/dev/zero"), Path("part.cuh")):
        source.write_text(f'#include "{name}"\n{KERNEL}')
        with pytest.raises(OSError, match="not a regular file"):
            compile_source(source, {})


def test_headers_keep_their_folders_where_copies_are_made_of_all_of_them(source, tmp_path):
    beside = source.parent / "include"
    beside.mkdir()
    (beside / "near.cuh").touch()
    source.write_text('#include "near.cuh"\n#include "ptx/mbarrier.cuh"\n')
    ours = compiler.INCLUDE / "ptx"
    expected = {source: source.name, beside / "near.cuh": "near.cuh"}
    expected |= {ours / "mbarrier.cuh": "ptx/mbarrier.cuh", ours / "shared.cuh": "ptx/shared.cuh"}
    assert compiler.names(source) == expected


def test_the_digest_is_that_of_all_parts_in_their_order(source):
    parts = [source, source.parent / "helper.cuh"]
    assert compiler.source_digest(source) == hashlib.sha256(b"".join(p.read_bytes() for p in parts)).hexdigest()


@pytest.mark.long
def test_kernels_that_were_written_for_nvcc_compile(source):
    source.write_text("""
#include <cassert>
#include <cmath>
#include <cstdint>
#include "limits.h"
extern "C" __global__ void k(std::uint64_t* x) {
    assert(x[0] != MINE);
    x[0] = static_cast<unsigned __int128>(x[0]) * x[1] >> 64;
    x[1] = static_cast<std::uint64_t>(M_PI);
}
""")
    (source.parent / "limits.h").write_text("#define MINE 3\n")  # before the one that nvcc would find
    assert compile_source(source, {}).usage["k"].registers > 0


def test_an_error_shows_the_line_and_the_defines(source):
    source.write_text(SOURCE.replace("x[threadIdx.x] * FACTOR", "y * FACTOR"))
    with pytest.raises(CompileError) as caught:
        compile_source(source, {"FACTOR": 2})
    assert 'scale.cu(5): error: identifier "y" is undefined' in str(caught.value)
    assert "tile[threadIdx.x] = y * FACTOR" in str(caught.value)
    assert "FACTOR=2" in str(caught.value)


def test_a_failed_compilation_leaves_nothing_in_the_cache(source):
    source.write_text("nonsense")
    with pytest.raises(CompileError):
        compile_source(source, {})
    assert not list(compiler.cache_folder().glob("*"))


def test_ptx_knows_its_source_lines(source):
    ptx = compile_source(source, {"FACTOR": 2}).ptx
    assert ".loc" in ptx
    assert "scale.cu" in ptx


def test_missing_headers_are_named_with_the_remedy(monkeypatch):
    import cuda.pathfinder

    monkeypatch.setattr(cuda.pathfinder, "find_nvidia_header_directory", lambda name: None)
    compiler.cuda_headers.cache_clear()
    try:
        with pytest.raises(compiler.CompilerUnavailable, match=r"cuda_bf16.h.*pip install"):
            compiler.cuda_headers()
    finally:
        compiler.cuda_headers.cache_clear()


def test_headers_that_are_there_are_not_looked_for(monkeypatch, tmp_path):
    import cuda.pathfinder

    asked = []
    monkeypatch.setattr(compiler, "cuda_headers", lambda: tmp_path)
    monkeypatch.setattr(cuda.pathfinder, "find_nvidia_header_directory", lambda name: asked.append(name) or f"/{name}")
    (tmp_path / "crt").mkdir()
    (tmp_path / "crt" / "mma.h").touch()
    compiler.more_cuda_headers.cache_clear()
    try:
        assert compiler.more_cuda_headers() == (Path("/cccl"),)
    finally:
        compiler.more_cuda_headers.cache_clear()
    assert asked == ["cccl"]


def test_a_cache_that_cannot_be_written_is_named_with_the_remedy(source, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "file"))
    with pytest.raises(compiler.CompilerUnavailable, match=r"cannot be written .*set WORKBENCH_CACHE"):
        compile_source(source, {"FACTOR": 7})

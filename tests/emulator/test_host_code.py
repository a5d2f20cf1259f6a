"""Files with host code run as they are: what is for the host is taken out, and every line keeps its number."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from emulation import line_of
from host_files import (
    ARCHITECTURES,
    COMMON_H,
    DISPATCH,
    EXTENSION,
    GENERATED,
    GROUPS,
    OVERLOADS,
    ROW_MEANS,
    SGEMM,
    STRUCTS,
    THRUST,
    TMA,
)

from workbench.emulator import (
    CompileError,
    LaunchError,
    Output,
    Program,
    Report,
    Struct,
    TensorMapOf,
    launch,
    load,
    source_lines,
)
from workbench.emulator.host_code import stubs
from workbench.emulator.host_code.declarations import declarations
from workbench.emulator.host_code.tokens import SourceError, tokens_of
from workbench.emulator.source_lines import cuda_headers, standard_headers

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 40)).astype(np.float32)
ROW = np.ascontiguousarray(X[0])
A, B, C = (RNG.standard_normal((32, 32)).astype(np.float32) for _ in range(3))
TILE = RNG.standard_normal((8, 64)).astype(ml_dtypes.bfloat16)
COEFFICIENTS = np.float32([1, 2, 3, 4])

Launched = tuple[Report, Any, Any]  # and what the kernel gave, and what it should


def accessor(array: Any) -> Struct:
    return Struct(data=array, sizes=tuple(map(np.int32, array.shape)), strides=tuple(map(np.int32, (40, 1))))


def row_means(program: Program) -> Launched:
    y = np.zeros(4, np.float32)
    return launch(program, "row_means_kernel1", 2, 64, [Output(y), X, 4, 40]), y, X.mean(axis=1)


def sgemm(program: Program) -> Launched:
    c = C.copy()
    args = [32, 32, 32, 2.0, A, B, 1.0, c]
    return launch(program, "sgemm_tiled<16, 16, 16>", (2, 2), 256, args), c, 2 * (A @ B) + C


def extension(program: Program) -> Launched:
    y = np.zeros_like(X)
    report = launch(program, "gate_kernel<float>", (1, 4), 64, {"x": accessor(X), "y": accessor(y)})
    return report, y, 1 / (1 + np.exp(-X))


def groups(program: Program) -> Launched:
    x, y = np.arange(100, dtype=np.int32), np.zeros(1, np.int32)
    return launch(program, "sums", 2, 64, [x, y, 100]), y, x.sum()


def tma(program: Program) -> Launched:
    y = np.zeros_like(TILE)
    return launch(program, "copy_tile", 1, 32, [TensorMapOf(TILE, (8, 64)), y]), y, TILE


def clip(program: Program) -> Launched:
    y = np.zeros_like(ROW)
    return launch(program, "clip", 1, 64, [ROW, y, 40]), y, np.clip(ROW, -1, 1)


def dispatch(program: Program) -> Launched:
    y = np.zeros_like(ROW)
    return launch(program, "activate<float, Activation::Relu>", 1, 64, [ROW, y, 40]), y, np.maximum(ROW, 0)


def structs(program: Program) -> Launched:
    y = np.zeros_like(ROW)
    grids = [Struct(data=array, width=40, height=1) for array in (ROW, y)]
    return launch(program, "physics::smooth", 1, 40, grids), y, np.append(ROW[1:], ROW[-1])


def architectures(program: Program) -> Launched:
    y = np.zeros_like(ROW)
    return launch(program, "scale", 2, 32, [ROW, y, 40]), y, 3 * ROW


def overloads(program: Program) -> Launched:
    y = np.zeros(40, np.int32)
    return launch(program, "util::fill(int*, int)", 1, 64, [y, 40]), y, 2**31 - 1 - 255


def generated(program: Program) -> Launched:
    y, launches = np.zeros_like(ROW), np.zeros(1, np.int32)
    variables = {"coefficients": COEFFICIENTS, "launches": launches}
    report = launch(program, "poly_f32", 1, 64, [ROW, y, 40], variables=variables)
    assert launches == 1  # also behind a fault
    return report, y, np.polyval(COEFFICIENTS, ROW.astype(np.float64))


FILES: dict[str, tuple[str, Callable[[Program], Launched], str | None]] = {
    "row_means.cu": (ROW_MEANS, row_means, "row_means_kernel1"),
    "sgemm.cu": (SGEMM, sgemm, "sgemm_tiled<16, 16, 16>"),
    "extension.cu": (EXTENSION, extension, "gate_kernel<float>"),
    "groups.cu": (GROUPS, groups, None),
    "tma.cu": (TMA, tma, None),
    "thrust.cu": (THRUST, clip, None),
    "dispatch.cu": (DISPATCH, dispatch, "activate<float, Activation::Relu>"),
    "structs.cu": (STRUCTS, structs, None),
    "architectures.cu": (ARCHITECTURES, architectures, None),
    "overloads.cu": (OVERLOADS, overloads, None),
    "generated.cu": (GENERATED, generated, None),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_with_host_code_runs_as_it_is_and_a_fault_is_named_at_its_line(name: str, tmp_path: Path) -> None:
    text, run, entry = FILES[name]
    file = tmp_path / name
    file.write_text(text)
    (tmp_path / "common.h").write_text(COMMON_H)
    report, found, expected = run(load(file, entry=entry))
    assert report.ok, report
    np.testing.assert_allclose(found.astype(np.float64), np.asarray(expected, np.float64), rtol=2e-5, atol=2e-5)
    finding = run(load(file, entry=entry, defines={"FAULT": 1}))[0].failures[0]
    lines = [finding.location, *finding.location.inlined_at]
    assert (str(file), line_of(text, "// here")) in [(place.file, place.line) for place in lines], finding
    assert finding.source_line.strip() in text


def test_a_hazard_in_a_header_beside_the_file_is_named_there(tmp_path: Path) -> None:
    header = "#pragma once\n#include <vector>\nstd::vector<int> v;\n\n__device__ void put(float* y) { y[4] = 1; }\n"
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "put.cuh").write_text(header)
    (tmp_path / "inner" / "all.h").write_text('#include "put.cuh"\n#include "put.cuh"\nint count() { return 1; }\n')
    file = tmp_path / "main.cu"
    file.write_text('#include "inner/all.h"\n__global__ void k(float* y) { put(y); }\nint main() { count(); }\n')
    (finding,) = launch(file, "k", 1, 1, [np.zeros(4, np.float32)]).findings
    assert (Path(finding.location.file), finding.location.line) == (tmp_path / "inner" / "put.cuh", 5)
    assert finding.source_line == header.splitlines()[4]


def test_a_kernel_is_compiled_though_another_cannot_be() -> None:
    source = "int main() {}\n__global__ void a(missing_t* x) {}\n__global__ void b(int* x) { x[0] = 3; }\n"
    x = np.zeros(1, np.int32)
    assert launch(source, "b", 1, 1, [x]).ok
    assert x == 3
    with pytest.raises(CompileError, match="missing_t"):
        load(source)


def test_without_host_code_a_source_is_compiled_as_it_is() -> None:
    with pytest.raises(CompileError, match="missing_t"):
        load("__global__ void a(missing_t* x) {}\n__global__ void b(int* x) { x[0] = 3; }\n", entry="b")


def test_what_is_not_for_the_device_is_named_where_a_kernel_calls_it() -> None:
    source = "#include <opencv2/opencv.hpp>\n#include <gadget.h>\nint twice(int n) { return 2 * n; }\n"
    source += "__global__ void k(int* x) { x[0] = twice(x[0]); }\n"
    with pytest.raises(CompileError) as raised:
        load(source)
    assert "kernel.cu(4): error" in str(raised.value)
    assert "twice (kernel.cu:3) is host code" in str(raised.value)
    assert str(raised.value).startswith("kernel.cu:2: <gadget.h> is not found")


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("int main() {\n  if (true) {\n}\n__global__ void k(int x) { x = (; }", 4),
        ("__global__ void k(int x) { x = (; }\nvoid f() {", 1),
        ("void f() {}\n/* never closed\n__global__ void k() {}", 2),
        ("void f() {}\n#if A\n__global__ void k() {}", 2),
        ("void f() {}\n#endif\n__global__ void k() {}", 2),
        ("void f() {}\n}\n__global__ void k() {}", 2),
        ("template <int N\nvoid f() {}", 1),
        ("void f() {}\nint a =", 2),
    ],
)
def test_what_cannot_be_taken_apart_is_named_with_its_line(source: str, line: int) -> None:
    with pytest.raises(CompileError, match=f"kernel.cu:{line}: host code cannot be taken out"):
        load(source)


def test_a_template_without_arguments_is_told_of_the_instances_that_host_code_launches() -> None:
    source = "template <class T> __global__ void scale(T* x) {}\nint main() { scale<float><<<1, 2>>>(nullptr); }\n"
    with pytest.raises(LaunchError, match=r"scale is a template.*scale<float>"):
        launch(source, "scale", 1, 1, [None])


def test_an_instance_that_no_template_fits_is_told() -> None:
    with pytest.raises(CompileError, match="no template fits the instance that is named"):
        load("template <class T> __global__ void scale(T* x) {}\nint main() {}\n", entry="scale<3>")


@pytest.mark.parametrize("beside", [False, True], ids=["the source", "a header"])
def test_the_headers_of_curand_are_found_for_what_names_them(
    beside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "curand").mkdir()
    (tmp_path / "curand" / "curand_kernel.h").write_text("__device__ inline float draw() { return 0.5f; }\n")
    (tmp_path / "noise.h").write_text("#include <curand_kernel.h>\n")
    asked = []
    find = source_lines.header_folder

    def found(library: str) -> str | None:
        asked.append(library)
        return str(tmp_path / "curand") if library == "curand" else find(library)

    monkeypatch.setattr(source_lines, "header_folder", found)
    source_lines.random_headers.cache_clear()
    source_lines.is_of_cuda.cache_clear()
    try:
        load("__global__ void k(float* x) { *x = 1; }\n", include=[tmp_path])
        assert "curand" not in asked  # a search that takes longer than to compile it
        included = '"noise.h"' if beside else "<curand_kernel.h>"
        load(f"#include {included}\n__global__ void k(float* x) {{ *x = draw(); }}\n", include=[tmp_path])
        assert source_lines.is_of_cuda(str(tmp_path / "curand" / "curand_kernel.h"))
    finally:
        source_lines.random_headers.cache_clear()
        source_lines.is_of_cuda.cache_clear()


def test_headers_that_declare_what_is_used_of_std_are_all_there() -> None:
    folders = cuda_headers()
    assert set(stubs._OF_STD) <= {name.decode() for name in standard_headers(folders)}
    for name in stubs._CUB.values():
        assert any(Path(folder, name).is_file() for folder in folders), name


@pytest.mark.parametrize(
    "text",
    [
        "using namespace std;\n__global__ void k() { byte b{}; (void)b; }",
        "#define BYTE std::byte\n__global__ void k() { BYTE b{}; (void)b; }",
        "using std::byte;\n__global__ void k() { byte b{}; (void)b; }",
    ],
)
def test_names_of_std_are_there_however_they_are_written(text: str) -> None:
    assert load(f"#include <map>\nint main() {{}}\n{text}\n").entries


@pytest.mark.parametrize("wanted", ["fill(float *, int)", "util::fill(float*, int)"])
def test_an_overload_is_chosen_by_its_parameters(wanted: str) -> None:
    y = np.zeros(2, np.float32)
    assert launch(OVERLOADS, wanted, 1, 2, [y, 2]).ok
    assert (y == 1.5).all()
    with pytest.raises(LaunchError, match=r"2 kernels are called 'fill'.*util::fill\(float\*, int\)"):
        launch(OVERLOADS, "fill", 1, 2, [y, 2])


@pytest.mark.parametrize("wanted", ["a::b::twice<B::two>", "b::twice<B::two>", "twice<B::two>"])
def test_an_instance_needs_no_namespaces(wanted: str) -> None:
    source = "namespace a { namespace b { namespace { enum class B { one, two };\ntemplate <B x> __global__ void twice"
    source += "(int* y) { y[0] = 2 * (int)x; }\n} } }\nint main() {}\n"
    y = np.zeros(1, np.int32)
    if wanted.startswith("a"):
        wanted = wanted.replace("<B", "<a::b::B")
    assert launch(source, wanted, 1, 1, [y]).ok
    assert y == 2


def test_an_instance_of_which_an_argument_is_a_template_has_the_name_of_the_source() -> None:
    source = "template <class T> struct Twice { T x; };\ntemplate <class T, template <class> class F> __global__ void"
    source += " apply(T* y, F<T> f) { y[0] = 2 * f.x; }\nint main() {}\n"
    y = np.zeros(1, np.float32)
    report = launch(source, "apply<float, Twice>", 1, 1, [y, {"x": np.float32(3)}])
    assert str(report).startswith("apply<float, Twice>: no hazard")
    assert y == 6


def test_nvcc_compiles_the_file_with_its_host_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("nvcc") is None:  # what would be installed stands in for it: it is asked for PTX of the file
        stand_in = tmp_path / "nvcc"
        stand_in.write_text(
            "#!/bin/sh\nwhile [ $# -gt 1 ]; do [ $1 = -o ] && out=$2; shift; done\ngrep -q main $1 || exit\n"
            "printf '.version 8.0\\n.target sm_90a\\n.address_size 64\\n.visible .entry k(){ret;}' > $out\n"
        )
        stand_in.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    file = tmp_path / "file.cu"
    file.write_text(
        '#include <vector>\nextern "C" __global__ void k() {}\nint main() { std::vector<int> v; k<<<1, 1>>>(); }\n'
    )
    assert launch(load(file, nvcc=True), "k", 1, 1, []).ok


def test_tokens_are_those_of_the_text() -> None:
    text = """#define A "x" // c \\\n o\nint a = 1'000; /* b { */ auto s = R"x(a " } )x" "q\\"";\nchar c = '{'; # n"""
    tokens = tokens_of(text)
    assert [t.text for t in tokens if t.kind == "string"] == ['R"x(a " } )x"', '"q\\""', "'{'"]
    assert [(t.kind, t.line) for t in tokens if t.kind in ("directive", "number")] == [("directive", 1), ("number", 3)]
    assert all(text[t.start : t.end] == t.text for t in tokens)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("int f(int a, int b);", [("function", {"f"})]),
        ("template <class T, class = std::enable_if_t<(sizeof(T) > 2)>> T g(T x) { return x; }", [("function", {"g"})]),
        ("A::B::B(int n) : x(n), y{1, 2} {} int z;", [("function", {"A", "B"}), ("variable", {"z"})]),
        ("void (*callback)(int) = nullptr;", [("variable", {"callback"})]),
        ("struct alignas(16) V : W<(3 > 2)> { int x; } v;", [("class", {"V", "v"})]),
        ("struct S f(struct S a) { return a; }", [("function", {"f"})]),
        ("typedef struct { int x; } P, *Q;", [("class", {"P", "Q"})]),
        ("enum class E : int { A = 1, B };", [("class", {"E", "A", "B"})]),
        ("using X = Y<int>; using namespace n; using a::b;", [("type", {"X"}), ("using", set()), ("type", {"b"})]),
        ("bool operator()(int) const; S& operator=(const S&) = delete;", [("function", {"("}), ("defaulted", {"="})]),
        (
            "auto h(int x) -> decltype(x) { return x; } static_assert(1 > 0);",
            [("function", {"h"}), ("assertion", set())],
        ),
        ("const int N = 4, M[] = {1, 2};", [("variable", {"N", "M"})]),
        (
            "ALIGN(16) float x; __global__ void __launch_bounds__(128) k(int n) {}",
            [("variable", {"x"}), ("function", {"k"})],
        ),
    ],
)
def test_declarations_are_told_apart(text: str, expected: list[tuple[str, set[str]]]) -> None:
    found = [(declaration.kind, declaration.names) for declaration in declarations(tokens_of(text), {})]
    assert [kind for kind, _ in found] == [kind for kind, _ in expected]
    for (_, names), (_, wanted) in zip(found, expected, strict=True):
        assert wanted - {"(", "="} <= names


def test_a_brace_that_is_not_closed_is_named() -> None:
    with pytest.raises(SourceError, match="not closed"):
        declarations(tokens_of("namespace a {\nint x;"), {})

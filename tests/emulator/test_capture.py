"""Programs that were built for CUDA, run without a GPU: what their kernels and their host code do wrong is named."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from workbench.emulator import FindingKind, load
from workbench.emulator.capture import Captured, CaptureError, HostFinding, capture, library, server
from workbench.emulator.compiler import compile_source
from workbench.emulator.execution import prepare

SOURCES = Path(__file__).with_name("captured")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="programs are captured on Linux")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, its runtime's name as a linker wants it, and the PTX of its kernels."""
    made = tmp_path_factory.mktemp("captured")
    (made / "libcudart.so.13").symlink_to(library())
    compiler = shutil.which("g++") or shutil.which("c++") or "c++"
    build = [compiler, "-std=c++17", "-g", "-O1", "-I", str(SOURCES)]
    program = [str(SOURCES / "program.cpp"), "-L", str(made), "-l:libcudart.so.13", "-Wl,--allow-shlib-undefined"]
    subprocess.run([*build, "-o", str(made / "program"), *program], check=True)
    subprocess.run([*build, "-o", str(made / "inside"), str(SOURCES / "inside.cpp")], check=True)
    source = SOURCES / "kernels.cu"
    compiled = compile_source(source.read_text(), str(source), {}, [], [], [], "sm_90a")
    (made / "kernels.ptx").write_text(compiled.ptx)
    return made


EARLY = ("stream", "captured", "edge")
"""How a launch may begin before another one has ended: an event in another stream, the same captured, an edge."""


def captured(folder: Path, case: str, **options: object) -> Captured:
    """The program, doing one thing."""
    command = [str(folder / "program"), str(folder / "kernels.ptx"), case]
    return capture(command, tell=lambda text: None, **options)  # type: ignore[arg-type]


def line_with(text: str, file: str = "program.cpp") -> int:
    """The line of a source that has a text."""
    lines = (SOURCES / file).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


RIGHT = (
    "right",
    "read",
    "waited",
    "waited_by_another_stream",
    "with_host",
    "managed_bits",
    "registered",
    "graph",
    "graph_in_order",
    "repeated",
    "copied_back",
    "copied_behind",
    "refilled",
    "rows",
    "behind",
    "freed_behind",
    "host_between",
    "programmatic_fill",
    *(f"early {event} 64 {how}" for event in ("7 0", "7 1") for how in ("stream", "captured", "edge", "behind")),
    "early 12 0 64 behind",
    "texture",
    "tiled",
    "pixels",
)


@pytest.mark.parametrize("case", RIGHT)
def test_a_program_that_is_right_gets_its_own_answer_and_no_finding(folder: Path, case: str) -> None:
    found = captured(folder, case, strict=True)
    assert not found.findings and not found.host and found.exit_code == 0


def test_what_nobody_has_stored_in_managed_memory_is_named_where_a_kernel_reads_it(folder: Path) -> None:
    (finding,) = captured(folder, "managed_part").findings
    assert finding.kind is FindingKind.UNINITIALISED and finding.source_line.strip() == "if (i < n) x[i] *= factor;"
    assert "managed memory of 256 bytes[128]" in finding.message


def built(folder: Path, name: str, text: str, *options: str) -> Path:
    """A program, or with `-shared` a library, of one source."""
    (folder / f"{name}.cpp").write_text(text)
    made = folder / (f"lib{name}.so" if "-shared" in options else name)
    command = ["c++", "-g", "-fPIC", *options, "-o", made.name, f"{name}.cpp", "-ldl"]
    subprocess.run(command, cwd=folder, check=True)
    return made


def test_constructors_of_a_library_run_when_all_that_it_is_loaded_with_is_in_place(tmp_path: Path) -> None:
    """One library begins by a function that another one has in place of its own, as PyTorch's do."""
    sources = {
        "own": 'extern "C" __attribute__((weak)) int answer(const char*) { return 0; }\n'
        'int begun = answer("7"); extern "C" int told() { return begun; }\n',
        "other": '#include <cstdlib>\nextern "C" int answer(const char* text) { return std::atoi(text); }\n',
        "program": "#include <dlfcn.h>\nint main(int, char** at) { void* all = dlopen(at[1], RTLD_LAZY);\n"
        'return all ? reinterpret_cast<int (*)()>(dlsym(all, "told"))() : 1; }\n',
    }
    for name, text in sources.items():
        needed = ["-Wl,--no-as-needed", "-L.", "-l:libown.so", "-Wl,-rpath,$ORIGIN"] if name == "other" else []
        built(tmp_path, name, text, *(["-shared"] if name != "program" else []), *needed)
    found = capture([str(tmp_path / "program"), str(tmp_path / "libother.so")], tell=lambda text: None)
    assert found.exit_code == 7


def test_a_library_that_lies_where_an_unloaded_one_lay_is_named_itself(folder: Path, tmp_path: Path) -> None:
    source = 'extern "C" int cudaFree(const void*);\nextern "C" void* make() {\n'
    source += '  return cudaFree("no memory") ? reinterpret_cast<void*>(&make) : nullptr;\n}\n'
    first, second = (str(built(tmp_path, name, source, "-shared")) for name in ("first", "second"))
    program = """#include <dlfcn.h>
        static void* made(const char* path) {
          void* library = dlopen(path, RTLD_NOW);
          void* place = reinterpret_cast<void* (*)()>(dlsym(library, "make"))();
          dlclose(library);
          return place;
        }
        int main(int, char** at) { return made(at[1]) && made(at[1]) == made(at[2]) ? 0 : 9; }"""
    runtime = [f"-L{folder}", "-Wl,--no-as-needed", "-l:libcudart.so.13"]
    found = capture([str(built(tmp_path, "program", program, *runtime)), first, second], tell=lambda text: None)
    assert found.exit_code == 0 and not found.refused
    assert {Path(one.place).name for one in found.host} == {"first.cpp:3", "second.cpp:3"}


def test_a_launch_of_a_shape_that_came_before_is_not_prepared_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared: list[object] = []
    monkeypatch.setattr(server, "prepare", lambda *args, **more: prepared.append(args) or prepare(*args, **more))
    assert captured(folder, "graph").launches["scale"] == 3
    assert len(prepared) == 2  # with checks, and once without, which shows that memory changes


def test_a_signal_that_ends_the_program_is_said() -> None:
    assert "; SIGSEGV has ended the program" in str(capture(["sh", "-c", "kill -SEGV $$"], tell=lambda text: None))


def host_finding(found: Captured, kind: str) -> HostFinding:
    (one,) = [one for one in found.host if one.kind == kind]
    return one


HOST = {
    "unwaited_copy": ("host_race", "if (values[i] != expected)"),
    "unwaited_source": ("host_race", "values[0] = 5;"),
    "unwaited_kernel": ("host_race", "if (values[i] != expected)"),
    "graph_unwaited": ("host_race", "if (values[i] != expected)"),
    "early 7 0 64 host": ("host_race", "static_cast<float*>(array)[0] = 5"),
    "early 12 0 64 host": ("host_race", "static_cast<float*>(array)[0] = 5"),
    "followed": ("host_access", "*static_cast<float*>(device)"),
    "too_long": ("out_of_bounds", "kBytes + 4"),
    "direction": ("wrong_direction", "cudaMemcpy(host, device, kBytes, kToDevice)"),
    "unread": ("unread_error", "cudaLaunchKernel(reinterpret_cast"),
    "tiled_badly": ("tensor_map", "reinterpret_cast<Encode>(found)(&map"),
    "mipmap": ("not_emulated", "cudaMallocMipmappedArray(&device"),
}


@pytest.mark.parametrize("case", HOST)
def test_what_host_code_does_wrong_is_named_at_its_line(folder: Path, case: str) -> None:
    kind, text = HOST[case]
    found = captured(folder, case)
    one = host_finding(found, kind)
    assert not found.ok
    assert re.search(rf"program\.cpp:{line_with(text)}$", one.place), one.place


def test_memory_that_is_freed_twice_is_named(folder: Path) -> None:
    assert "no allocation begins at" in host_finding(captured(folder, "freed_twice"), "invalid_free").message


def test_a_leak_is_a_strict_finding_at_its_allocation(folder: Path) -> None:
    found = captured(folder, "leak")
    assert found.ok and not captured(folder, "leak", strict=True).ok
    assert host_finding(found, "leak").place.endswith(f"program.cpp:{line_with('cudaMalloc(&device')}")


def test_an_output_that_is_never_copied_back_is_a_strict_finding_at_its_launch(folder: Path) -> None:
    found = captured(folder, "forgotten", strict=True)
    one = host_finding(found, "unread_output")
    assert (
        one.place.endswith(f"program.cpp:{line_with('cudaLaunchKernel(reinterpret')}")
        and "the launch of fill" in one.message
    )


@pytest.mark.parametrize(
    ("case", "kind", "text"),
    [
        ("race", "race", "x[threadIdx.x] ="),
        ("same_name", "race", "+ 1) % 64"),
        ("unwritten", "uninitialised", "*= factor"),
        ("beside", "race", "*= factor"),
        ("graph_branches", "race", "*= factor"),
        ("copied_beside", "race", "*= factor"),
        ("freed_beside", "race", "*= factor"),
        ("programmatic", "race", "] += 1"),
        ("programmatic_captured", "race", "] += 1"),
        *((f"early {event} -1 {how}", "race", "] += 1") for event in ("7 0", "7 1", "12 0") for how in EARLY),
        *((f"early 12 0 64 {how}", "race", "] += 1") for how in EARLY),
    ],
)
def test_what_a_kernel_does_wrong_is_named_at_its_line(folder: Path, case: str, kind: str, text: str) -> None:
    found = captured(folder, case)
    finding = found.findings[0]
    assert found.failures and {str(one.kind) for one in found.failures} == {kind}
    lines = {place.line for place in (finding.location, finding.other) if place}
    assert line_with(text, "kernels.cu") in lines
    if case.startswith("early 12"):
        assert "launch completion event of first comes before its end" in str(finding)
    if case == "freed_beside":
        assert "the cudaFreeAsync frees" in str(finding)
    if case == "graph_branches":
        assert "no path of the graph leads from" in str(finding)


def test_a_kernel_that_asks_for_them_has_clusters_of_16_blocks(folder: Path) -> None:
    found = captured(folder, "wide_cluster")
    (refused,) = found.refused  # the launch before the kernel has asked
    assert "1 to 8 are allowed" in refused and found.exit_code == 0 and not found.findings


def test_launches_that_change_nothing_are_checked_once_only(folder: Path) -> None:
    found = captured(folder, "repeated")
    assert found.launches["scale"] == 101
    once = captured(folder, "right").warp_instructions
    assert found.warp_instructions == 2 * once  # the first, and the one after other memory


def test_functions_of_a_runtime_inside_the_program_are_redirected(folder: Path) -> None:
    found = capture([str(folder / "inside")], tell=lambda text: None)
    assert found.exit_code == 0 and found.ok


def test_kernels_left_out_are_executed_without_checks(folder: Path) -> None:
    assert captured(folder, "race", kernel="scale").ok
    assert not captured(folder, "race", kernel="reverse").ok


def test_a_program_that_cannot_be_started_is_refused() -> None:
    with pytest.raises(CaptureError, match="cannot be started"):
        capture(["./there is no such program"])


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize("runtime", ["static", "shared"])
def test_a_program_of_nvcc_runs_as_it_was_linked(tmp_path: Path, runtime: str) -> None:
    source = tmp_path / "twice.cu"
    source.write_text(
        """#include <cstdio>
        __device__ int total;
        __managed__ int managed = 3;
        __global__ void twice(int* x) {
          x[threadIdx.x] *= 2;
          atomicAdd(&total, x[threadIdx.x]);
          if (threadIdx.x == 0) managed++;
        }
        int main() {
          int x[32], sum = 0, *d;
          for (int i = 0; i < 32; i++) x[i] = i;
          cudaMalloc(&d, sizeof x);
          cudaMemcpy(d, x, sizeof x, cudaMemcpyHostToDevice);
          twice<<<1, 32>>>(d);
          cudaMemcpyFromSymbol(&sum, total, sizeof sum);
          cudaDeviceProp properties;
          cudaGetDeviceProperties(&properties, 0);
          printf("%d %d %d.%d %d\\n", sum, managed, properties.major, properties.minor, properties.clusterLaunch);
          return cudaFree(d);
        }"""
    )
    subprocess.run(["nvcc", "-cudart", runtime, "-o", str(tmp_path / "twice"), str(source)], check=True)
    script = (
        f"from workbench.emulator.capture import capture; r = capture([{str(tmp_path / 'twice')!r}]); assert r.ok, r"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "992 4 9.0 1\n"


def test_a_source_of_cuda_is_no_program(tmp_path: Path) -> None:
    assert load(SOURCES / "kernels.cu").entries.kernels  # it is one that the emulator takes
    with pytest.raises(CaptureError, match="Permission denied"):
        capture([str(SOURCES / "kernels.cu")])

"""A source that never comes to an end, or is no file, costs its own stage and nothing else."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from workbench import emulator
from workbench.model.errors import WrongUsage
from workbench.toolchain import compiling
from workbench.toolchain.compiler import CompileError, CompilerUnavailable, compile_source, contents, source_digest

RIGHT = 'extern "C" __global__ void fine(float* x) { x[0] = 1; }\n'

BOMB = """
template <int N, unsigned long long M> struct Bomb {
  static constexpr unsigned long long value = Bomb<N - 1, 2 * M>::value + Bomb<N - 1, 2 * M + 1>::value;
};
template <unsigned long long M> struct Bomb<0, M> { static constexpr unsigned long long value = M; };
extern "C" __global__ void bomb(unsigned long long* x) { x[0] = Bomb<40, 1>::value; }
"""
"""2^40 different types: no machine comes to the end of them."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path


def _source(folder: Path, text: str, name: str = "source.cu") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_template_bomb_is_stopped_and_the_next_source_compiles(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_source(_source(folder, RIGHT), {"FIRST": 1})  # a process is there
    monkeypatch.setenv(compiling.SECONDS, "0.3")
    with pytest.raises(CompileError, match=r"bomb\.cu does not compile:\n.*was stopped after 0\.3 s"):
        compile_source(_source(folder, BOMB, "bomb.cu"), {})
    monkeypatch.delenv(compiling.SECONDS)
    assert ".entry fine" in compile_source(_source(folder, RIGHT), {"SECOND": 1}).ptx


def test_what_ptxas_refuses_is_said_without_what_it_reports_of_kernels(folder: Path) -> None:
    path = _source(folder, "__constant__ float table[20000];\n__global__ void f(float* y) { *y = table[threadIdx.x]; }")
    for compiled in (lambda: compile_source(path, {}), lambda: emulator.load(path)):
        with pytest.raises((CompileError, emulator.CompileError)) as error:
            compiled()
        assert "does not compile:\nptxas error   : File uses too much global constant data" in str(error.value)


def test_a_compilation_that_takes_too_much_memory_is_stopped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(compiling.MEMORY, "700")
    with pytest.raises(CompileError, match=r"out of memory|WORKBENCH_COMPILE_MB is another limit"):
        compile_source(_source(folder, BOMB), {})
    monkeypatch.delenv(compiling.MEMORY)
    assert ".entry fine" in compile_source(_source(folder, RIGHT), {}).ptx


def test_a_compiler_that_crashes_is_an_error_of_its_source(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(self: compiling._Process, task: object, seconds: float) -> dict[str, str]:
        self._process.send_signal(signal.SIGSEGV)
        return original(self, task, seconds)  # type: ignore[arg-type]

    original = compiling._Process.ask
    monkeypatch.setattr(compiling._Process, "ask", crash)
    with pytest.raises(CompileError, match="the compiler ended with SIGSEGV"):
        compile_source(_source(folder, RIGHT), {})
    monkeypatch.setattr(compiling._Process, "ask", original)
    assert ".entry fine" in compile_source(_source(folder, RIGHT), {}).ptx


@pytest.mark.parametrize("kills", [1, 2])
def test_a_compiler_that_the_system_kills_is_started_once_more_and_no_source_is_blamed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kills: int
) -> None:
    left = [None] * kills

    def killed(self: compiling._Process, task: object, seconds: float) -> dict[str, str]:
        if left:
            left.pop()
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
        return original(self, task, seconds)  # type: ignore[arg-type]

    original = compiling._Process.ask
    monkeypatch.setattr(compiling._Process, "ask", killed)
    source = _source(folder, RIGHT)
    if kills == 1:
        assert ".entry fine" in compile_source(source, {}).ptx
    else:
        with pytest.raises(CompilerUnavailable, match=r"killed the compiler twice .* no source is to blame"):
            compile_source(source, {})
    assert not left


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "soon", ""])
def test_a_limit_that_is_none_is_wrong_usage(value: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(compiling.SECONDS, value)
    with pytest.raises(WrongUsage, match="has to be a positive number"):
        compile_source(_source(folder, RIGHT), {})


def endless(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)  # takes no room on the disk


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (os.mkfifo, "not a regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "not a regular file"),
        (lambda path: path.symlink_to(path), "symbolic links"),
        (Path.mkdir, r"Is a directory|not a regular file"),
        (endless, "more than 16 MiB"),
        (lambda path: None, "No such file"),
    ],
    ids=["pipe", "device", "circle", "folder", "endless", "missing"],
)
def test_what_is_no_source_is_refused_and_not_waited_for(make: Any, says: str, folder: Path) -> None:
    source = folder / "source.cu"
    make(source)
    for use in (source_digest, lambda path: compile_source(path, {})):
        with pytest.raises(OSError, match=says):
            use(source)


def test_many_headers_are_too_large_together(folder: Path) -> None:
    for number in range(5):
        (folder / f"{number}.h").write_bytes(b" " * (4 << 20))
    source = _source(folder, "".join(f'#include "{number}.h"\n' for number in range(5)))
    with pytest.raises(OSError, match="with its headers"):
        source_digest(source)


def test_a_source_that_includes_itself_is_read_once_and_does_not_compile(folder: Path) -> None:
    source = _source(folder, '#include "source.cu"\n' + RIGHT)
    assert list(contents(source)) == [source]
    with pytest.raises(CompileError):
        compile_source(source, {})


def test_a_name_that_is_no_text_is_a_message(folder: Path) -> None:
    source = Path(os.fsdecode(os.fsencode(folder) + b"/\xff.cu"))
    source.write_text(RIGHT)
    with pytest.raises(CompileError):
        compile_source(source, {})


def test_bytes_that_are_no_text_are_compiled_or_refused(folder: Path) -> None:
    source = folder / "source.cu"
    source.write_bytes(RIGHT.encode() + b"// \xff\xfe\x00\n")
    assert ".entry fine" in compile_source(source, {}).ptx


ENDED = """
import os, sys
from pathlib import Path
from workbench.toolchain import compiling
pids = []
original = compiling._Process.__init__
def begin(self, *limits):
    original(self, *limits)
    print(self._process.pid, flush=True)
compiling._Process.__init__ = begin
from workbench.toolchain.compiler import compile_source
compile_source(Path(sys.argv[1]), {})
"""


def test_no_compiler_stays_behind_when_its_parent_is_killed(folder: Path) -> None:
    source = _source(folder, BOMB)
    parent = subprocess.Popen([sys.executable, "-c", ENDED, str(source)], stdout=subprocess.PIPE, text=True)
    pid = int(parent.stdout.readline())
    watched = os.pidfd_open(pid)
    parent.kill()
    parent.wait()
    assert parent.stdout.read() == ""
    try:
        assert select.select([watched], [], [], 30)[0], "the compiler is still there"
    finally:
        os.close(watched)
        parent.stdout.close()


def test_the_compiler_ends_with_its_parent_and_leaves_no_warning(folder: Path) -> None:
    _source(folder, RIGHT)
    test = "from pathlib import Path\nfrom workbench.toolchain.compiler import compile_source\n\n\n"
    (folder / "test_it.py").write_text(f"{test}def test(): compile_source(Path('source.cu').resolve(), {{}})\n")
    command = [sys.executable, "-X", "dev", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(command, cwd=folder, env=here, capture_output=True, text=True)
    assert "1 passed" in done.stdout
    assert (done.returncode, done.stderr) == (0, "")

"""Code that ends the process of a command does not end it without a word, and texts of others command no terminal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import project
import pytest
from command_line import invoke
from json_schema import check_document

from workbench import __main__ as program
from workbench.catalogue import registry
from workbench.cli.console import console
from workbench.model.errors import shown
from workbench.workers.cluster import held_back

linux = pytest.mark.skipif(sys.platform != "linux", reason="signals as Linux has them")

ENDS = {
    "exits": ("import os\nos._exit(0)\n", "exited with code 0"),
    "is_killed": ("import os\nos.kill(os.getpid(), 9)\n", "was ended by SIGKILL"),
    "crashes": ("import ctypes\nctypes.string_at(0)\n", "was ended by SIGSEGV"),
}
COMMANDS = {
    "verify": (),
    "emulate": ("--triton", "script.py"),
}


def workbench(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "workbench", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


@linux
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("how", ENDS)
def test_a_process_that_is_ended_is_an_error_with_a_document(how: str, command: str, tmp_path: Path) -> None:
    if command == "emulate":
        pytest.importorskip("triton", reason="of the extra triton")
    project.write(tmp_path, "")
    text, says = ENDS[how]
    for file in ("numbers_/operation.py", "script.py"):
        (tmp_path / file).write_text(text)
    done = workbench(tmp_path, command, *COMMANDS[command], "--json")
    found = json.loads(done.stdout)
    check_document(found)
    assert (done.returncode, found["exit_code"], found["error"]["code"]) == (1, 1, "ended_early")
    assert says in found["error"]["message"]
    assert [v["ok"] for v in found["verdicts"]] == [False]
    assert says in done.stderr and "Traceback" not in done.stderr


@linux
def test_an_exit_handler_does_not_change_the_exit_code(tmp_path: Path) -> None:
    project.write(tmp_path, "")
    operation = tmp_path / "numbers_/operation.py"
    operation.write_text(f"import atexit, os\natexit.register(os._exit, 0)\n{operation.read_text()}")
    assert workbench(tmp_path, "verify", "square:nothing").returncode == 2


@linux
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 130)])
def test_a_signal_reaches_the_process_that_works(number: int, code: int, tmp_path: Path) -> None:
    project.write(tmp_path, "")
    os.mkfifo(tmp_path / "begun")
    operation = tmp_path / "numbers_/operation.py"
    operation.write_text("open('begun', 'w').close()\nimport signal\nsignal.pause()\n")
    command = [sys.executable, "-m", "workbench", "verify"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, process_group=0) as started:
        (tmp_path / "begun").read_bytes()
        started.send_signal(number)
        _, words = started.communicate(timeout=60)
    assert started.returncode == code
    assert "Traceback" not in words and "without a verdict" not in words


EVIL = "\x1b[2J\x07\x9b1A\r"


def test_control_characters_are_written_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(f"a\tb\n{EVIL}") == "a\tb\n\\x1b[2J\\x07\\x9b1A\\x0d"
    console().print(EVIL)
    assert capsys.readouterr().out == "\\x1b[2J\\x07\\x9b1A\\x0d\n"


def test_texts_of_stages_and_kernels_command_no_terminal(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write(here, project.HEAD.partition("def launch")[0] + STAGE)
    monkeypatch.setattr(sys, "path", list(sys.path))
    result = invoke("verify", "square:cheat", "--device", "emulator", "--examples", "2")
    for name in [name for name in sys.modules if name.startswith("numbers_")]:
        del sys.modules[name]
    registry.reload()
    assert "\\x1b[2J" in result.output and not set(EVIL) - {"[", "2", "J", "1", "A"} & set(result.output)
    Path("k.cu").write_text('#include <cstdio>\nextern "C" __global__ void k() { printf("\\033[2J"); }\n')
    result = invoke("emulate", "k.cu", "--grid", "1", "--block", "1")
    assert "\\x1b[2J" in result.output and "\x1b" not in result.output


STAGE = f"""
@square.stage("cheat", source="good.cu", idea={EVIL!r}, track="cheat")
def cheat(p, size):
    raise ValueError({EVIL!r})
"""


def test_an_interrupt_that_comes_twice_is_raised_once_and_none_is_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    interrupt = program._Interrupt()
    monkeypatch.setattr(sys, "unraisablehook", interrupt.swallowed)

    class Freed:
        def __del__(self) -> None:  # Python goes on
            interrupt(signal.SIGINT, None)

    Freed()
    for timer in threading.enumerate():
        if isinstance(timer, threading.Timer):
            timer.join()
    assert sent == [(os.getpid(), signal.SIGINT)]
    with pytest.raises(KeyboardInterrupt):
        interrupt(signal.SIGINT, None)
    interrupt(signal.SIGINT, None)


def test_an_interrupt_that_another_thread_takes_comes_when_processes_have_begun() -> None:
    """Another thread does not block what the main one blocks, and Python's handler runs in the main one."""
    begun, go, before = False, threading.Event(), signal.signal(signal.SIGINT, signal.default_int_handler)
    other = threading.Thread(target=lambda: go.wait() and signal.raise_signal(signal.SIGINT))
    other.start()  # before anything is blocked
    try:
        with pytest.raises(KeyboardInterrupt), held_back():
            go.set()
            other.join()
            begun = True
        assert begun and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)

"""Processes that end with the one that started them, folders of one run at a time, errors that programs can read."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing.context import SpawnProcess
from pathlib import Path

import pytest
from command_line import document, interrupt, invoke, said

from workbench.cli import sessions, verify
from workbench.model.results import ResultsError
from workbench.records import store
from workbench.records.store import Folder, FolderBusy
from workbench.toolchain import compiling
from workbench.workers.cluster import Processes, _local

HOLDS = """
import sys
from pathlib import Path
from workbench.records.store import Folder
folder = Folder(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that saves its run in the folder `reports`."""
    command = [sys.executable, "-c", HOLDS, str(tmp_path / "reports")]
    made = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert made.stdout is not None and made.stdin is not None
    assert made.stdout.readline() == "held\n"
    yield made
    made.kill()
    made.wait()
    made.stdin.close()
    made.stdout.close()


def test_two_runs_do_not_share_a_folder(holder: subprocess.Popen[str], tmp_path: Path) -> None:
    with pytest.raises(FolderBusy, match=rf"process {holder.pid} is saving a run in .*--output"):
        Folder(tmp_path / "reports")
    holder.kill()  # whoever is killed leaves no lock behind
    holder.wait()
    folder = Folder(tmp_path / "reports")
    assert Folder(tmp_path / "reports")._lock is folder._lock
    del folder
    assert [path.name for path in (tmp_path / "reports").iterdir()] == []


def _ended(pids: list[int], seconds: float) -> bool:
    """Whether these processes end within so many seconds; they may have ended already."""
    for pid in pids:
        try:
            watched = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            if not select.select([watched], [], [], seconds)[0]:
                return False
        finally:
            os.close(watched)
    return True


WORKS = """
import os, sys, time
from workbench.sandbox import processes
from workbench.workers.cluster import Processes
if __name__ == "__main__":
    if "forked" in sys.argv:
        processes.begin()
    pool = Processes(2)
    futures = [pool.submit(os.getpid) for _ in range(8)]
    print(*{future.result() for future in futures}, flush=True)
    [pool.submit(time.sleep, 1000) for _ in range(2)]
    time.sleep(1000)
"""


@pytest.mark.parametrize("how", ["spawned", "forked"])
def test_no_worker_stays_behind_when_its_parent_is_killed(tmp_path: Path, how: str) -> None:
    (tmp_path / "works.py").write_text(WORKS)
    parent = subprocess.Popen([sys.executable, str(tmp_path / "works.py"), how], stdout=subprocess.PIPE, text=True)
    workers = [int(pid) for pid in parent.stdout.readline().split()]
    assert workers
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert _ended(workers, 5.0)
    parent.stdout.close()


ASKS = """
import os, signal, sys, time
from workbench.devices.worker import Ended, Worker
from workbench.sandbox import processes

def preloaded(_):
    return "workbench.run.warm" in sys.modules

def end_server(_):
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)

if __name__ == "__main__":
    processes.begin()
    worker = Worker(os.getpid)
    print(worker.ask(preloaded, seconds=60))
    try:
        worker.ask(end_server, seconds=60)
    except Ended as error:
        print(error.killed)
    print(worker.ask(preloaded, seconds=60))
"""


def test_a_process_whose_server_is_killed_was_killed_by_others_and_gets_another_server(tmp_path: Path) -> None:
    (tmp_path / "asks.py").write_text(ASKS)
    done = subprocess.run([sys.executable, str(tmp_path / "asks.py")], capture_output=True, text=True, timeout=100)
    assert done.stdout.split() == ["True"] * 3, done.stderr


def test_an_interrupt_does_not_wait_for_the_workers() -> None:
    with pytest.raises(KeyboardInterrupt), Processes(1) as pool:
        worker = pool.submit(os.getpid).result()
        pool.submit(time.sleep, 1000)
        raise KeyboardInterrupt
    assert _ended([worker], 5.0)


def test_an_interrupt_with_cancelled_tasks_prints_no_traceback_of_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[object] = []
    kill = SpawnProcess.kill

    def noticed(process: SpawnProcess) -> None:
        kill(process)
        time.sleep(0.3)  # so that the pool is found broken before anything else happens

    monkeypatch.setattr(threading, "excepthook", raised.append)
    monkeypatch.setattr(SpawnProcess, "kill", noticed)
    with pytest.raises(KeyboardInterrupt), Processes(1) as pool:
        manager = set(threading.enumerate())
        tasks = [pool.submit(time.sleep, 0.01) for _ in range(20)]
        manager ^= set(threading.enumerate())
        tasks[0].result()
        for task in tasks:
            task.cancel()
        raise KeyboardInterrupt
    for thread in manager:
        thread.join(10)
    assert manager and not raised


def test_a_local_cluster_listens_on_this_machine_alone() -> None:
    pytest.importorskip("distributed", reason="of the extra cluster")
    made = _local("emulator", 1)
    hosts = [made["scheduler"]["options"], *(worker["options"] for worker in made["workers"].values())]
    assert {options["host"] for options in hosts} == {"127.0.0.1"}
    assert made["scheduler"]["options"]["dashboard_address"] == "127.0.0.1:0"


@pytest.mark.parametrize(
    ("arguments", "code", "exit_code"),
    [
        (["verify", "gemm:niave"], "unknown_spec", 2),
        (["verify", "--examples", "0"], "bad_parameter", 2),
        (["verify", "--nonsense"], "no_such_option", 2),
        (["verfy"], "usage_error", 2),
        (["bench", "gemm:naive", "--device", "emulator"], "workbench_error", 1),
        (["tune", "gemm:niave"], "unknown_spec", 2),
        (["mutate", "gemm:niave"], "unknown_spec", 2),
        (["watch", "gemm:niave"], "unknown_spec", 2),
        (["compare", "nowhere", "nowhere"], "wrong_usage", 2),
        (["replay", "0123"], "versions_error", 1),
        (["history", "gemm:niave"], "unknown_spec", 2),
        (["history", "gemm:naive", "-o", "."], "bad_parameter", 2),
        (["trace", "gemm:naive", "-o", "nowhere/t.json"], "bad_parameter", 2),
    ],
)
def test_an_error_is_one_json_object(arguments: list[str], code: str, exit_code: int, here: Path) -> None:
    done = invoke(*arguments, "--json")
    found = document(done)
    assert found["error"]["code"] == code and found["command"] == (arguments[0] if arguments[0] != "verfy" else "")
    assert done.exit_code == exit_code
    assert found["result"] is None and found["verdicts"] == []
    assert found["error"]["message"].splitlines()[0] in done.stderr


def test_an_interrupt_is_json_too_and_a_result_stays_the_only_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sessions, "open_device", interrupt)
    done = invoke("verify", "vector_add:naive", "--json")
    assert document(done)["error"]["code"] == "interrupted" and done.exit_code == 130
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(verify, "work", interrupt)
    done = invoke("verify", "vector_add:naive", "--device", "emulator", "--json")
    assert said(done)["stages"] == [] and done.exit_code == 130
    assert document(done)["error"]["message"] == "interrupted after 0 finished stages"


def test_an_error_without_json_leaves_stdout_empty(here: Path) -> None:
    assert invoke("verify", "gemm:niave").stdout == ""


def test_a_reports_folder_that_is_a_file_or_a_broken_link_is_a_message(here: Path) -> None:
    (here / "file").write_text("mine")
    (here / "link").symlink_to(here / "missing" / "folder" / "\n")
    for where in ("file", "link"):
        done = invoke("run", "vector_add:naive", "--device", "emulator", "--examples", "1", "--output", where)
        assert done.exit_code == 1 and "reports cannot be written in" in done.stderr
    assert (here / "file").read_text() == "mine"


def test_a_full_disk_is_named_as_that(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, *_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    done = invoke("run", "vector_add:naive", "--device", "emulator", "--examples", "1", "--output", "reports", "--json")
    assert done.exit_code == 1 and "No space left on device" in done.stderr
    assert "looked up" not in done.stderr


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"[1, 2", b"[]", b'{"schema": 1}', b'"x"', b"1" * 5000, b"\xff"])
def test_garbage_for_a_record_is_a_message_that_names_the_file(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "gemm.json").write_bytes(content)
    with pytest.raises(ResultsError, match=r"gemm\.json"):
        store.load(tmp_path)


def test_deeply_nested_json_is_a_message(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text("[" * 200_000)
    with pytest.raises(ResultsError, match=r"results\.json"):
        store.load(tmp_path)


def test_a_process_of_the_compiler_is_ready_before_it_is_asked() -> None:
    before = len(compiling._idle)
    compiling.begin()
    assert len(compiling._idle) == before + 1
    compiling._idle.pop().end()

"""A process that the fork server makes for stages is what one that is started afresh would be."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from workbench.catalogue import registry
from workbench.model.errors import BadStage
from workbench.sandbox import child, host

only_where_there_is_one = pytest.mark.skipif(not child.usable(), reason="there is no fork server on this system")

ABOUT = """
import json, os, sys, threading
numbers = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
said = {"files": [os.readlink(number) for number in numbers if os.path.lexists(number)], "folder": os.getcwd()}
said |= {"seed": os.environ.get("WORKBENCH_SEED"), "mark": os.environ.get("MARK")}
said |= {"judge": [n for n in sys.modules if n.startswith(("workbench.judge", "workbench.harness", "workbench.run"))]}
said |= {"gone": os.environ.get("GONE"), "threads": threading.active_count()}
raise RuntimeError(json.dumps(said))
"""


@pytest.fixture(params=["forked", "fresh"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "fresh":
        monkeypatch.setattr(child, "usable", lambda: False)
    elif not child.usable():
        pytest.skip("there is no fork server on this system")
    return request.param


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A host of a module with this text."""
    monkeypatch.syspath_prepend(str(tmp_path))
    hosts = []

    def make(text: str) -> host.Host:
        name = f"told_{len(hosts)}"
        (tmp_path / f"{name}.py").write_text(text)
        hosts.append(host.Host(name, {}, {}))
        return hosts[-1]

    yield make
    for one in hosts:
        one.close()
        host._hosts.remove(one)


def said(one: host.Host) -> str:
    with pytest.raises(BadStage) as raised:
        one.describe()
    return str(raised.value)


def children() -> list[int]:
    """The processes that the server has forked and that have not ended."""
    process = host._server._process
    names = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split() if process else []
    return [int(name) for name in names]


def ended(pids: Iterable[int]) -> bool:
    """Whether all of them end within 10 s; they may have ended already."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            watched = os.pidfd_open(pid)
            try:
                if not select.select([watched], [], [], 10.0)[0]:
                    return False
            finally:
                os.close(watched)
    return True


def test_it_has_a_socket_the_environment_without_the_seed_and_the_folder(
    kind: str, made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GONE", "1")
    kept = made("")
    assert kept.describe() == []  # now there is a server, which has this environment, and another process
    monkeypatch.delenv("GONE")
    monkeypatch.setenv("MARK", "2")
    monkeypatch.setenv("WORKBENCH_SEED", "3")
    monkeypatch.chdir(tmp_path)
    about = json.loads(said(made(ABOUT)).partition("RuntimeError: ")[2])
    sockets = [name for name in about.pop("files") if name != "/dev/null"]
    assert len(sockets) == 1 and sockets[0].startswith("socket:")
    assert about == {"seed": None, "mark": None, "gone": None, "folder": str(tmp_path), "judge": [], "threads": 1}


@pytest.mark.parametrize(
    ("text", "how"),
    [
        ("import os; os._exit(3)", "exited with code 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "was ended by SIGTERM"),
    ],
)
def test_how_it_ended_is_told(text: str, how: str, kind: str, made: Any) -> None:
    assert how in said(made(text))


@only_where_there_is_one
def test_one_that_does_not_answer_has_ended_when_that_is_said(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made("").describe()
    before = children()
    monkeypatch.setattr(host, "START_SECONDS", 0.1)
    assert "no answer within 0.1 s" in said(made("while True: pass"))
    assert children() == before


@only_where_there_is_one
def test_a_server_that_was_killed_is_replaced_and_its_processes_end_with_it(made: Any) -> None:
    made("").describe()
    server, forked = host._server._process, children()
    assert server is not None and forked
    os.kill(server.pid, signal.SIGKILL)
    assert ended(forked)
    assert made("").describe() == []
    assert host._server._process is not server


@only_where_there_is_one
def test_a_stage_whose_process_ended_with_the_server_is_asked_again() -> None:
    (stage,) = registry.select(["vector_add:naive"])
    first, second = registry.operation_of(stage).suite[:2]
    assert stage.supports(first) is None
    server, forked = host._server._process, children()
    os.kill(server.pid, signal.SIGKILL)
    assert ended(forked)
    assert stage.supports(second) is None


JUDGE = """
import sys
from pathlib import Path
from workbench.sandbox import host
host.Host("", {}, {}).describe()
pid = host._server._process.pid
print(pid, *Path(f"/proc/{pid}/task/{pid}/children").read_text().split(), flush=True)
sys.stdin.read()
"""


@only_where_there_is_one
def test_server_and_processes_end_with_a_judge_that_is_killed() -> None:
    command = [sys.executable, "-c", JUDGE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as judge:
        started = [int(pid) for pid in judge.stdout.readline().split()]
        judge.kill()
    assert len(started) >= 2 and ended(started)

"""A process of stages can do nothing to others, as an ordinary user whom the kernel gives no namespaces."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import confinement
import pytest

from workbench.sandbox import confine, host

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux's protections")

SEEN = {"command_line", "state", "processes", "shared_files"}
"""What only Landlock or a namespace hides."""


@pytest.fixture
def told(tmp_path: Path) -> Any:
    """What a process reports that has these protections, and what its files hold in the end."""

    def tell(*layers: str) -> tuple[dict[str, Any], dict[str, str]]:
        place = Path("/tmp") / f"confined-{os.getpid()}-{tmp_path.name}"  # where an ordinary user may be
        place.mkdir()
        try:
            command = [sys.executable, confinement.__file__, str(place), *layers]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
            assert not done.returncode, done.stderr
            report = json.loads(done.stdout)
        finally:
            confinement.shutil.rmtree(place)
        return report, report["files"]

    return tell


def test_the_attacks_work_where_nothing_is_confined(told: Any) -> None:
    report, _ = told("Landlock", "system calls")
    done = set(report["before"])
    assert done >= {"prlimit", "setpriority", "sched_setaffinity", "kill", "fork", "chmod", "utime", "shared_memory"}
    assert done >= {"command_line", "environment", "ptrace", "lock", "unlink", "death_signal", "connect", "own"}


@pytest.mark.skipif(confine.landlock_version() < 1, reason="this kernel has no Landlock")
def test_nothing_is_done_to_others_without_a_namespace(told: Any) -> None:
    report, files = told("Landlock", "system calls")
    assert (report["after"], report["failed"]) == ([], [])
    assert files == {"file": "kept", "other": "kept", "removed": "kept"}
    assert [name.split()[0] for name in report["held"]] == ["Landlock", "system"]


def test_the_filter_of_system_calls_holds_without_landlock(told: Any) -> None:
    report, files = told("system calls")
    assert report["held"] == [confine.FILTER]
    assert set(report["after"]) - SEEN == {"environment"} & set(report["after"])
    assert files == {"file": "kept", "other": "kept", "removed": "kept"} and not report["failed"]


@pytest.mark.skipif(confine.landlock_version() < 1, reason="this kernel has no Landlock")
def test_landlock_holds_without_the_filter_for_what_it_knows(told: Any) -> None:
    report, files = told("Landlock")
    assert not {"open_for_writing", "unlink", "rename", "ptrace", *SEEN, "environment"} & set(report["after"])
    assert files == {"file": "kept", "other": "kept", "removed": "kept"}


def test_the_environment_of_a_verdict_says_which_protections_held() -> None:
    held = host.protections(host.Host("", {}, {}))
    assert held and set(held) <= {f"Landlock {confine.landlock_version()}", confine.FILTER, confine.NAMESPACES}


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_jump_of_the_filter_ends_in_it(machine: str) -> None:
    program = confine._program(machine, 7)
    returns = 0x06
    assert len(program) < 4096 and program[-1] == (returns, 0, 0, 0x7FFF0000)
    reached = {0}
    for number, (code, yes, no, _) in enumerate(program):
        if number in reached and code != returns:
            reached |= {number + 1 + yes, number + 1 + no}
    assert reached == set(range(len(program)))

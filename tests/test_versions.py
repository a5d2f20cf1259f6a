"""Versions that passed are kept whole, whatever ends the process, and come back byte for byte; no work is lost."""

from __future__ import annotations

import dataclasses
import importlib
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result
from command_line import document, invoke, one_message, said
from fakes import NumpyDevice
from synthetic import EMULATOR, H200, environment, timed_run

from workbench.catalogue import registry
from workbench.cli import sessions
from workbench.model import errors, origin
from workbench.model.errors import Notice
from workbench.model.results import Failure, Run, Verdict
from workbench.model.stage import Stage
from workbench.records import restoring, versions
from workbench.records.versions import Snapshot, Versions, VersionsError
from workbench.toolchain.compiler import compile_source

HERE = Path(__file__).parent
SPEC = "vector_add:naive"

Workbench = Callable[..., Result]


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> NumpyDevice:
    made = NumpyDevice()
    monkeypatch.setattr(sessions, "open_device", lambda name: made)
    return made


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of cuda_src/ in the place of the real one; the vector_add folder of it."""
    copy = tmp_path / "cuda_src"
    shutil.copytree(origin.SOURCES, copy)
    monkeypatch.setattr(origin, "SOURCES", copy)
    monkeypatch.setattr(versions, "INCLUDE", copy / "include")
    monkeypatch.setattr("workbench.toolchain.compiler.INCLUDE", copy / "include")
    return copy / "vector_add"


@pytest.fixture
def workbench(tmp_path: Path, device: NumpyDevice, sources: Path, monkeypatch: pytest.MonkeyPatch) -> Workbench:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    monkeypatch.setenv("COLUMNS", "200")

    return invoke


def stage() -> Stage:
    (found,) = registry.select([SPEC])
    return found


def snapshot(content: bytes, name: str = "naive", **more: bytes) -> Snapshot:
    return Snapshot("vector_add", name, "1.cu", {"1.cu": content, **more}, {"THREADS": 256}, "")


def record(name: str = "naive", **changes: object) -> Run:
    """What was found of one stage on an H200."""
    run = timed_run("vector_add")
    return dataclasses.replace(run, stages=[s for s in run.stages if s.stage == name], **changes)


@pytest.fixture
def store(tmp_path: Path) -> Versions:
    return Versions(tmp_path / "versions.sqlite3")


# what is kept


def test_what_passes_is_kept_and_listed(workbench: Workbench, sources: Path) -> None:
    assert workbench("verify", SPEC, "--examples", "4").exit_code == 0
    (kept,) = versions.listed(stage())
    assert versions.of(stage()).files(kept) == Snapshot.of(stage()).files
    assert (kept.number, kept.parameters) == (1, {"THREADS": 256})
    assert "vector_add_naive" in kept.declaration
    listed = workbench("history", SPEC)
    assert listed.exit_code == 0
    (row,) = [line for line in listed.stdout.splitlines() if line.strip().startswith("@1")]
    assert "4 problems" in row
    assert EMULATOR.name in row
    (as_json,) = said(workbench("history", SPEC, "--json"))["versions"]
    assert (as_json["version"], as_json["passed"]) == (f"{SPEC}@1", True)


def test_the_same_again_is_the_same_version_and_a_change_of_source_header_or_parameter_another(
    workbench: Workbench, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def verified() -> list[int]:
        assert workbench("verify", SPEC, "--examples", "2").exit_code == 0
        return [v.number for v in versions.listed(stage())]

    assert verified() == verified() == [1]
    (sources / "1_naive.cu").open("a").write("// changed\n")
    assert verified() == [1, 2]
    (sources.parent / "include/tile/convert.cuh").open("a").write("// changed\n")
    assert verified() == [1, 2, 3]
    monkeypatch.setitem(stage().parameters, "THREADS", 128)  # type: ignore[arg-type]
    assert verified() == [1, 2, 3, 4]


def test_what_fails_or_solved_one_problem_only_is_not_kept(workbench: Workbench, device: NumpyDevice) -> None:
    assert workbench("verify", SPEC, "--problem", "n=4").exit_code == 0
    device.wrong_after = 3
    assert workbench("verify", SPEC, "--examples", "9").exit_code == 1
    assert versions.listed(stage()) == []


def test_what_changes_while_it_is_verified_is_not_kept(
    workbench: Workbench, sources: Path, device: NumpyDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = device.run

    def save_meanwhile() -> None:
        (sources / "1_naive.cu").open("a").write("// a save in the middle\n")
        real()

    monkeypatch.setattr(device, "run", save_meanwhile)
    assert workbench("verify", SPEC, "--examples", "2").exit_code == 0
    assert versions.listed(stage()) == []


def test_a_timed_record_stays_when_the_version_is_only_verified_again(store: Versions) -> None:
    timed, untimed = record(), record()
    untimed.stages[0].measurements = []
    store.keep(snapshot(b"a"), timed)
    kept = store.keep(snapshot(b"a"), untimed)
    assert kept.runs == (timed,)
    assert set(kept.measured()) == {(H200.name, m.problem) for m in timed.stages[0].measurements}
    again = record(environment=environment(date="2026-02-02T00:00:00Z"))
    assert store.keep(snapshot(b"a"), again).runs == (again,)
    one = record()
    one.stages[0].measurements = one.stages[0].measurements[:1]
    assert store.keep(snapshot(b"a"), one).runs == (one, again)


def test_a_weaker_pass_of_the_same_does_not_hide_a_stronger_one(workbench: Workbench) -> None:
    for examples in ("30", "5", "4"):
        assert workbench("verify", SPEC, "--examples", examples).exit_code == 0
    shown = workbench("history", SPEC).stdout
    assert "30 problems" in shown
    assert "4 problems" not in shown


def test_the_strongest_pass_stays_beside_times_and_is_replaced_by_one_as_strong(store: Versions) -> None:
    def passed(problems: int, timed: bool, date: str) -> Run:
        made = record(environment=environment(date=date))
        made.stages[0].verification.problems = problems
        made.stages[0].measurements = made.stages[0].measurements if timed else []
        return made

    def kept() -> list[tuple[int, bool]]:
        version = store.of("vector_add", "naive")[0]
        return [(r.stages[0].verification.problems, bool(r.stages[0].measurements)) for r in version.shown()]

    code = snapshot(b"code")
    for run, then in (
        (passed(300, False, "1"), [(300, False)]),
        (passed(5, False, "2"), [(300, False)]),
        (passed(5, True, "3"), [(300, False), (5, True)]),
        (passed(4, False, "4"), [(300, False), (5, True)]),
        (passed(301, False, "5"), [(301, False), (5, True)]),
        (passed(400, True, "6"), [(400, True)]),
    ):
        store.keep(code, run)
        assert kept() == then


def test_a_pass_counts_from_the_last_failure_on_whatever_the_clock_says(
    store: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed, timed = record(), record()
    passed.stages[0].measurements = []
    failure = Failure(Verdict.MISMATCH, "n=3", "wrong", "")

    def fails(date: str) -> None:
        monkeypatch.setattr(versions, "now", lambda: date)
        store.remember(stage(), "cuda", failure)

    assert store.keep(snapshot(b"a"), passed).passed
    assert store.passed(snapshot(b"a")) == [passed]
    fails("1999-01-01T00:00:00Z")  # the clock was set back
    assert store.passed(snapshot(b"a")) == []
    store.keep(snapshot(b"a"), passed)
    assert store.passed(snapshot(b"a")) == [passed]
    fails("2999-01-01T00:00:00Z")
    store.keep(snapshot(b"a"), timed)
    assert store.passed(snapshot(b"a")) == [timed]
    fails("2999-01-01T00:00:00Z")
    assert store.passed(snapshot(b"a")) == []
    store.keep(snapshot(b"a"), passed)  # the record with times stays, and it is the one that passed again
    assert store.passed(snapshot(b"a")) == [timed]


def test_history_says_how_much_faster_than_the_version_before(workbench: Workbench) -> None:
    slow, fast = record(), record()
    for m in fast.stages[0].measurements:
        m.timing.cold_us = [x / 2 for x in m.timing.cold_us]
    store = versions.of(stage())
    store.keep(Snapshot.of(stage()), slow)
    store.keep(snapshot(b"faster"), fast)
    shown = workbench("history", SPEC, "--problem", "67108864,dtype=bf16").stdout
    (first,) = [line for line in shown.splitlines() if line.strip().startswith("@1")]
    (second,) = [line for line in shown.splitlines() if line.strip().startswith("@2")]
    assert first.split()[-1] == "-"
    assert second.split()[-1] == "2.00x"
    assert "67108864 bf16" in second


def test_a_projects_versions_are_in_the_project_and_git_does_not_see_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(versions.ELSEWHERE)
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    loaded = registry.loaded()
    project = registry.Project(tmp_path / "mine", "mine", ("k",), None, tmp_path / "reports")
    monkeypatch.setattr(registry, "loaded", lambda: dataclasses.replace(loaded, project=project, own=("vector_add",)))
    assert versions.database("gemm") == tmp_path / "cache" / versions.FILE
    path = versions.database("vector_add")
    assert path == tmp_path / "mine" / versions.FOLDER / versions.FILE
    Versions(path).keep(snapshot(b"a"))
    assert (path.parent / ".gitignore").read_text() == "*\n"


# coming back


ODD = b"// not UTF-8: \xff\xfe\r\n// \x00 and no newline at the end"


@pytest.mark.parametrize("present", [b"other", None])
def test_any_version_comes_back_byte_for_byte(workbench: Workbench, sources: Path, present: bytes | None) -> None:
    source, header = sources / "1_naive.cu", sources.parent / "include/own.cuh"
    contents = [source.read_bytes() + b'#include "own.cuh"\n' + ODD + bytes([n]) for n in range(3)]
    for number, content in enumerate(contents):
        source.write_bytes(content)
        header.write_bytes(ODD * number)
        versions.of(stage()).keep(Snapshot.of(stage()), record())
    source.chmod(0o640)
    for number in (1, 0, 2):
        if present is None:
            source.unlink()
            header.unlink()
        else:
            source.write_bytes(present)
        result = workbench("restore", f"{SPEC}@{number + 1}")
        assert result.exit_code == 0, result.output
        assert source.read_bytes() == contents[number]
        assert header.read_bytes() == ODD * number
    if present is not None:
        assert source.stat().st_mode & 0o777 == 0o640
    assert not [p for p in sources.iterdir() if p.name.startswith(".")]


def test_what_is_replaced_is_a_version_first(workbench: Workbench, sources: Path) -> None:
    source, header = sources / "1_naive.cu", sources.parent / "include/tile/convert.cuh"
    versions.of(stage()).keep(Snapshot.of(stage()), record())
    good = source.read_bytes(), header.read_bytes()
    source.write_bytes(b"weeks of work that does not compile")
    header.write_bytes(b"and its header, which it no longer includes")
    result = workbench("restore", f"{SPEC}@1")
    assert (source.read_bytes(), header.read_bytes()) == good
    assert f"what was there is {SPEC}@2" in result.stdout
    assert "not verified" in workbench("history", SPEC).stdout
    assert workbench("restore", f"{SPEC}@2").exit_code == 0
    assert source.read_bytes() == b"weeks of work that does not compile"
    assert header.read_bytes() == b"and its header, which it no longer includes"
    result = workbench("restore", f"{SPEC}@2")
    assert result.stdout == f"{SPEC}@2 is what is there\n"


def test_nothing_is_written_where_what_is_there_cannot_be_kept(
    workbench: Workbench, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = sources / "1_naive.cu"
    versions.of(stage()).keep(Snapshot.of(stage()), record())
    source.write_bytes(b"work")

    def full(*_: object) -> None:
        raise VersionsError("the disk is full")

    monkeypatch.setattr(Versions, "keep", full)
    result = workbench("restore", f"{SPEC}@1")
    assert (result.exit_code, source.read_bytes()) == (1, b"work")
    assert "the disk is full" in result.stderr


def test_restore_says_what_of_a_version_is_not_in_its_files(
    workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions.of(stage()).keep(dataclasses.replace(Snapshot.of(stage()), declaration="@of_old()\n"), record())
    monkeypatch.setitem(stage().parameters, "THREADS", 64)  # type: ignore[arg-type]
    result = workbench("restore", f"{SPEC}@1")
    assert "the version has THREADS=256, the declaration THREADS=64" in result.stderr
    assert "@of_old()" in result.stderr


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        (f"{SPEC}@7", 1, f"{SPEC} has no version 7; none is kept yet: verify it first"),
        (f"{SPEC}@", 1, "a number is missing"),
        (SPEC, 2, f"which version? {SPEC}@N"),
        ("naive@1", 2, "naive names "),
        ("vector_add:nave@1", 2, "did you mean"),
    ],
)
def test_a_version_that_there_is_not(workbench: Workbench, name: str, code: int, message: str) -> None:
    result = workbench("restore", name)
    assert (result.exit_code, result.stderr.count("Error: ")) == (code, 1)
    assert message in result.stderr


def test_what_is_installed_is_not_changed_from_elsewhere(
    workbench: Workbench, sources: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = sources / "1_naive.cu"
    versions.of(stage()).keep(Snapshot.of(stage()), record())
    source.write_bytes(b"what is installed")
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    ways = ("belongs to workbench", f"workbench diff {SPEC}@1 {SPEC}", "workbench new NAME --from vector_add")
    result = workbench("restore", f"{SPEC}@1")
    one_message(result, 2, *ways, f"in {sources.parents[1]}")
    assert document(workbench("restore", f"{SPEC}@1", "--json"))["error"]["code"] == "not_of_this_project"
    monkeypatch.chdir(sources)  # a wheel has no clone, whatever the working directory is
    monkeypatch.setattr(origin, "_HERE", sources.parents[1])
    result = workbench("restore", f"{SPEC}@1")
    one_message(result, 2, *ways)
    assert "the same command in" not in result.stderr
    assert source.read_bytes() == b"what is installed" and len(versions.listed(stage())) == 1


def test_a_version_in_a_folder_of_its_own_compiles_as_it_did(sources: Path) -> None:
    (sources.parent / "include/own.cuh").write_text("#define ADDED 0\n")
    source = sources / "1_naive.cu"
    source.write_text('#include "own.cuh"\n' + source.read_text().replace("to_float(b[i])", "to_float(b[i]) + ADDED"))
    kept = versions.of(stage()).keep(Snapshot.of(stage()), record())
    (sources.parent / "include/own.cuh").write_text("#error gone\n")
    unpacked = restoring.unpacked(stage(), kept)
    assert unpacked.path.read_bytes() == source.read_bytes()
    defines = stage().defines(registry.operations()["vector_add"].suite[0])
    assert "vector_add_naive" in compile_source(unpacked.path, defines).usage


# size and survival


def test_the_oldest_go_first_and_never_the_newest_nor_the_newest_good_one_of_a_stage(
    store: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(0)
    monkeypatch.setenv(versions.SIZE, "1")
    store.keep(snapshot(rng.randbytes(50_000), "other"), record())
    for _ in range(30):
        store.keep(snapshot(rng.randbytes(100_000)), record())
        assert store.path.stat().st_size <= 1_000_000
    numbers = [v.number for v in store.of("vector_add", "naive")]
    assert numbers == list(range(numbers[0], 31))
    assert len(numbers) >= 6
    assert [v.number for v in store.of("vector_add", "other")] == [1]
    monkeypatch.setenv(versions.SIZE, "0.15")
    unverified = store.keep(snapshot(rng.randbytes(100_000)))
    assert [(v.number, v.passed) for v in store.of("vector_add", "naive")] == [(30, True), (31, False)]
    assert store.files(unverified)
    assert store.of("vector_add", "other")


def test_numbers_are_never_given_twice(store: Versions, monkeypatch: pytest.MonkeyPatch) -> None:
    store.keep(snapshot(b"a" * 1000), record())
    store.keep(snapshot(b"b" * 1000), record())
    monkeypatch.setenv(versions.SIZE, "0.001")
    store.keep(snapshot(b"a" * 1000), record())
    assert [v.number for v in store.of("vector_add", "naive")] == [1]
    assert store.keep(snapshot(b"c"), record()).number == 3


@pytest.mark.parametrize("size", ["-1", "0", "many", "nan", "inf"])
def test_a_size_that_is_none(store: Versions, monkeypatch: pytest.MonkeyPatch, size: str) -> None:
    monkeypatch.setenv(versions.SIZE, size)
    with pytest.raises(VersionsError, match=f"{versions.SIZE} is '{size}'; it has to be a number of megabytes"):
        store.keep(snapshot(b"a"))


KEEPS = """
import itertools, os, random, sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from test_versions import record, snapshot
from workbench.records.versions import Versions
store, start, run = Versions(Path(sys.argv[1])), int(sys.argv[2]), record()
for n in itertools.count(start):
    kept = store.keep(snapshot(random.Random(n).randbytes(20_000), header=b"shared"), run)
    os.write(1, f"{kept.number} {n}\\n".encode())
"""


@pytest.fixture
def killed(store: Versions) -> Iterator[Callable[[int, int], dict[int, int]]]:
    """Keep version after version in a process that is killed while it does so, after this many were done."""

    def run(start: int, lines: int) -> dict[int, int]:
        command = [sys.executable, "-c", KEEPS, str(store.path), str(start), str(HERE)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            said = [process.stdout.readline() for _ in range(lines)]
            process.send_signal(signal.SIGKILL)
            said += process.stdout.readlines()
        assert process.returncode == -signal.SIGKILL
        return {int(number): int(n) for number, n in (line.split() for line in said)}

    yield run


@pytest.mark.long
def test_whatever_was_kept_is_there_after_kill_9(
    killed: Callable[[int, int], dict[int, int]], store: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(versions.SIZE, "1")
    rng, said = random.Random(1), {}
    for attempt in range(6):
        said |= killed(1000 * attempt, rng.randrange(1, 40))
        with sqlite3.connect(store.path) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        kept = {v.number: v for v in store.of("vector_add", "naive")}
        last = max(said)
        assert set(kept) >= set(range(min(kept), last + 1))
        assert max(kept) <= last + 1  # one more may have been kept and not said
        for number, version in kept.items():
            files = store.files(version)
            assert (set(files), version.passed) == ({"1.cu", "header"}, True)
            if number in said:
                assert files["1.cu"] == random.Random(said[number]).randbytes(20_000)
        assert store.path.stat().st_size <= 1_000_000
    assert min(kept) > 1  # some were evicted


# what is wrong with the database


def test_a_database_that_cannot_be_used_costs_a_warning_and_no_verdict(
    workbench: Workbench, device: NumpyDevice
) -> None:
    path = versions.database("vector_add")
    path.write_text("this is no database, whatever its name says" * 40)
    warned = "versions and failures are not kept: .* is damaged .file is not a database.; move it away"
    with pytest.warns(Notice, match=warned):
        assert workbench("verify", SPEC, "--examples", "2").exit_code == 0
    device.wrong_after = 0
    with pytest.warns(Notice, match=warned):
        result = workbench("verify", SPEC, "--examples", "2", "--json")
    assert said(result)["stages"][0]["verification"]["verdict"] == Verdict.MISMATCH
    for command in (("history", SPEC), ("replay",), ("restore", f"{SPEC}@1")):
        result = workbench(*command)
        assert (result.exit_code, "is damaged (file is not a database); move it away" in result.stderr) == (1, True)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"WORKBENCH_VERSIONS": "/dev/null/x"}, "set WORKBENCH_VERSIONS to a folder that can be written"),
        ({"WORKBENCH_VERSIONS_MB": "abc"}, "has to be a number of megabytes, for example 64"),
    ],
)
def test_what_cannot_be_kept_is_one_short_message_with_a_remedy(
    changes: dict[str, str], said: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "workbench", "verify", SPEC, "--device", "emulator", "--examples", "2"]
    places = {"WORKBENCH_VERSIONS": str(tmp_path), "PYTHONPATH": str(HERE.parent)}
    done = subprocess.run(command, env=os.environ | places | changes, capture_output=True, text=True)
    said_lines = [line for line in done.stderr.splitlines() if not line.startswith(SPEC)]
    warned = [line for line in said_lines if line.startswith("warning: versions and failures are not kept: ")]
    assert (done.returncode, len(warned), said_lines[1:]) == (0, 1, ["1 of 1 stages passed"]), done.stderr
    assert warned[0].endswith(said)


def test_a_damaged_version_is_not_restored(workbench: Workbench, sources: Path) -> None:
    versions.of(stage()).keep(Snapshot.of(stage()), record())
    with sqlite3.connect(versions.database("vector_add")) as connection:
        connection.execute("UPDATE objects SET content = x'00'")
    (sources / "1_naive.cu").write_text("work")
    result = workbench("restore", f"{SPEC}@1")
    assert (result.exit_code, (sources / "1_naive.cu").read_text()) == (1, "work")
    assert f"{SPEC}@1 is damaged" in result.stderr


def test_flipped_bits_are_one_sentence_and_nothing_is_lost(store: Versions) -> None:
    store.keep(snapshot(b"a" * 500), record())
    store.remember(registry.select([SPEC])[0], "cuda", Failure(Verdict.MISMATCH, "n=1", "wrong", "replay"))
    whole, said = store.path.read_bytes(), set()
    for seed in range(300):
        chosen, changed = random.Random(seed), bytearray(whole)
        for _ in range(chosen.choice((1, 5, 50))):
            changed[chosen.randrange(len(changed))] ^= 1 << chosen.randrange(8)
        store.path.write_bytes(changed)
        for use in (
            lambda: [store.files(v) for v in store.of("vector_add", "naive")],
            lambda: store.passed(snapshot(b"a" * 500)),
            lambda: list(store.failures()),
        ):
            try:
                use()
            except VersionsError as error:
                said.add(str(error).count("\n"))
        assert store.path.read_bytes() == changed
    assert said == {0}


def test_a_database_of_another_program(store: Versions) -> None:
    store.path.parent.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(store.path) as connection:
        connection.execute("CREATE TABLE versions (name TEXT)")
    for use in (lambda: store.keep(snapshot(b"a")), lambda: store.of("vector_add", "naive")):
        with pytest.raises(VersionsError, match=r"is of another program \(.*column.*\): move it away"):
            use()
    with sqlite3.connect(store.path) as connection:
        assert connection.execute("SELECT * FROM versions").fetchall() == []  # it is left as it was


def test_a_database_of_another_version_of_the_workbench(store: Versions) -> None:
    store.keep(snapshot(b"a"))
    with sqlite3.connect(store.path) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(VersionsError, match="another version of the workbench: move it away"):
        store.of("vector_add", "naive")


def test_a_stage_is_kept_whose_text_python_cannot_find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "behind_a_text.py").write_text('plan = (r"""\n""", lambda p: p)[1]\n')
    monkeypatch.syspath_prepend(tmp_path)
    assert errors.text_of(importlib.import_module("behind_a_text").plan) == '""", lambda p: p)[1]\n'

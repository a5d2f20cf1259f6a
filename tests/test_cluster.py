"""Work that is spread over the workers of a Dask cluster: the same outcome as here, also where a worker is killed."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from command_line import said
from test_project import DECLARATION, HEADER, SOURCE

from workbench.catalogue import registry
from workbench.checks import mutate
from workbench.cli import main as cli
from workbench.judge import case
from workbench.measure import tuning
from workbench.measure.places import Here, There
from workbench.model import origin
from workbench.model.results import Verdict
from workbench.records.tuned import Table
from workbench.run.timer import TimedSession
from workbench.run.verifier import Session, Silent
from workbench.workers import cluster
from workbench.workers.cluster import Cluster, ClusterUnavailable, Lost, Processes, connect

pytest.importorskip("distributed")


MOST_SECONDS = 300
"""Longest that Dask may take to put a worker in the place of one that was killed: a busy machine is slow."""


@pytest.fixture(scope="session")  # the tests of this file are spread among others
def made() -> Iterator[Cluster]:
    with connect("local", "emulator", workers=2) as made:
        yield made


@pytest.fixture
def local(made: Cluster) -> Cluster:
    """Two workers on this machine, which emulate."""
    made.client.wait_for_workers(2, timeout=MOST_SECONDS)
    return made


def pids(local: Cluster) -> dict[str, int]:
    """The processes of the workers, by address, without those that have just ended."""
    return local.client.run(os.getpid, on_error="ignore")


class Inline(Executor):
    """Does the work at once."""

    def submit(self, function: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*arguments, **named))
        return future


def mutants(pool: Executor, **options: Any) -> mutate.Report:
    return mutate.mutate(registry.select(["vector_add:naive"]), pool, examples=4, limit=12, **options)


@pytest.fixture(scope="session")
def right_mutants() -> dict[str, Any]:
    """What becomes of the mutants on one machine."""
    with Processes(1) as pool:
        return mutants(pool).as_dict()


def test_what_has_arrived_is_not_done_again_when_its_worker_is_killed(local: Cluster, tmp_path: Path) -> None:
    def note(number: int) -> int:
        with (tmp_path / str(number)).open("a") as file:
            file.write("done\n")
        return number

    futures = [local.submit(note, i) for i in range(6)]
    assert [future.result() for future in futures] == list(range(6))
    for pid in pids(local).values():
        os.kill(pid, signal.SIGKILL)
    assert [local.submit(abs, -i).result() for i in range(6)] == list(range(6))
    assert [(tmp_path / str(i)).read_text() for i in range(6)] == ["done\n"] * 6


def test_mutants_end_on_a_cluster_as_in_processes_and_in_the_same_order(local: Cluster, right_mutants: Any) -> None:
    assert mutants(local).as_dict() == right_mutants
    assert right_mutants["compiled"] > 4


def test_a_worker_that_is_killed_costs_no_verdict(local: Cluster, right_mutants: Any) -> None:
    killed: dict[str, int] = {}

    def kill(judged: mutate.Judged) -> None:
        if not killed:
            killed.update([pids(local).popitem()])
            os.kill(*killed.values(), signal.SIGKILL)

    assert mutants(local, on_mutant=kill).as_dict() == right_mutants
    local.client.wait_for_workers(2, timeout=MOST_SECONDS)  # Dask has put another one in its place
    assert not set(killed.values()) & set(pids(local).values())


def test_what_is_cancelled_while_it_waits_for_the_device_is_not_done(tmp_path: Path) -> None:
    """On one worker of three threads a task is given up that is ready, while another has the device."""
    distributed = pytest.importorskip("distributed")

    def meet(reached: str, *awaited: str) -> None:
        distributed.Event(reached).set()
        for name in awaited:
            distributed.Event(name).wait()

    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=3, dashboard_address=":0") as made,
        connect(made.scheduler_address, "emulator") as few,
    ):
        event = partial(distributed.Event, client=few.client)
        first = few.submit(meet, "begun", "go on")
        event("begun").wait()
        second = few.submit_prepared(partial(meet, "ready"), (tmp_path / "done").touch)
        event("ready").wait()
        assert second.cancel()
        third = few.submit_prepared(partial(meet, "told"), abs, -1)  # the worker hears of one after the other
        event("told").wait()
        event("go on").set()
        assert (first.result(), third.result()) == (None, 1)
        names = ["a", "b", "c"]
        all_threads = [few.submit_prepared(partial(meet, name, *names), abs, -1) for name in names]
        assert [future.result() for future in all_threads] == [1, 1, 1]
    assert not (tmp_path / "done").exists()


def end_the_worker() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_task_that_ends_its_workers_is_given_up(local: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local.client.cluster.scheduler, "allowed_failures", 0)  # of Dask's 3
    with pytest.raises(Lost, match="workers ended while they had this task, 1 in all"):
        local.submit(end_the_worker).result()
    local.client.wait_for_workers(2, timeout=MOST_SECONDS)
    assert local.call(abs, -1) == 1


def test_a_mutant_that_is_lost_costs_no_other_and_is_named() -> None:
    class Losing(Inline):
        def submit(self, function: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
            if arguments[0].line % 2:
                return super().submit(function, *arguments, **named)
            future: Future[Any] = Future()
            future.set_exception(Lost("4 workers ended"))
            return future

    found = mutants(Losing())
    lost = {j.mutant.line % 2 == 0 for j in found.judged if j.outcome is mutate.Outcome.LOST}
    assert lost == {True} and found.count(mutate.Outcome.KILLED)
    assert f"; {found.count(mutate.Outcome.LOST)} were lost with their workers" in found.summary


@pytest.mark.parametrize("problem", [None, "n=77,dtype=fp16,tier=exact"])
def test_stages_are_verified_as_on_one_machine(local: Cluster, problem: str | None) -> None:
    found = []
    for where in (None, local):
        stages = registry.select(["vector_add", "matvec:naive"][: 1 if problem else 2])
        problems = {"vector_add": (registry.operations()["vector_add"].problem.parse(problem),)} if problem else {}
        device = harness_device() if where is None else where.device
        session = Session(device, 12, 3, problems=problems, cluster=where)
        session.expect(stages)
        found.append([without_seconds(session.stage(stage, Silent())) for stage in stages])
    assert found[0] == found[1]
    assert all(result["verification"]["verdict"] is Verdict.PASS for result in found[0])


def harness_device() -> Any:
    from workbench.devices import open_device

    return open_device("emulator")


def without_seconds(result: Any) -> dict[str, Any]:
    record = dataclasses.asdict(result)
    del record["verification"]["seconds"]
    return record


BROKEN = """#include "tile/convert.cuh"
extern "C" __global__ void vector_add_naive(const IN* a, const IN* b, IN* c, long long n) {
  const long long i = blockIdx.x * THREADS + threadIdx.x;
  BODY
}
"""


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        ("if (i < n) c[i] = a[i];", Verdict.MISMATCH),
        ("if (i <= n) c[i] = from_float<IN>(to_float(a[i]) + to_float(b[i]));", Verdict.OUT_OF_BOUNDS),
        ("this is no code;", Verdict.COMPILE_ERROR),
    ],
)
def test_a_failure_is_made_as_small_and_explained_as_on_one_machine(
    local: Cluster, body: str, verdict: Verdict
) -> None:
    (stage,) = registry.select(["vector_add:naive"])
    broken = stage.with_code(BROKEN.replace("BODY", body))
    here = Session(harness_device(), 10, 0).stage(broken, Silent())
    there = Session(local.device, 10, 0, cluster=local).stage(broken, Silent())
    assert here.verification.verdict is verdict
    assert without_seconds(there) == without_seconds(here)


def test_what_a_task_leaves_changed_in_what_judges_is_tampering(local: Cluster) -> None:
    (stage,) = registry.select(["vector_add:naive"])

    def tampering(problem: Any, size: Any) -> Any:
        case.compare = lambda *arguments: None  # type: ignore[assignment]
        return stage.plan_for(problem, size)

    changed = dataclasses.replace(stage, plan_for=tampering)
    result = Session(local.device, 4, 0, cluster=local).stage(changed, Silent())
    assert result.verification.verdict is Verdict.TAMPERING
    assert result.verification.failure and "workbench.judge.case.compare" in result.verification.failure.message


def test_the_source_as_it_is_now_travels_with_its_headers_and_messages_name_it(
    local: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "cuda_src"
    shutil.copytree(origin.SOURCES, copy)
    header = copy / "include" / "tile" / "vector.cuh"
    header.write_text(header.read_text() + "\n#error seen on a worker\n")
    monkeypatch.setattr(origin, "SOURCES", copy)  # which no worker knows of
    (stage,) = registry.select(["vector_add:vectorized"])
    result = Session(local.device, 2, 0, cluster=local).stage(stage, Silent())
    assert result.verification.failure
    message = result.verification.failure.message
    assert "cuda_src/include/tile/vector.cuh" in message and "seen on a worker" in message
    assert cluster.HOUSED not in message and str(tmp_path) not in message


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project with a module of its own that its kernels import, where no worker has ever been."""
    root = tmp_path / "mine"
    (root / "cuda_src" / "negation").mkdir(parents=True)
    (root / "cuda_src" / "include").mkdir()
    (root / "cuda_src" / "include" / "negated.cuh").write_text(HEADER)
    (root / "pyproject.toml").write_text('[project]\nname = "mine"\n[tool.workbench]\nkernels = ["far_kernels"]\n')
    (root / "far_sizes.py").write_text("def blocks(n, threads):\n    return (n + threads - 1) // threads\n")
    declaration = DECLARATION.replace("import numpy", "import far_sizes\nimport numpy", 1)
    (root / "far_kernels.py").write_text(declaration.replace("ceil_div(p.n", "far_sizes.blocks(p.n"))
    (root / "cuda_src" / "negation" / "1_naive.cu").write_text(SOURCE)
    monkeypatch.chdir(root)
    before, path = set(sys.modules), list(sys.path)
    yield root
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if name.startswith("far_"):
            del sys.modules[name]


def test_kernels_of_a_project_go_to_workers_that_do_not_have_it(local: Cluster, project: Path) -> None:
    stages = registry.select([])
    assert [s.spec for s in stages] == ["negation:naive"]
    result = Session(local.device, 6, 0, cluster=local).stage(stages[0], Silent())
    assert result.verification.verdict is Verdict.PASS, result.verification.failure
    assert mutate.mutate(stages, local, examples=3, limit=3).count(mutate.Outcome.KILLED)


def test_a_declaration_that_cannot_travel_says_what_holds_it(local: Cluster) -> None:
    (stage,) = registry.select(["vector_add:naive"])
    opened = sys.stdout.__class__(open(os.devnull, "wb"))  # noqa: PTH123, SIM115
    holding = dataclasses.replace(stage, accepts=lambda problem: opened and None)
    with pytest.raises(ClusterUnavailable, match=r"vector_add:naive cannot be sent .*open files"):
        Session(local.device, 2, 0, cluster=local).stage(holding, Silent())
    opened.close()


def test_configurations_are_tried_by_all_workers_with_the_outcome_of_one(local: Cluster, tmp_path: Path) -> None:
    (stage,) = registry.select(["vector_add:vectorized"])
    problem = registry.operations()["vector_add"].problem.parse("n=5000,dtype=fp32")
    places = Here(harness_device(), Inline(), 1), There(local)
    here, there = (
        next(tuning.tune_each([(stage, problem)], place, Table(tmp_path / "t.sqlite3"), seconds=600))
        for place in places
    )
    assert there.ok and there.trials == here.trials
    assert len(there.trials) == there.allowed > 2


def test_each_search_has_workers_of_its_own_and_one_alone_has_all_of_them(local: Cluster) -> None:
    stage, problem = registry.select(["vector_add:naive"])[0], registry.operations()["vector_add"].suite[0]

    def done_by(place: There) -> set[int]:
        share = place._share()
        return {future.result() for future in [share.submit(os.getpid) for _ in range(6)]}

    both = There(local).shared_by(2)
    first, second = both.about(stage, problem, ()), both.about(stage, problem, ())
    one, other = done_by(first), done_by(second)
    assert len(one) == len(other) == 1
    assert one != other
    first.close()
    assert done_by(second) == other, "it keeps the worker that it has prepared"
    assert done_by(both.about(stage, problem, ())) == one
    assert done_by(There(local).shared_by(1).about(stage, problem, ())) == one | other


def test_who_has_lost_its_workers_is_served_by_others(local: Cluster) -> None:
    share = local.among(0, 2)
    share._preferred = ["tcp://127.0.0.1:9"]
    assert share.call(os.getpid) in pids(local).values()


def test_searches_that_go_on_at_once_find_what_they_find_alone(local: Cluster, tmp_path: Path) -> None:
    (stage,) = registry.select(["vector_add:vectorized"])
    texts = ("n=5000,dtype=fp32", "n=3000,dtype=fp32", "n=700,dtype=fp32")
    searches = [(stage, registry.operations()["vector_add"].problem.parse(text)) for text in texts]
    places = Here(harness_device(), Inline(), 1), There(local)
    here, there = (
        list(tuning.tune_each(searches, place, Table(tmp_path / "t.sqlite3"), seconds=600)) for place in places
    )
    assert all(t.ok for t in here)
    assert [(t.problem, t.trials) for t in there] == [(t.problem, t.trials) for t in here]


def test_times_are_made_by_workers_and_come_in_the_order_of_the_suite(
    local: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = registry.select(["vector_add:naive", "vector_add:grid_stride"])
    suite, here = registry.operations()["vector_add"].suite, os.getpid()
    bench = lambda stage, device, problem, digest: f"{problem} {stage.name}" if os.getpid() != here else "here"  # noqa: E731
    monkeypatch.setattr("workbench.run.timer._bench", bench)  # emulators have no clock
    session = TimedSession(local.device, 3, 0, cluster=local, whole_suite=True)
    session.expect(stages)
    for stage in stages:
        result = session.stage(stage, Silent())
        assert list(result.untimed.items()) == [(p.label, f"{p} {stage.name}") for p in suite]


@pytest.mark.parametrize(
    ("workers", "threads", "searches", "ahead"), [(2, 8, 2, [7, 7]), (2, 8, 1, [14]), (3, 8, 2, [14, 7])]
)
def test_a_search_leaves_a_thread_of_each_of_its_workers_to_the_last_round(
    workers: int, threads: int, searches: int, ahead: list[int]
) -> None:
    machines: Any = SimpleNamespace(count=workers, slots=workers * threads)
    there = There(machines).shared_by(searches)
    assert [dataclasses.replace(there, place=place).ahead for place in range(searches)] == ahead


@pytest.mark.parametrize("threads", [1, 2])
def test_a_worker_with_few_threads_has_its_next_task_waiting(threads: int) -> None:
    machines: Any = SimpleNamespace(count=2, slots=2 * threads)
    assert There(machines).shared_by(2).ahead == 2


def test_local_workers_have_one_gpu_each_and_tasks_that_compile_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.devices.cuda.require_gpu", lambda: None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-abc")
    monkeypatch.setattr("workbench.records.environment.core_count", lambda: 32)
    for device in ("auto", "cuda"):
        workers = cluster._local(device, None)["workers"]
        seen = [w["options"]["env"]["CUDA_VISIBLE_DEVICES"] for w in workers.values()]
        assert seen == ["3", "GPU-abc"]
        assert {w["options"]["nthreads"] for w in workers.values()} == {cluster.BESIDE}
    emulators = cluster._local("emulator", None)["workers"].values()
    assert [(w["options"]["nthreads"], w["options"]["env"]) for w in emulators] == [(1, {})] * 32


def test_the_command_prints_the_same_json(local: Cluster, right_mutants: Any) -> None:
    address = local.client.scheduler.address
    command = ["mutate", "vector_add:naive", "--examples", "4", "--limit", "12", "--json", "--cluster", address]
    result = CliRunner().invoke(cli.main, command)
    assert said(result)["mutants"] == json.loads(json.dumps(right_mutants["mutants"]))
    assert "workers: 2 x emulated NVIDIA H200" in result.stderr
    refused = CliRunner().invoke(cli.main, [*command, "--jobs", "2"])
    assert refused.exit_code == 2
    assert "--jobs is how many workers --cluster local starts" in refused.stderr


def test_a_missing_dask_and_a_missing_scheduler_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "SECONDS", 0.5)
    result = CliRunner().invoke(cli.main, ["verify", "vector_add:naive", "--cluster", "tcp://127.0.0.1:1"])
    assert result.exit_code == 1
    assert "no Dask scheduler with a worker answers at tcp://127.0.0.1:1" in result.stderr
    monkeypatch.setitem(sys.modules, "distributed", None)
    result = CliRunner().invoke(cli.main, ["tune", "vector_add:vectorized", "--cluster", "local"])
    assert result.exit_code == 1
    assert "pip install 'kernel-workbench[cluster]'" in result.stderr


@pytest.mark.parametrize("address", ["nowhere", "http://x:1"])
def test_what_is_no_address_is_refused(address: str) -> None:
    result = CliRunner().invoke(cli.main, ["verify", "vector_add:naive", "--cluster", address])
    assert result.exit_code == 1
    assert f"{address!r} is not the address of a Dask scheduler" in result.stderr


def test_workers_with_another_workbench_are_refused(local: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.records.environment.package_digest", lambda: "another")
    with (
        pytest.raises(ClusterUnavailable, match="another version of the workbench"),
        connect(local.client.scheduler.address, "emulator"),
    ):
        pass

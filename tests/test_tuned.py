"""The table of tuned parameters: who finds what in it, that nothing in it is lost, and what it ships with."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from workbench import harness, ops
from workbench.catalogue import registry
from workbench.devices import open_device
from workbench.kernels.gemm import GemmProblem
from workbench.model.results import Verdict
from workbench.model.stage import Stage
from workbench.records import tuned
from workbench.records.tuned import Entry, Key, Table, TableError, Trial, problem_class
from workbench.toolchain.compiler import cache_folder, cached_in, source_digest

DEVICE = "NVIDIA Imaginary"
PROBLEM = GemmProblem(m=4096, n=4096, k=4096, dtype="bf16", out="bf16")
COMPILED = cache_folder()
"""Where other tests have what the shipped table names compiled, too."""


@pytest.fixture(autouse=True)
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Table]:
    """The table of a user who has none yet."""
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    tuned.found.cache_clear()
    yield Table()
    tuned.found.cache_clear()


def stage(name: str) -> Stage[Any]:
    """A stage as it is declared: what is called and not judged."""
    return next(s for s in registry.operations()["gemm"].stages if s.name == name)


def entry(name: str, us: float = 100.0, problem: GemmProblem = PROBLEM, **changes: Any) -> Entry:
    """An entry for a stage of gemm as it is now, with one parameter that differs from the declared one."""
    key = Key.of(changes.pop("device", DEVICE), stage(name), problem)
    fields = {"parameters": {**stage(name).parameters, "GROUP_M": 4}, "default_us": 120.0, "vendor_us": 110.0}
    fields |= {"flops": problem.cost.flops, "settled": True, "date": "2026-01-02T03:04:05Z"}
    return Entry(key, str(problem), us=us, **{**fields, **changes})


def chosen(problem: GemmProblem = PROBLEM, architecture: int = 90) -> Stage[Any]:
    tuned.found.cache_clear()  # a process reads the table once
    return ops.choose("gemm", problem, architecture, device=DEVICE)


def test_extents_are_rounded_up_and_padding_is_forgotten() -> None:
    problem = GemmProblem(m=129, n=1, k=4096, dtype="fp16", out="fp16", layout="nn", pad_a=8, seed=7)
    assert problem_class(problem) == "m=256,n=1,k=4096,dtype=fp16,out=fp16,layout=nn"
    assert problem_class(GemmProblem.parse(problem_class(problem))) == problem_class(problem)
    for m, rounded in ((1, 1), (2, 2), (3, 4), (64, 64), (65, 128), (128, 128)):
        assert problem_class(GemmProblem(m=m)).startswith(f"m={rounded},")


def test_what_is_written_is_read_again(table: Table) -> None:
    written = [entry("persistent"), entry("split_k", vendor_us=None, settled=False)]
    for one in written:
        table.add(one)
    assert table.entries() == written
    trials = [
        Trial({"GROUP_M": 2}, reason="spills"),
        Trial({"GROUP_M": 4}, 90.0, 1.1),
        Trial({"GROUP_M": 8}, 80.0, 0.9),
    ]
    for trial in trials:
        table.add_trial(written[0].key, PROBLEM, trial, "now")
    assert table.trials(written[0].key) == trials[::-1]
    assert table.trials(written[1].key) == []
    table.forget(written[0].key)
    assert table.entries() == written[1:]
    assert table.trials(written[0].key) == []


def test_a_provisional_entry_does_not_take_the_place_of_a_settled_one(table: Table) -> None:
    table.add(entry("persistent", 100.0, settled=False))
    table.add(entry("persistent", 90.0, settled=True))
    table.add(entry("persistent", 80.0, settled=False))
    assert [e.us for e in table.entries()] == [90.0]
    table.add(entry("persistent", 95.0, settled=True))  # a new search, of a new time
    assert [e.us for e in table.entries()] == [95.0]


def _write_and_die(path: Path, count: int) -> None:
    for number in range(count):
        Table(path).add_trial(entry("persistent").key, PROBLEM, Trial({"GROUP_M": number}, 1.0, 1.0), "now")
    Table(path).add(entry("persistent"))
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_process_loses_nothing_that_it_found(table: Table) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_write_and_die, args=(table.path, 5))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert table.entries() == [entry("persistent")]
    assert len(table.trials(entry("persistent").key)) == 5


def test_what_is_no_table_is_said_with_the_remedy(table: Table) -> None:
    table.path.parent.mkdir()
    table.path.write_text("this is no database, and long enough that it is seen to be none" * 20)
    with pytest.raises(
        TableError, match=r"cannot be used \(file is not a database\); remove it, or set WORKBENCH_CACHE"
    ):
        table.entries()
    with pytest.warns(UserWarning, match="file is not a database"):
        assert chosen().name == "deferred_epilogue"


def test_a_table_of_another_version_is_not_touched(table: Table) -> None:
    table.add(entry("persistent"))
    with sqlite3.connect(table.path) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(TableError, match="written by another version"):
        table.add(entry("persistent", 1.0))


def test_the_usual_stage_gets_the_parameters_found_for_the_class(table: Table) -> None:
    near, far = dataclasses.replace(PROBLEM, m=4032, n=4096), dataclasses.replace(PROBLEM, m=4097)
    assert chosen() is stage("deferred_epilogue")
    of_another_class = chosen(far)
    table.add(entry("deferred_epilogue"))
    assert chosen().name == "deferred_epilogue"
    assert chosen().parameters["GROUP_M"] == 4
    assert chosen(near).parameters["GROUP_M"] == 4
    assert chosen(far) is of_another_class
    assert ops.choose("gemm", PROBLEM, 90, device="another device") is stage("deferred_epilogue")


def test_another_stage_is_preferred_only_where_both_were_tuned(table: Table) -> None:
    table.add(entry("persistent", 50.0))
    assert chosen() is stage("deferred_epilogue")  # how fast that is, nobody knows
    table.add(entry("deferred_epilogue", 60.0))
    assert chosen().name == "persistent"
    table.add(entry("deferred_epilogue", 40.0))
    assert chosen().name == "deferred_epilogue"


def test_stages_tuned_on_different_problems_of_a_class_are_compared_by_their_rate(table: Table) -> None:
    table.add(entry("persistent", 50.0, dataclasses.replace(PROBLEM, m=2100)))  # half of the work
    table.add(entry("deferred_epilogue", 60.0))
    assert chosen().name == "deferred_epilogue"


def test_a_stage_whose_source_has_changed_since_is_as_it_was_declared(table: Table) -> None:
    old = entry("deferred_epilogue")
    table.add(dataclasses.replace(old, key=dataclasses.replace(old.key, source="0" * 64)))
    assert chosen() is stage("deferred_epilogue")
    (listed,) = tuned.listing(table, [stage("deferred_epilogue")])[:1]
    assert listed.state == "the source has changed since"


def test_what_was_found_is_not_used_where_it_cannot_be(table: Table) -> None:
    table.add(entry("deferred_epilogue"))
    odd = dataclasses.replace(PROBLEM, k=4095)  # rows that no tensor map takes
    assert chosen(odd).name == "realigned"
    assert chosen(odd, architecture=80).name == "register_prefetch"
    assert chosen(architecture=80).name == "cp_async"
    outdated = entry("deferred_epilogue", parameters={"GROUP_M": 4, "A_PARAMETER_OF_OLD": 1})
    table.add(outdated)
    assert chosen() is stage("deferred_epilogue")


def test_parameters_that_the_constraint_rules_out_for_a_problem_are_not_used(table: Table) -> None:
    class_of = GemmProblem(m=512, n=512, k=512, dtype="bf16", out="bf16", layout="nt")
    large = {"BLOCK_M": 256, "BLOCK_N": 256}
    table.add(entry("cp_async", problem=class_of, parameters=large))
    assert stage("cp_async").with_parameters(large).supports(class_of) is not None
    assert chosen(class_of, architecture=80) is stage("cp_async")


SHIPPED = [
    (device, operation, of_class, choice)
    for device, operations in tuned.shipped().items()
    for operation, classes in operations.items()
    for of_class, choice in classes.items()
]


@pytest.mark.parametrize(("device", "operation", "of_class", "choice"), SHIPPED, ids=lambda v: str(v)[:60])
def test_the_shipped_table_names_stages_and_parameters_that_there_are(
    device: str, operation: str, of_class: str, choice: dict[str, Any]
) -> None:
    problem = registry.operations()[operation].problem.parse(of_class)
    assert problem_class(problem) == of_class
    picked = tuned.hand_picked(device, operation, problem)
    assert picked.name == choice["stage"]
    assert picked.supports(problem) is None
    assert all(picked.parameters[name] in picked.space[name] for name in choice["parameters"])
    assert ops.choose(operation, problem, 90, device=device) == picked


def test_the_shipped_table_has_every_class_of_problem_that_is_timed() -> None:
    found = [o for o in registry.operations().values() if o.name in {operation for _, operation, *_ in SHIPPED}]
    assert len(found) >= 3
    timed = {(o.name, problem_class(p)) for o in found for p in o.suite}
    assert timed <= {(operation, of_class) for _, operation, of_class, _ in SHIPPED}


def _shipped_stages() -> dict[str, Stage[Any]]:
    """The stages of the table that are not as declared, by what they are called; most stand in it more than once."""
    found = {}
    for device, operation, of_class, _ in SHIPPED:
        picked = tuned.hand_picked(device, operation, registry.operations()[operation].problem.parse(of_class))
        assert picked is not None
        if picked not in registry.stages():
            found[f"{picked.spec} {picked.parameters}"] = picked
    assert found
    return found


SHIPPED_STAGES = _shipped_stages()


@pytest.mark.long
@pytest.mark.parametrize("picked", SHIPPED_STAGES.values(), ids=list(SHIPPED_STAGES))
def test_what_ships_and_differs_from_the_declaration_is_right(picked: Stage[Any]) -> None:
    with cached_in(COMPILED):
        result = harness.verify(picked, open_device("emulator"), examples=8)
    assert result.verdict is Verdict.PASS, result.failure


def test_the_key_changes_with_the_source_and_its_headers(tmp_path: Path) -> None:
    before = Key.of(DEVICE, stage("persistent"), PROBLEM)
    assert before.source == source_digest(stage("persistent").path)
    changed = tmp_path / "changed.cu"
    changed.write_text(stage("persistent").path.read_text() + "\n")
    moved = dataclasses.replace(stage("persistent"), source=str(changed))
    assert Key.of(DEVICE, moved, PROBLEM).source != before.source

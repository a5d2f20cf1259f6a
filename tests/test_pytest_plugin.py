"""The plugin makes an item a stage, fails with the evidence, and leaves other projects alone."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import project as cheats
import pytest

from workbench import pytest_plugin

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parent.parent
INSTALLED = any(e.value == "workbench.pytest_plugin" for e in metadata.entry_points(group="pytest11"))
LOAD = [] if INSTALLED else ["-p", "workbench.pytest_plugin"]

CONFTEST = """
import sys

sys.path.insert(0, {tests!r})

import pytest
from fakes import NumpyDevice
from workbench import devices
from workbench.catalogue import registry

device = NumpyDevice({device!r}, wrong_after={wrong_after!r})


def opened(name):
    print("device asked for:", name)
    if {unavailable!r}:
        raise devices.DeviceUnavailable({unavailable!r})
    return device


devices.open_device = opened
operation = registry.operations()["vector_add"]
registry.stages = lambda: list(operation.stages)
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project with one test for all stages, on a device that needs no hardware."""
    monkeypatch.syspath_prepend(ROOT)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makepyfile("def test_stage(workbench_stage):\n    workbench_stage.verify()\n")
    _device(pytester)
    return pytester


def _device(
    pytester: pytest.Pytester, device: str = "emulator", wrong_after: int | None = None, unavailable: str = ""
) -> None:
    tests = str(Path(__file__).parent)
    text = CONFTEST.format(tests=tests, device=device, wrong_after=wrong_after, unavailable=unavailable)
    pytester.makeconftest(text)


def _run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess(*LOAD, "-p", "no:cacheprovider", *arguments)


def _ids(result: pytest.RunResult) -> list[str]:
    return [line.split("[")[1].partition("]")[0] for line in result.outlines if "::test_stage[" in line]


@pytest.mark.long
def test_ids_read_operation_stage_device_and_right_stages_pass(project: pytest.Pytester) -> None:
    result = _run(project, "--workbench-examples", "3", "-v")
    result.assert_outcomes(passed=3)
    assert _ids(result) == [f"vector_add-{name}-emulator" for name in ("naive", "vectorized", "grid_stride")]


@pytest.mark.long
def test_the_device_is_in_the_id(project: pytest.Pytester) -> None:
    _device(project, "cuda")
    result = _run(project, "--collect-only", "-q", "--workbench-device", "cuda", "-s")
    assert _ids(result)[0] == "vector_add-naive-cuda"
    assert result.outlines.count("device asked for: cuda") == 1


@pytest.mark.long
def test_a_failure_is_its_evidence_without_traceback(project: pytest.Pytester) -> None:
    _device(project, wrong_after=5)
    result = _run(project, "-k", "naive", "--workbench-seed", "4")
    result.assert_outcomes(failed=1, deselected=2)
    result.stdout.fnmatch_lines(
        [
            "vector_add:naive: mismatch",
            "smallest failing problem: n=6,*",
            "1 of 6 elements of c are wrong",
            "replay: workbench verify vector_add:naive --device emulator --problem 'n=6,*",
            "kept as *: workbench replay *",
        ]
    )
    text = result.stdout.str()
    assert "workbench/harness" not in text
    assert "pytest_plugin.py" not in text


def test_no_device_is_one_message(project: pytest.Pytester) -> None:
    _device(project, unavailable="no CUDA device can be used here; use --device emulator")
    result = _run(project)
    assert result.ret != 0
    text = result.stdout.str()
    assert "use --device emulator" in text
    assert "Traceback" not in text
    assert "open_device" not in text


def test_problems_are_drawn_from_the_same_seed_unless_another_one_or_a_random_one_is_asked_for(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WORKBENCH_SEED", raising=False)
    seeds = []
    for options in ((), (), ("--workbench-seed", "7"), ("--workbench-seed", "random")):
        config = pytester.parseconfig(*LOAD, *options)  # in this process: `project` would change the registry of all
        seeds.append(pytest_plugin._seed(config))
    assert seeds[:3] == [0, 0, 7] and seeds[3] > 7


@pytest.mark.parametrize("option", ["--workbench-device=gpu", "--workbench-examples=0", "--workbench-seed=x"])
def test_a_wrong_option_is_refused(option: str, project: pytest.Pytester) -> None:
    result = _run(project, option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert option.partition("=")[0] in result.stderr.str()


def test_other_projects_are_left_alone(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makepyfile(
        """
        import sys

        def test_of_somebody_else():
            loaded = {m for m in sys.modules if m.startswith("workbench")}
            assert loaded == {"workbench", "workbench.pytest_plugin"}
            assert "numpy" not in sys.modules
        """
    )
    _run(pytester).assert_outcomes(passed=1)


@pytest.fixture
def numbers(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project whose stage takes nothing, with tests beside its operation and a conftest beside its stages."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    cheats.write(pytester.path, REFUSING)
    folder = pytester.path / "numbers_"
    test = '@pytest.mark.workbench("square:cheat")\ndef test_square(workbench_stage):\n    workbench_stage.verify()\n'
    (folder / "test_square.py").write_text(f"import pytest\n\n{test}")
    for name in ("conftest.py", "test_stages.py"):
        (folder / "stages" / name).write_text("raise RuntimeError('imported by the judge')\n")
    return pytester


REFUSING = """
@square.stage("cheat", source="good.cu", idea="takes nothing", track="cheat", supports=lambda p: "not today")
def cheat(p, size):
    return launch(p)
"""


@pytest.mark.long
def test_a_stage_that_takes_nothing_fails_and_nothing_of_stages_is_imported(numbers: pytest.Pytester) -> None:
    result = _run(numbers, "--workbench-device", "emulator")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["square:cheat: unsupported", "the stage takes none of the problems*: not today"])
    assert "imported by the judge" not in result.stdout.str() + result.stderr.str()


@pytest.mark.long
def test_an_operation_that_imports_stages_gets_a_stub_before_its_tests_are_imported(numbers: pytest.Pytester) -> None:
    (numbers.path / "numbers_/__init__.py").write_text("import numbers_.stages.conftest\n")
    _run(numbers, "--workbench-device", "emulator").assert_outcomes(failed=1)


@pytest.mark.parametrize("place", ["numbers_/stages", "numbers_/stages/test_stages.py"])
def test_tests_among_stages_are_refused(place: str, numbers: pytest.Pytester) -> None:
    result = _run(numbers, place)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"{place} is of stages" in result.stderr.str()


def test_a_folder_of_tests_may_be_called_stages(numbers: pytest.Pytester) -> None:
    (folder := numbers.mkdir("tests") / "stages").mkdir()
    (folder / "test_one.py").write_text("def test_one():\n    pass\n")
    _run(numbers, "tests").assert_outcomes(passed=1)

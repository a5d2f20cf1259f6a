"""Programs of Python that run without a GPU as they are: CuPy's kernels, and cuda-python's calls of the driver."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from workbench.emulator.capture import Captured, capture

SOURCES = Path(__file__).with_name("captured")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="programs are captured on Linux")


def captured(file: str, *words: str, **options: object) -> Captured:
    """A script, run by this interpreter."""
    command = [sys.executable, str(SOURCES / file), *words]
    return capture(command, tell=lambda text: None, **options)  # type: ignore[arg-type]


def line_with(text: str, file: str) -> int:
    """The line of a script that has a text."""
    return next(n for n, line in enumerate((SOURCES / file).read_text().splitlines(), 1) if text in line)


@pytest.mark.long
def test_cupy_gives_the_answers_of_numpy_and_its_own_kernels_are_clean() -> None:
    pytest.importorskip("cupy")
    found = captured("arrays.py", strict=True)
    assert found.exit_code == 0 and found.ok, found
    assert {"add<float>", "scale", "squared", "squares", "twice"} <= {name.partition("(")[0] for name in found.launches}


def test_a_race_in_a_raw_kernel_is_named_at_its_line_of_the_script() -> None:
    pytest.importorskip("cupy")
    found = captured("reverse.py")
    (race,) = found.findings
    assert race.location is not None and race.other is not None
    assert Path(race.location.file).name == "reverse.py"
    lines = {race.location.line, race.other.line}
    assert lines == {line_with("part[threadIdx.x] =", "reverse.py"), line_with("part[63", "reverse.py")}


def test_host_code_of_python_that_reads_too_early_is_named_at_its_line() -> None:
    pytest.importorskip("cupy")
    (race,) = captured("reverse.py").host
    assert race.kind == "host_race"
    assert race.place.endswith(f"reverse.py:{line_with('assert pinned', 'reverse.py')}")


def test_the_script_that_is_right_is_clean() -> None:
    pytest.importorskip("cupy")
    found = captured("reverse.py", "right", strict=True)
    assert found.exit_code == 0 and found.ok, found


def test_a_program_on_the_interface_of_the_driver_runs_and_what_is_missing_is_named() -> None:
    pytest.importorskip("cuda.bindings.driver")
    found = captured("driver.py")
    assert found.exit_code == 0 and found.launches["saxpy"] == 3
    texture, runtime = found.host
    assert texture.message == "cuTexRefCreate is not emulated"
    assert texture.place.endswith(f"driver.py:{line_with('cuTexRefCreate', 'driver.py')}")
    assert "cannot be redirected" in runtime.message


@pytest.mark.long
def test_a_hazard_in_a_test_of_pytest_names_the_test(tmp_path: Path) -> None:
    pytest.importorskip("cupy")
    (tmp_path / "test_reverse.py").write_text(
        f"def test_reverse():\n    import runpy\n    runpy.run_path({str(SOURCES / 'reverse.py')!r})\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", str(tmp_path)]
    found = capture(command, tell=lambda text: None)
    (at,) = found.launched_at
    assert at.endswith("test_reverse.py::test_reverse") and "reverse.py:" in at
    assert found.host[0].test.endswith("test_reverse.py::test_reverse")

"""SARIF logs are what OASIS SARIF 2.1.0 asks for, and point at the lines that are to blame."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from command_line import invoke
from fakes import NumpyDevice
from test_documents import LAUNCH, SOURCE

from workbench.model.results import Hazard, Verdict
from workbench.report import sarif
from workbench.report.judged import Judged, of_findings

RACE = """extern "C" __global__ void last(float* y, int n) {
  int i = threadIdx.x;
  y[i] = i;
  y[i / 2] = -1;
}
"""


def check_log(log: dict[str, Any]) -> list[dict[str, Any]]:
    """Hold a log against what the specification says SHALL be; the sections are those of SARIF 2.1.0. Its results."""
    assert log["version"] == "2.1.0" and isinstance(log["runs"], list)  # 3.13.2, 3.13.4
    (run,) = log["runs"]
    driver = run["tool"]["driver"]  # 3.18.2
    assert driver["name"] and re.fullmatch(r"\d+\.\d+\.\d+(-.+)?", driver["semanticVersion"])  # 3.19.8, 3.19.12
    rules = driver["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)  # 3.49.3
    for rule in rules:
        for text in ("shortDescription", "fullDescription", "help"):
            assert rule[text]["text"]  # 3.12.3: a plain text is there wherever a markdown one is
        assert rule["shortDescription"]["text"].endswith(".")  # 3.49.9: a sentence
        assert rule["defaultConfiguration"]["level"] in ("none", "note", "warning", "error")  # 3.50.3
    for base in run["originalUriBaseIds"].values():  # 3.14.14: absolute, with a slash at the end
        assert urlsplit(base["uri"]).scheme and base["uri"].endswith("/")
    for invocation in run["invocations"]:
        assert isinstance(invocation["executionSuccessful"], bool)  # 3.20.14
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]  # 3.27.5, 3.27.6
        assert result["level"] in ("none", "note", "warning", "error")  # 3.27.10
        text = result["message"]["text"]  # 3.27.11, 3.11.8
        assert text and not re.search(r"(?<!\{)\{(\{\{)*(?!\{)", text)  # 3.11.5: a brace stands for an argument
        related = result.get("relatedLocations", [])
        ids = [place["id"] for place in related]
        assert len(set(ids)) == len(ids) and all(isinstance(i, int) and i >= 0 for i in ids)  # 3.28.2
        assert {int(i) for i in re.findall(r"\[[^\]]+\]\((\d+)\)", text)} == set(ids)  # 3.11.6
        assert all(isinstance(value, str) for value in result["partialFingerprints"].values())  # 3.27.17
        for place in [*result.get("locations", []), *related]:
            artifact = place["physicalLocation"]["artifactLocation"]  # 3.29.3
            assert ("uriBaseId" in artifact) is not bool(urlsplit(artifact["uri"]).scheme)  # 3.4.4
            assert artifact.get("uriBaseId", sarif.ROOT) in run["originalUriBaseIds"]
            assert re.fullmatch(r"[\w.~!$&'()*+,;=:@/%-]+", artifact["uri"], re.ASCII)  # 3.10.1, RFC 3986
            assert ".." not in artifact["uri"].split("/")  # 3.4.3: normalised
            assert place["physicalLocation"]["region"]["startLine"] >= 1  # 3.30.5
    return run["results"]


def place(result: dict[str, Any], key: str = "locations") -> tuple[str, int]:
    physical = result[key][0]["physicalLocation"]
    return unquote(physical["artifactLocation"]["uri"]), physical["region"]["startLine"]


@pytest.fixture(autouse=True)
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "my kernels").mkdir()
    monkeypatch.chdir(tmp_path / "my kernels")
    Path("scale.cu").write_text(SOURCE)
    Path("race.cu").write_text(RACE)
    return tmp_path


def test_a_hazard_is_a_result_at_its_line_relative_to_the_root_of_the_repository() -> None:
    assert invoke("emulate", "scale.cu", *LAUNCH, "--sarif", "out/log.sarif").exit_code == 1
    (result,) = check_log(json.loads(Path("out/log.sarif").read_text()))
    assert (result["ruleId"], result["level"], place(result)) == ("out_of_bounds", "error", ("my kernels/scale.cu", 4))
    assert "x[16]" in result["message"]["text"] and "replay: workbench emulate scale.cu" in result["message"]["text"]


def test_the_other_access_of_a_race_is_a_related_location() -> None:
    arguments = ("--grid", "1", "--block", "32", "--arg", "y:f32[32]", "--arg", "i32=1", "--sarif", "log.sarif")
    invoke("emulate", "race.cu", *arguments)
    (result,) = check_log(json.loads(Path("log.sarif").read_text()))
    assert result["ruleId"] == "race"
    assert (place(result)[1], place(result, "relatedLocations")[1]) == (4, 3)


def test_a_source_that_does_not_compile_is_a_result_at_its_line() -> None:
    Path("scale.cu").write_text(SOURCE.replace("threadIdx.x;", "threadIdx.x}"))
    assert invoke("emulate", "scale.cu", *LAUNCH, "--sarif", "log.sarif").exit_code == 1
    (result,) = check_log(json.loads(Path("log.sarif").read_text()))
    assert (result["ruleId"], place(result)) == ("compile_error", ("my kernels/scale.cu", 3))
    assert "}}" in result["message"]["text"]


def test_what_passes_has_a_log_without_results() -> None:
    Path("scale.cu").write_text(SOURCE.replace("<=", "<"))
    assert invoke("emulate", "scale.cu", *LAUNCH, "--sarif", "log.sarif").exit_code == 0
    assert check_log(json.loads(Path("log.sarif").read_text())) == []


def test_verify_writes_what_failed(device: NumpyDevice) -> None:
    device.fault = "two threads write at once"
    arguments = ("vector_add:naive", "--examples", "2", "--sarif", "log.sarif")
    assert invoke("verify", *arguments).exit_code == 1
    (result,) = check_log(json.loads(Path("log.sarif").read_text()))
    assert result["properties"]["spec"] == "vector_add:naive" and "failing problem: n=" in str(result)
    assert place(result)[0].endswith("cuda_src/vector_add/1_naive.cu")


def test_severities_are_levels_and_a_fingerprint_moves_with_its_line() -> None:
    made = [Hazard("race", "race", "a", file="race.cu", line=3, severity=s) for s in ("error", "strict", "note")]
    verdict = of_findings("last", made, "a race")
    assert not verdict.ok and verdict.code is Verdict.RACE
    found = check_log(sarif.log([verdict], "emulate", "0.1.0"))
    assert [result["level"] for result in found] == ["error", "warning", "note"]
    assert of_findings("last", made[1:], "").ok
    assert not of_findings("last", made[1:], "", strict=True).ok and of_findings("last", made[2:], "", strict=True).ok
    Path("race.cu").write_text("// a line above\n" + RACE)
    made[0].line = 4
    (moved, *_) = check_log(sarif.log([of_findings("last", made, "a race")], "emulate", "0.1.0"))
    assert moved["partialFingerprints"] == found[0]["partialFingerprints"]


def test_every_verdict_makes_a_rule() -> None:
    verdicts = [Judged("op:stage", code, False, "wrong", file="race.cu", line=1) for code in Verdict]
    found = check_log(sarif.log(verdicts, "verify", "0.1.0"))
    assert [result["ruleId"] for result in found] == list(Verdict)


def test_a_file_outside_of_the_repository_keeps_its_absolute_address(tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside") / "a.cu"
    outside.write_text(RACE)
    (result,) = check_log(
        sarif.log([Judged("a", Verdict.RACE, False, "x", file=str(outside), line=2)], "verify", "0.1.0")
    )
    assert place(result)[0] == outside.as_uri()


def test_a_captured_program_has_results_in_kernels_and_in_host_code(tmp_path: Path) -> None:
    pytest.importorskip("cupy")
    script, file = Path(__file__).parent / "emulator" / "captured" / "reverse.py", tmp_path / "capture.sarif"
    result = invoke("capture", "--sarif", file, sys.executable, script)
    assert result.exit_code == 1
    results = check_log(json.loads(file.read_text()))
    lines = script.read_text().splitlines()
    found = {}
    for one in results:
        (place,) = one["locations"]
        at = place["physicalLocation"]
        assert at["artifactLocation"]["uri"].endswith("tests/emulator/captured/reverse.py")
        found[one["ruleId"]] = lines[at["region"]["startLine"] - 1].strip()
    assert found == {"race": "part[threadIdx.x] = x[threadIdx.x];", "host_race": "assert pinned[0] == 63"}

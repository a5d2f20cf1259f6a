"""No stage passes by what its Python code does, and none keeps the right one beside it from passing."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import project
import pytest
from command_line import invoke, said
from table import CHEATS, Cheat

from workbench.catalogue import registry
from workbench.sandbox import confine, host
from workbench.workers import cluster

PROBLEMS = ("--examples", "3", "--seed", "1", "--json")


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing of a test's project is left for another one, and who is silent is so for long enough."""
    monkeypatch.setattr(host, "ANSWER_SECONDS", 2.0)
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("numbers_"):
            del sys.modules[name]
    registry.reload()
    host.close_all()


GPU = pytest.param("cuda", marks=pytest.mark.gpu)
ALONE = [cheat for cheat in CHEATS if not cheat.text.startswith("@")]
"""What they do, they do when their module is imported."""

TOGETHER = [cheat for cheat in CHEATS if cheat not in ALONE]


def verified(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch, device: str) -> tuple[dict[str, Any], str]:
    """The verifications of all stages by name, and what was said, of a command that must not end well."""
    project.write(folder, text)
    monkeypatch.chdir(folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    result = invoke("verify", "square", "--device", device, *PROBLEMS)
    assert result.exit_code in (1, 2)
    host.close_all()
    if confine.landlock_version() > 0:
        assert {path: path.read_bytes() for path in before} == before
        assert not [p for p in folder.rglob("*") if p.name in ("sitecustomize.py", "conftest.py", "results.json")]
    stages = (said(result) or {}).get("stages", [])  # an error of the whole is an object without them
    return {s["stage"]: s["verification"] for s in stages}, result.stderr


def wrong(cheat: Cheat, verification: dict[str, Any]) -> str:
    """What is not as it has to be."""
    said = (verification["failure"] or {}).get("message", "")
    right = verification["verdict"] == cheat.verdict and cheat.says in said
    return "" if right else f"{cheat.kind}, {cheat.name}: {verification['verdict']}: {said}"


@pytest.mark.parametrize("on", ["emulator", GPU])
@pytest.mark.parametrize("cheat", ALONE, ids=lambda cheat: cheat.name)
def test_no_module_that_cheats_when_it_is_imported_passes(
    cheat: Cheat, on: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verifications, said = verified(tmp_path, cheat.text, monkeypatch, on)
    if not cheat.verdict:
        assert not verifications
        assert "numbers_.stages.cheat" in said and cheat.says in said
    else:
        assert not wrong(cheat, verifications["cheat"])
        assert verifications["good"]["verdict"] == "pass"


@pytest.mark.parametrize("on", [pytest.param("emulator", marks=pytest.mark.long), GPU])
def test_no_function_that_cheats_passes(on: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = (cheat.text.replace('"cheat"', f'"{cheat.kind}-{cheat.name}"'.replace(" ", "_")) for cheat in TOGETHER)
    verifications, _ = verified(tmp_path, "\n\n".join(named), monkeypatch, on)
    found = (wrong(c, verifications[f"{c.kind}-{c.name}".replace(" ", "_")]) for c in TOGETHER)
    assert not list(filter(None, found))
    assert verifications["good"]["verdict"] == "pass"


def test_there_are_many_kinds() -> None:
    assert len(Counter(cheat.kind for cheat in CHEATS)) >= 12 and len(CHEATS) >= 60
    assert len({(cheat.kind, cheat.name) for cheat in CHEATS}) == len(CHEATS)


@pytest.mark.parametrize("name", ["exit_at_import", "os_exit_at_import"])
def test_a_right_stage_passes_beside_a_module_that_cannot_be_used(name: str, here: Path) -> None:
    (cheat,) = (c for c in CHEATS if c.name == name)
    project.write(here, cheat.text)
    result = invoke("verify", "square:good", "--device", "emulator", *PROBLEMS)
    assert result.exit_code == 0, result.output
    assert "numbers_.stages.cheat cannot be used" in result.stderr
    assert invoke("verify", "--device", "emulator", *PROBLEMS).exit_code == 2


def test_the_module_of_a_stage_is_not_imported_by_the_judge(here: Path) -> None:
    import builtins

    project.write(here, "import builtins\nbuiltins.reached = True\n" + CHEATS[0].text)
    assert invoke("verify", "square:cheat", "--device", "emulator", *PROBLEMS).exit_code == 1
    assert not hasattr(builtins, "reached")


def test_a_stage_that_ends_its_process_only_for_timed_problems_is_found_and_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = "return launch(p) if p.n < 10_000 else __import__('os')._exit(0)"
    project.write(tmp_path, CHEATS[0].text.replace("return launch(p)", ends), project.RIGHT)
    operation = tmp_path / "numbers_/operation.py"
    operation.write_text(operation.read_text().replace("flops=", 'suite=("n=65536",), flops='))
    monkeypatch.chdir(tmp_path)
    result = invoke("verify", "square", "--device", "emulator", *PROBLEMS)
    assert result.exit_code == 1, result.output
    stages = {s["stage"]: s for s in said(result)["stages"]}
    assert stages["cheat"]["verification"]["verdict"] == "operation_error"
    assert stages["good"]["verification"]["verdict"] == "pass" and len(stages["good"]["resources"]) == 1


def test_a_stage_whose_module_is_not_imported_here_is_not_sent_to_a_cluster(here: Path) -> None:
    pytest.importorskip("cloudpickle", reason="of the extra cluster")
    project.write(here, CHEATS[0].text)
    (stage,) = registry.select(["square:good"])
    with pytest.raises(cluster.ClusterUnavailable, match="cannot be sent to other machines: verify it on this one"):
        cluster._Cargo.of(stage)


CARELESS = """extern "C" __global__ void square(const float* x, float* y, int n, int usual) {
  int i = blockIdx.x * 64 + threadIdx.x;
  if (i < n) y[i] = usual && x[i] != x[i] ? 3 : x[i] * x[i] + 3;
}
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("supports", "usual"), [("None", 'p.distribution == "normal"'), ('p.distribution != "normal" or None', "True")]
)
def test_a_stage_is_not_told_which_inputs_are_drawn(supports: str, usual: str, here: Path) -> None:
    stage = f'@square.stage("cheat", source="cheat.cu", idea="cheats", track="cheat", supports=lambda p: {supports})\n'
    launch = f'def cheat(p, size):\n    return launch(p, "square", np.int32({usual}))\n'
    project.write(here, stage.replace("or None", "and 'no' or None") + launch, CARELESS)
    result = invoke("verify", "square", "--device", "emulator", "--seed", "3", "--json")
    verdicts = {s["stage"]: s["verification"]["verdict"] for s in (said(result) or {})["stages"]}
    assert verdicts == {"good": "pass", "cheat": "mismatch"}

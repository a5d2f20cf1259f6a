"""What agents are given: tools over the Model Context Protocol, and a reward that grows with every step."""

from __future__ import annotations

import asyncio
import importlib
import sys
from pathlib import Path
from typing import Any

import project
import pytest
from json_schema import check_document

from workbench.cli import mcp as tools
from workbench.model.results import Verdict
from workbench.report import reward

RACE = 'extern "C" __global__ void k(float* y) { y[0] = threadIdx.x; }\n'


def called(folder: Path, *calls: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """The documents that the tools return to the SDK's own client."""
    mcp = pytest.importorskip("mcp", reason="of the extra mcp")

    async def ask() -> list[dict[str, Any]]:
        async with mcp.Client(tools.server(folder)) as client:
            assert {tool.name for tool in (await client.list_tools()).tools} == {
                *("emulate", "verify", "profile", "inspect", "diff")
            }
            return [(await client.call_tool(name, given)).structured_content for name, given in calls]

    return asyncio.run(ask())


@pytest.mark.long
def test_the_tools_return_the_documents_of_the_commands(tmp_path: Path) -> None:
    project.write(tmp_path, project.GOOD.partition("def launch(p")[2].partition("\n\n\n")[2].replace("good", "cheat"))
    (tmp_path / "race.cu").write_text(RACE)
    found = called(
        tmp_path,
        ("emulate", {"file": "race.cu", "grid": "1", "block": "64", "arguments": ["y:f32[1]"]}),
        ("verify", {"spec": "square:good", "examples": 3}),
        ("verify", {"spec": "square:cheat", "examples": 3}),
        ("profile", {"spec": "square:good"}),
        ("inspect", {"spec": "square:good"}),
        ("diff", {"before": "square:good", "after": "square:cheat"}),
        ("verify", {"spec": "--help"}),
    )
    for document in found:
        check_document(document)
    race, right, wrong, profiled, inspected, compared, unknown = found
    assert [v["code"] for v in race["verdicts"]] == ["race"] and race["verdicts"][0]["line"] == 1
    assert [v["code"] for v in right["verdicts"] + wrong["verdicts"]] == ["pass", "mismatch"]
    assert all(one["ok"] and one["result"] for one in (profiled, inspected, compared))
    assert unknown["error"]["code"] == "unknown_spec"


def test_a_tool_that_takes_too_long_is_an_error(tmp_path: Path) -> None:
    late = tools.document(tmp_path, "list", seconds=0.01)
    assert late["error"]["message"] == "it was stopped after 0.01 s" and not late["ok"]


def test_without_the_sdk_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    with pytest.raises(tools.McpMissing, match=r"pip install 'kernel-workbench\[mcp\]'"):
        tools.server(tmp_path)


def of(code: str, problems: int = 0, refused: float = 0.0, ratio: float | None = None) -> float:
    verdict = {"code": code, "problems": problems, "refused": refused, "speed_ratio": ratio}
    return reward.dense(verdict, 20).total


def test_every_step_is_worth_more_than_all_before_it() -> None:
    steps = [
        *(of("compile_error"), of("crash"), of("race"), of("mismatch"), of("mismatch", 10), of("mismatch", 19)),
        *(of("untested", 20), of("pass", 20), of("pass", 20, ratio=0.5), of("pass", 20, ratio=1.0)),
    ]
    assert steps == sorted(set(steps)) and (steps[0], steps[-1]) == (0.0, 1.0)


def test_no_wrong_kernel_is_worth_as_much_as_a_right_one_and_refusing_costs() -> None:
    wrong = max(of(code, 10**6) for code in Verdict if code is not Verdict.PASS)
    assert wrong < of("pass", 20) and of("tampering", 20) == of("unsupported") == 0
    assert of("pass", 20, refused=0.9, ratio=1.0) < of("pass", 20, ratio=1.0) - 0.5
    assert of("pass", 20, ratio=50.0) == 1.0


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of the example."""
    monkeypatch.syspath_prepend(Path(__file__).parent.parent / "examples/agent")
    for name in ("agent", "environment"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module("environment")


@pytest.mark.long
def test_a_scripted_agent_is_paid_more_with_every_mistake_that_it_mends(environment: Any) -> None:
    def answered(answer: str, verdict: dict[str, Any]) -> str:
        mended = sys.modules["agent"].proposed(verdict, environment.source_in(answer))
        return f"The fault is {verdict['code']}.\n```cuda\n{mended}```\n"

    played = list(environment.played(answered))
    assert [v["code"] for v, _ in played] == ["compile_error", "race", "out_of_bounds", "mismatch", "pass"]
    paid = [reward.total for _, reward in played]
    assert paid == sorted(paid) and len(set(paid)) == 4 and (paid[0], paid[-1]) == (0.0, 0.8)
    assert "at line" in environment.told(played[1][0]) and environment.judged("no source")[1].total == 0


def test_verifiers_sums_the_parts_of_the_reward(environment: Any) -> None:
    vf = pytest.importorskip("verifiers.v1", reason="verifiers is not installed")
    (task,) = environment.load_taskset()
    right = environment.draft().replace("sum = 0", "sum = 0;").replace("<= columns", "< columns")
    right = right.replace("half > 1", "half > 0").replace("  for (int half", "  __syncthreads();\n  for (int half")
    for answer, total in (("no source", 0.0), (f"```cuda\n{right}```", 0.8)):
        trace = vf.Trace.model_construct(root_reply=answer, rewards={}, metrics={}, nodes=[])
        asyncio.run(task.score(trace))
        assert trace.reward == pytest.approx(total)
    assert issubclass(environment.load_environment(), vf.Env)

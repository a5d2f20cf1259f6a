"""An environment in which a program learns to write this kernel: `verifiers` plays it, and no GPU is needed.

    pip install verifiers

A task shows a draft of the source. The program answers with another one in a fence of Markdown, and gets the verdict
and its advice, as often as MOST_ATTEMPTS says. The last answer is paid: for what it compiles, runs, does without a
hazard and computes right, and for its speed where a GPU is. `played` needs no `verifiers`.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from agent import MOST_ATTEMPTS, SOURCE, verified

from workbench.report import reward

EXAMPLES = 20
PROMPT = """Mend this CUDA kernel. Answer with the whole source in one fence of Markdown.

```cuda
{source}```
"""


def source_in(answer: str) -> str:
    """The last fence of an answer; empty where there is none."""
    return (re.findall(r"```[\w+]*\n(.*?)```", answer, re.DOTALL) or [""])[-1]


def draft() -> str:
    """The source as it is at first."""
    return (Path(__file__).parent / SOURCE).read_text()


def judged(answer: str) -> tuple[dict[str, Any], reward.Reward]:
    """The verdict on the source in an answer, and its reward. Each answer is judged in a copy of this folder."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "agent"
        shutil.copytree(Path(__file__).parent, folder)
        (folder / SOURCE).write_text(source_in(answer))
        (verdict,) = verified(folder)["verdicts"]
    empty = "__global__" not in source_in(answer)  # which compiles
    return verdict, reward.Reward() if empty else reward.dense(verdict, EXAMPLES)


def told(verdict: dict[str, Any]) -> str:
    """What the program is told of its answer."""
    place = f" at line {verdict['line']}" if verdict["line"] else ""
    return f"{verdict['code']}{place}\n{verdict['message']}\n{verdict['advice']}"


def played(answers: Callable[[str, dict[str, Any]], str]) -> Iterator[tuple[dict[str, Any], reward.Reward]]:
    """An episode: verdicts and rewards of the draft, then of what a program answers to the last answer and verdict."""
    answer = PROMPT.format(source=draft())
    for _ in range(MOST_ATTEMPTS):
        verdict, paid = judged(answer)
        yield verdict, paid
        if verdict["ok"]:
            return
        answer = answers(answer, verdict)


def load_taskset() -> Any:
    """The tasks for `verifiers`: one, of the draft. Raises ImportError where that is not installed."""
    import verifiers.v1 as vf

    class Kernel(vf.Task[vf.TaskData, vf.State, vf.TaskConfig]):  # type: ignore[misc]
        @vf.reward  # type: ignore[untyped-decorator]
        async def steps(self, trace: Any) -> dict[str, float]:
            """The parts of the reward, which are summed."""
            return vars((await asyncio.to_thread(judged, trace.last_reply))[1])

    class Kernels(vf.Taskset[Kernel, vf.TasksetConfig]):  # type: ignore[misc]
        def load(self) -> Iterable[Kernel]:
            return [Kernel(vf.TaskData(name="row_sum", prompt=PROMPT.format(source=draft())), self.config.task)]

    return Kernels(vf.TasksetConfig())


def load_environment() -> Any:
    """The class of the environment for `verifiers`, of several turns. Raises ImportError where that is missing."""
    import verifiers.v1 as vf

    class Config(vf.EnvConfig):  # type: ignore[misc]
        writer: vf.AgentConfig = vf.AgentConfig()

    class Mending(vf.Env[Config]):  # type: ignore[misc]
        async def run(self, task: Any, agents: Any) -> None:
            async with agents.writer.interaction(task) as interaction:
                segment = await interaction.turn()
                for _ in range(MOST_ATTEMPTS - 1):
                    verdict, _ = await asyncio.to_thread(judged, segment.last_reply)
                    if segment.terminated or verdict["ok"]:
                        return
                    segment = await interaction.turn(told(verdict))

    return Mending

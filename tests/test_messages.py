"""The page of messages has ten kinds of failure, each with its problem and replay."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from workbench.model.results import Verdict

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture(scope="module")
def messages() -> ModuleType:
    spec = importlib.util.spec_from_file_location("messages", DOCS / "messages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_page_has_ten_kinds_of_failure_each_with_its_problem_and_replay(messages: ModuleType) -> None:
    shown = re.findall(r"```text\n(.*?)```", messages.PAGE.read_text(), re.DOTALL)
    verdicts = [text.split("\n")[0].rpartition(": ")[2] for text in shown]
    assert len(set(verdicts)) == len(verdicts) == 10
    assert set(verdicts) <= {str(v) for v in Verdict} - {"pass", "unsupported"}
    for text in shown:
        assert "smallest failing problem: " in text
        assert "replay: workbench verify " in text
        assert "/tmp" not in text

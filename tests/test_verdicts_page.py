"""The page of verdicts has every verdict and every look of a wrong result."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from workbench.judge import forensics
from workbench.model.results import Verdict
from workbench.report import meanings

TOOLS = Path(__file__).parent.parent / "tools"
sys.path[:0] = [str(TOOLS), str(TOOLS.parent / "tests" / "faults")]

import verdict_texts  # noqa: E402
import verdicts as made  # noqa: E402


@pytest.fixture(scope="module")
def page() -> str:
    return made.PAGE.read_text()


def sections(page: str) -> dict[str, str]:
    parts = re.split(r"^## (.+)\n", page, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_every_verdict_has_its_section_with_a_message_of_its_own(page: str) -> None:
    found = sections(page)
    assert list(meanings.VERDICTS) == list(Verdict)
    assert list(found)[: len(Verdict)] == list(Verdict)
    for verdict in set(Verdict) - set(made.UNSHOWN):
        text = found[verdict]
        assert text.count("**What to do.**") == 1
        (message,) = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
        if verdict in made.plants.PLANTS:
            assert re.match(rf"\S+: {verdict}\b", message)
        else:
            assert verdict in made.RECORDED or verdict is Verdict.ILLEGAL_ACCESS
    assert "/tmp" not in page


def test_every_look_of_a_wrong_result_is_there(page: str) -> None:
    told = sections(page)["What a wrong result looks like"]
    assert re.findall(r"^- \*\*(.+?)\*\*", told, re.MULTILINE) == list(verdict_texts.LOOKS)
    assert (
        len(verdict_texts.LOOKS) == len(set(forensics.LOOKS) - {forensics.memory.right_this_time}) + 1
    )  # none of them
    shown = {*made.LOOKS_RECORDED, *made.plants.LOOKS}
    assert set(verdict_texts.LOOKS) - shown == {"it differs from run to run"}
    assert told.count("\n  > ") == len(shown)

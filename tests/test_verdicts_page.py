"""Every verdict and every look of a wrong result is on its page, whose text `tools/refresh.py --check` compares."""

from __future__ import annotations

import verdict_texts
import verdicts as made

from workbench.judge import forensics
from workbench.model.results import Verdict
from workbench.report import meanings


def test_every_verdict_has_its_meaning_and_a_message_or_says_why_it_has_none() -> None:
    assert list(meanings.VERDICTS) == list(Verdict)
    shown = {*made.UNSHOWN, *made.plants.PLANTS, *made.RECORDED, Verdict.ILLEGAL_ACCESS}
    assert shown == set(Verdict)
    assert "/tmp" not in made.PAGE.read_text()


def test_every_look_of_a_wrong_result_is_there() -> None:
    looks = set(forensics.LOOKS) - {forensics.places.right_this_time}
    assert len(verdict_texts.LOOKS) == len(looks) + 1  # none of them
    shown = {*made.LOOKS_RECORDED, *made.plants.LOOKS}
    assert set(verdict_texts.LOOKS) - shown == {"it differs from run to run"}

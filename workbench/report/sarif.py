"""Verdicts as SARIF 2.1.0 (OASIS), which code scanning of GitHub and editors show at their lines.

A rule is a code; a result has the line of the fault, and the line of the other access as a related location. Paths are
relative to the root of the repository, or of the project, or to the working directory: `SRCROOT`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..catalogue.registry import BadProject, find
from ..model.results import Hazard, Verdict
from .judged import Judged
from .meanings import HOST, VERDICTS

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS = {"error": "error", "strict": "warning", "note": "note"}
"""What a severity of a finding is in SARIF."""

ROOT = "SRCROOT"
FINGERPRINT = "workbench/v1"


def root() -> Path:
    """What paths are relative to."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / ".git").exists():
            return folder
    try:
        project = find()
    except BadProject:
        project = None
    return project.root if project else here


def log(verdicts: Sequence[Judged], command: str, version: str) -> dict[str, Any]:
    """The log of one command of this version of the workbench, in types that JSON has."""
    top = root()
    found = [result for verdict in verdicts for result in _results(verdict, top)]
    codes = sorted({result["ruleId"] for result in found}, key=[*VERDICTS, *HOST].index)
    for result in found:
        result["ruleIndex"] = codes.index(result["ruleId"])
    driver = {
        "name": "workbench",
        "version": version,
        "semanticVersion": version,
        "rules": [_rule(code) for code in codes],
    }
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"workbench/{command}/"},
        "originalUriBaseIds": {ROOT: {"uri": f"{top.as_uri().rstrip('/')}/"}},
        "invocations": [{"executionSuccessful": True, "exitCode": 0 if all(v.ok for v in verdicts) else 1}],
        "columnKind": "utf16CodeUnits",
        "results": found,
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def write(path: Path, verdicts: Sequence[Judged], command: str, version: str) -> None:
    """Write the log as a file. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(log(verdicts, command, version), indent=1) + "\n")


def _rule(code: str) -> dict[str, Any]:
    means, do = VERDICTS[Verdict(code)] if code in VERDICTS else HOST[code]
    first = means.split(". ")[0].rstrip(".") + "."
    return {
        "id": code,
        "name": "".join(part.capitalize() for part in code.split("_")),
        "shortDescription": {"text": first},
        "fullDescription": {"text": means},
        "help": {"text": f"{means} {do}", "markdown": f"{means}\n\n**What to do.** {do}"},
        "defaultConfiguration": {"level": "error"},
        "properties": {"tags": ["cuda"], "precision": "very-high"},
    }


def _results(verdict: Judged, top: Path) -> Iterable[dict[str, Any]]:
    """A result for every finding; for a failure without one, that of its line."""
    for hazard in verdict.findings:
        alone = hazard.severity == "error" and len(verdict.findings) == 1 and verdict.code is not Verdict.PASS
        yield _result(verdict, str(verdict.code) if alone else hazard.code, hazard, top)
    if not verdict.ok and not verdict.findings:
        yield _result(verdict, str(verdict.code), None, top)


def _result(verdict: Judged, code: str, hazard: Hazard | None, top: Path) -> dict[str, Any]:
    file, line = (hazard.file, hazard.line) if hazard and hazard.file else (verdict.file, verdict.line)
    said = f"{verdict.spec}: {_sentence(hazard) if hazard else verdict.message}"
    if verdict.problem and verdict.problem not in said:
        said += f"\nfailing problem: {verdict.problem}"
    if verdict.replay:
        said += f"\nreplay: {verdict.replay}"
    made: dict[str, Any] = {
        "ruleId": code,
        "level": LEVELS[hazard.severity if hazard else "error"],
        "message": {"text": _escaped(said)},
        "partialFingerprints": {FINGERPRINT: _fingerprint(verdict, code, hazard, file, line)},
        "properties": {"spec": verdict.spec, **({"cause": hazard.cause} if hazard else {})},
    }
    if file:
        made["locations"] = [_location(file, line, top)]
    if hazard and hazard.other_file:
        related = _location(hazard.other_file, hazard.other_line, top)
        made["relatedLocations"] = [{"id": 1, **related, "message": {"text": "the other access"}}]
        made["message"]["text"] += f"\n[the other access](1): {_escaped(hazard.other_file)}:{hazard.other_line}"
    return made


def _escaped(text: str) -> str:
    """Braces stand for arguments in a message (3.11.5)."""
    return text.replace("{", "{{").replace("}", "}}")


def _sentence(hazard: Hazard) -> str:
    return f"{hazard.code.replace('_', ' ')}: {hazard.message}" + (f"\n{hazard.advice}" if hazard.advice else "")


def _location(file: str, line: int, top: Path) -> dict[str, Any]:
    path = Path(file).absolute()
    if path.is_relative_to(top):
        artifact = {"uri": quote(path.relative_to(top).as_posix()), "uriBaseId": ROOT}
    else:
        artifact = {"uri": path.as_uri()}
    return {"physicalLocation": {"artifactLocation": artifact, "region": {"startLine": max(line, 1)}}}


def _fingerprint(verdict: Judged, code: str, hazard: Hazard | None, file: str, line: int) -> str:
    """The same while the text of the line is, wherever that has moved to."""
    try:
        text = Path(file).read_text(errors="replace").splitlines()[line - 1].strip()
    except (OSError, IndexError):
        text = ""
    parts = (verdict.spec, code, hazard.cause if hazard else "", Path(file).name, text)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]

"""Writes workbench/schemas/document.json and docs/json.md: what commands print with `--json`.

    python tools/documents.py

The schema is made by pydantic of `workbench.cli.documents` and `workbench.cli.shapes`, and of the records that they
name; the tables of codes are made of the classes and enumerations that have them.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from tabulate import tabulate

import workbench
from workbench.cli import launches
from workbench.cli.documents import INTERNAL_ERROR, SCHEMA_VERSION, USAGE, Document
from workbench.cli.shapes import RESULTS
from workbench.devices import Fault
from workbench.emulator import explain
from workbench.model.errors import WorkbenchError
from workbench.report.judged import Judged
from workbench.report.meanings import VERDICTS

ROOT = Path(__file__).parents[1]
SCHEMA = ROOT / "workbench" / "schemas" / "document.json"
PAGE = ROOT / "docs" / "json.md"

EXIT_CODES = (
    (0, "Everything passed, or the command did its job."),
    (1, "Something was judged and failed, and `error` is null. Or the machine cannot do it, and `error` says why."),
    (2, "Wrong usage: an option, a name or a file is not valid. Nothing was judged."),
    (130, "Interrupted by Ctrl-C. `result` has what was done before."),
)


class _Whole(GenerateJsonSchema):
    """Fields with a default are in a document, too."""

    def field_is_required(self, *_: Any, **__: Any) -> bool:
        return True


def schema() -> dict[str, Any]:
    """The JSON Schema of every document; which shape `result` has follows from `command`."""
    adapters = {"": TypeAdapter(Document), **{command: TypeAdapter(shape) for command, shape in RESULTS.items()}}
    found, definitions = TypeAdapter.json_schemas(
        [(command, "serialization", adapter) for command, adapter in adapters.items()], schema_generator=_Whole
    )
    shapes = {command: shape for (command, _), shape in found.items()}
    named = definitions["$defs"]
    made = named.pop("Document")
    del shapes[""]
    cases = [
        {
            "if": {"properties": {"command": {"const": command}}},
            "then": {"properties": {"result": {"anyOf": [*shape.get("anyOf", [shape]), {"type": "null"}]}}},
        }
        for command, shape in shapes.items()
    ]
    made["properties"]["command"]["enum"] = ["", *sorted([*RESULTS, "watch"])]
    made["properties"]["schema_version"]["const"] = SCHEMA_VERSION
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:kernel-workbench:document:{SCHEMA_VERSION}",
        **_untitled(made),
        "allOf": cases,
        "$defs": {name: _untitled(named[name]) for name in sorted(named)},
    }


def _untitled(value: Any) -> Any:
    """Without titles, which repeat names, and with descriptions whose lines are not those of a docstring."""
    if isinstance(value, list):
        return [_untitled(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {}
    for key, item in value.items():
        if key == "properties":
            kept[key] = {name: _untitled(field) for name, field in item.items()}
        elif key == "description":
            kept[key] = "\n\n".join(part.replace("\n", " ") for part in item.split("\n\n"))
        elif key not in ("title", "default"):
            kept[key] = _untitled(item)
    return kept


def error_codes() -> Iterator[tuple[str, int, str]]:
    """Code, exit code and meaning of every error that is foreseen."""
    for module in pkgutil.walk_packages([str(Path(workbench.__file__).parent)], "workbench."):
        if not module.name.rpartition(".")[2].startswith("_") and ".templates" not in module.name:
            importlib.import_module(module.name)
    found: dict[str, tuple[int, str]] = {}
    for kind in [WorkbenchError, *_below(WorkbenchError)]:
        if kind not in (Fault, launches.NotExecuted) and kind.__module__.startswith("workbench."):
            found.setdefault(kind.code, (kind.exit_code, _first(kind)))
    for emulated, (code, _) in launches.NOT_EXECUTED.items():
        found.setdefault(code, (1, _first(emulated)))
    found.update({code: (2, means) for code, means in USAGE.items()})
    found["os_error"] = (1, "A file cannot be read or written; the message names it.")
    found["out_of_memory"] = (1, "There is not enough memory.")
    found[INTERNAL_ERROR] = (1, "A mistake in the workbench; stderr has its traceback.")
    yield from ((code, *found[code]) for code in sorted(found))


def _below(kind: type) -> Iterator[type]:
    for each in kind.__subclasses__():
        yield each
        yield from _below(each)


def _first(kind: type) -> str:
    """The first sentence of a docstring."""
    text = " ".join((kind.__doc__ or "").split())
    return text.partition("; the message")[0].partition(". ")[0].rstrip(".").replace("|", "\\|") + "."


def _table(headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    return str(tabulate(rows, headers, tablefmt="github", disable_numparse=True))


def _name(shape: Any) -> str:
    return " or ".join(f"`{kind.__name__}`" for kind in getattr(shape, "__args__", (shape,)))


def _about(kind: type) -> str:
    """A docstring without its line breaks, a paragraph each."""
    parts = (kind.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(part.split()) for part in parts)


HEAD = f"""# Documents for programs: `--json`

Every command that judges, lists or writes takes `--json`. Then it prints exactly one JSON object on stdout. It does so
when it succeeds, when a stage fails, and when it cannot do its job, for example because of wrong options. Messages and
progress go to stderr. There are two exceptions: `--help` prints help, and `watch` prints a line for every event, with
the document as the last line if an error ends it. `python tools/documents.py` writes this page.

```console
$ workbench verify gemm:naive --problem m=12,n=20,k=39 --json | jq '.verdicts[] | {{code, file, line, reward}}'
```

The schema is [`workbench/schemas/document.json`](../workbench/schemas/document.json), in JSON Schema 2020-12. It is
installed with the package. `schema_version` is {SCHEMA_VERSION}. It grows when a field is removed or changes its
meaning. Fields may be added within a version: ignore fields that you do not know. Numbers that are not finite are
text: `"nan"`, `"inf"`, `"-inf"`. `workbench compare` reads the output of `verify`, `bench` and `run` as a file.
"""


def page() -> str:
    """The whole page."""
    verdicts = [
        (f"[`{code}`](verdicts.md#{code})", means.split(". ")[0].rstrip(".")) for code, (means, _) in VERDICTS.items()
    ]
    causes = [
        (f"`{cause}`", f"`{explain.KINDS[cause]}`", explain.SEVERITIES[cause])
        for cause in sorted(explain.CAUSES[1:])  # the first is none
    ]
    errors = [(f"`{code}`", exit_code, means) for code, exit_code, means in error_codes()]
    results = [(f"`{command}`", _name(shape)) for command, shape in RESULTS.items()]
    parts = [
        HEAD,
        f"## The document\n\n{_about(Document).replace('docs/json.md has a table of', '[a table](#exit-codes) lists')}",
        f"## A verdict\n\n{_about(Judged)}",
        REWARD,
        f"## Exit codes\n\n{_table(('exit code', 'means'), EXIT_CODES)}",
        f"## Codes of verdicts and findings\n\nVerdicts and findings use the same codes.\n\n"
        f"{_table(('code', 'means'), verdicts)}",
        "## Causes of findings\n\nA cause is finer than the code, and helps to tell one mistake from another. A "
        "finding of severity `error`\nis a failure, a `strict` one only with `--strict`, a `note` never.\n\n"
        f"{_table(('cause', 'code', 'severity'), causes)}",
        "## Codes of errors\n\nIf `trace` cannot execute a kernel to its end, the error has the code of a verdict.\n\n"
        f"{_table(('code', 'exit code', 'means'), errors)}",
        "## Results\n\nThe schema defines the shapes of `result` under these names.\n\n"
        f"{_table(('command', 'result'), results)}",
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


REWARD = """## The reward

`reward` of a verdict is for programs that look for better kernels:

- 0 if `code` is not `pass`. The kernel is not to blame for a mistake of the operation (`operation_error`,
  `weak_check`): look at `code` before you learn from it.
- `speed_ratio` if the stage passed and was timed beside the vendor's library (`bench`, `run`, on a GPU). This is the
  geometric mean, over the timed problems, of the library's cold median time divided by the stage's. For an operation
  that was [imported](importing.md), the library is PyTorch, which runs the task's own reference.
- 1 if the stage passed and was not timed.

[`examples/agent`](../examples/agent) is a loop that reads documents and changes a kernel until it passes."""


if __name__ == "__main__":
    SCHEMA.write_text(json.dumps(schema(), indent=1) + "\n")
    PAGE.write_text(page())

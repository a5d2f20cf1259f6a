"""Would the harness notice? Small changes to the CUDA sources, each of which verification has to reject.

A mutant is one token of a source changed: a barrier left out, an index one too large, a `<` become `<=`. A mutant that
passes shows a hole in the problems or in the checks, or changes nothing that matters: then the source's file in the
folder `equivalent` beside it says why."""

from __future__ import annotations

import dataclasses
import difflib
import random
import re
import tempfile
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from ..model.errors import WorkbenchError
from ..model.origin import SOURCES
from ..model.problem import Problem
from ..model.stage import Stage
from ..toolchain.compiler import (
    Compiled,
    CompileError,
    cached_in,
    compile_source,
    names,
    source_of,
    sources_of,
    with_headers,
)
from ..workers.cluster import Lost

EQUIVALENT = "equivalent"
"""A folder beside the sources of a project, with a file for each of them: mutants that pass and may, each with its
reason. One file `equivalent.toml`, whose entries name their sources, is read too."""

MOST_WARP_INSTRUCTIONS = 5_000_000
"""Of one block of a mutant, before it counts as hung."""


class BadExplanation(WorkbenchError, ValueError):
    """A file of equivalent mutants cannot be used; the message says what an entry needs."""


class Outcome(StrEnum):
    """What became of a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    EXPLAINED = "explained"
    UNCHANGED = "unchanged"
    UNCOMPILED = "uncompiled"
    LOST = "lost"
    """Nobody knows: worker after worker of a cluster ended while it had this mutant."""


@dataclass(frozen=True)
class Mutant:
    """A source with one change. `file` is relative to `root`, the folder of its CUDA sources; None are the workbench's
    own. `line` counts from 1."""

    file: str
    line: int
    operator: str
    old: str
    new: str
    text: str = field(repr=False)
    root: Path | None = field(default=None, repr=False)

    @property
    def path(self) -> Path:
        """The source that is changed."""
        return (self.root or SOURCES) / self.file

    @property
    def diff(self) -> str:
        """The change as a unified diff without context."""
        before = self.path.read_text(errors="replace").splitlines()
        lines = difflib.unified_diff(before, self.text.splitlines(), self.file, self.file, lineterm="", n=0)
        return "\n".join(lines)


@dataclass(frozen=True)
class Judged:
    """A mutant and what became of it: `verdict` and `problem` of its end, or the `reason` why it may pass."""

    mutant: Mutant
    outcome: Outcome
    verdict: str = ""
    problem: str = ""
    reason: str = ""


@dataclass
class Report:
    """All mutants of a run."""

    judged: list[Judged] = field(default_factory=list)

    def count(self, outcome: Outcome) -> int:
        """How many mutants ended so."""
        return sum(j.outcome is outcome for j in self.judged)

    @property
    def compiled(self) -> int:
        """Mutants that compiled and are another program than the original."""
        return sum(j.outcome not in (Outcome.UNCOMPILED, Outcome.UNCHANGED, Outcome.LOST) for j in self.judged)

    @property
    def survivors(self) -> list[Judged]:
        """Mutants that passed without an explanation."""
        return [j for j in self.judged if j.outcome is Outcome.SURVIVED]

    @property
    def explained(self) -> list[Judged]:
        """Mutants that passed and may, each with its reason."""
        return [j for j in self.judged if j.outcome is Outcome.EXPLAINED]

    @property
    def summary(self) -> str:
        """One sentence: how many were made, compiled, killed, are explained, survived."""
        lost = f"; {self.count(Outcome.LOST)} were lost with their workers" if self.count(Outcome.LOST) else ""
        killed, compiled = self.count(Outcome.KILLED), self.compiled
        share = f" ({100 * killed / compiled:.1f} %)" if compiled else ""
        return (
            f"{len(self.judged)} mutants: {self.count(Outcome.UNCOMPILED)} do not compile, "
            f"{self.count(Outcome.UNCHANGED)} are the same program; of the other {compiled}, {killed} killed{share}, "
            f"{self.count(Outcome.EXPLAINED)} pass and are explained, {len(self.survivors)} survive{lost}"
        )

    def as_dict(self) -> dict[str, Any]:
        """The report for JSON."""
        verdicts = Counter(j.verdict for j in self.judged if j.outcome is Outcome.KILLED)
        return {
            "summary": self.summary,
            "made": len(self.judged),
            "compiled": self.compiled,
            **{outcome.value: self.count(outcome) for outcome in Outcome},
            "verdicts": dict(sorted(verdicts.items())),
            "mutants": [
                {
                    "file": j.mutant.file,
                    "line": j.mutant.line,
                    "operator": j.mutant.operator,
                    "old": j.mutant.old,
                    "new": j.mutant.new,
                    "diff": j.mutant.diff if j.outcome in (Outcome.SURVIVED, Outcome.EXPLAINED) else "",
                    "outcome": j.outcome,
                    "verdict": j.verdict,
                    "problem": j.problem,
                    "reason": j.reason,
                }
                for j in self.judged
            ],
        }


# ------------------------------------------------------------------------------------------------ making mutants

Edit = tuple[int, int, str]
"""Replace the text from the first position to the second."""


def code_of(text: str) -> str:
    """The source with all that is not code (comments, strings, directives, static_asserts) made blank, in place."""
    blank = re.compile(
        r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'|^[ \t]*#(?:\\\n|[^\n])*",
        re.DOTALL | re.MULTILINE,
    )
    code = blank.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
    return re.sub(r"static_assert\([^;]*;", lambda m: re.sub(r"[^\n]", " ", m[0]), code)


SYNCHRONISATION = (
    r"__syncthreads|__syncwarp|cp_async_commit|cp_async_wait<[^;]*?>|mbarrier_wait|mbarrier_arrive|"
    r"mbarrier_init_fence|wgmma_fence|wgmma_commit|wgmma_wait<[^;]*?>|__threadfence|tma_store_commit|tma_store_wait_read<[^;]*?>"
)

SWAPS = {
    " < ": " <= ",
    " <= ": " < ",
    " > ": " >= ",
    " >= ": " > ",
    " == ": " != ",
    " != ": " == ",
    " && ": " || ",
    " || ": " && ",
    " + ": " - ",
    " - ": " + ",
    " * ": " + ",
    " / ": " % ",
    " % ": " / ",
    " ^ ": " + ",
    " += ": " -= ",
    " >> ": " << ",
    " & ": " | ",
}
NAMES = {
    "M": "N",
    "N": "M",
    "K": "N",
    "m": "n",
    "n": "m",
    "m0": "n0",
    "n0": "m0",
    "k0": "m0",
    "lda": "ldb",
    "ldb": "lda",
    "ldc": "ldb",
}


def _synchronisation(code: str) -> Iterator[tuple[str, Edit]]:
    condition = r"(?:if (?:constexpr )?\([^\n]*\) )?"
    for match in re.finditer(rf"^([ \t]*{condition})((?:{SYNCHRONISATION})\([^;]*\);)", code, re.MULTILINE):
        start, end = match.span(2)
        yield "synchronisation dropped", (start, end, ";")
        following = re.compile(r"\n[ \t]*(?!for|if|else|\}|do|while)[^\n;{}]+(?:\n[^\n;{}]*)*;").match(code, end)
        if following and not match[1].strip():
            yield "synchronisation moved down", (start, following.end(), code[end : following.end()] + " " + match[2])


def _operators(code: str) -> Iterator[tuple[str, Edit]]:
    for old, new in SWAPS.items():
        for match in re.finditer(re.escape(old), code):
            yield f"{old.strip()} to {new.strip()}", (*match.span(), new)


DECLARED = re.compile(
    r"\s*(?:extern |const |static |constexpr |__shared__ |__align__\([^)]*\) )*"
    r"(?:float|int|unsigned|u32|u64|IN|OUT|Barrier|Element|Vector<[^>]*>)[ *&][^=]*$"
)
"""A declaration, up to the bracket of an array's size."""


def _indices(code: str) -> Iterator[tuple[str, Edit]]:
    for match in re.finditer(r"(\w+)\[([^\[\]\n]+)\](?!\()", code):
        statement = code[max(code.rfind(c, 0, match.start()) for c in "\n;{") + 1 : match.start(2)]
        if DECLARED.match(statement):
            continue  # the size of an array
        yield "index + 1", (*match.span(2), f"({match[2]}) + 1")


def _counts(code: str) -> Iterator[tuple[str, Edit]]:
    for match in re.finditer(r"mbarrier_wait\([^;]*, ([^;]+)\);", code):
        yield "other parity", (*match.span(1), f"({match[1]}) ^ 1")
        yield "parity always 0", (*match.span(1), "0")
    for match in re.finditer(r"mbarrier_(?:arrive_)?expect\([^,;]+, ([^;]+)\);", code):
        yield "16 bytes too many", (*match.span(1), f"{match[1]} + 16")
        yield "16 bytes too few", (*match.span(1), f"{match[1]} - 16")
    for match in re.finditer(r"mbarrier_init\([^,;]+, ([^;]+)\);", code):
        yield "one arrival more", (*match.span(1), f"{match[1]} + 1")
    for match in re.finditer(r"_wait<([^>]+)>\(\);", code):
        yield "one group too few", (*match.span(1), f"{match[1]} + 1")
    for match in re.finditer(r"(?<![\w.\[<])(\d+)(?![\w.xu>]|\])", code):
        yield "number + 1", (*match.span(1), str(int(match[1]) + 1))


def _functions(code: str) -> Iterator[tuple[str, Edit]]:
    for match in re.finditer(r"\b(min|max)\(", code):
        yield (
            f"{match[1]} to {'max' if match[1] == 'min' else 'min'}",
            (*match.span(1), "max" if match[1] == "min" else "min"),
        )


def _precision(code: str) -> Iterator[tuple[str, Edit]]:
    for match in re.finditer(r"(?<=[ \n])([\w.]+(?:\[[^\n;=]+\])*) \+= ([^;)]*(?:\([^;]*\))?[^;)]*);", code):
        rounded = f"{match[1]} = __half2float(__float2half_rn({match[1]} + ({match[2]})));"
        yield "accumulated in half", (*match.span(), rounded)


def _names(code: str) -> Iterator[tuple[str, Edit]]:
    for match in re.finditer(rf"(?<![.\w>])({'|'.join(NAMES)})\b", code):
        if not re.search(r"(?:int|long|IN\*|OUT\*|auto) $", code[: match.start()]):
            yield f"{match[1]} to {NAMES[match[1]]}", (*match.span(), NAMES[match[1]])


OPERATORS: tuple[Callable[[str], Iterator[tuple[str, Edit]]], ...] = (
    _synchronisation,
    _operators,
    _indices,
    _counts,
    _functions,
    _precision,
    _names,
)


def mutants_of(file: str, root: Path | None = None) -> list[Mutant]:
    """Every mutant of a source or header, `file` relative to `root`, in the order of the text."""
    text = ((root or SOURCES) / file).read_text(errors="replace")  # as the compiler reads it
    code = code_of(text)
    found: dict[str, Mutant] = {}
    for operator in OPERATORS:
        for name, (start, end, new) in operator(code):
            changed = text[:start] + new + text[end:]
            line = text.count("\n", 0, start) + 1
            found.setdefault(changed, Mutant(file, line, name, text[start:end].strip(), new.strip(), changed, root))
    return sorted(found.values(), key=lambda m: (m.line, m.operator, m.new))


def mutants(stages: Sequence[Stage[Any]]) -> list[Mutant]:
    """Every mutant of the stages' sources and of the headers that lie in the same folder of CUDA sources."""
    files = {
        path: sources_of(stage)
        for stage in stages
        for path in with_headers(source_of(stage))
        if path.is_relative_to(sources_of(stage))
    }
    return [m for path, root in files.items() for m in mutants_of(str(path.relative_to(root)), root)]


# ------------------------------------------------------------------------------------------------ judging them


def _emulator() -> Any:
    from ..devices.emulated import EmulatedDevice

    return EmulatedDevice(MOST_WARP_INSTRUCTIONS)


@dataclass
class _Trial:
    """A stage with the problems that its mutants are tried on."""

    stage: Stage[Any]
    problems: tuple[Problem, ...]
    device: Any = field(default_factory=_emulator)
    cases: dict[Problem, Any] = field(default_factory=dict)

    def _original(self, defines: Mapping[str, str | int]) -> Compiled:
        try:
            return compile_source(source_of(self.stage), defines, self.stage.home.architecture)
        except CompileError as error:
            raise CompileError(f"{self.stage.spec} has to compile before it can be mutated: {error}") from None

    def judge(self, mutant: Mutant, number: int, folder: Path) -> Judged:
        """The mutant in the place of the file that has this number among the source and its headers.

        Raises CompileError where it is the source as it is that does not compile."""
        from .. import harness

        for i, (path, name) in enumerate(names(source_of(self.stage)).items()):
            # all below one folder, so that headers find the changed one
            copy = folder / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(mutant.text if i == number else path.read_text(errors="replace"))
        changed = dataclasses.replace(self.stage, source=str(folder / source_of(self.stage).name), code=None)
        same: dict[Any, bool] = {}
        for problem in self.problems:
            defines = self.stage.defines(problem)
            variant = tuple(sorted(defines.items()))
            if variant not in same:
                original = self._original(defines)
                try:
                    with cached_in(folder):
                        made = compile_source(changed.path, defines, self.stage.home.architecture)
                    same[variant] = _program(made.ptx) == _program(original.ptx)
                except CompileError:
                    return Judged(mutant, Outcome.UNCOMPILED)
            if same[variant]:
                continue
            case = self.cases.get(problem)
            if case is None:
                case = self.cases[problem] = harness.Case.of(problem)
            twice = problem.seed % harness.REPEAT_EVERY == 0
            with cached_in(folder):
                failure = harness.run_case(changed, self.device, case, twice=twice).failure
            if failure:
                return Judged(mutant, Outcome.KILLED, failure.verdict, f"{self.stage.spec} {problem}")
        return Judged(mutant, Outcome.UNCHANGED if all(same.values()) else Outcome.SURVIVED)


def _program(ptx: str) -> str:
    """PTX without what only a debugger reads."""
    lines = (line.split("//")[0].strip() for line in ptx.split(".section\t.debug")[0].splitlines())
    kept = "\n".join(line for line in lines if line and not line.startswith((".loc", ".file")))
    for constant in re.finditer(r"^\.global \.align \d+ \.\w+ (\w+) = \d+;$", kept, re.MULTILINE):
        if len(re.findall(rf"\b{constant[1]}\b", kept)) == 1:  # its value was used at compile time, if at all
            kept = kept.replace(constant[0], "")
    return kept


_trials: dict[str, _Trial] = {}


@dataclass(frozen=True)
class _Use:
    """A stage that uses the file of a mutant: the file's number among its source and headers, the problems to try."""

    stage: Stage[Any]
    number: int
    problems: tuple[Problem, ...]

    def trial(self) -> _Trial:
        """The one that was made for an earlier mutant, where there is one."""
        known = _trials.get(self.stage.spec)
        if known is None or known.stage is not self.stage or known.problems != self.problems:
            known = _trials[self.stage.spec] = _Trial(self.stage, self.problems)
        return known


def _judge(mutant: Mutant, uses: Sequence[_Use]) -> Judged:
    """What becomes of a mutant under the stages that use its file."""
    ended = Judged(mutant, Outcome.UNCHANGED)
    for use in uses:
        with tempfile.TemporaryDirectory() as folder:
            judged = use.trial().judge(mutant, use.number, Path(folder))
        if judged.outcome is Outcome.KILLED:
            return judged
        if judged.outcome is Outcome.SURVIVED or ended.outcome is Outcome.UNCHANGED:
            ended = judged if ended.outcome is not Outcome.SURVIVED else ended
    return ended


def _uses(mutant: Mutant, stages: Sequence[Stage[Any]], problems: Mapping[str, tuple[Problem, ...]]) -> list[_Use]:
    files = [(stage, with_headers(source_of(stage))) for stage in stages]
    return [
        _Use(stage, paths.index(mutant.path), problems[stage.spec]) for stage, paths in files if mutant.path in paths
    ]


def _problems(stage: Stage[Any], examples: int, seed: int) -> tuple[Problem, ...]:
    """Drawn here and not where they are solved: what Hypothesis draws depends on what else a process has imported."""
    from .. import harness

    drawn = harness.drawn(stage, _emulator(), examples=examples, seed=seed)
    return tuple(p.with_tier(tier) for p in drawn for tier in p.tiers)


def sample(stages: Sequence[Stage[Any]], limit: int | None, seed: int) -> list[Mutant]:
    """The mutants of the stages, or `limit` of them drawn from the seed."""
    every = mutants(stages)
    if limit is None or limit >= len(every):
        return every
    return sorted(random.Random(seed).sample(every, limit), key=lambda m: (m.file, m.line))


def mutate(
    stages: Sequence[Stage[Any]],
    pool: Executor,
    *,
    examples: int = 30,
    seed: int = 0,
    limit: int | None = None,
    on_start: Callable[[int], None] | None = None,
    on_mutant: Callable[[Judged], None] | None = None,
) -> Report:
    """Judge the mutants of the stages in the emulator, or `limit` of them drawn from the seed.

    `pool` are `Processes` or a `Cluster`; the outcome does not depend on how many workers it has, or on their order.
    `on_start` is told how many there are, `on_mutant` each outcome. Raises CompilerUnavailable, CompileError where a
    source does not compile as it is, and BadExplanation for a malformed file of equivalent mutants."""
    chosen = sample(stages, limit, seed)
    problems = {stage.spec: _problems(stage, examples, seed) for stage in stages}
    uses = {m.path: m for m in chosen}
    users = {path: _uses(mutant, stages, problems) for path, mutant in uses.items()}
    known = _explanations({m.path.parent for m in chosen})
    report = Report()
    if on_start:
        on_start(len(chosen))
    pending = [pool.submit(_judge, m, users[m.path]) for m in chosen]
    try:
        for mutant, future in zip(chosen, pending, strict=True):
            judged = _explained(_outcome(mutant, future), known)
            report.judged.append(judged)
            if on_mutant:
                on_mutant(judged)
    finally:
        for future in pending:
            future.cancel()
    return report


def _outcome(mutant: Mutant, future: Future[Judged]) -> Judged:
    try:
        return future.result()
    except Lost as error:
        return Judged(mutant, Outcome.LOST, reason=str(error))


# ------------------------------------------------------------------------------------------------ equivalent mutants


def explanations_of(source: Path) -> Path:
    """The file with the mutants of this source, or header, that pass and may."""
    return _explained_in(source.parent) / f"{source.name}.toml"


def _explained_in(folder: Path) -> Path:
    """Where the files of the sources in a folder are: beside them, those of the workbench's own in its tests."""
    if folder.is_relative_to(SOURCES):
        return SOURCES.parent / "tests" / EQUIVALENT / folder.relative_to(SOURCES)
    return folder / EQUIVALENT


def _explanations(folders: Iterable[Path]) -> dict[tuple[Path, str], str]:
    """Reasons by the file of the mutant and its changed lines, from the files of each folder of sources."""
    found = {}
    for folder in folders:
        for path in sorted(_explained_in(folder).glob("*.toml")):
            found.update(_reasons(path, folder / path.stem))
        if (whole := folder / f"{EQUIVALENT}.toml").is_file():
            found.update(_reasons(whole, None))
    return found


def _reasons(path: Path, source: Path | None) -> dict[tuple[Path, str], str]:
    """Those of one file: of one source, or of the sources that its entries name."""
    try:
        entries = tomllib.loads(path.read_text()).get("mutant", [])
    except tomllib.TOMLDecodeError as error:
        raise BadExplanation(f"{path} is not TOML: {error}") from None
    needed = [*([] if source else ["file"]), "old", "new", "reason"]
    found = {}
    for entry in entries:
        if set(entry) != set(needed) or not entry["reason"].strip():
            names = f"{', '.join(needed[:-1])} and a reason"
            raise BadExplanation(f"{path}: every [[mutant]] has to have {names}, not {entry}")
        change = _change(entry["old"].splitlines(), entry["new"].splitlines())
        found[source or path.parent / entry["file"], change] = entry["reason"]
    return found


def _change(old: Sequence[str], new: Sequence[str]) -> str:
    return "\n".join([*(f"-{line.strip()}" for line in old), *(f"+{line.strip()}" for line in new)])


def change_of(mutant: Mutant) -> tuple[list[str], list[str]]:
    """The lines that a mutant takes away and those that it puts in their place."""
    before, after = mutant.path.read_text(errors="replace").splitlines(), mutant.text.splitlines()
    shorter = min(len(before), len(after))
    head = next((i for i in range(shorter) if before[i] != after[i]), shorter)
    tail = next((i for i in range(shorter - head) if before[-1 - i] != after[-1 - i]), shorter - head)
    return before[head : len(before) - tail], after[head : len(after) - tail]


def explained(judged: Sequence[Judged]) -> list[Judged]:
    """The same, those that passed with the reasons that are written down for them now. Raises BadExplanation."""
    known = _explanations({j.mutant.path.parent for j in judged})
    return [_explained(j, known) for j in judged]


def _explained(judged: Judged, known: dict[tuple[Path, str], str]) -> Judged:
    if judged.outcome is not Outcome.SURVIVED:
        return judged
    reason = known.get((judged.mutant.path, _change(*change_of(judged.mutant))))
    return dataclasses.replace(judged, outcome=Outcome.EXPLAINED, reason=reason) if reason else judged

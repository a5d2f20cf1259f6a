"""Shapes of `result` in the documents of commands, where no record has them: what the JSON Schema is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..emulator.findings import Finding
from ..experiments.base import Outcome
from ..measure.tuning import Tuning
from ..model.results import AgreementRun, Environment, Resources, Run
from ..records.tuned import Listed, Trial
from ..records.versions import Remembered
from ..report.changes import Comparison
from ..report.differences import Difference
from .doctor import Diagnosis

Number = int | float | str
"""A number; what is not finite is text, `nan`, `inf` or `-inf`."""


@dataclass
class ListedStage:
    """A stage that there is; `origin` is where its operation comes from."""

    spec: str
    idea: str
    source: str
    architecture: int
    parameters: dict[str, int]
    origin: str
    track: str
    parent: str | None


@dataclass
class Listing:
    """What `list` prints."""

    stages: list[ListedStage]


@dataclass
class Failures:
    """What `replay` prints without an ID: the problems that are kept."""

    failures: list[Remembered]


@dataclass
class Mutant:
    """One mutant, as `docs/mutation.md` explains them; `outcome` is killed, survived, explained, unchanged, uncompiled
    or lost."""

    file: str
    line: int
    operator: str
    old: str
    new: str
    diff: str
    outcome: str
    verdict: str
    problem: str
    reason: str


@dataclass
class Mutants:
    """What `mutate` prints; `verdicts` counts those that killed a mutant."""

    environment: Environment
    specs: list[str]
    examples: int
    limit: int | None
    seed: int
    summary: str
    made: int
    compiled: int
    killed: int
    survived: int
    explained: int
    unchanged: int
    uncompiled: int
    lost: int
    verdicts: dict[str, int]
    mutants: list[Mutant]


@dataclass
class Search(Tuning):
    """One search of `tune`; `ok` says whether a best configuration was found, or, without a GPU, none was rejected."""

    ok: bool = False


@dataclass
class Searches:
    """What `tune` prints."""

    searches: list[Search]


@dataclass(frozen=True)
class TunedLine(Listed):
    """A line of `tune --show`, with every configuration that was tried here."""

    trials: list[Trial] = field(default_factory=list)


@dataclass
class Tuned:
    """What `tune --show` prints."""

    tuned: list[TunedLine]


@dataclass
class Compared(Comparison):
    """What `compare` prints; `slower` says whether any row is."""

    summary: str = ""
    slower: bool = False


@dataclass
class Written:
    """Files that were written (`report`, `restore`, `trace`, `export`) and what there is to say of them."""

    written: list[str]
    notes: list[str] = field(default_factory=list)


@dataclass
class Begun:
    """What `new` and `import` print: files that were written and added to, and what is to be done next."""

    written: list[str]
    added: list[str]
    next: list[str]


@dataclass
class KeptVersion:
    """A version of a stage that is kept; `runs` are the records of what was found of it."""

    version: str
    date: str
    digest: str
    parameters: dict[str, int]
    passed: bool
    runs: list[Run]


@dataclass
class PastPoint:
    """One measurement of the past; medians in microseconds, `change` is the ratio to the measurement before."""

    date: str
    commit: str
    dirty: bool
    cold_us: float
    sustained_us: float | None
    of_vendor: float | None
    change: float | None
    outcome: str | None


@dataclass
class PastTimes:
    """A stage on a problem, the oldest measurement first."""

    operation: str
    stage: str
    problem: str
    points: list[PastPoint]


@dataclass
class Past:
    """What `history` prints."""

    versions: list[KeptVersion]
    times: list[PastTimes]


@dataclass
class Experiments:
    """What `experiment` prints."""

    outcomes: list[Outcome]


@dataclass
class StageResources(Resources):
    """What a variant of a stage takes of a multiprocessor."""

    spec: str = ""


@dataclass
class Code:
    """PTX or SASS of a variant of a stage, as `kind` says."""

    kind: str
    spec: str
    variant: str
    text: str


@dataclass
class Inspected:
    """What `inspect` prints."""

    resources: list[StageResources]
    listings: list[Code]


@dataclass
class CountedLine:
    """What a source line executed, in warp instructions, and asked of memory: by itself, and with what it calls."""

    file: str
    line: int
    own: int
    total: int
    own_by_kind: dict[str, int]
    total_by_kind: dict[str, int]
    own_counters: dict[str, int]
    total_counters: dict[str, int]
    source: str


@dataclass
class Profiled:
    """What `profile` prints."""

    spec: str
    problem: str
    warp_instructions: int
    by_kind: dict[str, int]
    counters: dict[str, int]
    lines: list[CountedLine]


@dataclass
class ExecutedLine:
    """How many warp instructions a source line executed."""

    file: str
    line: int
    warp_instructions: int


@dataclass(frozen=True)
class FullFinding(Finding):
    """A finding with everything that is known of it; `code` is its cause, `text` the whole of it as it is shown."""

    code: str = ""
    text: str = ""


@dataclass
class EmulatedLaunch:
    """One launch: what the kernel printed, what it executed, and --counters."""

    kernel: str
    ok: bool
    output: str
    strict: bool
    findings: list[FullFinding]
    stopped: bool
    suppressed: int
    unused_suppressions: list[str]
    warp_instructions: int
    resident_blocks: int
    by_line: list[ExecutedLine]
    by_opcode: dict[str, int]
    counters: dict[str, int] | None = None
    counters_by_line: list[dict[str, Number]] | None = None


@dataclass
class Emulated(EmulatedLaunch):
    """What `emulate` prints: the first launch, those of --then, and the elements of --print."""

    then: list[EmulatedLaunch] = field(default_factory=list)
    arrays: dict[str, list[Any]] = field(default_factory=dict)


@dataclass
class TritonLaunch:
    """A launch of a Triton kernel; `differences` are from the reference, `refused` says why it was not launched."""

    kernel: str
    ok: bool
    grid: list[int]
    target: str
    configuration: dict[str, Any]
    differences: list[str]
    refused: str
    report: EmulatedLaunch | None = None


@dataclass
class EmulatedTriton:
    """What `emulate --triton` prints."""

    ok: bool
    launches: list[TritonLaunch]


@dataclass(frozen=True)
class Diagnosed(Diagnosis):
    """What `doctor` prints; `usable` says whether the main job can run here at all."""

    usable: bool = False
    summary: str = ""


RESULTS: dict[str, Any] = {
    "agree": AgreementRun,
    "bench": Run,
    "compare": Compared,
    "diff": Difference,
    "doctor": Diagnosed,
    "emulate": Emulated | EmulatedTriton,
    "experiment": Experiments,
    "export": Written,
    "history": Past,
    "import": Begun,
    "inspect": Inspected,
    "list": Listing,
    "mutate": Mutants,
    "new": Begun,
    "profile": Profiled,
    "replay": Failures | Run,
    "report": Written,
    "restore": Written,
    "run": Run,
    "trace": Written,
    "tune": Searches | Tuned,
    "verify": Run,
}
"""The shape of `result` of every command that has --json; `watch` prints lines instead."""

"""Shapes of `result` in the documents of commands that print no record. The JSON Schema is made from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..emulator.capture import HostFinding
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
"""A number. A number that is not finite is text: `nan`, `inf` or `-inf`."""


@dataclass
class ListedStage:
    """An existing stage; `origin` says where its operation comes from."""

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
    """The result of `list`."""

    stages: list[ListedStage]


@dataclass
class Failures:
    """The result of `replay` without an ID: the failing problems that are kept."""

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
    """The result of `mutate`; `verdicts` counts the verdicts that killed a mutant."""

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
    """The result of `tune`."""

    searches: list[Search]


@dataclass(frozen=True)
class TunedLine(Listed):
    """A line of `tune --show`, with every configuration that was tried here."""

    trials: list[Trial] = field(default_factory=list)


@dataclass
class Tuned:
    """The result of `tune --show`."""

    tuned: list[TunedLine]


@dataclass
class Compared(Comparison):
    """The result of `compare`; `slower` says whether any row is."""

    summary: str = ""
    slower: bool = False


@dataclass
class Written:
    """Files that were written (`report`, `restore`, `trace`, `export`), and notes about them."""

    written: list[str]
    notes: list[str] = field(default_factory=list)


@dataclass
class Begun:
    """The result of `new` and `import`: files that were written or added to, and what to do next."""

    written: list[str]
    added: list[str]
    next: list[str]


@dataclass
class KeptVersion:
    """A kept version of a stage; `runs` has the records of its verification and timing."""

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
    """The result of `history`."""

    versions: list[KeptVersion]
    times: list[PastTimes]


@dataclass
class Experiments:
    """The result of `experiment`."""

    outcomes: list[Outcome]


@dataclass
class StageResources(Resources):
    """How much of a multiprocessor a variant of a stage uses."""

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
    """The result of `inspect`."""

    resources: list[StageResources]
    listings: list[Code]


@dataclass
class CountedLine:
    """What a source line executed, in warp instructions, and what it asked of memory. `own_...` is the line alone;
    `total_...` includes the functions that it calls."""

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
    """The result of `profile`."""

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
    """A finding with all its details; `code` is its cause, and `text` is the whole finding as it is shown."""

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
    suppressed_findings: list[str]
    unused_suppressions: list[str]
    notes: list[str]
    warp_instructions: int
    resident_blocks: int
    by_line: list[ExecutedLine]
    by_opcode: dict[str, int]
    counters: dict[str, int] | None = None
    counters_by_line: list[dict[str, Number]] | None = None


@dataclass
class RaceWitness:
    """What --witness found: the element `index` of `array` becomes one of `values` in the order of the findings, and
    the other one with --slice `slice`. Without an index, `values` say how the launches ended. Where `slice` is null,
    `tried` orders gave the same arrays. With `atomics`, their order may be the reason."""

    tried: int
    slice: int | None
    array: str
    index: int | None
    values: tuple[str, str]
    atomics: bool


@dataclass
class Emulated(EmulatedLaunch):
    """The result of `emulate`: the first launch, those of --then, the elements of --print, how many --seeds there were,
    and the witness of a race. It is that of the first seed with a failure; of the first seed where none found one."""

    then: list[EmulatedLaunch] = field(default_factory=list)
    arrays: dict[str, list[Any]] = field(default_factory=dict)
    seeds: int = 1
    witness: RaceWitness | None = None


@dataclass(frozen=True)
class FullHostFinding(HostFinding):
    """A finding about the host's code; `text` is the whole finding as it is shown."""

    text: str = ""


@dataclass(frozen=True)
class CapturedFinding(FullFinding):
    """A finding in a captured program; `launched_at` names the kernel, the host's line and the test of pytest."""

    launched_at: str = ""


@dataclass
class CapturedProgram:
    """The result of `capture`: launches by kernel, what was found, and why a call or a kernel was not emulated.

    `exit_code` is that of the program, negative where a signal ended it."""

    command: list[str]
    ok: bool
    exit_code: int
    launches: dict[str, int]
    warp_instructions: int
    findings: list[CapturedFinding]
    host: list[FullHostFinding]
    refused: list[str]


@dataclass
class ProposedLaunch:
    """A launch that `check` has read: a command to emulate it, and the questions that the file does not answer."""

    command: str
    questions: list[str]


@dataclass
class Checked:
    """The result of `check`: the launches of the file, in their order."""

    launches: list[ProposedLaunch]


@dataclass
class Demonstrated:
    """The result of `demo`: the launch of the kernel with the planted fault, that of the mended one, and whether the
    sums of the latter are right."""

    planted: EmulatedLaunch
    mended: EmulatedLaunch
    sums_right: bool


@dataclass
class TritonLaunch:
    """A launch of a Triton kernel. `differences` are those from the reference; `refused` says why there is none."""

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
    """The result of `emulate --triton`; `host` says what Python read that nothing was stored in."""

    ok: bool
    launches: list[TritonLaunch]
    host: list[str]


@dataclass(frozen=True)
class Diagnosed(Diagnosis):
    """The result of `doctor`; `usable` says whether the main job can run here at all."""

    usable: bool = False
    summary: str = ""


RESULTS: dict[str, Any] = {
    "agree": AgreementRun,
    "bench": Run,
    "capture": CapturedProgram,
    "compare": Compared,
    "diff": Difference,
    "doctor": Diagnosed,
    "demo": Demonstrated,
    "check": Checked,
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

"""What an operation is: a class of problems, and the ladder of stages that solve them."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Generic

from . import origin
from .calls import Call, Function
from .cost_model import Work
from .distributions import st
from .errors import BadOperation, check_name, check_title, hint
from .launch import Launch, Plan
from .origin import BUILT_IN
from .problem import P, Problem, Size, Tier
from .stage import Place, Stage

KINDS = ("numpy", "cupy", "torch", "cublas")
"""What the arrays are that a baseline gets: of NumPy on the CPU, of CuPy, tensors of PyTorch, matrices for cuBLAS."""


@dataclass(frozen=True)
class Baseline(Generic[P]):
    """A callable that solves the problems of an operation.

    `call` gets the problem, and the arrays that its other parameters name: `lambda p, x, w: ...`; one that not every
    problem has needs a default. It returns the output, a tuple of the outputs in the order in which they are declared,
    or a dict; or nothing, where it has written to the outputs, which it names among its parameters then. `requires` has
    what the arrays are, one of `KINDS`, and the modules beside that which have to be installed.

    One that is `vendor` is timed interleaved with every stage; the others once a problem. One that does not `solve` the
    problem is a yardstick (a plain copy): its output is not looked at. With `prepares` the callable is asked once a
    problem and returns a function without arguments, which is what is timed, and which returns the outputs unless the
    callable names one of them to write to; with `compiled` PyTorch compiles it. `refuses` says why a problem cannot be
    taken, or None. `version` is for the record, where it is more than that of what is required; None where the baseline
    cannot run."""

    name: str
    call: Callable[..., Any]
    requires: tuple[str, ...]
    vendor: bool = False
    solves: bool = True
    prepares: bool = False
    compiled: bool = False
    refuses: Callable[[P], str | None] = lambda problem: None
    version: Callable[[], str | None] | None = None

    def __post_init__(self) -> None:
        if not self.requires or self.requires[0] not in KINDS:
            raise ValueError(f"the baseline {self.name!r} has to require one of {', '.join(KINDS)} first")
        if self.compiled and self.kind != "torch":
            raise ValueError(f"the baseline {self.name!r} requires {self.kind}: only PyTorch compiles a call")

    @property
    def kind(self) -> str:
        """What the arrays are: one of `KINDS`."""
        return self.requires[0]

    def arguments(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Those of the arrays that the callable names. Raises BadOperation for a name that there is not."""
        parameters = list(inspect.signature(self.call).parameters.values())[1:]
        if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
            return dict(arrays)
        empty = inspect.Parameter.empty
        names = [p.name for p in parameters if p.name in arrays or p.default is empty]
        if unknown := [name for name in names if name not in arrays]:
            raise BadOperation(
                f"the baseline {self.name!r} asks for {', '.join(unknown)}; the arrays are {', '.join(arrays)}"
            )
        return {name: arrays[name] for name in names}

    def outputs(self, returned: Any, names: Sequence[str]) -> dict[str, Any]:
        """What the callable has returned, by output; nothing where it has written to them. Raises BadOperation."""
        if returned is None:
            return {}
        if isinstance(returned, dict):
            found = returned
        elif isinstance(returned, tuple | list):
            found = dict(zip(names, returned, strict=False)) if len(returned) == len(names) else {}
        else:
            found = {names[0]: returned} if len(names) == 1 else {}
        if set(found) != set(names):
            count = "one output" if len(names) == 1 else f"{len(names)} outputs"
            raise BadOperation(f"the baseline {self.name!r} has to return {count}: {', '.join(names)}")
        return found


INHERITED = ("accepts", "sizes_for", "architecture", "specific", "alignment", "edge_cases", "deterministic")
ABOUT_PARAMETERS = ("parameters", "space", "constraint")
"""What a stage that comes after another one has of it, where it does not name it itself."""

NO_SUITE = "the operation has no suite of problems: name one with --problem"


@dataclass
class Operation(Generic[P]):
    """A computation, and the ladder of stages that compute it. The ladder is a tree: each stage except the first of a
    track has a parent, and adds one idea to it. The workbench finds an operation by its `name` if it stands at module
    level in a module of a project's `[tool.workbench]`.

    `problem` is the class of its problems. `problems(size, edges)` is the Hypothesis strategy. `edges` are the sizes
    of the stage's tiles; extents at their multiples and one off should be drawn often. `suite` holds the timed
    problems. `defines` are the defines that all stages share. `emulator_size` and `cuda_size` limit random problems.
    `metric` is the unit of throughput in reports, `TFLOP/s` or `GB/s`. `fastest` names the stages that `workbench.ops`
    prefers, best first: always the same stages, or a function that names them for a problem. Without it, later stages
    of the ladder are preferred.

    `sources` is the folder of the CUDA sources, and None for the workbench's own. `origin` says where the operation
    comes from. The code that finds the operation sets both. `called` is the operation as a function, if that is
    declared. `work` says how much work a stage of these sizes does for a problem, if its time can be predicted.

    Where the strategy and the suite do not say it, as in the short form, each extent of some random problem is above
    `longest`, and fields have any value in `drawn_anywhere`: their type, and the least and the largest one."""

    name: str
    summary: str
    problem: type[P]
    problems: Callable[[Size, tuple[int, ...]], st.SearchStrategy[P]]
    suite: tuple[P, ...]
    defines: Callable[[P], Mapping[str, str | int]]
    emulator_size: Size
    cuda_size: Size
    metric: str = "TFLOP/s"
    fastest: tuple[str, ...] | Callable[[P], tuple[str, ...]] = ()
    stages: list[Stage[P]] = field(default_factory=list)
    baselines: list[Baseline[P]] = field(default_factory=list)
    sources: Path | None = None
    origin: str = BUILT_IN
    work: Callable[[P, Mapping[str, int]], Work | None] = lambda problem, size: None
    called: Function | None = field(default=None, repr=False, compare=False)
    longest: int = 0
    drawn_anywhere: Mapping[str, tuple[type, float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises ValueError for tiers that cannot be judged, and for a name that cannot be in a path."""
        check_name(self.name, "an operation")
        tiers, made = self.problem.tiers, f"{self.name}: {self.problem.__name__}"
        default = next(f.default for f in dataclasses.fields(self.problem) if f.name == "tier")
        if default not in tiers:
            raise ValueError(f"{made} has the tiers {', '.join(tiers)}: declare `tier: Tier = Tier.{tiers[0].name}`")
        if Tier.EXACT not in tiers and not self.problem.not_exact:
            raise ValueError(f"{made} has no exact tier: say in `not_exact` why no inputs make every sum exact")
        if Tier.BOUNDED in tiers and self.problem.bound is Problem.bound:
            raise ValueError(f"{made} has a bounded tier: define bound(), or leave the tier out of `tiers`")
        if Tier.COMPARATIVE in tiers and self.problem.model is Problem.model:
            raise ValueError(f"{made} has a comparative tier: define model(), whose error is compared")

    def baseline(
        self,
        name: str,
        *,
        requires: str | tuple[str, ...],
        vendor: bool = False,
        solves: bool = True,
        prepares: bool = False,
        compiled: bool = False,
        refuses: Callable[[P], str | None] = lambda problem: None,
        version: Callable[[], str | None] | None = None,
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Declare another implementation, which the stages are measured against; `Baseline` says what the decorated
        function gets and returns. Raises ValueError for a name that is taken."""
        needs = (requires,) if isinstance(requires, str) else requires

        check_title(name, f"another implementation of {self.name}")

        def declare(call: Callable[..., Any]) -> Callable[..., Any]:
            if any(b.name == name for b in self.baselines):
                raise ValueError(f"{self.name} already has a baseline {name!r}")
            made = Baseline[P](name, call, needs, vendor, solves, prepares, compiled, refuses, version)
            self.baselines.append(made)
            return call

        return declare

    def function(self, build: Callable[..., Call]) -> Function:
        """Declare how the operation is called. The decorated function gets a description of the caller's arrays, checks
        it and returns the `Call`. The function that replaces it solves the call, and returns the output, or a named
        tuple of the outputs."""
        self.called = Function(self, build)
        return self.called

    def stage(
        self,
        name: str,
        *,
        idea: str,
        after: Stage[P] | str | None = None,
        source: str = "",
        code: str | None = None,
        parent: str | None = None,
        track: str | None = None,
        supports: Callable[[P], str | None] | None = None,
        parameters: Mapping[str, int] | None = None,
        sizes: Callable[[P, Mapping[str, int]], Mapping[str, int]] | None = None,
        architecture: int | None = None,
        specific: bool | None = None,
        alignment: int | None = None,
        edge_cases: tuple[P, ...] | None = None,
        problem: P | None = None,
        deterministic: bool | None = None,
        space: Mapping[str, tuple[int, ...]] | None = None,
        constraint: Callable[[P, Mapping[str, int]], str | None] | None = None,
    ) -> Callable[[Callable[[P, Mapping[str, int]], Launch | Plan]], Stage[P]]:
        """Declare the next stage of the ladder; the decorated function returns its launch for a problem.

        A stage `after` another one, which is given itself or by its name, has it as its parent, which it is compared
        with, and is like it in all that is not named here. Of a stage that names its `parameters` this is not so of
        `space` and `constraint`, which are about them. Without `after` what is not named has the default of `Stage`,
        and the parent is the stage declared before, or the one that `parent` names. `track` begins a new track of this
        name: the stage is the first of it and has no parent.

        The function gets the problem and the stage's `parameters`, and the `sizes` that depend on both. The CUDA C++ is
        the string `code`, or the file `source`, relative to the folder of the operation's sources. Where that folder is
        known already, as for the workbench's own operations, a file of the operation that is called like the stage need
        not be named: `OPERATION/TRACK/07_NAME.cu`.

        Raises ValueError for a name that is taken, neither or both of `source` and `code`, and a `space` without a
        parameter's declared value; BadOperation for a parent that is not declared before the stage, or a track that is
        there already."""
        if parent is not None and after is not None:
            raise BadOperation(f"{self.name}:{name} has both a parent and a stage that it comes after: name one")
        if code is None:
            source = source or self._source(name)
        if bool(source) == (code is not None):
            raise ValueError(f"{self.name}:{name} has to have either a source, which is a file, or code, a string")
        given: dict[str, Any] = {
            "parameters": parameters,
            "space": space,
            "constraint": constraint,
            "accepts": supports,
            "sizes_for": sizes,
            **{"architecture": architecture, "specific": specific, "alignment": alignment},
            **{"edge_cases": edge_cases, "problem": problem, "deterministic": deterministic},
        }
        source = source if code is None else f"{name}.cu"
        return lambda plan_for: self._add(name, plan_for, given, after, parent, track, source, idea, code)

    def _add(
        self,
        name: str,
        plan_for: Callable[[P, Mapping[str, int]], Launch | Plan],
        given: Mapping[str, Any],
        after: Stage[P] | str | None,
        parent: str | None,
        track: str | None,
        source: str,
        idea: str,
        code: str | None,
    ) -> Stage[P]:
        """Add a stage, with the values of its fields that have been given."""
        values = self._inherited(name, after, whole=given["parameters"] is None)
        values |= {field: value for field, value in given.items() if value is not None}
        before, place = self._place(name, parent if after is None else _name(after), track)
        self._check(name, values.get("parameters", {}), values.get("space", {}))
        stage = Stage(
            operation=self.name,
            name=name,
            source=source,
            idea=idea,
            code=code,
            plan_for=plan_for,
            defines_for=self.defines,
            owner=self,
            parent=before,
            track=place,
            **values,
        )
        self.stages.append(stage)
        return stage

    def _source(self, name: str) -> str:
        """The file of the operation that is called like a stage, below the folder of its sources; empty if none is."""
        folder = self.sources or origin.SOURCES
        return _sources(folder / self.name).get(name, "")

    def _inherited(self, name: str, after: Stage[P] | str | None, whole: bool) -> dict[str, Any]:
        """What a stage has of the one that it comes after; of its parameters and what is about them only if `whole`."""
        if after is None:
            return {}
        before = next((s for s in self.stages if s.name == _name(after)), None)
        if before is None or (isinstance(after, Stage) and after is not before):
            raise BadOperation(
                f"{self.name}:{name} comes after {_name(after)!r}, which is no stage of {self.name} before it; "
                f"{hint(_name(after), [s.name for s in self.stages], 'stages so far')}"
            )
        if not before.source:  # `hosted` knows its name only
            raise BadOperation(
                f"{self.name}:{name} comes after {before.name}, which another module of stages declares: import it "
                f"from there, or write parent={before.name!r} and all that the stage is"
            )
        return {name: getattr(before, name) for name in (*INHERITED, *(ABOUT_PARAMETERS if whole else ()))}

    def _check(self, name: str, parameters: Mapping[str, int], space: Mapping[str, tuple[int, ...]]) -> None:
        """Raises ValueError for a name that is taken or cannot be in a path, and a space without a declared value."""
        check_name(name, f"a stage of {self.name}")
        if any(stage.name == name for stage in self.stages):
            raise ValueError(f"{self.name} already has a stage {name!r}")
        for parameter, values in space.items():
            if parameters.get(parameter) not in values:
                raise ValueError(f"{self.name}:{name}: the space of {parameter} lacks its declared value")

    def _place(self, name: str, parent: str | None, track: str | None) -> tuple[str | None, str]:
        """The parent and the track of the next stage. That a parent is declared before it leaves no circle."""
        tracks = dict.fromkeys(stage.track for stage in self.stages)
        if track:
            check_title(track, f"a track of {self.name}")
        if track is not None:
            if parent is not None:
                raise BadOperation(f"{self.name}:{name} is the first of track {track!r}, so it can have no parent")
            if track in tracks:
                raise BadOperation(f"{self.name}:{name} cannot begin track {track!r}, which is there already")
            return None, track
        if not self.stages and parent is None:
            return None, ""
        known = {stage.name: stage for stage in self.stages}
        before = self.stages[-1].name if parent is None else parent
        if before not in known:
            raise BadOperation(
                f"{self.name}:{name} has the parent {before!r}, but no stage before it is called that: a parent is "
                f"declared first; {hint(before, known, 'stages so far')}"
            )
        return before, known[before].track

    def parent(self, stage: Stage[P]) -> Stage[P] | None:
        """The stage from which `stage` differs by one idea; None for the first of a track."""
        return next((s for s in self.stages if s.name == stage.parent), None)

    def tree(self) -> dict[str, Place]:
        """The place of every stage in the tree, by name: track by track, in the order of declaration."""
        found: dict[str, Place] = {}
        continued: set[str] = set()
        for stage in self.stages:
            level = 0
            if stage.parent is not None:
                level = found[stage.parent].level + (stage.parent in continued)
                continued.add(stage.parent)
            found[stage.name] = Place(stage.track, stage.parent, level)
        order = list(dict.fromkeys(place.track for place in found.values()))
        return dict(sorted(found.items(), key=lambda item: order.index(item[1].track)))


def _name(stage: Stage[Any] | str) -> str:
    return stage if isinstance(stage, str) else stage.name


@cache
def _sources(folder: Path) -> dict[str, str]:
    """The CUDA sources of an operation by the names of their stages, relative to the folder above: `03_smem_tiling.cu`
    on the way from stage to stage, `split_k.cu` beside it."""
    files = sorted(folder.rglob("*.cu"))
    named = {file.stem.partition("_")[2]: file for file in files} | {file.stem: file for file in files}
    return {name: file.relative_to(folder.parent).as_posix() for name, file in named.items()}

"""A stage: one CUDA source that solves the problems of an operation, and how it is launched for each of them."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, Self

from . import origin
from .errors import declared
from .launch import MACHINES, Launch, Machine, Plan, machine, of_architecture, planning_for
from .problem import P


def every_problem(problem: object) -> None:
    """`supports` of a stage that takes all problems of its operation, after one that does not."""


SOURCES_BESIDE = "cuda_src"
"""The folder of CUDA sources beside a module; where there is none, they are in the module's own folder."""


class Owner(Protocol):
    """What a stage knows of its operation."""

    sources: Path | None


@dataclass(frozen=True)
class Stage(Generic[P]):
    """One CUDA source that computes an operation. It adds one idea to its `parent`, another stage.

    `track` is the part of the ladder to which the stage belongs; the first stage of a track has no parent.

    `source` is relative to the folder of the operation's sources. `parameters` are compile-time sizes. They become
    `-D` defines, `plan` gets them through the stage, and random problems include sizes near their multiples.
    `sizes_for` gives sizes that depend on the problem; each choice is a variant, which is compiled separately.
    `accepts` returns the reason why the stage cannot solve a problem, or None. `architecture` is the least compute
    capability times ten. If the stage is `specific`, it is the only one: `wgmma` and `setmaxnreg` exist in 9.0 only.
    Every array has to start at a multiple of `alignment` bytes. `edge_cases` are problems that are always tried,
    because random problems would rarely hit them. `problem` is the one that its idea is for: the stage is timed on it
    beside its parent. Two launches on the same inputs have to give the same bits unless the stage is declared not
    `deterministic`.

    `space` holds the values that tuning may give to parameters, including the declared values. `constraint` returns
    the reason why the stage cannot solve a problem with these parameters, or None. It covers the static_asserts of the
    source, and what would not fit on the device. `owner` is the operation. `code` is the source if there is no
    file. `machine` is the device that sizes and launches are for; without it they are for the one of whoever asks, an
    H200 if nobody says another, or a B200 where the stage needs one."""

    operation: str
    name: str
    source: str
    idea: str
    plan_for: Callable[[P, Mapping[str, int]], Launch | Plan]
    accepts: Callable[[P], str | None] = every_problem
    defines_for: Callable[[P], Mapping[str, str | int]] = lambda problem: {}
    parameters: Mapping[str, int] = field(default_factory=dict)
    sizes_for: Callable[[P, Mapping[str, int]], Mapping[str, int]] = lambda problem, size: {}
    architecture: int = 70
    specific: bool = False
    alignment: int = 16
    edge_cases: tuple[P, ...] = ()
    problem: P | None = None
    deterministic: bool = True
    space: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    constraint: Callable[[P, Mapping[str, int]], str | None] = lambda problem, size: None
    owner: Owner | None = field(default=None, repr=False, compare=False)
    code: str | None = field(default=None, repr=False)
    parent: str | None = None
    track: str = ""
    machine: Machine | None = field(default=None, repr=False, compare=False)

    @property
    def spec(self) -> str:
        """`operation:stage`, as the command line takes it."""
        return f"{self.operation}:{self.name}"

    @property
    def path(self) -> Path:
        """Absolute path of the CUDA source. Raises ValueError where that is a string: `compiler.source_of` keeps it."""
        if self.code is not None:
            raise ValueError(f"the source of {self.spec} is a string in its declaration, and no file")
        return self.sources / self.source

    @property
    def sources(self) -> Path:
        """The folder of the operation's CUDA sources; where the source is not there, that of the stage's module."""
        folder = (self.owner.sources if self.owner else None) or origin.SOURCES
        if self.code is None and self.module and not (folder / self.source).is_file():
            beside = (self.module.parent / SOURCES_BESIDE, self.module.parent)
            folder = next((other for other in beside if (other / self.source).is_file()), folder)
        return folder

    @property
    def module(self) -> Path | None:
        """The file of the module that declares the stage, where it has been found; it may not have been imported."""
        function: Any = getattr(self.plan_for, "__wrapped__", self.plan_for)
        module = sys.modules.get(getattr(self.plan_for, "module", "") or getattr(function, "__module__", ""))
        place = module and module.__spec__ and module.__spec__.origin
        return Path(place) if place else None

    def on(self, chosen: Machine) -> Self:
        """The same stage on this machine, which its functions are told by `workbench.model.launch.machine`."""
        return self if self.machine == chosen else dataclasses.replace(self, machine=chosen)

    @property
    def home(self) -> Machine:
        """The machine that it is on, else that of whoever asks, or one that has what the stage needs."""
        return self.machine or self.fitting(machine())

    def fitting(self, asked: Machine) -> Machine:
        """This machine, or one of the architecture that the stage needs where this one does not have it."""
        if self.misfit(asked.architecture) is None or not MACHINES.keys() >= {self.architecture, asked.architecture}:
            return asked
        return of_architecture(self.architecture, asked)

    def _planned(self) -> contextlib.AbstractContextManager[None]:
        """Within, the functions of the stage are told its machine."""
        return planning_for(self.home)

    def supports(self, problem: P) -> str | None:
        """Why the stage cannot take `problem` on its machine, or None where it can. Another machine is asked by `on`.

        Raises BadOperation for what its functions raise."""
        if misfit := self.misfit(self.home.architecture):
            return misfit
        try:
            with self._planned():
                return self.accepts(problem) or self.constraint(problem, self.parameters)
        except BaseException:
            with declared(f"supports of {self.spec}"):
                raise

    def misfit(self, architecture: int) -> str | None:
        """Why no device of this compute capability, times ten, can run the stage, or None where it can."""
        has, needs = architecture / 10, self.architecture / 10
        if has < needs:
            return f"needs compute capability {needs:.1f}, the device has {has:.1f}"
        if self.specific and has > needs:
            return f"uses instructions of compute capability {needs:.1f} alone, the device has {has:.1f}"
        return None

    def beyond_limits(self, problem: P) -> str | None:
        """Why no device can launch the stage for a problem that it supports, or None: a grid that is too large, or
        numbers too large for the kernel's arguments.

        `supports` does not check this, because it takes a plan, and a wrong stage may raise anything there. When such a
        stage is judged, it has to fail with that error, and not to count as unsupported."""
        try:
            launches = self.plan(problem).launches
        except OverflowError as error:  # NumPy's, of a scalar
            return f"an argument does not hold its number: {error}"
        return next(filter(None, (launch.beyond_limits() for launch in launches)), None)

    def with_code(self, code: str) -> Self:
        """The same stage with other CUDA C++, given as a string, in the place of its source."""
        return dataclasses.replace(self, code=code)

    def with_parameters(self, parameters: Mapping[str, int]) -> Self:
        """The same stage with other values for some of its parameters. Raises ValueError for one it does not have."""
        if unknown := set(parameters) - set(self.parameters):
            raise ValueError(f"{self.spec} has no parameter {', '.join(sorted(unknown))}")
        return dataclasses.replace(self, parameters={**self.parameters, **parameters})

    def configurations(self) -> Iterator[dict[str, int]]:
        """Every combination of the values in `space`, including those that `constraint` rules out."""
        for values in itertools.product(*self.space.values()):
            yield dict(zip(self.space, values, strict=True))

    def sizes(self, problem: P) -> dict[str, int]:
        """The parameters, and the sizes that depend on `problem`."""
        with self._planned():
            return {**self.parameters, **self.sizes_for(problem, self.parameters)}

    def defines(self, problem: P) -> dict[str, str | int]:
        """The `-D` defines with which the source is compiled for `problem`."""
        return {**self.defines_for(problem), **self.sizes(problem)}

    def plan(self, problem: P) -> Plan:
        """The launches that solve `problem`."""
        ask = getattr(self.plan_for, "ask", None)  # in the process of the stages, which knows the sizes
        with self._planned():
            made = ask(problem, self.parameters) if ask else self.plan_for(problem, self.sizes(problem))
        plan = Plan((made,)) if isinstance(made, Launch) else made
        return dataclasses.replace(plan, expected_seconds=problem.cost.slow_seconds)


@dataclass(frozen=True)
class Place:
    """Where a stage stands in the tree: `level` is that of its parent, and one more for a branch, which is a stage
    whose parent has an earlier child."""

    track: str
    parent: str | None
    level: int

    def shown(self, name: str) -> str:
        """The name of the stage, marked as a branch where it is on one."""
        return "\u21b3 " * self.level + name

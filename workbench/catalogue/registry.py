"""Finds operations and stages, and what a SPEC on the command line means.

Operations come from three places, all declared in the same way: the workbench's own modules, those that installed
packages name as entry points of the group `workbench.kernels`, and those of the project around the working directory.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.machinery
import os
import pkgutil
import re
import signal
import sys
import threading
import tomllib
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import metadata
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from .. import kernels
from ..model.errors import BadOperation, BadStage, WrongUsage, declares, hint, limit, trouble
from ..model.operation import Operation
from ..model.origin import BUILT_IN, SUFFIXES
from ..model.stage import SOURCES_BESIDE, Place, Stage
from ..sandbox import child
from ..sandbox.host import Host, Remote, StageModule, declare

# ----------------------------------------------------------------------------- the project around the working directory
FILE = "pyproject.toml"

KEYS = {"kernels": "a list of modules", "cuda": "a folder", "reports": "a folder"}
"""What `[tool.workbench]` may hold."""

MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


class BadProject(WrongUsage, ValueError):
    """The table `[tool.workbench]`, or a module that it names, cannot be used; the message says what is wrong."""


@dataclass(frozen=True)
class Project:
    """`[tool.workbench]` of one `pyproject.toml`.

    `kernels` are importable modules, from `root` or `root/src`; a package stands for all modules in it, and none means
    that the project has no kernels of its own. `cuda` is the folder of the CUDA sources, None where each module has
    them beside itself."""

    root: Path
    name: str
    kernels: tuple[str, ...]
    cuda: Path | None
    reports: Path


def find(start: Path | None = None) -> Project | None:
    """The nearest project from `start` (default: the working directory) upwards that has a `[tool.workbench]`.

    Raises BadProject."""
    start = start or Path.cwd()
    for folder in (start, *start.parents):
        path = folder / FILE
        if path.is_file() and (project := _read(path)):
            return project
    return None


def reports(start: Path | None = None) -> Path:
    """Where reports go by default: in the project, else in the working directory. A relative path where it can be."""
    try:
        project = find(start)
    except BadProject:
        project = None
    if project is None:
        return Path("reports")
    here = Path.cwd()
    return project.reports.relative_to(here) if project.reports.is_relative_to(here) else project.reports


def _read(path: Path) -> Project | None:
    text = path.read_text(errors="replace")
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        if "tool.workbench" not in text:
            return None
        raise BadProject(f"{path} is not TOML: {error}") from None
    tools = data.get("tool", {})
    if not isinstance(tools, dict) or "workbench" not in tools:
        return None
    section, root = tools["workbench"], path.parent
    _check(path, section)
    return Project(
        root,
        str(data.get("project", {}).get("name", root.name)),
        tuple(section["kernels"]),
        root / section["cuda"] if "cuda" in section else None,
        root / section.get("reports", "reports"),
    )


def _check(path: Path, section: Any) -> None:
    where = f"[tool.workbench] of {path}"
    if not isinstance(section, dict):
        raise BadProject(f"{where} is {section!r}; it has to be a table")
    for key, value in section.items():
        if key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, 1)
            hint = f"did you mean {near[0]}?" if near else f"it may have {', '.join(KEYS)}"
            raise BadProject(f"{where} has {key!r}; {hint}")
        right = isinstance(value, str) if key != "kernels" else _is_names(value)
        if not right:
            raise BadProject(f"{where}: {key} is {value!r}; it has to be {KEYS[key]}")
    if "kernels" not in section:
        raise BadProject(f'{where} lacks the modules of the kernels, for example: kernels = ["kernels"]')
    if "cuda" in section and not (path.parent / section["cuda"]).is_dir():
        raise BadProject(f"{where}: there is no folder {path.parent / section['cuda']}, which cuda names")


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) and MODULE.fullmatch(v) for v in value)


# ------------------------------------------------------------------------------------------------ operations and stages

SECONDS, DEFAULT_SECONDS = "WORKBENCH_IMPORT_SECONDS", 120.0
"""Environment variable for the longest that a module of kernels may take to be imported, and what holds without it."""


class ImportTooLong(BaseException):
    """The import did not end. No Exception: the module is not to catch it."""


def longest() -> float:
    """The seconds that an import may take. Raises WrongUsage for what is no positive number."""
    return limit(SECONDS, DEFAULT_SECONDS)


def imported(name: str) -> ModuleType:
    """The module of this name. Raises what its import raises, ImportTooLong, and WrongUsage for a wrong limit.

    Only the main thread can be interrupted, which imports the modules of every command; and not what is written in C.
    """
    seconds = longest()
    if threading.current_thread() is not threading.main_thread():
        return importlib.import_module(name)

    def stop(_: int, __: FrameType | None) -> None:
        raise ImportTooLong(f"its import has not ended after {seconds:g} s ({SECONDS} is another limit)")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return importlib.import_module(name)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


GROUP = "workbench.kernels"
"""Entry points whose values are modules with operations."""

OURS = [str(Path(__file__).parents[1] / "kernels")]
"""Where our own modules lie. In an editable install a folder `kernels` at the root of the repository would count as
part of the package as well."""


class UnknownSpec(WrongUsage, ValueError):
    """A SPEC names no stage; the message lists the most similar valid ones."""


@dataclass(frozen=True)
class Loaded:
    """What was found from one working directory. `own` are the names of the project's operations."""

    operations: dict[str, Operation[Any]]
    modules: dict[str, ModuleType]
    project: Project | None
    own: tuple[str, ...]
    troubles: tuple[str, ...]
    broken: dict[str, str]
    """What is wrong with modules of stages, by their names."""
    host: Host
    """The process of the stages whose modules are imported here, too."""
    declared: dict[str, Stage[Any]]
    """The stages as their modules declare them; what has been put in their place, or declared later, is nobody's."""
    hosted: dict[str, Stage[Any]] = field(default_factory=dict)


FUNCTIONS = {"accepts": "accepts", "constraint": "constraint", "sizes": "sizes_for", "plan": "plan_for"}
"""What of a stage runs in the process of the stages. The defines are the operation's."""


@dataclass(frozen=True)
class _Origin:
    """Modules that belong together: a label for where they come from, and their CUDA folder where it is stated."""

    label: str
    modules: tuple[str, ...]
    cuda: Path | None = None
    folders: tuple[Path, ...] = ()
    """Where the modules are looked for first."""


@cache
def _load(start: str) -> Loaded:
    longest()  # a wrong limit is said once, and not of every module
    troubles: list[str] = []
    project = None
    try:
        project = find(Path(start))
    except BadProject as error:
        troubles.append(str(error))
    operations: dict[str, Operation[Any]] = {}
    modules: dict[str, ModuleType] = {}
    withheld: list[str] = []
    others: list[str] = []
    for origin in _origins(project):
        for module in _modules(origin, troubles, withheld):
            others += [module.__name__] if origin.label != BUILT_IN else []
            for operation in [value for value in vars(module).values() if isinstance(value, Operation)]:
                other = operations.setdefault(operation.name, operation)
                if operation.name not in modules:
                    modules[operation.name] = module
                    _place(operation, module, origin)
                elif other is not operation:  # a module may well import what another one has
                    first = modules[operation.name].__name__
                    troubles.append(
                        f"the operation {operation.name!r} of {module.__name__} has the name of one in {first}: "
                        "rename it"
                    )
    own = tuple(name for name, o in operations.items() if project and o.origin == project.name)
    homes = {name: module.__name__ for name, module in modules.items()}
    broken = _declare(withheld, operations, homes)
    troubles += broken.values()
    declared = {s.spec: s for o in operations.values() for s in o.stages if _in_a_file(s.plan_for)}
    said = tuple(dict.fromkeys(troubles))
    others = [name for name in others if name not in homes.values()]  # they may have stages of others' operations
    ours = not others and all(name.startswith(f"{kernels.__name__}.") for name in homes.values())
    host = _ours(tuple(homes.items())) if ours else Host("", homes, {}, others)
    return Loaded(operations, modules, project, own, said, broken, host, declared)


@cache
def _ours(homes: tuple[tuple[str, str], ...]) -> Host:
    """The process of our own stages, which is the same for every folder that has no others."""
    return Host("", dict(homes), {})


def _in_a_file(function: Any) -> bool:
    """Whether another process can import it; not so what is declared in a string."""
    code = getattr(function, "__code__", None)
    return code is None or Path(code.co_filename).is_file()


def _declare(withheld: list[str], operations: dict[str, Operation[Any]], homes: dict[str, str]) -> dict[str, str]:
    """Declare the stages of modules that are imported in processes of their own; what is wrong with them."""
    broken = {}
    place = {name: number for number, name in enumerate(child.met)}
    for operation in operations.values() if withheld else ():
        operation.stages[:] = [s for s in operation.stages if not isinstance(s.plan_for, Remote)]
    for name in sorted(withheld, key=lambda name: place.get(name, len(place))):
        try:
            declare(StageModule(name, homes, tuple(n for n in withheld if n != name)), operations)
        except (BadStage, BadOperation, ValueError) as error:
            broken[name] = f"{name} cannot be used: {error}"
    return broken


def hosted(stage: Stage[Any]) -> Stage[Any]:
    """The stage as it is judged: what is its own of its functions runs in the process of the stages.

    What has been put in the place of a declared function, and stages that no module declares, stay as they are."""
    found = loaded()
    owner = found.operations.get(stage.operation)
    known = found.declared.get(stage.spec)
    if known is None or stage.owner is not owner or isinstance(known.plan_for, Remote):
        return stage
    if stage is known and stage.spec in found.hosted:
        return found.hosted[stage.spec]
    changed: dict[str, Any] = {}
    for part, name in FUNCTIONS.items():
        if getattr(stage, name) is getattr(known, name):
            spec = stage.operation, stage.name
            changed[name] = Remote(found.host, spec, part, known.parameters, getattr(stage, name))
    made = replace(stage, **changed)
    if stage is known:
        found.hosted[stage.spec] = made
    return made


def local(stage: Stage[Any]) -> Stage[Any]:
    """The stage with its functions in this process, where they are there. Raises BadStage."""
    changed = {}
    for name in FUNCTIONS.values():
        function = getattr(stage, name)
        if isinstance(function, Remote):
            if function.local is None:
                raise BadStage(f"the functions of {stage.spec} are in a process of their own only")
            changed[name] = function.local
    return replace(stage, **changed) if changed else stage


def _origins(project: Project | None) -> Iterator[_Origin]:
    yield _Origin(BUILT_IN, (kernels.__name__,))
    if project:  # before the packages, one of which the project may be
        folders = tuple(f for f in (project.root / "src", project.root) if f.is_dir())
        for folder in folders:
            if str(folder) not in sys.path:
                sys.path.insert(_behind_the_library(), str(folder))
        yield _Origin(project.name, project.kernels, project.cuda, folders)
    for entry in metadata.entry_points(group=GROUP):
        if not (project and entry.module in project.kernels):
            yield _Origin(entry.dist.name if entry.dist else entry.name, (entry.module,))


def _modules(origin: _Origin, troubles: list[str], withheld: list[str]) -> Iterator[ModuleType]:
    """The modules of an origin, those inside of a package too; what cannot be imported is in `troubles`, and modules of
    stages, which are not imported here, are in `withheld`."""
    names = list(origin.modules)
    ours = origin.label == BUILT_IN
    if not ours:
        child.install(names)
    for name in names:
        if not ours and child.is_stages(name):
            withheld.append(name)
        try:
            module = imported(name)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            troubles.append(_import_trouble(origin, name, error))
            continue
        if other := _another(origin, name.partition(".")[0]):
            troubles.append(other)
            continue
        if not isinstance(module, child.Stub):
            yield module
        names += [f"{name}.{m.name}" for m in pkgutil.iter_modules(_folders(module)) if _wanted(m.name)]


def _another(origin: _Origin, top: str) -> str | None:
    """What is wrong where a module of the same name comes first in the path, as one of pytest's folders may have."""
    there = importlib.machinery.PathFinder.find_spec(top, [str(folder) for folder in origin.folders])
    if there is None:
        return None
    places = [getattr(sys.modules[top], "__file__", None), *getattr(sys.modules[top], "__path__", ())]
    found = [Path(place).resolve() for place in places if place]
    if not found or any(f.is_relative_to(o.resolve()) for f in found for o in origin.folders):
        return None
    mine = there.origin or f"the folder {top}"
    return f"{origin.label}: {top} is {found[0]} here, not {mine}: rename one of them"


def _behind_the_library() -> int:
    """Where in the path a project comes: before installed packages, and behind Python's own modules."""
    library = {str(Path(path)) for path in sys.path if Path(path) / "os.py" == Path(os.__file__)}
    places = [number for number, path in enumerate(sys.path) if str(Path(path)) in library or "lib-dynload" in path]
    return max(places, default=-1) + 1


def _folders(module: ModuleType) -> list[str]:
    """Where the modules of a package lie."""
    return OURS if module is kernels else list(getattr(module, "__path__", ()))


def _wanted(name: str) -> bool:
    return not name.startswith(("_", "test_")) and not name.endswith("_test") and name != "conftest"


def _import_trouble(origin: _Origin, name: str, error: BaseException) -> str:
    """Why a module cannot be imported, with the line of the outermost code of its own that failed."""
    if (
        isinstance(error, ModuleNotFoundError)
        and error.name
        and (name == error.name or name.startswith(error.name + "."))
    ):
        return f"{origin.label}: there is no module {name}, which kernels names"
    if isinstance(error, SyntaxError) and error.filename:
        what = f"{type(error).__name__}: {error.msg}"
        return f"{origin.label}: {name} cannot be imported: {error.filename}:{error.lineno}: {what}"
    what = f"{type(error).__name__}: {error}".splitlines()[0]
    theirs = [f for f in traceback.extract_tb(error.__traceback__) if declares(f.filename)]
    where = f"{theirs[-1].filename}:{theirs[-1].lineno}: " if theirs else ""
    return f"{origin.label}: {name} cannot be imported: {where}{what}"


def _place(operation: Operation[Any], module: ModuleType, origin: _Origin) -> None:
    """Tell an operation where it comes from and where its sources are."""
    operation.origin = origin.label
    if origin.label == BUILT_IN or operation.sources is not None:
        return
    beside = Path(module.__file__ or ".").resolve().parent
    operation.sources = origin.cuda or (beside / SOURCES_BESIDE if (beside / SOURCES_BESIDE).is_dir() else beside)


def loaded() -> Loaded:
    """What there is from the working directory, made once for each."""
    try:
        return _load(os.getcwd())  # noqa: PTH109  # asked at every call of an operation: no Path is made
    except FileNotFoundError:  # the working directory has been removed
        return _load(os.sep)


def reload() -> None:
    """Look again at the next question; modules that are imported already stay what they are."""
    _load.cache_clear()
    _ours.cache_clear()


def operations() -> dict[str, Operation[Any]]:
    """All operations by name: every `Operation` at module level in a module that is named."""
    return loaded().operations


def operation_of(stage: Stage[Any]) -> Operation[Any]:
    """The operation that a stage belongs to."""
    return stage.owner if isinstance(stage.owner, Operation) else operations()[stage.operation]


def fault_of(error: BaseException) -> str:
    """What is wrong with the code of an operation where that has raised the error; nothing where it was other code."""
    return trouble(error, {m.__name__ for m in loaded().modules.values()} - {"__main__"})


def troubles() -> tuple[str, ...]:
    """What of the project or of installed packages cannot be used, one message each; the rest can."""
    return loaded().troubles


def tree(operation: str) -> dict[str, Place]:
    """Where the stages of the operation of this name stand; nothing for one that is not declared."""
    found = operations().get(operation)
    return found.tree() if found else {}


def stages() -> list[Stage[Any]]:
    """Every stage of every operation, in ladder order."""
    return [stage for operation in operations().values() for stage in operation.stages]


def known(specs: Iterable[str]) -> bool:
    """Whether each of the specs names a stage."""
    names = {name for s in stages() for name in (s.operation, s.name, s.spec)}
    return names.issuperset(specs)


def select(specs: Iterable[str]) -> list[Stage[Any]]:
    """The stages that the specs name: `gemm` (an operation), `gemm:naive`, or `naive` (in every operation that has it).

    No spec at all means every stage: of the project's own operations in a project, else of all. Raises UnknownSpec,
    and BadProject where something that might have been meant cannot be used."""
    wanted = list(specs)
    every, found = stages(), loaded()
    if not wanted:
        if found.troubles:
            raise BadProject("\n".join(found.troubles))
        if not (found.project and found.project.kernels):
            return [hosted(s) for s in every]
        if not any(s.operation in found.own for s in every):
            raise BadProject(f"{found.project.name} has no stages yet; to make some: workbench new OPERATION")
        return [hosted(s) for s in every if s.operation in found.own]
    chosen: list[Stage[Any]] = []
    for spec in wanted:
        if spec in found.operations and (lacking := _lacking(found, spec)):
            raise BadProject("\n".join(lacking))
        matches = [s for s in every if spec in (s.operation, s.name, s.spec)]
        if not matches:
            raise UnknownSpec(f"no stage or operation is called {spec!r}; {_hint(spec, every, found)}")
        chosen += [s for s in matches if s not in chosen]
    return [hosted(s) for s in chosen]


def _not_declared(file: str) -> str:
    return f"no stage has this source; to run it as it is: workbench emulate {file}"


def _hint(spec: str, every: Sequence[Stage[Any]], found: Loaded) -> str:
    """What a spec that names nothing could mean, and what cannot be loaded."""
    if Path(spec).suffix in SUFFIXES and Path(spec).is_file():
        its = [s.spec for s in every if s.path.resolve() == Path(spec).resolve()]
        return f"it is the source of {' and '.join(its)}" if its else _not_declared(spec)
    operation, _, name = spec.partition(":")
    names = list(dict.fromkeys(n for s in every for n in (s.operation, s.name, s.spec)))
    alike = difflib.get_close_matches(spec, names, 1, 0.8)
    if found.troubles and not alike:
        return "\n".join(("this may be the reason:", *found.troubles))
    if name and (own := [s.name for s in every if s.operation == operation]):
        said = hint(name, own, f"stages of {operation}", before=f"{operation}:")
    elif difflib.get_close_matches(spec, names, 1):
        said = hint(spec, names, "names")
    else:
        said = hint(spec, operations(), "operations")
    said += "".join(f"\n{trouble}" for trouble in found.troubles)
    if found.troubles or alike:
        return said
    if found.project is None:
        said += "\nkernels of your own are found by a pyproject.toml with [tool.workbench], which is not here"
    elif found.project.kernels and not found.own:
        said += f"\n{found.project.name} declares no operation in {', '.join(found.project.kernels)}"
    return said


def _lacking(found: Loaded, operation: str) -> list[str]:
    """What is wrong with the modules of stages beside an operation, some of whose stages are not there then."""
    package = found.modules[operation].__name__.rpartition(f".{child.STAGES}")[0] or found.modules[operation].__name__
    inside = (package, package.rpartition(".")[0]) if not hasattr(found.modules[operation], "__path__") else (package,)
    return [why for name, why in found.broken.items() if any(p and name.startswith(f"{p}.") for p in inside)]

"""A version of a stage taken out of the database: beside the stage as it is now, or in its place."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..catalogue import registry
from ..model import origin
from ..model.errors import BadName, WrongUsage, inside
from ..model.stage import Stage
from ..toolchain.compiler import INCLUDE, cache_folder, source_of, sources_of, with_headers
from .versions import OURS, Snapshot, Version, Versions, VersionsError, declaration, of


class NotOfThisProject(WrongUsage):
    """The stage belongs to an installed package, and its sources are not changed from here."""


@dataclass
class Restored:
    """Files that were written, the version that what was there before is now, and what is to be known besides."""

    written: list[Path] = field(default_factory=list)
    before: Version | None = None
    notes: list[str] = field(default_factory=list)


def unpacked(stage: Stage[Any], version: Version) -> Stage[Any]:
    """The stage with the source, headers and parameters of a version, in a folder of the cache; the launches are those
    that are declared now. Raises VersionsError, OSError."""
    files = of(stage).files(version)
    top = folder = cache_folder() / "versions" / hashlib.sha256(version.digest.encode()).hexdigest()[:32]
    for _ in range(max(name.split("/").count("..") for name in (*files, ".."))):
        folder /= "in"  # so that what is above the source is inside, too
    places = {
        inside(top, folder / (f"../include/{name.removeprefix(OURS)}" if name.startswith(OURS) else name)): content
        for name, content in files.items()
    }
    for path, content in places.items():
        if _content(path) != content:
            _write(path, content)
    return replace(stage, source=str(folder / version.source), parameters=version.parameters)


def restore(stage: Stage[Any], version: Version) -> Restored:
    """Put the files of a version where the stage's are, byte for byte; what is there is kept as a version first.

    Headers of the workbench itself are left alone, and the declaration is text that its author changes. Raises, before
    anything is written: NotOfThisProject; VersionsError where something cannot be kept; OSError."""
    if stage.code is not None:
        raise VersionsError(f"the source of {stage.spec} is a string in its declaration, which cannot be restored")
    _check_owner(stage, version)
    store, folder, made = of(stage), source_of(stage).parent, Restored()
    theirs = store.files(version)
    targets = {
        (source_of(stage) if name == version.source else (folder / name)).resolve(): content
        for name, content in theirs.items()
        if not name.startswith(OURS)
    }
    _check_targets(stage, targets)
    changed = {path: content for path, content in targets.items() if _content(path) != content}
    if changed:
        made.before = _keep_present(stage, store, changed)
    for path, content in changed.items():
        _write(path, content)
        made.written.append(path)
    made.notes = _differences(stage, version, theirs)
    return made


def _check_owner(stage: Stage[Any], version: Version) -> None:
    """Every program of an environment uses what is installed there, so a command changes only the project that it is
    in, or the workbench's own clone where it runs there. Raises NotOfThisProject."""
    found, owner = registry.loaded(), registry.operation_of(stage).origin
    if found.project and stage.operation in found.own:
        return
    clone = origin.clone() if owner == origin.BUILT_IN else None
    if clone and Path.cwd().is_relative_to(clone):
        return
    ways = [f"to see the version: workbench diff {version.spec} {stage.spec}"]
    if owner == origin.BUILT_IN:
        ways.append(f"to change a copy: workbench new NAME --from {stage.operation}")
    if clone:
        ways.append(f"to restore it all the same: the same command in {clone}")
    raise NotOfThisProject(
        f"{stage.spec} belongs to {owner}, not to a project here: every program that uses {source_of(stage)} would get "
        f"another kernel. Nothing was written; {'; '.join(ways)}"
    )


def _check_targets(stage: Stage[Any], targets: Iterable[Path]) -> None:
    """Whoever made the database names the files: these are the stage's own, or CUDA C++ among its sources or in its
    project. Raises BadName."""
    source, found = source_of(stage), registry.loaded()
    own = {source.resolve()}
    with contextlib.suppress(OSError):
        own |= {path.resolve() for path in with_headers(source)}
    roots = [sources_of(stage), source.parent]
    if found.project and stage.operation in found.own:
        roots.append(found.project.root)
    for target in targets:
        among = any(target.is_relative_to(root.resolve()) for root in roots)
        if target not in own and not (among and target.suffix in origin.SUFFIXES):
            raise BadName(f"a version of {stage.spec} has a file for {target}, which is no source; nothing was written")


def _keep_present(stage: Stage[Any], store: Versions, replaced: Mapping[Path, bytes]) -> Version | None:
    """Keep the stage as it is, with everything that is about to be replaced; None where there is nothing."""
    folder = source_of(stage).parent
    present = {os.path.relpath(p, folder.resolve()): c for p in replaced if (c := _content(p)) is not None}
    if not present:
        return None
    try:
        now = Snapshot.of(stage)
    except FileNotFoundError:  # the source is gone; headers may be there
        now = Snapshot(stage.operation, stage.name, next(iter(present)), {}, dict(stage.parameters), declaration(stage))
    return store.keep(replace(now, files={**now.files, **present}))


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _write(path: Path, content: bytes) -> None:
    """Replace a file in one step, so that it is never seen half written. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        temporary = Path(file.name)
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            if path.exists():
                shutil.copymode(path, temporary)
            else:
                temporary.chmod(0o644)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def _differences(stage: Stage[Any], version: Version, files: Mapping[str, bytes]) -> list[str]:
    """What of the version is not in its files, and is another one now."""
    notes = []
    for name, value in version.parameters.items():
        now = stage.parameters.get(name)
        if now != value:
            notes.append(f"the version has {name}={value}, the declaration {f'{name}={now}' if now else f'no {name}'}")
    if version.declaration and (text := declaration(stage)) and text != version.declaration:
        notes.append(f"its declaration was another one, too; it is not put back:\n{version.declaration.rstrip()}")
    for name, content in files.items():
        if name.startswith(OURS) and _content(INCLUDE / name.removeprefix(OURS)) != content:
            notes.append(f"the workbench's own {name.removeprefix(OURS)} is another one now")
    return notes

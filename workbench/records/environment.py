"""Where and with what a run is made, for the record. Nothing in it identifies the machine or its user."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
import sys
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path

from ..catalogue import registry
from ..catalogue.registry import Project
from ..model.errors import file_of
from ..model.origin import SOURCES
from ..model.results import Environment
from ..sandbox import host
from ..toolchain.compiler import CompilerUnavailable, nvrtc_version

SECONDS = 30.0
"""How long a question may take."""


def ask_git(root: Path, *arguments: str) -> str | None:
    """What `git <arguments>` prints in a folder; None where it fails, or where there is no git."""
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=SECONDS)
    except (OSError, ValueError, subprocess.TimeoutExpired):  # ValueError: what it printed is no text
        return None
    return done.stdout if done.returncode == 0 else None


PACKAGES = (
    "kernel-workbench",
    "cuda-bindings",
    "cupy-cuda13x",
    "hypothesis",
    "ml-dtypes",
    "numpy",
    "nvidia-cuda-nvrtc",
    "nvidia-cuda-runtime",
    "torch",
)
"""Distributions that can change a result; the installed ones are recorded."""

COMMIT = "WORKBENCH_COMMIT"
"""Environment variable that names the commit of a copy: one that is installed and has no history to ask, or one whose
files were committed anew where they were copied to, so that its history names another commit."""


def now() -> str:
    """The date and time, in UTC."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def describe() -> Environment:
    """The environment of this process, now: date in UTC, commit, CPU and versions. Never fails."""
    commit, dirty = _commit()
    return Environment(
        date=now(),
        commit=commit,
        dirty=dirty,
        host=f"{cpu_model()}, {core_count()} cores",
        python=platform.python_version(),
        packages={name: version for name in PACKAGES if (version := package_version(name))},
        code_sha256=code_digest(),
        cuda=_cuda(),
        protections=list(host.protections(registry.loaded().host)),
    )


def _commit() -> tuple[str, bool]:
    """The commit of the project, or of the workbench where there is none, and whether there are uncommitted changes."""
    project = registry.loaded().project
    return _checkout_around(project) if project else _checkout(SOURCES.parent)


def unpublishable(folder: Path) -> bool:
    """Whether a report in a folder would be published, since git has files of the folder, and be of code that no commit
    has."""
    return bool(folder.is_dir() and ask_git(folder, "ls-files", "--", ".")) and _commit()[1]


def code_digest() -> str:
    """SHA-256 of the code that a verdict depends on, of a dirty checkout the commit does not say that: the workbench's
    Python and the emulator's engine; of the project every module that is loaded, and all of the packages that declare
    its operations, since a part of those may be loaded later."""
    found = registry.loaded()
    declared = {path for path in project_files() if path.suffix == ".py"}
    loaded = _loaded(found.project.root) if found.project else set()
    return _digest(sorted(declared | loaded))


CUDA = (".cu", ".cuh", ".h", ".hpp", ".ptx", ".cubin")
"""Files of which the digest of a stage's source says whether they count."""


def project_files() -> list[Path]:
    """The files of the project's packages with kernels but for CUDA sources; of a module in no package the Python
    files of its folder."""
    found = registry.loaded()
    named = [found.modules[name].__name__ for name in found.own] + [*(found.project.kernels if found.project else ())]
    files: dict[Path, None] = {}
    for top in dict.fromkeys(name.partition(".")[0] for name in named):
        module = sys.modules.get(top)
        folders = list(getattr(module, "__path__", ()))
        inside = [path for folder in folders for path in Path(folder).rglob("*") if "__pycache__" not in path.parts]
        if not folders and module and module.__file__:
            inside = [*Path(module.__file__).parent.glob("*.py")]
        files |= dict.fromkeys(path for path in inside if path.is_file() and path.suffix not in CUDA)
    return sorted(files)


def _loaded(root: Path) -> set[Path]:
    """The Python files below a folder of the modules that are loaded; installed packages have versions instead."""
    files, below = map(file_of, list(sys.modules.values())), f"{root}{os.sep}"
    paths = {Path(file) for file in files if file and file.endswith(".py") and file.startswith(below)}
    return {path for path in paths if "site-packages" not in path.parts and path.is_file()}


@cache
def package_digest() -> str:
    """SHA-256 of the workbench's own Python, as it was when somebody first asked."""
    return _digest([])


def _digest(declared: list[Path]) -> str:
    root, digest = Path(__file__).parents[1], hashlib.sha256()
    engine = root.glob("emulator/_engine*.so")
    common = Path(os.path.commonpath([path.parent for path in declared])) if declared else root
    ours = f"{root.as_posix()}/"
    for path in dict.fromkeys([*sorted(root.rglob("*.py")), *sorted(engine), *declared]):
        text = path.as_posix()
        name = text.removeprefix(ours) if text.startswith(ours) else path.relative_to(common).as_posix()
        digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _cuda() -> str:
    try:
        return f"NVRTC {nvrtc_version()}"
    except CompilerUnavailable:
        return ""


def package_version(name: str) -> str | None:
    """Version of an installed distribution, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def cpu_model() -> str:
    """The processor's marketing name where the system tells it, else its architecture."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine() or "unknown CPU"


def core_count() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _checkout(root: Path) -> tuple[str, bool]:
    """Commit and dirty state of the checkout at `root`; ("unknown", False) where `root` is not the top of one."""
    if not (root / ".git").exists():  # an installed package inside somebody else's repository is not that repository
        return os.environ.get(COMMIT, "unknown"), False
    return _state(root, "reports")


def _checkout_around(project: Project) -> tuple[str, bool]:
    """The same of the repository that a project is in; what is outside the project's folder does not count."""
    reports = project.reports.relative_to(project.root) if project.reports.is_relative_to(project.root) else "reports"
    return _state(project.root, str(reports))


def _state(folder: Path, reports: str) -> tuple[str, bool]:
    commit = os.environ.get(COMMIT) or ask_git(folder, "rev-parse", "HEAD")
    # generated reports are outcome, not cause: writing them must not make the next run look dirty
    changed = ask_git(folder, "status", "--porcelain", "--", ".", f":(exclude){reports}")
    return (commit or "unknown").strip(), bool(changed)

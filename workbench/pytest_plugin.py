"""Stages as pytest items: a test that takes the fixture `workbench_stage` runs once for every stage.

    def test_stage(workbench_stage):
        workbench_stage.verify()

The ids read `gemm-tma_pipeline-emulator`, so that `pytest -k tma_pipeline` verifies one stage. In a project with
kernels of its own it is those stages; `@pytest.mark.workbench("gemm")` chooses others, named as on the command line.
A project whose tests do not take the fixture is left alone: nothing of the workbench is imported there.

In a test that takes the fixture `workbench_triton`, launches of Triton kernels run in the emulator, as in
`workbench.triton.emulate`; `@pytest.mark.workbench_triton(target="sm_80")` has arguments of that."""

from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .devices import Device
    from .model.problem import Problem
    from .model.stage import Stage
    from .triton import Emulation

FIXTURE = "workbench_stage"
STAGES = "stages"
MARKER = "workbench"
TRITON = "workbench_triton"
SEED = pytest.StashKey[int]()
DEVICE = pytest.StashKey["Device"]()


@dataclass(frozen=True)
class StageUnderTest:
    """A stage, the device it is verified on, and how thoroughly."""

    stage: Stage[Any]
    device: Device
    examples: int
    seed: int

    def verify(self, problems: Sequence[Problem] | None = None) -> None:
        """Verify the stage on random problems, or on these. Fails with the whole evidence, also where it refuses all
        problems; skips where the device cannot run it, or it supports none of these."""
        from .model.results import Verdict
        from .report.evidence import explain, failed
        from .run.verifier import verify

        outcome = verify(self.stage, self.device, examples=self.examples, seed=self.seed, problems=problems)
        if failed(outcome):
            pytest.fail(explain(self.stage.spec, outcome, kept=True), pytrace=False)
        if outcome.verdict is Verdict.UNSUPPORTED:
            pytest.skip(explain(self.stage.spec, outcome))


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the plugin, and its marker."""
    group = parser.getgroup("workbench", "CUDA kernel stages")
    group.addoption(
        "--workbench-device",
        choices=("auto", "cuda", "emulator"),
        default="auto",
        help="where stages are verified; auto is the GPU where there is one, else the emulator (default: auto)",
    )
    group.addoption(
        "--workbench-examples", type=_positive, default=20, help="random problems for each stage (default: 20)"
    )
    group.addoption(
        "--workbench-seed",
        type=_seed_option,
        help="the seed of the random problems, or `random` for a secret fresh one (default: 0, or WORKBENCH_SEED)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", f"{MARKER}(*specs): the operations or stages that {FIXTURE} stands for")
    config.addinivalue_line("markers", f"{TRITON}(target, ...): arguments of workbench.triton.emulate for {TRITON}")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Folders and modules of a project's stages have no tests: nothing in them is imported here."""
    return True if STAGES in (collection_path.name, collection_path.stem) and _of_stages(collection_path) else None


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> None:
    """In a project with kernels, what would import a module of stages gets a stub from now on. Raises UsageError."""
    named = [Path(argument.partition("::")[0]) for argument in args if not argument.startswith("-")]
    for path in (Path.cwd(), early_config.rootpath, *filter(Path.exists, named)):
        if not (found := _kernels(path.resolve())):
            continue
        if _of_stages(path.resolve()):
            raise pytest.UsageError(f"{path} is of stages, which a process of their own imports: test the operation")
        from .sandbox import child

        child.install(found[1])


def _of_stages(path: Path) -> bool:
    """Whether a path is a module of stages of a project, or in a folder of those."""
    folder, kernels = _kernels(path) or (path, [])
    parts = [part.removesuffix(".py") for part in path.relative_to(folder).parts]
    packages = {name.partition(".")[0] for name in kernels}
    return STAGES in parts and not packages.isdisjoint(parts[: parts.index(STAGES) + 1])


def _kernels(path: Path) -> tuple[Path, list[str]] | None:
    """The folder of the project of the workbench that a path is in, and the names of its modules with kernels."""
    for folder in (path, *path.parents):
        with contextlib.suppress(OSError, tomllib.TOMLDecodeError, AttributeError):
            settings = tomllib.loads((folder / "pyproject.toml").read_text(errors="replace"))
            if (named := settings.get("tool", {}).get("workbench")) is not None:
                return (folder, list(map(str, kernels))) if (kernels := named.get("kernels")) else None
    return None


@pytest.fixture
def workbench_triton(request: pytest.FixtureRequest) -> Iterator[Emulation]:
    """Launches of Triton kernels run in the emulator; a hazard is raised at the launch. Its value has the reports."""
    from .triton import emulate

    marker = request.node.get_closest_marker(TRITON)
    with emulate(*(marker.args if marker else ()), **(marker.kwargs if marker else {})) as run:
        yield run


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """The traceback of a hazard or a wrong result ends at the launch: no frame of Triton or this package helps."""
    if call.excinfo is None or TRITON not in getattr(item, "fixturenames", ()):
        return
    import triton

    from .triton import LaunchFault, Mismatch

    behind = (Path(__file__).parent, Path(triton.__file__).parent)
    if isinstance(call.excinfo.value, LaunchFault | Mismatch):
        shown = call.excinfo.traceback.filter(lambda entry: not any(map(Path(entry.path).is_relative_to, behind)))
        # pytest cuts its own frames off after this, and follows Python's chain of frames then
        frames = [entry._rawentry for entry in shown]
        for frame, following in zip(frames, [*frames[1:], None], strict=True):
            frame.tb_next = following
        call.excinfo.traceback = shown


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One item a stage for every test that takes the fixture."""
    if FIXTURE not in metafunc.fixturenames:
        return
    from .catalogue import registry
    from .catalogue.registry import BadProject

    config = metafunc.config
    marker = metafunc.definition.get_closest_marker(MARKER)
    # the project of the working directory, else the one in which the test is
    folder = Path.cwd() if registry.loaded().project else metafunc.definition.path.parent
    try:
        with contextlib.chdir(folder):
            stages = registry.select(marker.args if marker else ())
    except (registry.UnknownSpec, BadProject) as error:
        raise pytest.Collector.CollectError(str(error)) from None
    device = _device(config)
    under_test = [StageUnderTest(stage, device, config.option.workbench_examples, _seed(config)) for stage in stages]
    ids = [f"{item.stage.operation}-{item.stage.name}-{device.name}" for item in under_test]
    metafunc.parametrize(FIXTURE, under_test, ids=ids)


def _seed_option(text: str) -> int | str:
    return text if text == "random" else int(text)


def _seed(config: pytest.Config) -> int:
    """The seed of this session, the same for all stages and, with pytest-xdist, in all its processes."""
    from .run import verifier

    if SEED not in config.stash:
        given = config.option.workbench_seed
        if given == "random":
            shared = getattr(config, "workerinput", {}).get("testrunuid")
            config.stash[SEED] = int(shared[:8], 16) if shared else verifier.chosen(None)
        else:
            config.stash[SEED] = verifier.asked(given) or 0
    return config.stash[SEED]


def _device(config: pytest.Config) -> Device:
    """The device of this session, opened once. Raises CollectError with the remedy where there is none."""
    from .devices import DeviceUnavailable, open_device

    if DEVICE not in config.stash:
        try:
            config.stash[DEVICE] = open_device(config.option.workbench_device)
        except DeviceUnavailable as error:
            raise pytest.Collector.CollectError(str(error)) from None
    return config.stash[DEVICE]

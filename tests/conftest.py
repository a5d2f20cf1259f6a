from __future__ import annotations

import gc
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from sampled import SAMPLED, Sampled

sys.path[:0] = [
    str(Path(__file__).parent),
    str(Path(__file__).parent / "faults"),
    str(Path(__file__).parent / "cheats"),
]

os.environ["WORKBENCH_SEED"] = "0"  # where a test gives none: no test depends on chance
# before NumPy is imported: the cores are those of pytest-xdist, and threads of BLAS would only wait for one
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# what Triton compiled names files of the environment that compiled it
os.environ.setdefault("TRITON_CACHE_DIR", str(Path(sys.prefix) / "triton-cache"))
os.environ.pop("COLUMNS", None)  # readline, which pytest loads, sets it for the processes of pytest-xdist


CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

MOST_PROCESSES = 16

SAYS = (
    "a sample: tests with their first parameters, one in four of the long ones; the first stage of each operation, on "
    "problems of all types and layouts. --full tests everything, -k STAGE all problems of a stage"
)

LEFT_OUT: list[int] = []
"""How many items were left out: in this process, or in each worker of pytest-xdist."""


@cache
def missing_gpu() -> str | None:
    """Why there is no GPU, or None where there is one."""
    from workbench.devices import DeviceUnavailable
    from workbench.devices.cuda import require_gpu

    try:
        require_gpu()
    except DeviceUnavailable as error:
        return str(error)
    return None


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, also where a shell runs the tests in the background and has them ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Test in parallel, in a process a core, where nobody says how."""
    option = config.option
    plain = Sampled.of(config) or option.full
    alone = option.usepdb or option.collectonly or hasattr(config, "workerinput")
    if plain and not alone and getattr(option, "numprocesses", 0) is None:  # 0: pytest-xdist is not installed
        option.numprocesses, option.dist = max(1, min(MOST_PROCESSES, CORES)), "worksteal"


def pytest_configure(config: pytest.Config) -> None:
    os.environ.pop("PYTEST_ADDOPTS", None)  # options of this run, not of those that tests start
    # workers of pytest-xdist parse the command line again, which does not have what PYTEST_ADDOPTS has
    given = getattr(config, "workerinput", None)
    config.stash[SAMPLED] = Sampled.of(config) if given is None else given["sampled"] and Sampled(*given["sampled"])


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    sampled = node.config.stash[SAMPLED]
    node.workerinput["sampled"] = None if sampled is None else [sampled.since]


def pytest_report_header(config: pytest.Config) -> list[str]:
    sampled = config.stash[SAMPLED]
    said = ["all of what is named is tested"] if sampled is None else [SAYS]
    if sampled and sampled.since:
        said.append(f"what has changed since {sampled.since} is tested thoroughly")
    if getattr(config.option, "numprocesses", 0) == 0:
        said.append("in one process; in parallel with: pip install pytest-xdist")
    return said


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """A worker of pytest-xdist has ended, and says how many items it left out: all workers leave out the same."""
    LEFT_OUT.append(getattr(node, "workeroutput", {}).get("left_out", 0))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = max(LEFT_OUT, default=0)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """What was sampled, and what was skipped because something is not installed, by its reason."""
    if config.stash[SAMPLED]:
        tested = sum(len(terminalreporter.getreports(kind)) for kind in ("passed", "failed", "skipped", "error"))
        every = tested + max(LEFT_OUT, default=0)
        terminalreporter.write_line(f"a sample of {tested:,} of {every:,} tests; all: python -m pytest --full")
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        for report in terminalreporter.getreports("skipped")
        if isinstance(report.longrepr, tuple)
    )
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"skipped {count:,}: {reason}")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="test everything; without it, a sample of all tests")
    parser.addoption("--sample", action="store_true", help="take a sample of what is named, too")
    parser.addoption(
        "--changed-since",
        metavar="REVISION",
        help="test thoroughly what has changed since this commit of git, and a sample of the rest",
    )


@pytest.fixture(autouse=True)
def _versions_of_the_test(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What passes or fails in a test is kept for that test alone."""
    monkeypatch.setenv("WORKBENCH_VERSIONS", str(tmp_path_factory.mktemp("versions")))


OF_PTXAS = ("test_compiler.py", "test_compiling.py", "test_occupancy.py")
"""Files whose tests are about what ptxas says."""


@pytest.fixture(autouse=True)
def _ptx_alone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the emulator executes is translated and not assembled, which takes two fifths of the time: the kernels of
    most tests have a planted fault, and those of stages are assembled in `test_no_stage_spills_registers`. But where
    the emulator has to know how many registers `setmaxnreg` finds, both at once take less than one after the other."""
    if request.path.name not in OF_PTXAS:
        from workbench.toolchain import compiler

        def translated(path: Path, *_: str) -> bool:
            return not any(b"setmaxnreg" in content for content in compiler.contents(path).values())

        monkeypatch.setattr(compiler, "_was_assembled", translated)


OF_EVERY_STAGE = {
    "test_no_stage_spills_registers": 0,  # the others need no cubin, and take the PTX that comes with it
    "test_stage": 1,
    "test_every_stage_can_be_profiled_on_a_problem_of_its_own": 2,
}
"""Tests with an item a stage, in the order of the items of one stage."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("gpu") and (reason := missing_gpu()):
            item.add_marker(pytest.mark.skip(reason=f"needs a GPU: {reason}"))
    _leave_out(config, items)
    _stage_by_stage(items)
    if hasattr(config, "workerinput"):  # of pytest-xdist
        _spread(items)


def _leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what is not in a sample, where one is taken."""
    if sampled := config.stash[SAMPLED]:
        from sample import left_out

        left = set(left_out(items, sampled.since))
        LEFT_OUT.append(len(left))
        config.hook.pytest_deselected(items=list(left))
        items[:] = [item for item in items if item not in left]


def pytest_collection() -> None:
    gc.disable()  # a fifth of the time, as long as little goes


def pytest_collection_finish() -> None:
    """Thousands of items and what they were made of stay until the end: no collection has to look at them again."""
    gc.collect()
    gc.freeze()
    gc.enable()


def _spread(items: list[pytest.Item]) -> None:
    """Set tests that mostly wait for other processes evenly among the others: where many of them were at the end, all
    workers of pytest-xdist would wait at once."""
    from sample import THAT_WAIT

    waiting = [item for item in items if item.path.name in THAT_WAIT]
    others = [item for item in items if item.path.name not in THAT_WAIT]
    apart = len(others) // (len(waiting) + 1)
    for number, item in reversed(list(enumerate(waiting))):
        others.insert(number * apart, item)
    items[:] = others


def _stage_by_stage(items: list[pytest.Item]) -> None:
    """Have the items of a stage follow each other, so that pytest-xdist gives them to one worker, too: most of what
    they compile and read is the same."""
    places: dict[pytest.Item, tuple[int, ...]] = {item: (place,) for place, item in enumerate(items)}
    first, stages = None, dict[str, int]()
    for item in items:
        if isinstance(item, pytest.Function) and item.originalname in OF_EVERY_STAGE:
            from sample import spec_of

            number = stages.setdefault(str(spec_of(item)), len(stages))
            first = first or places[item]
            places[item] = (*first, number, OF_EVERY_STAGE[item.originalname])
    items.sort(key=places.__getitem__)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The device that every command gets; a test changes it to be wrong or to be a GPU."""
    from fakes import NumpyDevice

    from workbench.cli import sessions

    made = NumpyDevice()
    monkeypatch.setattr(sessions, "open_device", lambda name: made)
    return made


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A GPU for `workbench.ops` whose launches the emulator executes: `emulated_gpu.EmulatedGpu`."""
    from emulated_gpu import emulated

    yield from emulated(monkeypatch)


@pytest.fixture(params=["emulator", pytest.param("cuda", marks=pytest.mark.gpu)])
def place(request: pytest.FixtureRequest) -> Any:
    """Where functions of `workbench.ops` are called: `emulated_gpu.Gpu` and `gpu` have `upload` and `download`."""
    from emulated_gpu import Gpu

    return Gpu if request.param == "cuda" else request.getfixturevalue("gpu")


@pytest.fixture
def rng() -> Any:
    """Random numbers that are the same in each run."""
    import numpy as np

    return np.random.default_rng(0)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the one that commands run in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def cupy() -> Any:
    """CuPy, which only some of the tests need."""
    import cupy

    return cupy


@pytest.fixture
def workbench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a command line in an empty folder; an exception that is no message fails the test."""
    from command_line import invoke

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return invoke

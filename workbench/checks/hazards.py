"""What the emulator adds to a verdict of a GPU: a name for a failure, and the hazards that right answers hide."""

from __future__ import annotations

import atexit
import contextlib
import functools
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from .. import harness
from ..catalogue import registry
from ..devices import Device, DeviceUnavailable, IsolatedDevice, open_device
from ..model.errors import BadOperation
from ..model.problem import Problem, ProblemError
from ..model.results import HAZARDS, Failure, Verdict, Verification
from ..model.stage import Stage
from ..sandbox import host, integrity
from ..workers.cluster import Processes, own_device
from ..workers.prefetch import Ahead, CasesAhead, SolvedAhead

SECONDS = 20.0
"""How long the emulator may take for the problem."""

AFTER_TIMEOUT = 5.0, 10_000_000
"""Seconds, and warp instructions of a block, after a hang: that is to be reported soon after its deadline."""

NOT_OF_A_LAUNCH = (
    Verdict.COMPILE_ERROR,
    Verdict.WEAK_CHECK,
    Verdict.OPERATION_ERROR,
    Verdict.TAMPERING,
    Verdict.LAUNCH_ERROR,
)
"""Failures before anything has run: the emulator has nothing to add."""

WRONG_ANSWERS = (Verdict.MISMATCH, Verdict.INPUT_CHANGED, Verdict.NOT_DETERMINISTIC, Verdict.STALE)
"""What a hazard comes to on a GPU, as its warps happen to run: the hazard's name is the verdict then."""

THREADS = 4
"""So many threads compute references while a GPU solves problems."""

EXAMPLES = 4
"""Problems that a stage solves in the emulator while a GPU verifies it, of DRAWN ones: edge cases of the stage come
first, then those with the most work, since of a small one a single tile is all there is."""

DRAWN = 16

ANSWERS = "the GPU's answers: "
BY_LUCK = "the GPU's answers are right, by luck or because it does not need what is missing; the emulator finds: "


@functools.cache
def _emulator() -> IsolatedDevice:
    """The emulator in a process of its own, kept for all searches."""
    from ..devices.emulated import EmulatedDevice

    device = IsolatedDevice(EmulatedDevice, SECONDS)
    atexit.register(device.close)
    return device


@functools.cache
def _thread() -> ThreadPoolExecutor:
    """The thread that asks it."""
    return ThreadPoolExecutor(max_workers=1)


def begin() -> None:
    """Start what verifies stages on a GPU in this process, which takes least while there are no threads here."""
    with contextlib.suppress(DeviceUnavailable):  # whoever uses them says so
        _emulator()
        own_device("cuda", True)
    host.begin()


class HazardSearch:
    """Looks for hazards in a stage, in the emulator, while a GPU verifies it: there they may show another day.

    The emulator has a process of its own for it, so that the search takes no time of the verification's."""

    def __init__(self, stage: Stage[Any], seed: int) -> None:
        self._stage, self._seed = stage, seed
        self._given_up = threading.Event()
        self._hazard: Future[Failure | None] | None = None
        with contextlib.suppress(DeviceUnavailable, BadOperation):  # verification ends with the second, and says so
            self._emulator = open_device("emulator")
            problems = harness.drawn(stage, self._emulator, examples=DRAWN, seed=seed)
            problems.sort(key=lambda p: (p in stage.edge_cases, p.cost.flops, p.cost.bytes), reverse=True)
            self._hazard = _thread().submit(self._first, problems[:EXAMPLES])

    def __enter__(self) -> HazardSearch:
        return self

    def __exit__(self, *_: object) -> None:
        """Begin nothing more. A problem that is being solved ends by itself, at the latest after `SECONDS`."""
        self._given_up.set()

    def _first(self, problems: Sequence[Problem]) -> Failure | None:
        try:
            device = _emulator()
        except DeviceUnavailable:
            return None
        for problem in problems:
            if self._given_up.is_set():
                break
            failure = harness.run_problem(self._stage, device, problem).failure
            if failure and failure.verdict in HAZARDS:
                return failure
        return None

    def found(self) -> Failure | None:
        """The hazard that was found, made smaller, after the rest of the search; or what the stage has tampered with
        meanwhile."""
        failure = self._hazard.result() if self._hazard else None
        if failure:
            smallest = harness.verify(self._stage, self._emulator, examples=EXAMPLES, seed=self._seed).failure
            if smallest and smallest.verdict is Verdict.TAMPERING:
                return smallest
            failure = smallest if smallest and smallest.verdict in HAZARDS else failure
            failure.message = BY_LUCK + failure.message
        return failure


@contextlib.contextmanager
def _ahead(stage: Stage[Any], device: Device, helpers: int) -> Iterator[Ahead[Any]]:
    """So many processes that solve problems, or threads that solve references, for which a GPU would wait."""
    pool: Any = Processes(helpers, begin) if helpers else ThreadPoolExecutor(THREADS)
    end = pool.end if helpers else functools.partial(pool.shutdown, wait=False, cancel_futures=True)
    try:
        yield SolvedAhead(pool, helpers + 1, stage, device) if helpers else CasesAhead(pool, THREADS, stage, device)
    finally:
        end()


def beside(stage: Stage[Any], device: Device, *, seed: int = 0, helpers: int = 0, **how: Any) -> Verification:
    """`harness.verify` on a GPU, with so many processes that help. A failure is looked at in the emulator as well,
    which may name it; and meanwhile the stage solves a few small problems there, and a hazard that is found fails it.
    Raises CompilerUnavailable."""
    watch = integrity.Watch()
    with HazardSearch(stage, seed) if how.get("problems") is None else contextlib.nullcontext() as search:
        with _ahead(stage, device, helpers) as ahead:
            result = harness.verify(stage, device, seed=seed, **{"call": ahead, "before": ahead.begin, **how})
        hazard = search.found() if search and result.verdict is Verdict.PASS else None
    if changed := watch.restore():
        hazard = harness.tampering(stage, changed)
    if hazard:
        result.verdict, result.failure = hazard.verdict, hazard
    elif result.failure and result.verdict is not Verdict.TAMPERING:
        look_closer(stage, result.failure)
        result.verdict = result.failure.verdict
    return result


def look_closer(stage: Stage[Any], failure: Failure) -> None:
    """Add to a failure what the emulator says of the same problem. Where answers are wrong, and the emulator names a
    hazard, that is the verdict: which answers come of it is chance."""
    if failure.verdict in NOT_OF_A_LAUNCH:
        return
    try:
        problem = registry.operation_of(stage).problem.parse(failure.problem)
    except ProblemError:
        return  # the failure is not of one problem
    limits = AFTER_TIMEOUT if failure.verdict is Verdict.TIMEOUT else (SECONDS, None)
    said, found = in_emulator(stage, problem, *limits)
    if found:
        failure.verdict, failure.message = named(failure.verdict, failure.message, found.verdict, found.message)
        failure.hazards += found.hazards
    else:
        failure.message = f"{failure.message.rstrip()}\n{said}"


def named(verdict: str, message: str, found: str, says: str) -> tuple[Verdict, str]:
    """The verdict of a failure on a GPU and what is said of it, where the emulator has found and says something of the
    same problem."""
    if found in HAZARDS and verdict in WRONG_ANSWERS:
        return Verdict(found), f"{says.rstrip()}\n{ANSWERS}{verdict}: {message}"
    return Verdict(verdict), f"{message.rstrip()}\nthe emulator, on the same problem: {found}: {says}"


def in_emulator(
    stage: Stage[Any], problem: Problem, seconds: float, instructions: int | None = None
) -> tuple[str, Failure | None]:
    """What the emulator finds when it solves the problem, in at most about so many seconds and warp instructions: the
    failure, or in words why there is none."""
    try:
        from ..devices.emulated import EmulatedDevice

        start = functools.partial(EmulatedDevice, instructions) if instructions else EmulatedDevice
        device = IsolatedDevice(start, seconds)
    except DeviceUnavailable as error:
        return f"the emulator could not be asked: {error}", None
    try:
        found = harness.run_problem(stage, device, problem, twice=True).failure
    finally:
        device.close()
    if found is None:
        return "the emulator finds nothing wrong with the same problem", None
    if found.verdict is Verdict.TIMEOUT:
        return f"the emulator did not get through the same problem in {seconds:.3g} s", None
    return "", found

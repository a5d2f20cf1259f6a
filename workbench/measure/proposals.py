"""Which configuration of a stage is tried next: optuna proposes, and each is proposed once."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ..model.problem import Problem
from ..model.stage import Stage
from ..records.tuned import Trial, TuningError

BAD = 10.0
"""What the search is told of a configuration that cannot be used: so many times as slow as the declared one."""


PROPOSALS = 5
"""Tries to have optuna propose a configuration that is new and allowed, before one is drawn."""


def allowed(
    stage: Stage[Any], problem: Problem, architecture: int | None = None
) -> tuple[list[dict[str, int]], Counter[str]]:
    """The configurations of a stage with which it can solve a problem, the declared one first, and how many others
    there are by reason."""
    declared = {name: stage.parameters[name] for name in stage.space}
    found, excluded = [], Counter[str]()
    for configuration in stage.configurations():
        if reason := stage.with_parameters(configuration).supports(problem, architecture):
            excluded[reason] += 1
        else:
            found.append(configuration)
    return sorted(found, key=lambda c: c != declared), excluded


class Proposals:
    """Which configuration is tried next: the first one, then what optuna's model proposes, each once.

    `timed` is False where nothing is measured: then they come in random order.
    """

    def __init__(
        self, space: Mapping[str, Sequence[int]], configurations: list[dict[str, int]], seed: int, timed: bool
    ):
        self._space, self._left = space, {tuple(c.values()): c for c in configurations[1:]}
        self._next = configurations[:1]
        self._random = random.Random(seed)
        self._asked: dict[tuple[int, ...], Any] = {}
        self._study: Any = None
        if timed and self._left:
            optuna = _optuna()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # for years
                sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)
            self._study = optuna.create_study(sampler=sampler)
            # places in the ordered values, not the values: neighbours are alike
            self._places = {n: optuna.distributions.IntDistribution(0, len(v) - 1) for n, v in space.items()}
            self._failed, self._trial = optuna.trial.TrialState.FAIL, optuna.trial.create_trial

    def next(self) -> dict[str, int] | None:
        """A configuration that has not been tried, None where all have been."""
        if self._next:
            return self._next.pop()
        if not self._left:
            return None
        for _ in range(PROPOSALS if self._study else 0):
            trial = self._study.ask(self._places)
            values = tuple(self._space[name][place] for name, place in trial.params.items())
            if values in self._left:
                self._asked[values] = trial
                return self._left.pop(values)
            self._study.tell(trial, state=self._failed)
        return self._left.pop(self._random.choice(list(self._left)))

    def tell(self, trial: Trial) -> None:
        """What came out of a configuration."""
        if not self._study:
            return
        if asked := self._asked.pop(tuple(trial.parameters.values()), None):
            self._study.tell(asked, score(trial))
        else:
            places = {n: list(self._space[n]).index(value) for n, value in trial.parameters.items()}
            self._study.add_trial(self._trial(params=places, distributions=self._places, value=score(trial)))


def _optuna() -> Any:
    """The library that searches: asked and told, over discrete spaces, and kept for years; one that needs no network,
    no server and no GPU. Raises TuningError."""
    try:
        import optuna
    except ImportError:
        raise TuningError("optuna is not installed; install it with: pip install 'kernel-workbench[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def score(trial: Trial) -> float:
    """How many times as slow as the declared parameters; what cannot be used is `BAD`."""
    return BAD if trial.relative is None else trial.relative

"""Whether a run of pytest takes a sample, which `sample.py` chooses."""

from __future__ import annotations

from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Sampled:
    """A sample is taken; what has changed `since` a commit is tested thoroughly, where there is one."""

    since: str | None = None

    @classmethod
    def of(cls, config: pytest.Config) -> Sampled | None:
        """What a command line asks for, None for everything of what it names. Raises UsageError."""
        option = config.option
        if option.full and option.changed_since:
            raise pytest.UsageError("--full tests everything: leave out --changed-since")
        if option.changed_since or option.sample:
            return cls(option.changed_since)
        named = config.args_source is config.ArgsSource.ARGS and [*config.args] != config.getini("testpaths")
        chosen = named or option.keyword or option.markexpr or getattr(option, "lf", False)
        return None if option.full or chosen else cls()


SAMPLED = pytest.StashKey[Sampled | None]()

"""What a cause of the engine's is: its kind of finding, and how much it weighs. One table for both."""

from __future__ import annotations

from . import _engine
from .findings import FindingKind, Severity

__all__ = ["CAUSES", "kind_of", "severity_of"]

CAUSES: tuple[str, ...] = tuple(_engine.fault_names())
"""The engine's causes, by number; the first is none."""

_OTHERS: dict[str, tuple[FindingKind, Severity]] = {
    "budget": (FindingKind.LIVELOCK, Severity.ERROR),
    "not_resident": (FindingKind.DEADLOCK, Severity.ERROR),
    "mbarrier_invalid": (FindingKind.MBARRIER_MISUSE, Severity.ERROR),
    "mbarrier_overflow": (FindingKind.MBARRIER_MISUSE, Severity.ERROR),
    "mbarrier_transactions": (FindingKind.MBARRIER_MISUSE, Severity.ERROR),
    "mbarrier_count": (FindingKind.MBARRIER_MISUSE, Severity.ERROR),
    "mbarrier_not_visible": (FindingKind.MBARRIER_MISUSE, Severity.ERROR),
    "mbarrier_in_use": (FindingKind.MBARRIER_MISUSE, Severity.ERROR),
    "mbarrier_overwritten": (FindingKind.MBARRIER_MISUSE, Severity.ERROR),
    "mbarrier_bytes": (FindingKind.MBARRIER_MISUSE, Severity.ERROR),
    "swizzle_mismatch": (FindingKind.DESCRIPTOR, Severity.ERROR),
    "incoherent_load": (FindingKind.RACE, Severity.ERROR),
    "read_only_changed": (FindingKind.RACE, Severity.STRICT),
    "sparse_metadata": (FindingKind.BAD_OPERAND, Severity.ERROR),
    "warpgroup_diverged": (FindingKind.DIVERGENT_COLLECTIVE, Severity.ERROR),
    "warpgroup_apart": (FindingKind.DIVERGENT_COLLECTIVE, Severity.STRICT),
    "barrier_count": (FindingKind.BARRIER_MISUSE, Severity.ERROR),
    "barrier_mismatch": (FindingKind.BARRIER_MISUSE, Severity.ERROR),
    "barrier_diverged": (FindingKind.DIVERGENT_COLLECTIVE, Severity.ERROR),
    "not_member": (FindingKind.DIVERGENT_COLLECTIVE, Severity.ERROR),
    "exited_member": (FindingKind.DIVERGENT_COLLECTIVE, Severity.STRICT),
    "inactive_source": (FindingKind.DIVERGENT_COLLECTIVE, Severity.ERROR),
    "mbarrier_init_fence": (FindingKind.MBARRIER_MISUSE, Severity.STRICT),
    "race_same_value": (FindingKind.RACE, Severity.STRICT),
    "race_volatile": (FindingKind.RACE, Severity.STRICT),
    "race_of_replicas": (FindingKind.RACE, Severity.STRICT),
    "stores_pending": (FindingKind.EXITED_WITH_WORK, Severity.STRICT),
    "loads_pending": (FindingKind.EXITED_WITH_WORK, Severity.STRICT),
    "launch_control": (FindingKind.BAD_OPERAND, Severity.ERROR),
    "tensor_descriptor": (FindingKind.DESCRIPTOR, Severity.ERROR),
    "tensor_load_unwaited": (FindingKind.TENSOR_MEMORY, Severity.STRICT),
    "tensor_unordered": (FindingKind.TENSOR_MEMORY, Severity.STRICT),
    "tensor_fence": (FindingKind.TENSOR_MEMORY, Severity.STRICT),
    "race_optimised_away": (FindingKind.RACE, Severity.ERROR),
    "barrier_optimised_away": (FindingKind.DIVERGENT_COLLECTIVE, Severity.ERROR),
    "heap_access": (FindingKind.OUT_OF_BOUNDS, Severity.ERROR),
    "heap_free": (FindingKind.HEAP_MISUSE, Severity.ERROR),
    "heap_leak": (FindingKind.HEAP_MISUSE, Severity.NOTE),
    "registers_unlimited": (FindingKind.REGISTER_MISUSE, Severity.NOTE),
}
"""Kind and severity of the causes that are no kind by their own name; those are errors."""


def kind_of(cause: str) -> FindingKind:
    """The kind of a finding with this cause. Raises KeyError where there is no such cause."""
    if cause in _OTHERS:
        return _OTHERS[cause][0]
    return FindingKind.TENSOR_MEMORY if cause.startswith("tensor_") else FindingKind[cause.upper()]


def severity_of(cause: str) -> Severity:
    """The severity of a finding with this cause."""
    return _OTHERS[cause][1] if cause in _OTHERS else Severity.ERROR

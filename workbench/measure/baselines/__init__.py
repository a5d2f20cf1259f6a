"""What the stages are measured against: the baselines that operations declare, on the arrays that each takes."""

from __future__ import annotations

from typing import Any

from ...catalogue import registry
from ...model import operation as model
from . import host
from .base import Baseline, CupyArrays, Prepared, current_stream, first_line
from .cublas import Cublas
from .pytorch import Torch

__all__ = [
    "Baseline",
    "Prepared",
    "baselines_for",
    "current_stream",
    "first_line",
    "host_baseline",
    "peer_versions",
    "peers_of",
]

RUNNERS: dict[str, Any] = {"torch": Torch, "cupy": CupyArrays, "cublas": Cublas}
"""Who runs a baseline on a GPU, by what its arrays are."""


def _declared(operation: str) -> list[model.Baseline[Any]]:
    found = registry.operations().get(operation)
    return found.baselines if found else []


def baselines_for(operation: str) -> list[Baseline]:
    """The baselines that this machine can run interleaved with a stage of the operation, the vendor's library first."""
    found: list[Baseline] = [RUNNERS[b.kind](b) for b in _declared(operation) if b.vendor and b.kind in RUNNERS]
    return [b for b in found if b.version() is not None]


def peers_of(operation: str) -> dict[str, Baseline]:
    """The other implementations of the operation by name, whether they can run here or not."""
    return {b.name: RUNNERS[b.kind](b) for b in _declared(operation) if not b.vendor and b.kind in RUNNERS}


def peer_versions(operation: str) -> dict[str, str]:
    """Those that can run here, with their versions."""
    versions = {name: peer.version() for name, peer in peers_of(operation).items()}
    return {name: version for name, version in versions.items() if version is not None}


def host_baseline(operation: str) -> model.Baseline[Any] | None:
    """What solves the operation with NumPy on the CPU, where it declares that."""
    return next((b for b in _declared(operation) if b.kind == host.KIND), None)

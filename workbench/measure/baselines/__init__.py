"""What the stages are measured against. Each baseline is optional and found at run time."""

from __future__ import annotations

from .base import Baseline, Prepared, current_stream
from .peers import PEERS
from .vendor import VENDOR

__all__ = ["Baseline", "Prepared", "baselines_for", "current_stream", "peer_versions", "peers_of"]


def baselines_for(operation: str) -> list[Baseline]:
    """The baselines that this machine can run interleaved with a stage of the operation, the vendor's library first."""
    return [b for b in VENDOR.get(operation, []) if b.version() is not None]


def peers_of(operation: str) -> dict[str, Baseline]:
    """The other implementations of the operation by name, whether they can run here or not."""
    return {peer.name: peer for peer in PEERS.get(operation, [])}


def peer_versions(operation: str) -> dict[str, str]:
    """Those that can run here, with their versions."""
    versions = {name: peer.version() for name, peer in peers_of(operation).items()}
    return {name: version for name, version in versions.items() if version is not None}

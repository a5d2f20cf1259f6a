"""Opcodes of PTX, brought to the names under which the engine lists them."""

from __future__ import annotations

from functools import lru_cache

__all__ = ["normalise"]

_ORDERS = {"weak": 0, "volatile": 1, "mmio": 1, "relaxed": 1, "acquire": 2, "release": 3, "acq_rel": 4, "sc": 5}
_SCOPES = {"cta": 1 << 3, "cluster": 2 << 3, "gpu": 3 << 3, "sys": 4 << 3}
_MEMBAR_SCOPES = {"cta": "cta", "gl": "gpu", "sys": "sys"}
_READ_ONLY_CACHE = 1 << 7
_ORDERED = {"ld", "ldu", "st", "atom", "red", "mbarrier", "fence"}
_HINTS = {"ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "unified"}
_VECTORS = {"v2", "v4", "v8"}
_CACHE_OPERATIONS = {"prefetch", "prefetchu", "applypriority", "discard"}  # of these, a hint is the operation itself


def _is_hint(part: str, opcode: str) -> bool:
    """Whether a part of an opcode only says what caches should do."""
    if part in _HINTS:
        return not (part in ("ca", "cg") and opcode.startswith("cp.async."))
    return part.startswith(("L1::", "L2::")) and opcode.partition(".")[0] not in _CACHE_OPERATIONS


@lru_cache(maxsize=8192)
def normalise(opcode: str) -> tuple[str, int, bool]:
    """Canonical name of an opcode, its order and scope as flags, and whether its last operand is a cache policy."""
    parts = opcode.split(".")
    base = parts[0]
    policy = "L2::cache_hint" in parts
    if base == "membar" and parts[-1] in _MEMBAR_SCOPES and len(parts) == 2:
        return "fence", _ORDERS["sc"] | _SCOPES[_MEMBAR_SCOPES[parts[1]]], False
    flags = 0
    kept = []
    for part in parts:
        if base in _ORDERED and (part in _ORDERS or part in _SCOPES):
            flags |= _ORDERS.get(part, 0) | _SCOPES.get(part, 0)
        elif base == "ld" and part == "nc":
            flags |= _READ_ONLY_CACHE
        elif not _is_hint(part, opcode):
            kept.append(part.removesuffix("::cta").removesuffix("::entry").removesuffix("::func"))
    if base in ("fence", "membar"):
        for special in ("proxy", "mbarrier_init"):
            if kept[1:2] == [special]:
                return f"fence.{special}", flags, False
        return "fence", flags, False
    if base == "ldu":
        kept[0] = "ld"
    if base == "mad" and kept[-1] in ("f32", "f64"):
        kept[0] = "fma"
    if base in ("atom", "red") and "global" not in kept and not _VECTORS.isdisjoint(kept):
        kept.insert(1, "global")  # the only space that a generic address may mean here
    if base in ("min", "max") and kept[-1] == "relu":  # as CUDA's headers write it
        kept.insert(1, kept.pop())
    return ".".join(kept), flags, policy

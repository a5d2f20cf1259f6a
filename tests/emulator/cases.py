"""Instructions of whole warps, blocks and tensors as launches with a NumPy definition of every array afterwards.

Like the forms of single lanes they serve the NumPy tests and the comparison with a GPU. ``size`` scales the random
data: with 1 a launch takes a fraction of a second in the emulator, with 16 some ten thousand results are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from box_cases import box_options, box_reductions, boxes, pixels
from case import Case
from cluster_cases import clusters, endings, messages
from product_cases import double_products, narrow_products, products, quad_products
from sparse_cases import sparse_products
from tile_cases import tile_moves
from warp_cases import barriers, contended_atomics, matches, shuffles, votes, warp_reductions
from warpgroup_cases import sparse_warpgroup_products, warpgroup_products
from wmma_cases import fragments

GROUPS: dict[str, Callable[[int, np.random.Generator], Iterator[Case]]] = {
    "shuffles": shuffles,
    "votes": votes,
    "matches": matches,
    "warp reductions": warp_reductions,
    "barriers": barriers,
    "contended atomics": contended_atomics,
    "clusters": clusters,
    "messages": messages,
    "endings": endings,
    "tile moves": tile_moves,
    "mma": products,
    "narrow mma": narrow_products,
    "mma of doubles": double_products,
    "mma of quads": quad_products,
    "sparse mma": sparse_products,
    "wmma": fragments,
    "wgmma": warpgroup_products,
    "sparse wgmma": sparse_warpgroup_products,
    "boxes": boxes,
    "box reductions": box_reductions,
    "box options": box_options,
    "pixels": pixels,
}


def cases(group: str, size: int, seed: int = 0) -> Iterator[Case]:
    """The cases of a group; the same for the same size and seed."""
    return GROUPS[group](size, np.random.default_rng([seed, *(ord(c) for c in group)]))

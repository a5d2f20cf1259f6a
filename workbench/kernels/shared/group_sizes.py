"""How many heads share one: of keys and values, or of what writes to a state."""

from __future__ import annotations

from hypothesis import strategies as st

LARGE = (8, 12, 16)
"""As models have them: more heads than four, and more than half a tile of a tensor core has rows."""


def group_sizes(most: int) -> st.SearchStrategy[int]:
    """One to four, and in some problems as many as models have, if `most` allows it."""
    few, many = st.integers(1, min(4, most)), [size for size in LARGE if size <= most]
    return st.one_of(few, few, st.sampled_from(many)) if many else few

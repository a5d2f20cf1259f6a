"""What a wrong result may look like, for docs/verdicts.md. What verdicts mean is in `report/meanings.py`."""

from __future__ import annotations

LOOKS: dict[str, tuple[str, str]] = {
    "it differs from run to run": (
        "The same launch gives another answer.",
        "Look for a race, or for memory that was never written. The emulator names both.",
    ),
    "never written, partly not written": (
        "Elements still hold the bits with which memory was filled before the launch. In types where a kernel may "
        "compute these bits (fp8, integers), a second launch with another filler confirmed it.",
        "Check the grid, and the guard of the store.",
    ),
    "NaN is computed": (
        "The kernel wrote NaN where a number is right: in whole rows, in single elements, or because it read the gaps "
        "between the rows of an input.",
        "For whole rows, look for an eps, a row of zeros, a masked row, or a maximum of -inf. For elements, look for a "
        "root or logarithm of a negative number. For gaps, check the leading dimension.",
    ),
    "gaps between the rows": (
        "What is computed changes with what lies between the rows of an input: NaN or, for odd seeds, the largest "
        "number.",
        "Check the leading dimension, and where a loop over a row ends.",
    ),
    "overflow": (
        "The kernel wrote infinity where a finite number is right.",
        "Subtract the maximum before exponentials; keep sums and squares in fp32.",
    ),
    "all zeros": ("No computed value reaches the output.", "Check the store and the loop's bounds."),
    "stale": (
        "Other inputs give the same output.",
        "Look for an input that is not read, and for work that is done only once, or cached by shape.",
    ),
    "outputs swapped, the wrong output": (
        "An output holds the values of another output.",
        "Compare the order of the arguments with the kernel's parameters.",
    ),
    "transposed": ("Rows and columns are swapped.", "Check the strides, and the layout of an operand."),
    "shifted by one": ("Every element is one position too late or too early.", "Check the first index."),
    "the last N": ("A tail is wrong or missing.", "Check the rounding of the grid, and the guard."),
    "permuted": (
        "Tiles of rows, of columns or of both, or slices along an outer axis (heads, batches), have right values but "
        "have changed places.",
        "Check how the index of a tile is computed from that of the block or warp, and the order of strides.",
    ),
    "half of every warp is left out": (
        "The values of the upper lanes do not count.",
        "Begin shuffles with distance 16, with a width of 32 and a full mask.",
    ),
    "terms of the sum": (
        "Terms are dropped or counted twice. Inputs with a single 1 each found this.",
        "Check the k-loop: its tail, its step, the share of each lane.",
    ),
    "base 2": (
        "A logarithm or an exponential has base 2 instead of e.",
        "Multiply by ln 2 after log2f, and by log2 e before exp2f.",
    ),
    "precision is lost": (
        "There are small errors everywhere. If every answer is a number of a narrower type, the accumulator has that "
        "type. If the errors vanish for inputs of a narrower type, an input is rounded. If they are as small as those "
        "of fp32, the cause is the order of a sum, or the bound.",
        "Keep sums in fp32, and convert once, at the end.",
    ),
    "as a kernel with this fault would answer": (
        "The answer is that of one of the operation's negative controls.",
        "Its name says what is wrong.",
    ),
    "errors of at most N times what is permitted": (
        "Some errors are a little beyond the bound, and all are small beside the answers.",
        "Derive the bound from the sums that a right kernel rounds. If it is right, look for a sum in a bad order.",
    ),
    "off by one factor": (
        "All elements are too large by one factor, or those of each row or column by a factor of that row or column.",
        "For rows, check their sum, mean, maximum or root. For columns, check a weight. For all, look for a scale that "
        "is missing or applied twice.",
    ),
    "elements are wrong in, zeros stand in": (
        "Wrong elements fill a rectangle, or the same rows or columns of every tile.",
        "Find out which tile, warp or thread computes them.",
    ),
    "no pattern that is known": ("It is none of these.", "Look at the map, and replay the smallest problem."),
}
"""What `looks like:` may say, what that means and what to do, in the order in which the looks are searched."""

"""What a wrong result may look like, in the words of verdicts.md; what verdicts mean is in `report/meanings.py`."""

from __future__ import annotations

LOOKS: dict[str, tuple[str, str]] = {
    "it differs from run to run": (
        "The same launch gives another answer.",
        "Look for a race or for memory that nobody wrote; the emulator names both.",
    ),
    "never written, partly not written": (
        "Elements hold the very bits of the filler that was in memory before; where those may be computed (fp8, "
        "integers), a second launch with another filler has left that.",
        "Look at the grid and at the guard of the store.",
    ),
    "NaN is computed": (
        "The kernel wrote NaN where a number is right: in whole rows, in single elements, or from what lies between "
        "the rows of an input.",
        "Whole rows: an eps, a row of zeros or one that is masked, a maximum of -inf. Elements: a root or logarithm of "
        "a negative number. Padding: the leading dimension.",
    ),
    "overflow": (
        "Infinity where a finite number is right.",
        "Subtract the maximum before exponentials; keep sums and squares in fp32.",
    ),
    "all zeros": ("Nothing that is computed reaches the output.", "Look at the store and at the loop's bounds."),
    "stale": ("Other inputs give the same output.", "Look for work that is done once, or kept by shape."),
    "outputs swapped, the wrong output": (
        "An output holds what belongs into another one.",
        "Compare the order of the arguments with the kernel's parameters.",
    ),
    "transposed": ("Rows and columns are swapped.", "Look at the strides, and at the layout of an operand."),
    "shifted by one": ("Every element is one place too late or too early.", "Look at the first index."),
    "the last N": ("A tail is wrong or missing.", "Look at the rounding of the grid and at the guard."),
    "permuted": (
        "Tiles of rows, of columns or of both, or slices along an outer axis (heads, batches), are right, and in each "
        "other's place.",
        "Look at how the index of the block or warp becomes that of the tile, and at the order of strides.",
    ),
    "half of every warp is left out": (
        "What the upper lanes take does not count.",
        "Begin shuffles with distance 16, with a width of 32 and a full mask.",
    ),
    "terms of the sum": (
        "Terms are dropped or counted twice, found by inputs of which each makes one element 1.",
        "Look at the k-loop: its tail, its step, the share of each lane.",
    ),
    "base 2": (
        "A logarithm or an exponential to base 2 stands for the natural one.",
        "Multiply with ln 2 after log2f, with log2 e before exp2f.",
    ),
    "precision is lost": (
        "Small errors everywhere. Every answer is a number of a narrower type: the accumulator is of that type. They "
        "vanish for inputs of a narrower type: an input is rounded. They are those of fp32: the order of a sum, or the "
        "bound.",
        "Keep sums in fp32, and convert once, at the end.",
    ),
    "as a kernel with this fault would answer": (
        "The answer is that of one of the operation's negative controls.",
        "Its name says what is wrong.",
    ),
    "off by one factor": (
        "All elements, those of each row or of each column are a factor too large; the factor of rows differs.",
        "Rows: their sum, mean, maximum or root. Columns: a weight. All: a scale that is missing or applied twice.",
    ),
    "elements are wrong in, zeros stand in": (
        "Wrong elements fill a rectangle, or the same rows or columns of every tile.",
        "The place is that of a tile, a warp or a thread.",
    ),
    "no pattern that is known": ("None of these.", "Look at the map, and replay the smallest problem."),
}
"""What `looks like:` may say, what that means and what to do; in the order in which it is looked for."""

"""Fields, element types and arrays of problems, and the tiers in which an operation is judged."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench import (
    DTYPES,
    E2M1,
    E8M0,
    FP32,
    Array,
    Arrays,
    Cost,
    Operation,
    Problem,
    ProblemError,
    Size,
    Tier,
    dtype_of,
    simple_operation,
)
from workbench.kernels.gemm import GemmProblem
from workbench.model.arrays import element_bytes
from workbench.model.dtypes import BF16, BOOL, E4M3, INT32, TF32, from_numpy


class Mask(StrEnum):
    NONE = "none"
    CAUSAL = "causal"


class Order(IntEnum):
    ROWS = 0
    COLUMNS = 1


@dataclass(frozen=True)
class EveryField(Problem):
    n: int = 1
    shift: int = 0
    eps: float = 1e-6
    scale: float = 1.0
    causal: bool = False
    mask: Mask = Mask.NONE
    order: Order = Order.ROWS
    dtype: str = "bf16"

    extents: ClassVar[tuple[str, ...]] = ("n",)
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"dtype": ("bf16", "e4m3")}
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"eps": (0.0, 1.0), "shift": (-8, 8)}

    def check(self) -> str | None:
        return "a causal mask needs causal=true" if self.mask is Mask.CAUSAL and not self.causal else None

    @property
    def label(self) -> str:
        return f"{self.n}"

    def arrays(self) -> dict[str, Array]:
        return {"x": Array((self.n,), FP32), "y": Array((self.n,), FP32, output=True)}

    def reference(self, inputs: Arrays) -> Arrays:
        return {"y": inputs["x"].astype(np.float64)}

    def bound(self, inputs: Arrays, expected: Arrays) -> Arrays:
        return {"y": FP32.unit_roundoff * np.abs(expected["y"])}

    @property
    def cost(self) -> Cost:
        return Cost(self.n, 8 * self.n)


# ------------------------------------------------------------------------------------------------------------- fields


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("eps=1e-6", "eps", 1e-6),
        ("eps=0.25", "eps", 0.25),
        ("scale=-3", "scale", -3.0),
        ("scale=1e300", "scale", 1e300),
        ("causal=true", "causal", True),
        ("causal=False", "causal", False),
        ("mask=causal,causal=true", "mask", Mask.CAUSAL),
        ("order=columns", "order", Order.COLUMNS),
        ("shift=-8", "shift", -8),
    ],
)
def test_a_field_is_of_the_type_of_its_default(text: str, field: str, value: Any) -> None:
    found = getattr(EveryField.parse(text), field)
    assert (type(found), found) == (type(value), value)


@settings(max_examples=200, deadline=None)
@given(
    st.builds(
        EveryField,
        n=st.integers(1, 10**9),
        shift=st.integers(-8, 8),
        eps=st.floats(0, 1),
        scale=st.floats(allow_nan=False, allow_infinity=False),
        causal=st.just(True),
        mask=st.sampled_from(Mask),
        order=st.sampled_from(Order),
        dtype=st.sampled_from(["bf16", "e4m3"]),
        tier=st.sampled_from([Tier.EXACT, Tier.BOUNDED]),
        seed=st.integers(0, 2**16),
    )
)
def test_the_text_of_a_problem_gives_the_problem(problem: EveryField) -> None:
    assert EveryField.parse(str(problem)) == problem


def test_the_text_is_as_one_writes_it() -> None:
    text = "n=1,eps=1e-6,scale=1.0,causal=false,mask=none,order=rows,dtype=bf16,tier=bounded,seed=0"
    assert str(EveryField()) == text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("eps=small", "eps is 'small'; it has to be a number"),
        ("eps=nan", "eps is nan; it has to be finite"),
        ("scale=inf", "scale is inf; it has to be finite"),
        ("eps=1.5", "eps is 1.5; it has to be at most 1.0"),
        ("eps=-1e-9", "eps is -1e-9; it has to be at least 0.0"),
        ("shift=9", "shift is 9; it has to be at most 8"),
        ("n=0", "n is 0; it has to be at least 1"),
        ("seed=-1", "seed is -1; it has to be at least 0"),
        ("n=2.5", "n is '2.5'; it has to be a whole number"),
        ("causal=1", "causal is '1'; it has to be true or false"),
        ("mask=all", "mask is 'all'; it has to be one of none, causal"),
        ("order=2", "order is '2'; it has to be one of rows, columns"),
        ("dtype=fp8", "dtype is 'fp8'; it has to be one of bf16, e4m3"),
        ("tier=sharp", "tier is 'sharp'; it has to be one of exact, bounded, comparative"),
        ("tier=comparative", "tier is 'comparative'; of this operation it has to be one of exact, bounded"),
        ("mask=causal", "a causal mask needs causal=true"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused(text: str, says: str) -> None:
    with pytest.raises(ProblemError) as refused:
        EveryField.parse(text)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", True),
        ("n", 2.0),
        ("n", "2"),
        ("causal", 1),
        ("causal", "true"),
        ("eps", True),
        ("eps", "1"),
        ("scale", None),
    ],
)
def test_a_value_of_another_type_is_refused(field: str, value: Any) -> None:
    with pytest.raises(ProblemError, match=f"{field} is "):
        EveryField(**{field: value})


def test_numbers_of_numpy_become_those_of_python() -> None:
    problem = EveryField(n=np.int64(3), eps=np.float32(0.5), scale=2, causal=np.True_, mask="none")  # type: ignore[arg-type]
    assert [type(v) for v in (problem.n, problem.eps, problem.scale, problem.causal)] == [int, float, float, bool]
    assert problem == EveryField(n=3, eps=0.5, scale=2.0, causal=True)
    assert problem.mask is Mask.NONE


def test_words_are_the_fields_with_few_values() -> None:
    assert EveryField.words() == {
        "dtype": ("bf16", "e4m3"),
        "causal": ("false", "true"),
        "mask": ("none", "causal"),
        "order": ("rows", "columns"),
    }


# -------------------------------------------------------------------------------------------------------------- types


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_a_type_is_found_by_its_name_and_by_that_of_numpy(dtype: Any) -> None:
    assert dtype_of(str(dtype)) is dtype
    assert from_numpy(dtype.numpy) is (FP32 if dtype is TF32 else dtype)


@pytest.mark.parametrize("dtype", [t for t in DTYPES.values() if t.is_float and t is not TF32], ids=str)
def test_the_unit_roundoff_is_half_the_distance_to_the_next_number(dtype: Any) -> None:
    u = dtype.unit_roundoff
    tie, beyond = (dtype.rounded(np.array([x])).astype(np.float64)[0] for x in (1 + u, 1 + 1.5 * u))
    assert (tie, beyond) == (2.0 if dtype is E8M0 else 1.0, 1 + 2 * u if dtype.name != "fp64" else beyond)
    smallest = dtype.rounded(np.array([dtype.smallest, dtype.smallest / 4])).astype(np.float64)
    assert smallest.tolist() == [dtype.smallest, dtype.smallest if dtype is E8M0 else 0.0]  # e8m0 has no zero


@pytest.mark.parametrize("dtype", [t for t in DTYPES.values() if not t.compute_only], ids=str)
def test_a_type_is_found_by_all_its_names(dtype: Any) -> None:
    names = {dtype.name, dtype.numpy.name, dtype.cuda, *dtype.spellings}
    assert {dtype_of(name) for name in names} == {dtype}
    if dtype is not BOOL:
        assert dtype.ptx and (dtype.triton or dtype is E8M0)


def test_packed_elements_share_bytes_in_memory_and_have_their_own_in_numpy() -> None:
    array = Array((3, 5), E2M1, leading=8)
    values = (np.arange(15).reshape(3, 5) / 2 - 3).astype(E2M1.numpy)
    storage = array.pack(values)
    assert (storage.dtype, storage.size, array.nbytes) == (np.uint8, 2 * 4 + 3, 2 * 4 + 3)
    assert np.array_equal(array.view(storage), values)
    codes = values.view(np.uint8)
    gap = E2M1.fillers[0][0] >> 4
    pairs = (*codes[0], gap)
    assert storage[:3].tolist() == [low | high << 4 for low, high in zip(pairs[::2], pairs[1::2], strict=True)]
    assert array.dtype.largest == b"\x77" and E2M1.bits == 4 and array.padded
    with pytest.raises(ValueError, match="its rows begin at whole bytes"):
        Array((3, 5), E2M1)
    with pytest.raises(ValueError, match="e2m1 is packed"):
        Array((3, 4), E2M1, output=True)


def test_no_name_is_that_of_two_types() -> None:
    names = [name for t in DTYPES.values() for name in t.spellings]
    assert len(names) == len(set(names))


def test_fields_take_every_spelling_of_a_type_and_keep_one() -> None:
    usual = GemmProblem(m=3, n=5, k=7, dtype="fp32", out="fp32")
    for spelled in ("float32", "f32", "float", "fp32"):
        assert GemmProblem.parse(f"3x5x7,dtype={spelled},out={spelled}") == usual
        assert GemmProblem(m=3, n=5, k=7, dtype=spelled, out=spelled).dtype == "fp32"
    with pytest.raises(ProblemError, match="dtype is 'int8'; it has to be one of"):
        GemmProblem(dtype="int8")


def test_a_declaration_takes_every_spelling_of_a_type() -> None:
    made = {name: simple_operation("sums", f"x: n {name} -> y: n {name}") for name in ("fp32", "float32", "f32")}
    arrays = [declared(lambda x: x).problem(n=4).arrays() for declared in made.values()]
    assert arrays[0] == arrays[1] == arrays[2] and arrays[0]["x"].dtype is FP32


def test_an_unknown_type_is_refused_with_the_names_of_those_there_are() -> None:
    with pytest.raises(KeyError, match=r"no element type 'fp8'.*e4m3"):
        dtype_of("fp8")


def test_no_memory_holds_what_is_only_computed_in() -> None:
    with pytest.raises(ValueError, match="declare the array as fp32"):
        Array((4,), TF32)


# ------------------------------------------------------------------------------------------------------------- arrays


@st.composite
def strided(draw: st.DrawFn) -> Array:
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    steps, step = [0] * len(shape), 1
    for place in draw(st.permutations(range(len(shape)))):
        steps[place] = step + draw(st.integers(0, 2))
        step = steps[place] * shape[place]
    return Array(shape, draw(st.sampled_from([FP32, BF16, E4M3, INT32, BOOL])), strides=tuple(steps), output=True)


@settings(max_examples=200, deadline=None)
@given(strided(), st.data())
def test_values_lie_where_the_strides_say_and_nowhere_else(array: Array, data: st.DataObject) -> None:
    values = (np.arange(array.size).reshape(array.shape) % 2 + 1).astype(array.dtype.numpy)
    storage = array.pack(values)
    assert len(storage) == array.storage_elements
    for at in np.ndindex(array.shape):
        assert storage[sum(i * s for i, s in zip(at, array.strides or (), strict=True))] == values[at]
    assert array.written_padding(storage) == 0
    places = {sum(i * s for i, s in zip(at, array.strides or (), strict=True)) for at in np.ndindex(array.shape)}
    between = sorted(set(range(array.storage_elements)) - places)
    assert bool(between) == array.padded
    if between:
        storage[data.draw(st.sampled_from(between))] = 1
        assert array.written_padding(storage) == 1


def test_a_leading_dimension_is_short_for_strides() -> None:
    assert Array((2, 3, 4), FP32, leading=6).element_strides == (18, 6, 1)
    assert Array((2, 3, 4), FP32).element_strides == (12, 4, 1)
    one, other = Array((2, 3, 4), FP32, leading=6), Array((2, 3, 4), FP32, strides=(18, 6, 1))
    assert one.storage_elements == other.storage_elements == 18 + 2 * 6 + 4
    assert other.rows_contiguous
    assert not Array((2, 3, 4), FP32, strides=(1, 2, 6)).rows_contiguous


@pytest.mark.parametrize(
    ("shape", "strides", "says"),
    [
        ((4, 4), (0, 1), "overlap"),
        ((4, 4), (3, 1), "overlap"),
        ((3, 2), (2, 4), "overlap"),
        ((2, 2), (-2, 1), "negative"),
        ((2, 2), (2,), "1 strides for 2 dimensions"),
        ((0, 2), (2, 1), "at least 1"),
    ],
)
def test_strides_with_which_elements_overlap_are_refused(shape: Any, strides: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Array(shape, FP32, strides=strides)


def test_strides_that_interleave_are_not_refused() -> None:
    array = Array((3, 2), FP32, strides=(2, 3))
    assert array.view(np.arange(8.0)).tolist() == [[0, 3], [2, 5], [4, 7]]


def test_what_is_read_and_written_counts_twice() -> None:
    assert element_bytes([Array((3, 5), BF16, leading=8), Array((3,), FP32, inout=True)]) == 30 + 24
    assert Array((3,), FP32, inout=True).output and Array((3,), FP32, inout=True).given


# -------------------------------------------------------------------------------------------------------------- tiers


def operation(problem: type[Problem]) -> Operation[Any]:
    def problems(size: Size, edges: tuple[int, ...]) -> st.SearchStrategy[Any]:
        return st.builds(problem, n=st.integers(1, 4))

    sizes = Size(16, 16)
    return Operation("made", "", problem, problems, (), lambda p: {}, emulator_size=sizes, cuda_size=sizes)


def problem_with(**attributes: Any) -> type[Problem]:
    return dataclass(frozen=True)(type("Made", (EveryField,), attributes))


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ({"tiers": (Tier.BOUNDED,)}, "no exact tier: say in `not_exact`"),
        ({"tiers": (Tier.EXACT,)}, "declare `tier: Tier = Tier.EXACT`"),
        ({"bound": Problem.bound}, "define bound()"),
        ({"tiers": (Tier.EXACT, Tier.BOUNDED, Tier.COMPARATIVE)}, "define model()"),
    ],
)
def test_tiers_that_cannot_be_judged_are_refused_when_the_operation_is_declared(
    attributes: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValueError) as refused:
        operation(problem_with(**attributes))
    assert says in str(refused.value)


def test_why_there_is_no_exact_tier_is_said_to_who_asks_for_it() -> None:
    made = problem_with(tiers=(Tier.BOUNDED,), not_exact="a root is no sum")
    operation(made)
    with pytest.raises(ProblemError, match=r"has to be one of bounded \(a root is no sum\)"):
        made().with_tier(Tier.EXACT)


def test_a_third_tier_draws_other_inputs_and_leaves_those_of_the_others() -> None:
    made = problem_with(tiers=tuple(Tier))
    drawn = [made(tier=tier, n=64).inputs()["x"].tobytes() for tier in Tier]  # type: ignore[call-arg]
    assert len(set(drawn)) == 3
    assert drawn[:2] == [EveryField(tier=tier, n=64).inputs()["x"].tobytes() for tier in (Tier.EXACT, Tier.BOUNDED)]


def test_peaks_are_those_of_the_type_that_is_computed_in() -> None:
    assert EveryField(dtype="e4m3").compute_dtype == "e4m3"
    assert math.isfinite(dataclasses.replace(EveryField(), eps=0.5).eps)

"""Textures and surfaces give what the CUDA programming guide says, and what is wrong with them is named."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from workbench.emulator import ArgumentError, FindingKind, Output, Report, Strided, SurfaceOf, TextureOf, launch

Image = npt.NDArray[np.float32]
HEIGHT, WIDTH = 6, 9
SOURCE = """
extern "C" __global__ void sample(cudaTextureObject_t image, const float2* at, float* y, int n) {
    int i = threadIdx.x;
    if (i < n) y[i] = CALL;
}
"""


def image(*shape: int) -> Image:
    return np.random.default_rng(5).standard_normal(shape or (HEIGHT, WIDTH)).astype(np.float32)


def places(count: int = 60) -> Image:
    """Coordinates in and around an image, in texels."""
    return np.random.default_rng(7).uniform(-4, 13, (count, 2)).astype(np.float32)


def sampled(texture: TextureOf, at: Image, call: str = "tex2D<float>(image, at[i].x, at[i].y)") -> Image:
    y = np.zeros(len(at), np.float32)
    report = launch(SOURCE.replace("CALL", call), "sample", 1, 64, [texture, at, Output(y), len(at)])
    assert report.ok, str(report)
    return y


def index(i: npt.NDArray[np.int64], extent: int, mode: str) -> npt.NDArray[np.int64]:
    """Texels that indices mean; -1 is the border."""
    if mode == "border":
        return np.where((i >= 0) & (i < extent), i, -1)
    if mode == "wrap":
        return i % extent
    if mode == "mirror":
        folded = i % (2 * extent)
        return np.where(folded < extent, folded, 2 * extent - 1 - folded)
    return np.clip(i, 0, extent - 1)


def by_the_guide(a: Image, at: Image, mode: str, linear: bool) -> Image:
    """Section "Texture Fetching" in NumPy, for one channel in two dimensions."""
    padded = np.pad(a, ((0, 1), (0, 1)))  # what -1 reads
    x, y = (at[:, k].astype(np.float64) - 0.5 * linear for k in (0, 1))
    i, j = np.floor(x).astype(np.int64), np.floor(y).astype(np.int64)
    if not linear:
        return padded[index(j, HEIGHT, mode), index(i, WIDTH, mode)]
    alpha, beta = (np.floor((v - np.floor(v)) * 256 + 0.5) / 256 for v in (x, y))
    total = np.zeros(len(at))
    for dj, wj in ((0, 1 - beta), (1, beta)):
        for di, wi in ((0, 1 - alpha), (1, alpha)):
            total += wi * wj * padded[index(j + dj, HEIGHT, mode), index(i + di, WIDTH, mode)]
    return total.astype(np.float32)


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("mode", ["clamp", "border", "wrap", "mirror"])
def test_every_address_mode_reads_what_the_guide_says_with_and_without_filtering(mode: str, linear: bool) -> None:
    a, at = image(), places()
    normalized = mode in ("wrap", "mirror")
    scaled = (at / np.float32([WIDTH, HEIGHT])).astype(np.float32) if normalized else at
    exact = (scaled.astype(np.float64) * [WIDTH, HEIGHT]) if normalized else at
    y = sampled(TextureOf(a, linear=linear, address=mode, normalized=normalized), scaled)
    np.testing.assert_allclose(y, by_the_guide(a, exact, mode, linear), rtol=1e-6, atol=1e-6)


def test_the_fraction_of_a_filter_has_eight_bits() -> None:
    ramp = np.zeros((HEIGHT, WIDTH), np.float32)
    ramp[:, 5:] = 1
    at = np.float32([[5 + x, 3.5] for x in (0.1, 0.25, 0.2519, 0.252)])
    y = sampled(TextureOf(ramp, linear=True), at)
    assert (y * 256 == np.floor(y * 256)).all()
    assert y[1] == 0.75 and y[2] == 0.75 and y[0] == np.float32(round(0.6 * 256) / 256)


@pytest.mark.parametrize(
    ("shape", "layered", "call", "expected"),
    [
        ((12,), False, "tex1Dfetch<float>(image, 3)", (3,)),
        ((12,), False, "tex1D<float>(image, 3.9f)", (3,)),
        ((4, 5, 6), False, "tex3D<float>(image, 2.5f, 1.5f, 3.5f)", (3, 1, 2)),
        ((4, 5, 6), True, "tex2DLayered<float>(image, 2.5f, 1.5f, 3)", (3, 1, 2)),
        ((4, 5, 6), True, "tex2DLayered<float>(image, 2.5f, 1.5f, 9)", (3, 1, 2)),
        ((4, 6), True, "tex1DLayered<float>(image, 2.5f, 3)", (3, 2)),
        ((4, 6), False, "tex2DLod<float>(image, 2.5f, 3.5f, 2.0f)", (3, 2)),
        ((4, 6), False, "tex2DGrad<float>(image, 2.5f, 3.5f, at[0], at[1])", (3, 2)),
        ((4, 6), False, "tex2Dgather<float4>(image, 3.0f, 3.0f).w", (2, 2)),
        ((4, 6), False, "tex2Dgather<float4>(image, 3.0f, 3.0f).y", (3, 3)),
        ((6, 4, 4), True, "texCubemap<float>(image, 0.1f, -2.0f, 0.3f)", (3, 1, 2)),
    ],
)
def test_every_geometry_reads_its_texel(
    shape: tuple[int, ...], layered: bool, call: str, expected: tuple[int, ...]
) -> None:
    a = image(*shape)
    y = sampled(TextureOf(a, layered=layered, normalized="Cube" in call), places(2), call)
    assert (y == a[expected]).all()


def test_integers_are_read_as_they_are_or_as_fractions_and_halves_as_floats() -> None:
    at = np.float32([[2.5, 1.5]])
    a = np.random.default_rng(1).integers(-128, 128, (3, 4, 4)).astype(np.int8)
    call = "tex2D<char4>(image, at[i].x, at[i].y).z"
    assert sampled(TextureOf(a, channels=4), at, call)[0] == a[1, 2, 2]
    a[1, 2] = [-128, -127, 127, 64]
    for channel, value in zip("xyzw", (-1, -1, 1, 64 / 127), strict=True):
        call = f"tex2D<float4>(image, at[i].x, at[i].y).{channel}"
        assert sampled(TextureOf(a, channels=4, fraction=True), at, call)[0] == np.float32(value)
    half = image(3, 4).astype(np.float16)
    assert sampled(TextureOf(half), at)[0] == half[1, 2]


def test_a_pitched_array_is_read_along_its_rows() -> None:
    wide = image(5, 16)
    y = sampled(TextureOf(Strided(wide[:, :7])), np.float32([[6.5, 4.5], [9.5, 4.5]]))
    assert y.tolist() == [wide[4, 6], wide[4, 6]]


SURFACE = """
extern "C" __global__ void copy(cudaSurfaceObject_t from, cudaSurfaceObject_t to, int n) {
    int x = threadIdx.x, y = blockIdx.x;
    float2 v;
    surf2Dread(&v, from, x * 8, y);
    surf2Dwrite(make_float2(v.y, v.x), to, (x + SHIFT) * 8, y, MODE);
}
"""


def copied(shift: int = 0, mode: str = "cudaBoundaryModeTrap", **options: object) -> tuple[Image, Image, Report]:
    a, b = image(4, 32, 2), np.zeros((4, 32, 2), np.float32)
    source = SURFACE.replace("SHIFT", str(shift)).replace("MODE", mode)
    arguments = [SurfaceOf(a, channels=2), SurfaceOf(Output(b), channels=2), 32]
    return a, b, launch(source, "copy", 4, 32, arguments, **options)  # type: ignore[arg-type]


def test_a_surface_is_read_and_written_by_bytes_along_and_rows_down() -> None:
    a, b, report = copied()
    assert report.ok, str(report)
    assert (b == a[:, :, ::-1]).all()


def test_a_place_outside_a_surface_is_named_unless_its_mode_allows_it() -> None:
    _, b, report = copied(shift=2)
    (finding,) = report.failures
    assert finding.kind is FindingKind.OUT_OF_BOUNDS
    assert "writes 8 bytes at byte 256, row " in finding.message and "outside the surface" in finding.message
    a, b, report = copied(shift=2, mode="cudaBoundaryModeZero")
    assert report.ok, str(report)
    assert (b[:, 2:] == a[:, :-2, ::-1]).all() and not b[:, :2].any()


def test_a_column_of_a_surface_in_elements_is_told_from_one_in_bytes() -> None:
    a, b = image(4, 32), np.zeros((4, 32), np.float32)
    source = SURFACE.replace("float2", "float").replace("make_float(v.y, v.x)", "v").replace("(x + SHIFT) * 8", "x")
    arguments = [SurfaceOf(a), SurfaceOf(Output(b)), 32]
    report = launch(source.replace("MODE", "cudaBoundaryModeTrap"), "copy", 4, 4, arguments)
    assert report.failures[0].kind is FindingKind.MISALIGNED
    assert report.failures[0].advice == "a surface's x counts bytes: multiply the column by the size of an element"


def test_what_a_texture_reads_must_have_been_written_and_no_store_may_race_with_it() -> None:
    y = np.zeros(4, np.float32)
    source = SOURCE.replace("CALL", "tex2D<float>(image, 1, 1)")
    report = launch(source, "sample", 1, 64, [TextureOf(Output(image())), places(4), Output(y), 4])
    assert [finding.kind for finding in report.findings] == [FindingKind.UNINITIALISED]
    a = image()
    source = SOURCE.replace("float* y, int n", "float* y, int n, float* a").replace(
        "CALL", "tex2D<float>(image, 1.5f, 0.5f); a[1] = 2"
    )
    report = launch(source, "sample", 2, 64, [TextureOf(a), places(4), Output(y), 1, a])
    assert FindingKind.RACE in [finding.kind for finding in report.failures]


def test_a_number_that_is_no_object_is_named_and_so_is_a_surface_in_place_of_a_texture() -> None:
    for given in (np.uint64(4096), SurfaceOf(image())):
        report = launch(
            SOURCE.replace("CALL", "tex2D<float>(image, 1, 1)"),
            "sample", 1, 64, [given, places(4), Output(np.zeros(4, np.float32)), 4],
        )  # fmt: skip
        (finding,) = report.failures
        assert finding.kind is FindingKind.DESCRIPTOR and "no texture object" in finding.message


@pytest.mark.parametrize(
    ("texture", "message"),
    [
        (TextureOf(np.zeros((2, 2), np.float64)), "not float64"),
        (TextureOf(image(), address="repeat"), "clamp"),
        (TextureOf(image(), address="wrap"), "normalised"),
        (TextureOf(np.zeros((2, 2), np.uint8), linear=True), "fractions"),
        (TextureOf(image(), fraction=True), "1 or 2 bytes"),
        (TextureOf(image(2, 3), channels=4), "channels"),
        (TextureOf(image(2, 2, 2, 2)), "dimensions"),
    ],
)
def test_a_texture_that_cuda_would_refuse_is_refused_in_one_sentence(texture: TextureOf, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        sampled(texture, places(2))

"""How launches of Triton kernels come to the emulator: arguments, configurations, files, pytest."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner
from command_line import invoke, said

from workbench.cli import main as cli
from workbench.triton import TritonUnavailable, emulate

KERNELS = Path(__file__).parent / "triton_kernels"


def test_what_to_install_is_said_where_triton_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(TritonUnavailable, match=r"pip install 'kernel-workbench\[triton\]'"), emulate():
        pass


triton = pytest.importorskip("triton", reason="Triton is not installed: pip install -e '.[triton]'")


import launches  # noqa: E402
import product_kernels as product  # noqa: E402
import small_kernels as small  # noqa: E402

from workbench.emulator import ArgumentError, FindingKind, KernelFault, LaunchError, Output, Program  # noqa: E402
from workbench.model.errors import WrongUsage  # noqa: E402
from workbench.triton import Mismatch, launching  # noqa: E402


@pytest.fixture
def x():
    return np.arange(1000, dtype=np.float32)


def test_arrays_are_filled_in_place_and_only_where_something_was_stored(x):
    out = np.full(1000, -1.0, np.float32)
    with emulate() as run:
        small.scale[(4,)](x, Output(out), np.int32(900), np.float64(2.0), BLOCK=256)
    assert np.array_equal(out[:900], 2 * x[:900]) and (out[900:] == -1).all()
    assert run.launches[0].configuration == {"BLOCK": 256, "num_warps": 4, "num_stages": 3}
    assert str(run).startswith("scale[4] BLOCK=256, num_warps=4, num_stages=3, sm_90a: no hazard found, ")
    assert json.dumps(run.as_dict())


def test_views_of_one_array_share_its_memory(x):
    with emulate():
        small.scale[(1,)](x[100:200], x[300:400], 100, 2.0, BLOCK=128)
        small.scale[(1,)](x, x, 10, 10.0, BLOCK=128)
        small.scale[(1,)](x[1:50], x[2:51], 1, 3.0, BLOCK=128)
    expected = np.arange(1000, dtype=np.float32)
    expected[300:400] = 2 * expected[100:200]
    expected[:10] *= 10
    expected[2] = 3 * expected[1]
    assert np.array_equal(x, expected)


def test_the_bounds_of_a_view_are_its_own_or_those_of_its_storage(x):
    """By default what a device does: an element of the storage is read, and a note says that no view has it."""
    beyond = r"x\[100\] is one past the end of x \(100 elements"
    with emulate(bounds="view"), pytest.raises(KernelFault, match=beyond):
        small.scale[(1,)](x[100:200], x[300:500], 101, 2.0, BLOCK=128)
    with emulate(), pytest.raises(KernelFault, match=beyond):
        small.scale[(1,)](x[900:], np.zeros(101, np.float32), 101, 2.0, BLOCK=128)
    with emulate() as run:
        small.scale[(1,)](x[100:200], x[300:500], 101, 2.0, BLOCK=128)
    (note,) = run.findings
    assert note.severity == "note" and re.search(beyond, note.message) and x[400] == 400
    with emulate(bounds="storage") as run:
        small.scale[(1,)](x[100:200], x[300:500], 101, 3.0, BLOCK=128)
    assert not run.findings and x[400] == 600


def test_arrays_that_must_not_change_do_not(x):
    x.flags.writeable = False
    with emulate(), pytest.raises(KernelFault) as raised:
        small.scale[(1,)](x, x, 10, 2.0, BLOCK=128)
    assert raised.value.finding.kind == FindingKind.READ_ONLY


def test_tuples_of_arrays_are_arguments(x):
    out = np.zeros_like(x)
    with emulate():
        small.add_pair[(1,)](small.Pair(x, 2 * x), out, 1000, BLOCK=1024)
    assert np.array_equal(out, 3 * x)


def test_addresses_in_memory_are_those_of_arrays():
    shapes = np.array([(100, 72, 64), (64, 64, 40), (30, 130, 64)], np.int32)
    triples = [
        (launches.values(m, k, dtype=np.float16), launches.values(k, n, dtype=np.float16), np.zeros((m, n), np.float16))
        for m, n, k in shapes
    ]
    addresses = np.array([[matrix.ctypes.data for matrix in matrices] for matrices in zip(*triples, strict=True)])
    before = addresses.copy()
    with emulate(reachable=[matrix for triple in triples for matrix in triple]) as run:
        product.matmul_grouped[(3,)](addresses, shapes, 3, PROGRAMS=3, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32)
    assert run.ok and np.array_equal(addresses, before)
    for a, b, c in triples:
        np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32), rtol=2e-3, atol=2e-2)


def test_every_configuration_of_an_autotuner_is_launched_on_the_same_values(x):
    sums = np.ones(1, np.float32)
    with emulate(raise_on_hazard=False) as run:
        small.summed[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](x, sums, 1000)
    blocks = [launched.configuration["BLOCK"] for launched in run.launches]
    assert blocks == [64, 128, 256] and [launched.grid for launched in run.launches] == [
        (16, 1, 1),
        (8, 1, 1),
        (4, 1, 1),
    ]
    assert [launched.ok for launched in run.launches] == [True, True, False]
    assert run.findings[0].kind == FindingKind.OUT_OF_BOUNDS
    assert not run.ok and "BLOCK=256, num_warps=4" in str(run)


def test_each_configuration_is_compared_with_the_reference(x):
    reference = {"summed": lambda x, n: {"sums": np.array([x[:n].sum()])}}
    with emulate(reference=reference, raise_on_hazard=False) as run:
        small.summed[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](x, np.ones(1, np.float32), 768)
        small.scale[(1,)](x, x, 10, 2.0, BLOCK=128)
    assert run.ok and len(run.launches) == 4


@pytest.mark.parametrize(("asked", "launched"), [("first", 1), (2, 2), ("all", 3), (None, 3)])
def test_as_many_configurations_are_launched_as_are_asked_for(x, asked, launched):
    with emulate(configurations=asked) as run:
        small.summed[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](x, np.ones(1, np.float32), 768)
    assert [one.configuration["BLOCK"] for one in run.launches] == [64, 128, 256][:launched]


def test_of_an_installed_package_the_first_configuration_is_launched(x, tmp_path, monkeypatch):
    (tmp_path / "made-1.0.dist-info").mkdir()
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "kernels.py").write_text(KERNELS.joinpath("small_kernels.py").read_text())
    installed = runpy.run_path(str(tmp_path / "made" / "kernels.py"))
    with emulate() as run:
        installed["summed"][lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](x, np.ones(1, np.float32), 768)
    assert len(run.launches) == 1


@pytest.mark.parametrize("listed", [(), ("reset_to_zero",), ("restore_value",)])
def test_what_a_configuration_leaves_for_the_next_is_named(x, listed):
    """Sums are added to what the configuration before has left; a largest element stays what it is."""
    for kernel, leaves in ((small.added, not listed), (small.largest, False)):
        tuned = triton.autotune(
            [triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], [], **{n: ["out"] for n in listed}
        )
        out = np.zeros(1, np.float32)
        with emulate(raise_on_hazard=False) as run:
            tuned(kernel)[lambda meta: (triton.cdiv(256, meta["BLOCK"]),)](x, out)
        assert out[0] == (x[:256].sum() if kernel is small.added else 255) and len(run.launches) == 2
        found = [finding for finding in run.findings if finding.severity == "error"]
        assert [finding.source_line.endswith("# reads out") for finding in found] == [True] * leaves
        assert all("name out in reset_to_zero or in restore_value" in str(finding) for finding in found)


def test_a_tuner_with_a_way_of_its_own_launches_all_configurations_on_the_same_values(x):
    class Tuner(triton.runtime.Autotuner):
        def run(self, *args, **options):
            self.nargs = dict(zip(self.arg_names, args, strict=False))
            times = {config: self._bench(*args, config=config, **options) for config in self.configs}
            return self.fn.run(*args, **options, **min(times, key=times.get).all_kwargs())

    configs = [triton.Config({"BLOCK": block}) for block in (64, 128)]
    out = np.zeros(1, np.float32)
    with emulate() as run:
        Tuner(small.added, small.added.arg_names, configs, [], None, None)[lambda meta: (256 // meta["BLOCK"],)](x, out)
    assert [one.configuration["BLOCK"] for one in run.launches if one.report] == [64, 128, 64]
    assert out[0] == x[:256].sum()


def test_an_empty_grid_runs_nothing(x):
    with emulate() as run:
        small.scale[(0,)](x, x, 1000, 2.0, BLOCK=256)
        small.scale[lambda meta: (3, 0)](x, x, 1000, 2.0, BLOCK=256)
    assert run.ok and x[1] == 1 and str(run).count("the grid is empty, nothing ran") == 2


def test_what_launches_have_stored_is_known_to_those_after_them(x):
    """A tail that nobody has stored, and that the next kernel reads, is named there; the host may store it, too."""
    for stored, by_host in ((1000, False), (990, False), (990, True)):
        between, out = Output(np.zeros_like(x)), np.zeros_like(x)
        with emulate(raise_on_hazard=False) as run:
            small.scale[(4,)](x, between, stored, 2.0, BLOCK=256)
            if by_host:
                between.array[stored:] = 1
            small.scale[(4,)](between, out, 1000, 2.0, BLOCK=256)
        assert [one.ok for one in run.launches] == [True, stored == 1000 or by_host]
        assert {(f.kind, f.index) for f in run.findings} <= {
            (FindingKind.UNINITIALISED, index) for index in range(990, 1000)
        }


def test_a_configuration_that_does_not_fit_is_left_out(monkeypatch):
    a, out = np.eye(128, dtype=np.float16), np.zeros((128, 128), np.float32)
    with emulate() as run:
        small.square[lambda meta: (128 // meta["BLOCK_M"],)](a, out, 128, 128)
    assert [launched.report is None for launched in run.launches] == [True, False]
    assert "shared memory" in run.launches[0].refused and run.ok and np.array_equal(out, np.eye(128))
    monkeypatch.setattr(small.square, "configs", small.square.configs[::-1])
    out[:] = 0
    with emulate() as run:
        small.square[lambda meta: (128 // meta["BLOCK_M"],)](a, out, 128, 128)
    assert [launched.report is None for launched in run.launches] == [False, True]
    assert run.ok and np.array_equal(out, np.eye(128)), "what the one that fits has stored is gone"


def test_a_wrong_result_is_told_with_its_first_and_its_worst_element(x):
    reference = {"scale": lambda x, factor: {"out": np.where(np.arange(1000) == 7, 99.5, factor * x)}}
    with emulate(reference=reference), pytest.raises(Mismatch) as raised:
        small.scale[(4,)](x, np.zeros_like(x), 1000, 2.0, BLOCK=256)
    assert "out: 1 of 1000 elements are not as the reference has them, first [7], worst [7]: 14.0" in str(raised.value)
    with (
        emulate(reference=reference),
        pytest.raises(Mismatch, match=r"nothing was stored in 10 of 1000 .* first \[990\]"),
    ):
        small.scale[(4,)](x, Output(np.zeros_like(x)), 990, 2.0, BLOCK=256)


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        (lambda y: {"out": y}, "takes y, and the kernel's parameters are: x, out, n, factor, BLOCK"),
        (lambda x: x, "answers with ndarray; it has to be a dictionary"),
        (lambda x: {"y": x}, "speaks of y, and the array arguments are: x, out"),
        (lambda x: {"out": x[:5]}, r"shape \(5,\) for out, which has \(1000,\)"),
    ],
)
def test_a_reference_that_cannot_be_asked_is_wrong_usage(x, reference, says):
    with emulate(reference=reference), pytest.raises(WrongUsage, match=says):
        small.scale[(4,)](x, np.zeros_like(x), 1000, 2.0, BLOCK=256)


def test_prints_and_assertions_of_the_device():
    with emulate(debug=True, raise_on_hazard=False) as run:
        small.checked[(1,)](np.arange(32, dtype=np.float32), 31, BLOCK=32, num_warps=1)
        small.checked[(1,)](np.arange(32, dtype=np.float32), 32, BLOCK=32, num_warps=1)
    failed, passed = run.launches
    assert failed.findings[0].kind == FindingKind.ASSERTION and "too large" in str(failed)
    assert passed.ok and "value" in passed.output and "31.0" in passed.output


@pytest.mark.parametrize("given", [np.float16, np.float32])
@pytest.mark.parametrize("wanted", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_halves_of_registers_that_nobody_needs_may_be_unset(given, wanted):
    x, out = np.arange(128).astype(given), np.zeros(128, wanted)
    with emulate():
        small.rounded[(1,)](x, Output(out), BLOCK=128)
    assert np.array_equal(out.astype(np.float32), x.astype(wanted).astype(np.float32))


def test_bytes_widen_to_bfloat16_through_half():
    x, out = np.arange(128).astype(ml_dtypes.float8_e4m3fn), np.zeros(128, ml_dtypes.bfloat16)
    with emulate():
        small.rounded[(1,)](x, out, BLOCK=128)
    assert np.array_equal(out.astype(np.float32), x.astype(np.float32))


@pytest.mark.parametrize(
    ("target", "name"),
    [
        *(("sm_75", "sm_75"), ("sm_80", "sm_80"), (86, "sm_86"), (87, "sm_87"), ("89", "sm_89"), ("sm_90", "sm_90a")),
        *(("sm_90a", "sm_90a"), ("100a", "sm_100a"), (103, "sm_103a"), (110, "sm_110a"), (120, "sm_120a")),
        ("121", "sm_121a"),
    ],
)
def test_targets(x, target, name):
    with emulate(target) as run:
        small.scale[(4,)](x, np.zeros_like(x), 1000, 2.0, BLOCK=256)
    assert run.launches[0].target == name and f".target {name}\n" in run.launches[0].ptx


@pytest.mark.parametrize(("target", "says"), [("sm_101a", "the targets: sm_75"), ("volta", "the targets")])
def test_other_targets_are_refused(target, says):
    with pytest.raises(WrongUsage, match=says):
        emulate(target)


def test_what_makes_no_sense_is_refused_and_triton_is_as_before(x):
    drivers = dict(vars(triton.runtime.driver))
    run_before = triton.runtime.jit.JITFunction.run
    with emulate() as run:
        with pytest.raises(LaunchError, match=r"write \(4,\)"):
            small.scale[4](x, x, 1000, 2.0, BLOCK=256)
        with pytest.raises(ArgumentError, match="Python objects"):
            small.scale[(4,)](np.array([None]), x, 1000, 2.0, BLOCK=256)
        with pytest.raises(WrongUsage, match="nothing is timed"):
            triton.testing.do_bench(lambda: None)
    assert str(run) == "no Triton kernel was launched" and not run.ok
    assert vars(triton.runtime.driver) == drivers and triton.runtime.jit.JITFunction.run is run_before


def test_it_decorates_functions_and_compiled_kernels_are_launched(x):
    out = np.zeros_like(x)

    @emulate("sm_80")
    def launch():
        kernel = small.scale[(4,)](x, out, 1000, 2.0, BLOCK=256)
        kernel._init_handles()
        assert kernel.n_regs >= 8
        kernel[(4, 1, 1)](x, out, 1000, 3.0, 256)

    launch()
    launch()
    assert np.array_equal(out, 3 * x)


SCRIPT = """
import sys
import numpy as np
sys.path.insert(0, {kernels!r})
from small_kernels import scale
x, out = np.arange(1000, dtype=np.float32), np.zeros(1000, np.float32)
print("launching")
if __name__ == "__main__":
    scale[(4,)](x, out, {n}, 2.0, BLOCK=256)
    np.testing.assert_allclose(out, 2 * x)
"""


@pytest.mark.parametrize(
    ("n", "code", "says"), [(1000, 0, "no hazard found"), (1001, 1, "small_kernels.py:16: out of")]
)
def test_a_file_is_executed_from_the_command_line(tmp_path, n, code, says):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(kernels=str(KERNELS), n=n))
    result = CliRunner().invoke(cli.main, ["emulate", "--triton", str(script)])
    assert (result.exit_code, result.exception is None or code == 1) == (code, True), result.output
    assert says in result.output and "launching" in result.output
    result = invoke("emulate", "--triton", str(script), "--arch", "sm_80", "--json")
    assert result.exit_code == code
    found = said(result)
    assert found["ok"] is (code == 0) and found["launches"][0]["target"] == "sm_80"


def test_a_file_that_has_the_context_itself_is_reported(tmp_path):
    script = tmp_path / "script.py"
    text = SCRIPT.format(kernels=str(KERNELS), n=1000).replace("    scale", "    with emulate('sm_89'): scale")
    script.write_text(f"from workbench.triton import emulate\n{text}")
    result = CliRunner().invoke(cli.main, ["emulate", "--triton", str(script)])
    assert result.exit_code == 0 and "sm_89: no hazard found" in result.output, result.output
    assert "own" not in result.output
    result = CliRunner().invoke(cli.main, ["emulate", "--triton", str(script), "--arch", "sm_80"])
    assert "has contexts of its own, for sm_89: --arch sm_80 is not for their launches" in result.stderr


@pytest.mark.parametrize(
    ("text", "arguments", "code", "says"),
    [
        ("x = 1", [], 2, "launched no Triton kernel"),
        ("x = 1\nraise ValueError('no')", [], 1, "script.py:2: ValueError: no"),
        ("x = (", [], 1, "script.py:1"),
        ("x = 1", ["--grid", "4"], 2, "--grid is not for --triton"),
        ("x = 1", ["--arch", "sm_70"], 2, "the targets: sm_75"),
    ],
)
def test_a_file_that_cannot_be_emulated_is_told_why(tmp_path, text, arguments, code, says):
    script = tmp_path / "script.py"
    script.write_text(text)
    result = CliRunner().invoke(cli.main, ["emulate", "--triton", str(script), *arguments])
    assert result.exit_code == code and says in result.output, result.output


TESTS = """
import sys
import numpy as np
import pytest
sys.path.insert(0, {kernels!r})
from small_kernels import scale
x = np.arange(1000, dtype=np.float32)

def test_right(workbench_triton):
    out = np.zeros_like(x)
    scale[(4,)](x, out, 1000, 2.0, BLOCK=256)
    np.testing.assert_allclose(out, 2 * x)
    assert workbench_triton.ok

@pytest.mark.workbench_triton(target="sm_80")
def test_wrong(workbench_triton):
    scale[(4,)](x, np.zeros_like(x), 1001, 2.0, BLOCK=256)
"""


@pytest.mark.long
def test_tests_take_a_fixture(tmp_path):
    (tmp_path / "test_it.py").write_text(TESTS.format(kernels=str(KERNELS)))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--strict-markers", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "1 failed, 1 passed" in done.stdout and "sm_80: 1 hazard" in done.stdout, done.stdout + done.stderr
    assert "jit.py" not in done.stdout and "emulation.py" not in done.stdout, done.stdout
    assert ">       scale[(4,)](x, np.zeros_like(x)" in done.stdout or ">   scale[(4,)](x" in done.stdout, done.stdout


def test_tensors_of_pytorch_are_arguments():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install -e '.[baselines]'")
    whole = torch.arange(2000, dtype=torch.bfloat16)
    x, out = whole[1000:], torch.zeros(1000, dtype=torch.float32, requires_grad=True)
    with emulate(), torch.no_grad():
        small.scale[(4,)](x, out, 1000, 2.0, BLOCK=256)
        assert torch.equal(out, 2 * x.float())
        a, b = torch.randn(64, 32).half(), torch.randn(32, 64).half()
        c = torch.zeros(64, 64).half()
        addresses = torch.tensor([[a.data_ptr()], [b.data_ptr()], [c.data_ptr()]])
        sizes = torch.tensor([[64, 64, 32]], dtype=torch.int32)
        product.matmul_grouped[(1,)](addresses, sizes, 1, PROGRAMS=1, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32)
    torch.testing.assert_close(c.float(), a.float() @ b.float(), rtol=2e-3, atol=2e-2)
    with emulate(), pytest.raises(ArgumentError, match="a tensor is on meta"):
        small.scale[(4,)](x.to("meta"), out, 1000, 2.0, BLOCK=256)


class Part:
    """A library's own view: a ``dtype`` and a ``data_ptr()``, as Triton asks for, into an array that it holds."""

    def __init__(self, base, offset, shape=None):
        self.base, self.dtype, self.offset = base, base.dtype, offset
        if shape is not None:
            self.shape, self.stride = shape, lambda: (1,)

    def data_ptr(self):
        return self.base.ctypes.data + 4 * self.offset


def test_objects_that_point_into_an_array_are_arguments(x):
    out = np.zeros(1000, np.float32)
    with emulate() as run:
        small.scale[(1,)](Part(x, 100), Part(out, 300), 200, 2.0, BLOCK=256)
    assert np.array_equal(out[300:500], 2 * x[100:300]) and not out[:300].any() and not out[500:].any()
    with emulate(bounds="view", raise_on_hazard=False) as run:
        small.scale[(1,)](Part(x, 100, (100,)), Part(out, 300), 101, 2.0, BLOCK=128)
    assert "reads 4 bytes at x[100]: x[100] is one past the end of x (100 elements" in str(run)
    with emulate(), pytest.raises(ArgumentError, match="a Part points into no array that it holds"):
        small.scale[(1,)](Part(x, 5000), out, 100, 2.0, BLOCK=128)


def test_a_compiled_kernel_is_told_which_arguments_it_lacks(x):
    with emulate():
        compiled = small.scale[(1,)](x, np.zeros_like(x), 100, 2.0, BLOCK=128)
        with pytest.raises(ArgumentError, match="scale takes 5 arguments, with those of constexpr; 3 are given"):
            compiled[(1, 1, 1)](x, np.zeros_like(x), 100)
        with pytest.raises(ArgumentError, match="factor is str, which Triton takes for fp32"):
            compiled[(1, 1, 1)](x, np.zeros_like(x), 100, "2", 128)


@pytest.mark.long
def test_the_page_followed_word_by_word_prints_what_it_says(here, monkeypatch, capsys):
    page = (Path(__file__).parent.parent / "docs/triton.md").read_text()
    blocks = {
        language: re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL) for language in ("python", "text", "console")
    }
    monkeypatch.syspath_prepend(here)
    for name, text in zip(("scale.py", "test_scale.py", "launch.py", "checked.py"), blocks["python"], strict=True):
        Path(name).write_text(text)
    runpy.run_path("scale.py", run_name="__main__")
    printed, shown = (re.sub(r"\d+ warp", "N warp", text) for text in (capsys.readouterr().out, blocks["text"][0]))
    assert printed == shown  # but for the count, which depends on Triton's release
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_scale.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "1 failed" in done.stdout and "scale.py:11: out of bounds" in done.stdout, done.stdout

    def from_a_shell():
        monkeypatch.delitem(sys.modules, "scale", raising=False)
        return CliRunner().invoke(cli.main, shlex.split(blocks["console"][0])[1:])

    failed = from_a_shell()
    assert failed.exit_code == 1 and "sm_80: 1 hazard" in failed.output, failed.output
    assert "Write `mask=at < n` in the store" in page
    Path("scale.py").write_text(blocks["python"][0].replace("mask=at <= n", "mask=at < n"))
    passed = from_a_shell()
    assert passed.exit_code == 0, passed.output
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "1 passed" in done.stdout, done.stdout
    runpy.run_path("checked.py")
    monkeypatch.delitem(sys.modules, "scale")


def test_the_same_kernel_in_two_files_is_named_in_each(tmp_path):
    for name in ("first.py", "second.py"):
        (tmp_path / name).write_text(KERNELS.joinpath("small_kernels.py").read_text())
        kernels = runpy.run_path(str(tmp_path / name))
        x, out = np.arange(1000, dtype=np.float32), np.zeros(1000, np.float32)
        with emulate(raise_on_hazard=False) as run:
            kernels["scale"][(4,)](x, out, 1001, 2.0, BLOCK=256)
        assert {Path(finding.location.file).name for finding in run.findings} == {name}


def test_decoded_programs_are_kept_from_run_to_run(x, tmp_path, monkeypatch):
    """A second process decodes nothing; a file that is damaged is decoded again."""
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path))
    (tmp_path / "kept.py").write_text(KERNELS.joinpath("small_kernels.py").read_text())
    decodes = Program.from_ptx

    def counted(*args, **options):
        counts.append(1)
        return decodes(*args, **options)

    monkeypatch.setattr(Program, "from_ptx", counted)
    texts = []
    for damaged, expected in ((False, 1), (False, 0), (True, 1), (False, 0)):
        counts = []
        for file in tmp_path.rglob("*.decoded") if damaged else ():
            file.write_bytes(file.read_bytes()[:100])
        monkeypatch.setattr(launching, "_PROGRAMS", {})
        kernels = runpy.run_path(str(tmp_path / "kept.py"))
        with emulate(raise_on_hazard=False) as run:
            kernels["scale"][(4,)](x, np.zeros_like(x), 1001, 2.0, BLOCK=256)
        assert len(counts) == expected
        texts.append(str(run))
    assert len(set(texts)) == 1 and "kept.py:16: out of bounds" in texts[0]

"""Mutants of CUDA sources: what is changed, what becomes of them, and how survivors are explained."""

from __future__ import annotations

import re
import shutil

import pytest
from click.testing import CliRunner
from command_line import said

from workbench.catalogue import registry
from workbench.checks import mutate
from workbench.checks.mutate import Mutant, Outcome, code_of, mutants_of
from workbench.cli import main as cli
from workbench.model import origin
from workbench.toolchain.compiler import CompileError

SOURCE = """// a < b
#include "tile/warp.cuh"
static_assert(A % B == 0, "A");
__global__ void kernel(float* c, int M, int N) {  // M + N
  __shared__ float tile[8];
  float sum = 0.f;
  const char* text = "x < y";
  for (int i = 0; i < M; ++i) sum += tile[i];
  __syncthreads();
  c[M] = sum;
  mbarrier_wait(full[s], step % 2);
  mbarrier_arrive_expect(full[s], bytes);
  mbarrier_init(full[s], 1);
  cp_async_wait<STAGES>();
}
"""


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """A folder in the place of cuda_src/ with one file, `made/1.cu`."""
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "1.cu").write_text(SOURCE)
    monkeypatch.setattr(mutate, "SOURCES", tmp_path)
    return tmp_path


def changes() -> dict[str, list[str]]:
    """The changed lines of all mutants, by operator."""
    found: dict[str, list[str]] = {}
    for mutant in mutants_of("made/1.cu"):
        found.setdefault(mutant.operator, []).append("; ".join(s.strip() for s in mutate.change_of(mutant)[1]))
    return found


def test_comments_strings_directives_and_assertions_are_not_code(sources):
    code = code_of(SOURCE)
    assert len(code) == len(SOURCE)
    assert code.count("\n") == SOURCE.count("\n")
    for hidden in ("a < b", "warp.cuh", "A % B", "M + N", "x < y"):
        assert hidden not in code
    assert [m.line for m in mutants_of("made/1.cu") if m.operator == "< to <="] == [8]


@pytest.mark.parametrize(
    ("operator", "line"),
    [
        ("synchronisation dropped", ";"),
        ("synchronisation moved down", "c[M] = sum; __syncthreads();"),
        ("< to <=", "for (int i = 0; i <= M; ++i) sum += tile[i];"),
        ("index + 1", "c[(M) + 1] = sum;"),
        ("other parity", "mbarrier_wait(full[s], (step % 2) ^ 1);"),
        ("16 bytes too many", "mbarrier_arrive_expect(full[s], bytes + 16);"),
        ("16 bytes too few", "mbarrier_arrive_expect(full[s], bytes - 16);"),
        ("one arrival more", "mbarrier_init(full[s], 1 + 1);"),
        ("one group too few", "cp_async_wait<STAGES + 1>();"),
        ("M to N", "c[N] = sum;"),
        ("accumulated in half", "sum = __half2float(__float2half_rn(sum + (tile[i])));"),
    ],
)
def test_every_kind_of_change_is_made(sources, operator, line):
    assert any(line in changed for changed in changes()[operator])


def test_sizes_of_arrays_and_parameters_are_left_alone(sources):
    assert not any("tile[(8) + 1]" in line for lines in changes().values() for line in lines)
    assert all(m.line != 4 for m in mutants_of("made/1.cu"))


def test_no_mutant_is_made_twice_and_each_changes_something(sources):
    texts = [m.text for m in mutants_of("made/1.cu")]
    assert len(set(texts)) == len(texts)
    assert SOURCE not in texts


def judge(mutant: Mutant, spec: str) -> mutate.Judged:
    stages = registry.select([spec])
    return mutate._judge(mutant, mutate._uses(mutant, stages, {spec: mutate._problems(stages[0], 12, 0)}))


def naive_mutant(old: str, new: str) -> Mutant:
    text = (origin.SOURCES / "vector_add/1_naive.cu").read_text()
    assert text.count(old) == 1
    return Mutant("vector_add/1_naive.cu", 13, "test", old, new, text.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "outcome", "verdict"),
    [
        ("i < n", "i <= n", Outcome.KILLED, "out_of_bounds"),
        ("to_float(a[i]) +", "to_float(a[i]) -", Outcome.KILLED, "mismatch"),
        ("if (i < n)", "while (c[i] == c[i] || i < n)", Outcome.KILLED, ""),
        ("i < n", "i < nonsense", Outcome.UNCOMPILED, ""),
        ("i < n", "n > i", Outcome.UNCHANGED, ""),
        ("i < n) c", "i < n && n >= 0) c", Outcome.SURVIVED, ""),
    ],
)
def test_what_becomes_of_a_mutant(old, new, outcome, verdict):
    judged = judge(naive_mutant(old, new), "vector_add:naive")
    assert (judged.outcome, verdict in judged.verdict) == (outcome, True)


def test_a_mutant_of_a_header_is_seen_by_the_stages_that_include_it():
    lines = (origin.SOURCES / "include/tile/vector.cuh").read_text().splitlines()
    store = next(number for number, line in enumerate(lines, 1) if "to[i] = " in line)
    (mutant,) = [m for m in mutants_of("include/tile/vector.cuh") if (m.line, m.operator) == (store, "< to <=")]
    judged = judge(mutant, "vector_add:vectorized")
    assert (judged.outcome, judged.verdict) == (Outcome.KILLED, "out_of_bounds")


def explanation(mutant: Mutant, reason: str) -> str:
    old, new = ("\n".join(lines) for lines in mutate.change_of(mutant))
    return f"[[mutant]]\nold = '''{old}'''\nnew = '''{new}'''\nreason = '{reason}'\n"


@pytest.mark.parametrize("whole", [False, True], ids=["a file a source", "one file for the folder"])
def test_a_survivor_with_a_reason_is_explained_and_another_is_not(tmp_path, monkeypatch, whole):
    shutil.copytree(origin.SOURCES, tmp_path / "src")
    monkeypatch.setattr(mutate, "SOURCES", tmp_path / "src")
    mutant, other = naive_mutant("i < n) c", "i < n && n >= 0) c"), naive_mutant("i < n) c", "i < n && n > -1) c")
    folder = tmp_path / "src" / "vector_add"
    mutate.explanations_of(folder / "1_naive.cu").parent.mkdir(parents=True)
    entry = explanation(mutant, "n is never negative")
    if whole:
        (folder / "equivalent.toml").write_text(entry + "file = '1_naive.cu'\n")
    else:
        mutate.explanations_of(folder / "1_naive.cu").write_text(entry)
    known = mutate._explanations([folder])
    seen = [mutate._explained(mutate.Judged(m, Outcome.SURVIVED), known) for m in (mutant, other)]
    assert [(j.outcome, j.reason) for j in seen] == [
        (Outcome.EXPLAINED, "n is never negative"),
        (Outcome.SURVIVED, ""),
    ]


@pytest.mark.parametrize("name", ["equivalent/1_naive.cu.toml", "equivalent.toml"])
@pytest.mark.parametrize(
    "text",
    [
        "[[mutant]]\nold = 'a'\nnew = 'b'\n",
        "[[mutant",
        "[[mutant]]\nreason = ' '\n",
        "[[mutant]]\nfile = '1_naive.cu'\nold = 'a'\nnew = 'b'\nreason = ' '\n",
    ],
)
def test_an_explanation_that_lacks_something_is_refused(tmp_path, name, text):
    (tmp_path / "equivalent").mkdir()
    (tmp_path / name).write_text(text)
    with pytest.raises(mutate.BadExplanation, match=re.escape(name)):
        mutate._explanations([tmp_path])


@pytest.mark.parametrize(
    ("name", "names_it", "needed"),
    [("equivalent/1_naive.cu.toml", True, "old, new and"), ("equivalent.toml", False, "file, old, new and")],
)
def test_an_entry_names_its_source_where_the_file_does_not(tmp_path, name, names_it, needed):
    (tmp_path / "equivalent").mkdir()
    entry = "[[mutant]]\nold = 'a'\nnew = 'b'\nreason = 'the same'\n" + ("file = '1_naive.cu'\n" if names_it else "")
    (tmp_path / name).write_text(entry)
    with pytest.raises(mutate.BadExplanation, match=f"has to have {needed} a reason"):
        mutate._explanations([tmp_path])


@pytest.mark.long
def test_every_explanation_in_the_repository_is_of_a_mutant_that_is_still_made():
    files = {
        str(path.relative_to(origin.SOURCES)) for stage in registry.stages() for path in mutate.with_headers(stage.path)
    }
    made = {(m.path.resolve(), mutate._change(*mutate.change_of(m))) for f in files for m in mutants_of(f)}
    explained = set(mutate._explanations({path.parent for path, _ in made}))
    assert explained - made == set()
    assert explained


def test_a_source_that_does_not_compile_as_it_is_gets_the_error_of_the_compiler(tmp_path, monkeypatch):
    copy = tmp_path / "cuda_src"
    shutil.copytree(origin.SOURCES, copy)
    for module in (origin, mutate):
        monkeypatch.setattr(module, "SOURCES", copy)
    source = copy / "vector_add/1_naive.cu"
    source.write_text(source.read_text().replace("i < n", "i < nonsense"))
    with pytest.raises(CompileError) as caught:
        judge(naive_mutant("i < nonsense", "i <= nonsense"), "vector_add:naive")
    assert str(caught.value).startswith("vector_add:naive has to compile before it can be mutated: 1_naive.cu does not")
    assert 'error: identifier "nonsense" is undefined' in str(caught.value)


@pytest.mark.long
def test_the_command_shows_survivors_and_ends_with_one():
    arguments = ["mutate", "vector_add:naive", "--limit", "4", "--examples", "8"]
    result = CliRunner().invoke(cli.main, [*arguments, "--json"])
    found = said(result)
    assert found["made"] == 4
    assert found["killed"] + found["uncompiled"] + found["unchanged"] == 4
    assert result.exit_code == 0
    weak = CliRunner().invoke(cli.main, ["mutate", "vector_add:vectorized", "--limit", "24", "--examples", "1"])
    assert weak.exit_code == 1
    assert "survived: " in weak.stdout
    assert "24 mutants: " in weak.stdout

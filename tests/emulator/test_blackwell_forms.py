"""The table of Blackwell's instructions: an assembler that knows them takes every form, and so does the emulator."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from blackwell_forms import REFUSED, Family, expanded, families, module, table

from workbench.emulator import UnsupportedInstruction, load
from workbench.emulator.architectures import ARCHITECTURES, missing

FAMILIES = {family.name: family for family in families()}
PAGE = Path(__file__).resolve().parents[2] / "docs" / "blackwell.md"


def groups_of(forms: list[str]) -> list[list[str]]:
    """Forms that may stand in one kernel: all of those with a cta_group have the same."""
    groups = ([f for f in forms if f"cta_group::{group}" in f] for group in (1, 2))
    return [group for group in [*groups, [f for f in forms if "cta_group" not in f]] if group]


@pytest.fixture(scope="module")
def assembler() -> str:
    """A ptxas of PTX 9.2 or later: Triton's wheel brings one."""
    triton = pytest.importorskip("triton", reason="Triton is not installed: pip install -e '.[triton]'")
    found = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas-blackwell"
    return str(found) if found.exists() else shutil.which("ptxas") or pytest.fail("there is no ptxas")


def assembled(assembler: str, text: str, arch: str, folder: Path) -> str:
    """What the assembler complains about: nothing where it takes the module."""
    source = folder / "forms.ptx"
    source.write_text(text)
    command = [assembler, f"-arch={arch}", "-O0", str(source), "-o", str(folder / "forms.cubin")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if ran.returncode == 0 else ran.stdout + ran.stderr


@pytest.mark.parametrize("name", FAMILIES)
def test_the_assembler_takes_every_form(name: str, assembler: str, tmp_path: Path) -> None:
    family = FAMILIES[name]
    for forms in groups_of(family.forms()):
        complaint = assembled(assembler, module(forms, family.archs[0]), family.archs[0], tmp_path)
        assert not complaint, complaint[:2000]


@pytest.mark.parametrize("name", FAMILIES)
def test_the_emulator_takes_every_form(name: str) -> None:
    family = FAMILIES[name]
    for arch in family.archs:
        load(module(family.forms(), arch), arch=arch)


@pytest.mark.long
def test_the_assembler_refuses_what_the_emulator_says_an_architecture_lacks(assembler: str, tmp_path: Path) -> None:
    """One form of each family for every architecture since sm_100; where it is refused, both refuse it."""
    for family in FAMILIES.values():
        form = family.forms()[0]
        opcode = form.split(" ")[0].rstrip(";") + (",scaled" if "scale of D" in family.name else "")
        for arch in (a for a in ARCHITECTURES if int(a[3:].rstrip("af")) >= 100):
            lacks = bool(assembled(assembler, module([form], arch), arch, tmp_path))
            assert (missing(opcode, arch) is not None) == lacks, (form, arch)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_exists(name: str, assembler: str, tmp_path: Path) -> None:
    pattern, arch, _ = REFUSED[name]
    (form,) = expanded(pattern)
    assert not assembled(assembler, module([form], arch), arch, tmp_path)
    with pytest.raises(UnsupportedInstruction, match=re.escape(form.split(" ")[0])):
        load(module([form], arch), arch=arch)


def test_a_pattern_stands_for_each_choice_once() -> None:
    assert list(expanded("a<|.x|.y> r:2;")) == ["a {r0, r1};", "a.x {r0, r1};", "a.y {r0, r1};"]
    forms = Family("", ("a<b<1|2>|c>;",), "").forms()
    assert forms == ["ab1;", "ac;", "ab2;"]


def test_the_page_has_the_table() -> None:
    """``python tests/emulator/blackwell_forms.py`` prints it."""
    page = PAGE.read_text()
    assert table() in page
    for name, (_, _, reason) in REFUSED.items():
        assert f"| {name} |" in page and reason in page

"""Records as text: nothing is lost, what is short has one line, and equal data give equal bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.model import compact

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=100)
DATA = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=9), inner), max_leaves=60)


@given(DATA)
def test_what_is_written_is_what_is_read(data: Any) -> None:
    assert json.loads(compact.dumps(data)) == data


def test_the_form_is_that_of_the_docstring() -> None:
    samples = [round(1.0 + i / 1000, 3) for i in range(100)]
    data = {"short": {"a": [1, "two", None], "b": {}}, "samples": samples, "words": ["word" * 9, "more" * 9] * 3}
    line = json.dumps(samples)
    assert len(line) > compact.WIDTH
    assert compact.dumps(data) == (
        '{\n "short": {"a": [1, "two", null], "b": {}},\n "samples": '
        + line
        + ',\n "words": [\n'
        + ",\n".join(f'  "{word}"' for word in data["words"])
        + "\n ]\n}\n"
    )


def test_keys_are_sorted_where_that_is_asked_for_and_else_keep_their_order() -> None:
    data = {"b": 1, "a": {"d": "x" * compact.WIDTH, "c": 2}}
    assert list(json.loads(compact.dumps(data))) == ["b", "a"]
    again = json.loads(compact.dumps(data, sort_keys=True))
    assert (list(again), list(again["a"])) == (["a", "b"], ["c", "d"])


@pytest.mark.parametrize("name", ["record.json", "record.json.gz"])
def test_a_file_has_the_same_bytes_for_the_same_data(tmp_path: Path, name: str) -> None:
    data = {"environment": {"date": "2026"}, "samples": [1.0] * 10_000}
    one, other = tmp_path / name, tmp_path / "another" / name
    other.parent.mkdir()
    for path in (one, other):
        compact.write(data, path)
    assert one.read_bytes() == other.read_bytes()
    assert (len(one.read_bytes()) < 1000) == (one.suffix == ".gz")
    assert compact.read(one) == data


@pytest.mark.parametrize("damage", [lambda content: content[:50], lambda content: b"text", lambda content: b""])
def test_what_is_no_compressed_record_is_a_value_error(tmp_path: Path, damage: Any) -> None:
    path = tmp_path / "record.json.gz"
    compact.write({"samples": list(range(100))}, path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError):
        compact.read(path)

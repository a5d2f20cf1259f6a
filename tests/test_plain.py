"""Plans and problems survive the way to the judge as plain data, and what is off the schema is named."""

from __future__ import annotations

import importlib
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workbench.catalogue import registry
from workbench.model.arrays import Array
from workbench.model.dtypes import FP32
from workbench.model.launch import Launch
from workbench.model.problem import Problem
from workbench.model.stage import Stage
from workbench.model.tensor_map import Im2col, TensorMap
from workbench.sandbox import child, plain

ARRAYS = {"x": Array((4,), FP32), "y": Array((4,), FP32, output=True)}


def tried() -> Iterator[tuple[Stage[Any], Problem]]:
    for operation in registry.operations().values():
        for stage in operation.stages:
            yield from ((stage, p) for p in (*operation.suite, *stage.edge_cases) if stage.supports(p) is None)


def sent(value: Any) -> Any:
    return json.loads(json.dumps(value, allow_nan=False))


def test_plans_of_all_our_stages_arrive_as_they_were() -> None:
    plans = 0
    for stage, problem in tried():
        plan = stage.plan(problem)
        arrived = plain.plan_of(sent(plain.encoded(plan)), problem.arrays())
        assert arrived.launches == plan.launches
        assert [type(a) for launch in arrived.launches for a in launch.args] == [
            type(a) for launch in plan.launches for a in launch.args
        ]
        assert dict(arrived.scratch) == dict(plan.scratch)
        plans += 1
    assert plans > 200


def test_problems_arrive_without_what_tells_their_inputs() -> None:
    for _, problem in tried():
        given = sent(plain.words(problem))
        assert not {"seed", "tier", "distribution", *problem.drawn_by} & set(given)
        arrived = plain.problem_of(type(problem), given)
        assert plain.words(arrived) == given
        defaults = type(problem)()
        assert all(getattr(arrived, name) == getattr(defaults, name) for name in problem.of_inputs())


def test_what_our_stages_say_is_the_same_from_the_process_of_the_stages() -> None:
    for spec in ("gemm:ping_pong", "matvec:streamed", "rotary:naive"):
        (stage,) = registry.select([spec])
        operation = registry.operation_of(stage)
        declared = next(s for s in operation.stages if s.name == stage.name)
        assert stage is not declared
        for problem in operation.suite:
            assert stage.supports(problem) == declared.supports(problem)
            if stage.supports(problem) is None:
                assert stage.plan(problem).launches == declared.plan(problem).launches
                assert stage.defines(problem) == declared.defines(problem)


@pytest.mark.parametrize("box", [(8, 8), Im2col((-1,), (1,), 8, 16)])
def test_tensor_maps_arrive_as_they_were(box: Any) -> None:
    launch = Launch("k", (1, 1, 1), (32, 1, 1), (TensorMap("x", box, swizzle=0, shape=(8, 8), fill="nan"),))
    assert plain.plan_of(sent(plain.encoded(launch)), ARRAYS).launches == (launch,)


def changed(path: list[Any], value: Any) -> Any:
    launch = Launch("k", (1, 1, 1), (32, 1, 1), ("x", np.int32(3), TensorMap("y", (4,))))
    made = at = sent(plain.encoded(launch))
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return made


ARGS = ["launches", 0, "args"]


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (["launches", 0, "grid"], [1, 1, 1.0], "has to be a whole number"),
        (["launches", 0, "grid"], [1, True, 1], "has to be a whole number"),
        (["launches", 0, "grid"], "111", "has to be a list"),
        (["launches", 0, "persistent"], 1, "true or false"),
        (["launches", 0, "more"], 1, "it has to have"),
        ([*ARGS, 0], {}, "an argument of k is"),
        ([*ARGS, 0], "x;y", "has the name"),
        ([*ARGS, 1, "bits"], "00", "is made of"),
        ([*ARGS, 1, "bits"], "zz000000", "is made of"),
        ([*ARGS, 1, "type"], "object", "is of type"),
        ([*ARGS, 2, "fill"], "all", "has fill"),
        ([*ARGS, 2, "box"], [1] * 100, "100 parts"),
        (["scratch"], {"x": {}}, "has the name of an array of the problem"),
        (["scratch"], {"s": {"shape": [-1], "dtype": "fp32", "zero": False}}, "at least 1"),
        (["scratch"], {"s": {"shape": [1], "dtype": "object", "zero": False}}, "elements of type"),
        (["scratch"], {"s": {"shape": [2], "dtype": "fp32", "zero": False, "strides": [1 << 60]}}, "larger than any"),
        (["scratch"], {"s": {"shape": [2, 2], "dtype": "fp32", "zero": False, "leading": 1 << 60}}, "larger than any"),
    ],
)
def test_what_is_off_the_schema_is_named(path: list[Any], value: Any, says: str) -> None:
    with pytest.raises(plain.OffSchema, match=says):
        plain.plan_of(changed(path, value), ARRAYS)


def test_scratch_with_rows_apart_counts_what_it_reaches_over() -> None:
    given = {"shape": [15384, 4625], "dtype": "bf16", "zero": False, "leading": 4632}
    (found,) = plain.plan_of(changed(["scratch"], {"s": given}), ARRAYS).scratch.values()
    assert found.shape == (15384, 4625)
    assert found.row_stride == 4632


def test_a_pickle_is_no_argument() -> None:
    with pytest.raises(TypeError, match="an argument is the name of an array"):
        plain.encoded(Launch("k", (1, 1, 1), (1, 1, 1), (pickle.dumps(1),)))  # type: ignore[arg-type]


def test_what_a_module_of_stages_has_is_told_to_be_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stubbed/stages").mkdir(parents=True)
    for name in ("__init__", "stages/__init__", "stages/one"):
        (tmp_path / f"stubbed/{name}.py").write_text("raise SystemExit\n" if "stages" in name else "")
    monkeypatch.syspath_prepend(tmp_path)
    child.install(["stubbed"])

    assert isinstance(importlib.import_module("stubbed.stages.one"), child.Stub)
    with pytest.raises(ImportError, match="move what an operation and stages share into the module of the operation"):
        from stubbed.stages.one import launch  # noqa: F401

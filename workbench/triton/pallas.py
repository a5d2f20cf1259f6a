"""JAX's Pallas where there is no GPU: kernels for its Triton backend, launched in the emulator.

JAX lowers a ``pallas_call`` to Triton's IR without a GPU. On the CPU a call of JAX hands that IR and the arrays to
Triton and to the emulation; its results go on as any other. So functions run as they are, under ``jax.jit`` too."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..emulator import Output
from ..model.errors import WrongUsage
from .target import Target

MODULE = "jax._src.pallas.pallas_call"
"""The module of JAX that says how a ``pallas_call`` is lowered."""

_UNWRITTEN = 0xFF
_DEPTH = [0]
"""How many contexts there are."""


@contextmanager
def pallas_emulated(target: Target) -> Iterator[None]:
    """Lowers every ``pallas_call`` for the CPU to launches of Triton, unless it is to be interpreted.

    JAX reports what goes wrong in a launch as an error of its own; where that leaves the context, the fault itself is
    raised instead."""
    import jax
    from jax.interpreters import mlir

    primitive = importlib.import_module(MODULE).pallas_call_p
    known, faults = mlir._platform_specific_lowerings["cpu"], list[Exception]()
    held = known.get(primitive)
    _DEPTH[0] += 1
    mlir.register_lowering(primitive, _lowering(target, faults), platform="cpu")
    try:
        yield
        for array in jax.live_arrays():  # JAX may not have begun
            array.block_until_ready()
    except jax.errors.JaxRuntimeError:
        if faults:
            raise faults[-1] from None
        raise
    finally:
        _DEPTH[0] -= 1
        del known[primitive]
        if held is not None:
            known[primitive] = held


def _lowering(target: Target, faults: list[Exception]) -> Callable[..., Any]:
    def lower(context: Any, *inputs: Any, interpret: Any, compiler_params: Any, **params: Any) -> Any:
        import jax
        from jax.interpreters import mlir

        if interpret:
            given = {"interpret": interpret, "compiler_params": compiler_params, **params}
            return mlir._lowerings[context.primitive].rule(context, *inputs, **given)
        kernel = _Kernel.of(target, context, compiler_params, params)

        def launch(*arrays: Any) -> list[Any]:
            try:
                return kernel.launch(arrays)
            except Exception as error:
                faults.append(error)
                raise

        def call(*arrays: Any) -> Any:
            results = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in context.avals_out]
            return jax.pure_callback(launch, results, *arrays)

        return mlir.lower_fun(call, multiple_results=True)(context, *inputs)

    return lower


@dataclass(slots=True)
class _Kernel:
    """A kernel in Triton's IR, with how it is launched.

    ``results``: of each the number of elements along each axis, and its dtype; ``aliases``: the number of the argument
    whose memory a result has, by the number of the result; ``names``: of arguments and of results, in this order."""

    text: str
    grid: tuple[int, ...]
    options: dict[str, int]
    results: list[tuple[tuple[int, ...], Any]]
    aliases: dict[int, int]
    names: list[str]

    @classmethod
    def of(cls, target: Target, context: Any, compiler_params: Any, params: dict[str, Any]) -> _Kernel:
        """Raises ``WrongUsage`` where it is made for another backend, and what JAX raises."""
        from jax._src.pallas.triton.lowering import lower_jaxpr_to_triton_module
        from jax.experimental.pallas import triton

        if not isinstance(compiler_params, triton.CompilerParams):
            raise WrongUsage(
                "a pallas_call is emulated where it is for Pallas' Triton backend: give it "
                "compiler_params=jax.experimental.pallas.triton.CompilerParams()"
            )
        mapping = params["grid_mapping"]
        lowered = lower_jaxpr_to_triton_module(
            params["jaxpr"], mapping, "cuda", target.capability, mlir_ctx=context.module_context
        )
        kernel = params["jaxpr"].debug_info
        names, count = list(kernel.arg_names), len(mapping.block_mappings)
        where = f'loc("{kernel.func_filename}":{kernel.func_lineno}:0)'  # functions of Triton have a file
        text = lowered.module.operation.get_asm(enable_debug_info=True).replace("loc(unknown)", where)
        return cls(
            text,
            (*lowered.grid, 1, 1, 1)[:3],
            {"num_warps": compiler_params.num_warps or 4, "num_stages": compiler_params.num_stages or 3},
            [(aval.shape, aval.dtype) for aval in context.avals_out],
            {result: argument for argument, result in params["input_output_aliases"]},
            names if len(set(names)) == len(names) == count else [f"arg{number}" for number in range(count)],
        )

    def launch(self, given: tuple[Any, ...]) -> list[Any]:
        """Its results. Raises what a launch raises, ``WrongUsage`` outside of the emulation."""
        import triton

        if not _DEPTH[0]:
            raise WrongUsage("a pallas_call was compiled in workbench.triton.emulate() and is called outside of it")
        arrays = [np.asarray(array) for array in given]
        results: list[Any] = []
        for number, (shape, dtype) in enumerate(self.results):
            argument = self.aliases.get(number)
            results.append(np.empty(shape, dtype) if argument is None else arrays[argument].copy())
            if argument is None:
                results[-1].view(np.uint8).fill(_UNWRITTEN)
            else:
                arrays[argument] = results[-1]
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "kernel.ttir"
            file.write_text(self.text)
            compiled = triton.compile(str(file), options=self.options)
        compiled.src.signature = dict(zip(self.names, compiled.src.signature.values(), strict=True))
        outputs = [result if n in self.aliases else Output(result) for n, result in enumerate(results)]
        compiled[self.grid](*arrays, *outputs)
        return results

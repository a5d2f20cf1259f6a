"""PyTorch's CUDA where there is none: tensors of the CPU look like those of the device that is emulated.

So functions of libraries run as they are. ``torch.cuda`` answers, each function by itself; ``tensor.is_cuda`` and
``tensor.device`` are those of a device; and what is made on one, by ``device="cuda"`` or ``.cuda()``, lies on the CPU.
Code inside of PyTorch that is not Python sees the CPU."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

from ..emulator import DeviceLimits
from .host_reads import Follower
from .target import Target

_MEMORY = 80 << 30
_VERSION = "13.0"
_NOTHING = """set_device synchronize empty_cache ipc_collect init reset_peak_memory_stats reset_max_memory_allocated
reset_accumulated_memory_stats reset_max_memory_cached set_stream set_per_process_memory_fraction"""
_SEEDING = ("manual_seed", "manual_seed_all")
_ZERO = """current_device memory_allocated max_memory_allocated memory_reserved max_memory_reserved memory_cached
max_memory_cached utilization current_blas_handle"""


def has_cuda() -> bool:
    """Whether PyTorch, where it has been imported, has a GPU of its own."""
    torch = sys.modules.get("torch")
    return torch is not None and hasattr(torch._C, "_cuda_getDeviceCount") and bool(torch.cuda.is_available())


@contextmanager
def cuda_emulated(target: Target, cuda: bool, follower: Follower | None) -> Iterator[None]:
    """PyTorch with the device of a target where ``cuda``; ``follower`` looks at what PyTorch reads and makes."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):  # type: ignore[misc]
        @classmethod
        def is_infra_mode(cls) -> bool:
            return True  # or torch.compile leaves functions as they are

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            args, kwargs = tuple(map(_on_cpu, args)), {name: _on_cpu(value) for name, value in (kwargs or {}).items()}
            if cuda and _is_of_cuda_alone(func):
                func = functools.partial(func.redispatch, torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA))
                return func(*args, **kwargs)
            return func(*args, **kwargs) if follower is None else follower(func, args, kwargs)

    with ExitStack() as stack:
        changes = [*_of_tensors(torch), *_of_cuda(torch, target), *_of_autocast(torch)] if cuda else []
        changes += follower.methods() if follower is not None else []
        for owner, name, new in changes:
            held = vars(owner).get(name, _MISSING)
            stack.callback(_put_back, owner, name, held)
            setattr(owner, name, new)
        stack.enter_context(Mode())
        yield


_MISSING = object()


def _put_back(owner: Any, name: str, held: Any) -> None:
    if held is _MISSING:
        delattr(owner, name)
    else:
        setattr(owner, name, held)


def _is_of_cuda_alone(func: Any) -> bool:
    """Whether it is an operator of a library that is made for CUDA, and for the CPU not."""
    if func.namespace in ("aten", "prims", "prim"):
        return False
    registered = sys.modules["torch"]._C._dispatch_has_kernel_for_dispatch_key
    others = ("CPU", "CompositeExplicitAutograd", "CompositeImplicitAutograd")
    return registered(func.name(), "CUDA") and not any(registered(func.name(), key) for key in others)


def _on_cpu(value: Any) -> Any:
    """The CPU for a device of CUDA."""
    torch = sys.modules["torch"]
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    return "cpu" if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")) else value


def _is_compiling() -> bool:
    """Whether ``torch.compile`` is at work, which compiles for the CPU."""
    return sys.modules["torch"]._guards.CompileContext.try_get() is not None


def _of_tensors(torch: Any) -> list[tuple[Any, str, Any]]:
    """What is changed of tensors. A tensor of the CPU is on the device already."""
    base, here = torch._C.TensorBase, torch.device("cuda", 0)

    def device(self: Any) -> Any:
        found = base.device.__get__(self)
        return here if found.type == "cpu" and not _is_compiling() else found

    def without_device(function: Any) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            if "device" in options:
                options["device"] = _on_cpu(options["device"])
            return function(*map(_on_cpu, args), **options)

        return call

    return [
        (torch.Tensor, "device", property(device)),
        (
            torch.Tensor,
            "is_cuda",
            property(lambda self: base.device.__get__(self).type == "cpu" and not _is_compiling()),
        ),
        (torch.Tensor, "is_cpu", property(lambda _: _is_compiling())),
        (torch.Tensor, "cuda", lambda self, *_, **__: self),
        (torch.Tensor, "get_device", lambda _: 0),
        (torch.Tensor, "pin_memory", lambda self, *_: self),
        (torch.Tensor, "record_stream", lambda *_: None),
        *((torch.Tensor, name, without_device(getattr(base, name))) for name in ("to", "new_tensor")),
        *((torch, name, without_device(getattr(torch, name))) for name in ("tensor", "as_tensor", "asarray")),
        (torch, "get_default_device", lambda: here),
        (torch, "Generator", _generator_type(torch)),
    ]


def _generator_type(torch: Any) -> Any:
    """``torch.Generator``, of which one of CUDA draws as one of the CPU does."""
    base = torch.Generator

    class Meta(type(base)):  # type: ignore[misc]
        def __instancecheck__(cls, value: Any) -> bool:
            return isinstance(value, base)

    class Generator(base, metaclass=Meta):  # type: ignore[misc, valid-type]
        def __new__(cls, device: Any = "cpu") -> Any:
            return super().__new__(cls, _on_cpu(device))

    return Generator


def _of_autocast(torch: Any) -> list[tuple[Any, str, Any]]:
    """``torch.autocast("cuda")`` is that of the CPU, too, where its operators are; PyTorch lists which they are."""
    kind = torch.autocast
    enter, leave, held = kind.__enter__, kind.__exit__, []

    def entered(self: Any) -> Any:
        if self.device == "cuda":
            held.append((torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")))
            _set_autocast(torch, self._enabled, self.fast_dtype)
        return enter(self)

    def left(self: Any, *error: Any) -> Any:
        if self.device == "cuda":
            _set_autocast(torch, *held.pop())
        return leave(self, *error)

    return [(kind, "__enter__", entered), (kind, "__exit__", left)]


def _set_autocast(torch: Any, enabled: bool, dtype: Any) -> None:
    torch.set_autocast_enabled("cpu", enabled)
    torch.set_autocast_dtype("cpu", dtype)


def _of_cuda(torch: Any, target: Target) -> list[tuple[Any, str, Any]]:
    """What is changed of ``torch.cuda``, and of what else tells whether there is a device."""
    limits, here, generator = target.limits, torch.device("cuda", 0), _Generator(torch)

    def seed_both(seed: int) -> None:
        torch.default_generator.manual_seed(seed)
        generator.manual_seed(seed)

    answers: dict[str, Any] = {
        "is_available": True,
        "is_initialized": True,
        "device_count": 1,
        "_lazy_init": None,
        "_exchange_device": 0,
        "_maybe_exchange_device": 0,
        "get_device_capability": divmod(target.capability, 10),
        "get_device_name": limits.name,
        "get_device_properties": _properties(target),
        "_get_device_properties": _properties(target),
        "mem_get_info": (_MEMORY, _MEMORY),
        "is_bf16_supported": target.capability >= 80,
        "is_tf32_supported": target.capability >= 80,
        "is_current_stream_capturing": False,
        "current_stream": _Stream(),
        "default_stream": _Stream(),
        "memory_stats": {},
        "get_arch_list": [target.name],
        **dict.fromkeys(_NOTHING.split()),
        **dict.fromkeys(_ZERO.split(), 0),
    }
    changes: list[tuple[Any, str, Any]] = [(torch.cuda, name, _answering(value)) for name, value in answers.items()]
    changes += [
        (torch.cuda, "stream", contextlib.nullcontext),
        (torch.cuda, "Stream", _Stream),
        (torch.cuda, "Event", _Event),
        *((torch.cuda, name, seed_both) for name in _SEEDING),
        (torch.cuda, "default_generators", (generator,)),
        (torch.cuda, "get_rng_state", lambda *_: torch.get_rng_state()),
        (torch.cuda, "set_rng_state", lambda state, *_: torch.set_rng_state(state)),
        (torch.version, "cuda", _VERSION),
        *((torch.cuda.nvtx, name, _answering(None)) for name in ("range_push", "range_pop", "mark")),
    ]
    if accelerator := getattr(torch, "accelerator", None):
        told = {"device_count": 1, "current_accelerator": here, "current_device_index": 0}
        told |= {"synchronize": None, "set_device_index": None, "current_stream": _Stream()}
        changes += [(accelerator, name, _answering(value)) for name, value in told.items()]
        changes += [(accelerator, "is_available", lambda: not _is_compiling())]
    return changes


def _answering(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


def _properties(target: Target) -> SimpleNamespace:
    limits: DeviceLimits = target.limits
    major, minor = divmod(target.capability, 10)
    return SimpleNamespace(
        name=limits.name,
        major=major,
        minor=minor,
        total_memory=_MEMORY,
        multi_processor_count=limits.sm_count,
        warp_size=32,
        max_threads_per_block=limits.max_threads_per_block,
        max_threads_per_multi_processor=32 * limits.max_warps_per_sm,
        shared_memory_per_block=49_152,
        shared_memory_per_block_optin=limits.shared_per_block,
        shared_memory_per_multiprocessor=limits.shared_per_sm,
        regs_per_multiprocessor=limits.registers_per_sm,
        L2_cache_size=50 << 20,
        is_integrated=False,
        is_multi_gpu_board=False,
        gcnArchName="",
    )


class _Generator:
    """A device's state of Philox, which kernels get as a seed and an offset: 16 bytes, as PyTorch has it."""

    def __init__(self, torch: Any) -> None:
        self.device = torch.device("cuda", 0)
        self.manual_seed(torch.initial_seed())

    def manual_seed(self, seed: int) -> _Generator:
        self._seed, self._offset = seed, 0
        return self

    def initial_seed(self) -> int:
        return self._seed

    def get_offset(self) -> int:
        return self._offset

    def set_offset(self, offset: int) -> None:
        self._offset = offset

    def get_state(self) -> Any:
        torch = sys.modules["torch"]
        return torch.tensor([self._seed, self._offset], dtype=torch.int64).view(torch.uint8)

    def set_state(self, state: Any) -> None:
        self._seed, self._offset = map(int, state.view(sys.modules["torch"].int64))


class _Event:
    """Nothing is timed, and all that came before has happened."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.cuda_event = 0

    def record(self, *_: Any) -> None: ...
    def wait(self, *_: Any) -> None: ...
    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True

    def elapsed_time(self, _: Any) -> float:
        return 0.0


class _Stream(_Event):
    """There is one stream, whose work is done when the call returns."""

    cuda_stream = device_index = stream_id = 0

    def wait_stream(self, _: Any) -> None: ...
    def wait_event(self, _: Any) -> None: ...

    def record_event(self, event: Any = None) -> Any:
        return event or _Event()

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: Any) -> None: ...

"""The C++ core of the emulator. See engine/engine.hpp for what rows, operands and signatures mean."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

LANES: int
ABSENT: int
SHARED_WINDOW: int
LOCAL_WINDOW: int
PARAM_WINDOW: int
FIRST_GLOBAL: int
RANK_SHIFT: int
CHECK_INITIALISED: int
CHECK_IN_FLIGHT: int
CHECK_EXITED_MEMBERS: int
CHECK_RACES: int
ISAS: list[str]

def operations() -> list[tuple[str, str]]:
    """(name, signature) of every operation; a row's operation is an index into this list."""

def special_names() -> list[str]:
    """Special registers that lie in the register file, in order, without `%`."""

def fault_names() -> list[str]: ...
def trace_kinds() -> list[str]: ...
def trace_gates() -> list[str]: ...
def counter_names() -> list[str]: ...
def space_names() -> list[str]: ...
def wait_names() -> list[str]: ...
def best_isa() -> str: ...

class Program:
    def __init__(
        self,
        rows: npt.NDArray[
            np.int32
        ],  # [n, 7]: operation, guard, guard_negated, first_operand, operand_count, target, flags
        operands: npt.NDArray[np.int64],  # [m, 3]: slot, bytes, offset
        register_bytes: int,
        special_offset: int,
        unset: Sequence[tuple[int, int]] = (),  # slot, bytes of registers that may be read before they are written
    ) -> None: ...

class Allocation:
    def __init__(
        self,
        address: int,
        data: npt.NDArray[np.uint8],
        initialised: npt.NDArray[np.uint8] | None = None,
        writable: bool = True,
        identity: int = 0,  # of the same memory elsewhere in launches of a series
        is_heap: bool = False,  # of malloc in kernels
        is_constant: bool = False,  # a variable in .const
    ) -> None: ...

class TensorMap:
    def __init__(
        self,
        descriptor: int,
        address: int,
        element_type: int,  # CUtensorMapDataType
        sizes: Sequence[int],
        strides: Sequence[int],  # bytes, strides[0] is the element size
        box: Sequence[int],
        element_strides: Sequence[int],
        swizzle: int,  # bytes: 0, 32, 64, 128
        nan_fill: bool = False,
        pixels: int = 0,  # of an im2col map
        lower: Sequence[int] = (),
        upper: Sequence[int] = (),
        wide: bool = False,
    ) -> None: ...

class Fault:
    kind: str
    pc: int
    other_pc: int
    block: int
    warp: int
    lane: int
    address: int
    space: str
    info: int
    detail: int
    other_block: int
    other_warp: int
    other_lane: int
    launch: int  # of a race between two of a series: the later one; -1: none
    other_launch: int

class Waiting:
    block: int
    warp: int
    pc: int
    lanes: int
    reason: str
    address: int
    expected: int
    phase: int
    pending: int
    transactions: int
    unseen: int

class Result:
    fault: Fault | None  # that ended the launch
    findings: list[tuple[Fault, list[Waiting]]]  # behind which it went on
    waiting: list[Waiting]
    instructions: int
    switches: int
    printed: list[tuple[int, bytes]]  # address of the format, bytes of the arguments and of what follows them
    prints_dropped: int
    counts: npt.NDArray[np.uint64]
    outcomes: npt.NDArray[np.uint8]  # of each row: 1 was true, 2 was false; 4 and 8: of a second predicate
    trace: list[
        tuple[int, int, int, int, int, int, int, int, int, int, int]
    ]  # kind, block, warp, begin, end, pc, until_pc, gate, key, count, cause
    trace_cut: bool
    counters: npt.NDArray[np.uint64]  # [rows, counter_names()], or no rows unless asked for

class Launch:
    def __init__(
        self,
        program: Program,
        *,
        grid: Sequence[int],
        block: Sequence[int],
        cluster: Sequence[int] = (1, 1, 1),
        constants: npt.NDArray[np.uint8],
        parameters: npt.NDArray[np.uint8],
        allocations: Sequence[Allocation] = (),
        tensor_maps: Sequence[TensorMap] = (),
        shared_bytes: int = 0,
        local_bytes: int = 0,
        registers: int = 2**32 - 1,
        resident_blocks: int = 1,
        threads: int = 1,
        time_slice: int = 2000,
        seed: int = 0,
        budget: int = 2**63,
        checks: int = 15,
        count: bool = False,
        trace_events: int = 0,
        trace_blocks: Sequence[int] = (),
        trace_lines: Sequence[int] = (),
        seconds: float = 0,
        reserved_bytes: int = 0,
        most_findings: int = 1,
        failing: Sequence[bool] = (),  # of each of fault_names(); none: all are
        suppressed: npt.NDArray[np.int32] | None = None,  # (pairs, 2): index into fault_names(), row or -1
        finding_lines: npt.NDArray[np.int32] | None = None,  # of each row
        replicas: bool = False,
        after: Sequence[tuple[int, int]] = (),  # launches of the series, and the port of each
        copies: Sequence[tuple[int, int, int, int]] = (),  # to, from or 0, bytes, value
    ) -> None: ...

class Series:
    """What launches that need not have ended before the next one have in common."""

def run(launches: Sequence[Launch], series: Series | None = None, isa: str | None = None) -> list[Result]: ...

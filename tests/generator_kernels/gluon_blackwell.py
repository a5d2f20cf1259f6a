"""Kernels for Gluon's module of Blackwell: tensor memory, and products whose sums lie there."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    fence_async_shared,
    mbarrier,
    tcgen05_commit,
    tcgen05_mma,
)

LAYOUT: gl.constexpr = gl.constexpr(gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0]))
SHARED: gl.constexpr = gl.constexpr(gl.NVMMASharedLayout(128, 16, rank=2))


@gluon.jit
def _at(ROWS: gl.constexpr, COLUMNS: gl.constexpr, layout: gl.constexpr):
    """Places of the elements of a matrix."""
    rows = gl.arange(0, ROWS, layout=gl.SliceLayout(1, layout))
    columns = gl.arange(0, COLUMNS, layout=gl.SliceLayout(0, layout))
    return rows[:, None] * COLUMNS + columns[None, :]


@gluon.jit
def _in_shared(x, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    """A matrix of 16-bit elements in shared memory."""
    return gl.allocate_shared_memory(gl.float16, [ROWS, COLUMNS], SHARED, gl.load(x + _at(ROWS, COLUMNS, LAYOUT)))


@gluon.jit
def _stored(out, sums, M: gl.constexpr, N: gl.constexpr):
    found = sums.load(sums.get_reg_layout())
    gl.store(out + _at(M, N, LAYOUT), gl.convert_layout(found, LAYOUT))


@gluon.jit
def _barrier():
    done = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(done, count=1)
    return done


@gluon.jit
def product(a, b, out, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr):
    left, right, done = _in_shared(a, M, K), _in_shared(b, K, N), _barrier()
    sums = allocate_tensor_memory(gl.float32, [M, N], TensorMemoryLayout([M, N], col_stride=1))
    fence_async_shared()
    tcgen05_mma(left, right, sums, use_acc=False, mbarriers=[done])
    mbarrier.wait(done, 0)
    _stored(out, sums, M, N)


@gluon.jit
def added(a, b, out, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr):
    """To ones that a thread has stored, twice."""
    left, right, done = _in_shared(a, M, K), _in_shared(b, K, N), _barrier()
    layout: gl.constexpr = TensorMemoryLayout([M, N], col_stride=1)
    sums = allocate_tensor_memory(gl.float32, [M, N], layout)
    registers: gl.constexpr = sums.get_reg_layout()
    sums.store(gl.full([M, N], 1, gl.float32, registers))
    fence_async_shared()
    for _ in range(2):
        tcgen05_mma(left, right, sums)
    tcgen05_commit(done)
    mbarrier.wait(done, 0)
    _stored(out, sums, M, N)


@gluon.jit
def from_tensor_memory(a, b, out, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr):
    """Rows of a are in tensor memory, two elements in a column."""
    right, done = _in_shared(b, K, N), _barrier()
    left = allocate_tensor_memory(gl.float16, [M, K], TensorMemoryLayout([M, K], col_stride=1))
    registers: gl.constexpr = left.get_reg_layout()
    left.store(gl.convert_layout(gl.load(a + _at(M, K, LAYOUT)), registers))
    sums = allocate_tensor_memory(gl.float32, [M, N], TensorMemoryLayout([M, N], col_stride=1))
    fence_async_shared()
    tcgen05_mma(left, right, sums, use_acc=False, mbarriers=[done])
    mbarrier.wait(done, 0)
    _stored(out, sums, M, N)


@gluon.jit
def in_turns(a, b, out, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr):
    """Two accumulators, each with a barrier: the first is added to the second."""
    left, right = _in_shared(a, M, K), _in_shared(b, K, N)
    first, second = _barrier(), _barrier()
    both = allocate_tensor_memory(gl.float32, [2, M, N], TensorMemoryLayout([M, N], col_stride=1))
    fence_async_shared()
    tcgen05_mma(left, right, both.index(0), use_acc=False, mbarriers=[first])
    tcgen05_mma(left, right, both.index(1), use_acc=False, mbarriers=[second])
    registers: gl.constexpr = both.index(0).get_reg_layout()
    mbarrier.wait(first, 0)
    found = both.index(0).load(registers)
    mbarrier.wait(second, 0)
    found += both.index(1).load(registers)
    gl.store(out + _at(M, N, LAYOUT), gl.convert_layout(found, LAYOUT))


@gluon.jit
def halves(a, b, out, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr):
    """Columns of the sums are read and written by halves."""
    left, right, done = _in_shared(a, M, K), _in_shared(b, K, N), _barrier()
    sums = allocate_tensor_memory(gl.float32, [M, N], TensorMemoryLayout([M, N], col_stride=1))
    fence_async_shared()
    tcgen05_mma(left, right, sums, use_acc=False, mbarriers=[done])
    mbarrier.wait(done, 0)
    for half in gl.static_range(2):
        part = sums.slice(half * (N // 2), N // 2)
        part.store(part.load(part.get_reg_layout()) * 2)
    _stored(out, sums, M, N)


KERNELS = {
    product: lambda p: p,
    added: lambda p: 2 * p + 1,
    from_tensor_memory: lambda p: p,
    in_turns: lambda p: 2 * p,
    halves: lambda p: 2 * p,
}

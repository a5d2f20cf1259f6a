// wgmma: a warpgroup (4 consecutive warps, the first a multiple of 4) multiplies tiles that lie in shared
// memory, while its threads go on. all 128 threads have to call together. sm_90a only.
#pragma once
#include "ptx/shared.cuh"
#include "ptx/wgmma_shapes.cuh"

constexpr int WARPGROUP = 128;

// wgmma.fence: orders register accesses before it with wgmmas after it. needed before the first one, and
// whenever a thread has touched accumulators in between
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// wgmma.commit_group: the wgmmas since the last commit become one group
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// wgmma.wait_group: until at most PENDING groups are in flight. before it neither the accumulators may be
// read nor the shared tiles overwritten
template <int PENDING>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// setmaxnreg: hands registers back to the block, or waits for ones that others gave back. every warp of the
// warpgroup, and only with a register limit at launch (__launch_bounds__ with its second argument)
template <int REGISTERS>
constexpr bool POSSIBLE = REGISTERS % 8 == 0 && REGISTERS >= 24 && REGISTERS <= 256;
template <int REGISTERS>
__device__ __forceinline__ void keep_registers() {
  static_assert(POSSIBLE<REGISTERS>, "a thread has 24 to 256 registers, a multiple of 8");
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS>
__device__ __forceinline__ void take_registers() {
  static_assert(POSSIBLE<REGISTERS>, "a thread has 24 to 256 registers, a multiple of 8");
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// the matrix descriptor of a tile stored with the 128-byte swizzle, as TMA writes it: rows of 128 bytes, 8
// rows an atom of 1024 bytes, which starts at a multiple of them. `address` is where the part to multiply
// starts, `stride` the bytes from one 8-row atom to the next. `leading` matters only where a transposed tile
// is wider than 128 bytes: bytes from one 64-column panel to the next
__device__ __forceinline__ u64 swizzled_operand(u32 address, int leading, int stride) {
  constexpr u64 SWIZZLE_128_BYTES = 1ull << 62;
  const auto field = [](u32 bytes) { return static_cast<u64>((bytes & 0x3ffff) >> 4); };
  return field(address) | field(leading) << 16 | field(stride) << 32 | SWIZZLE_128_BYTES;
}

// the same `bytes`, a multiple of 16, further on. a tile ends in shared memory, so nothing is carried out of
// the address: adding to the lower half alone takes one instruction
__device__ __forceinline__ u64 operand_at(u64 operand, u32 bytes) {
  const u32 low = static_cast<u32>(operand) + (bytes >> 4);
  return operand >> 32 << 32 | low;
}

// shfl: what is the same in every lane, so that the compiler knows it and keeps it, and what is computed of
// it, once for the warp: where a wgmma takes its operands' descriptors from. all lanes have to call
__device__ __forceinline__ int uniform(int x) { return __shfl_sync(0xffffffffu, x, 0); }

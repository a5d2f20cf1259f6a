// wgmma: a warpgroup (4 consecutive warps, the first a multiple of 4) multiplies tiles that lie in shared
// memory, while its threads go on. all 128 threads have to call together. sm_90a only.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "ptx/shared.cuh"

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
// rows an atom of 1024 bytes, which starts at a multiple of them. `address` is where the slice to multiply
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

#define FLOATS_8(d, i)                                                                        \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define FLOATS_32(d, i) FLOATS_8(d, i), FLOATS_8(d, i + 8), FLOATS_8(d, i + 16), FLOATS_8(d, i + 24)
#define FLOATS_64(d, i)                                                                              \
  FLOATS_8(d, i), FLOATS_8(d, i + 8), FLOATS_8(d, i + 16), FLOATS_8(d, i + 24), FLOATS_8(d, i + 32), \
      FLOATS_8(d, i + 40), FLOATS_8(d, i + 48), FLOATS_8(d, i + 56)
#define NAMES_0_31                                                         \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_0_63                                                                   \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES_64_95                                                        \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, " \
  "%78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define NAMES_64_127                                                                               \
  NAMES_64_95                                                                                      \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

#define WGMMA_N64(TYPE)                                                           \
  asm volatile(                                                                   \
      "{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, %35, 0;\n"              \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE " {" NAMES_0_31 \
      "}, %32, %33, accumulate, 1, 1, 0, %34;\n}"                                 \
      : FLOATS_32(d, 0)                                                           \
      : "l"(a), "l"(b), "n"(B_TRANSPOSED), "r"(static_cast<int>(add)))
#define WGMMA_N128(TYPE)                                                           \
  asm volatile(                                                                    \
      "{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, %67, 0;\n"               \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE " {" NAMES_0_63 \
      "}, %64, %65, accumulate, 1, 1, 0, %66;\n}"                                  \
      : FLOATS_64(d, 0)                                                            \
      : "l"(a), "l"(b), "n"(B_TRANSPOSED), "r"(static_cast<int>(add)))
#define WGMMA_N256(TYPE)                                                                             \
  asm volatile(                                                                                      \
      "{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, %131, 0;\n"                                \
      "wgmma.mma_async.sync.aligned.m64n256k16.f32." TYPE "." TYPE " {" NAMES_0_63 ", " NAMES_64_127 \
      "}, %128, %129, accumulate, 1, 1, 0, %130;\n}"                                                 \
      : FLOATS_64(d, 0), FLOATS_64(d, 64)                                                            \
      : "l"(a), "l"(b), "n"(B_TRANSPOSED), "r"(static_cast<int>(add)))

// wgmma m64nNk16: d (64 x N, float) = a (64 x 16) b (16 x N), added to d where `add`. thread t of the
// warpgroup holds of d, for each 8 columns j: row 16 (t / 32) + t % 32 / 4, columns 8 j + 2 (t % 4) and the
// next in d[4 j], d[4 j + 1]; 8 rows further down in d[4 j + 2], d[4 j + 3]. a is stored with k along its
// rows; so is b (as n rows), unless B_TRANSPOSED: n along its rows
template <int B_TRANSPOSED>
__device__ __forceinline__ void wgmma(float (&d)[32], u64 a, u64 b, __half, bool add = true) {
  WGMMA_N64("f16");
}
template <int B_TRANSPOSED>
__device__ __forceinline__ void wgmma(float (&d)[32], u64 a, u64 b, __nv_bfloat16, bool add = true) {
  WGMMA_N64("bf16");
}
template <int B_TRANSPOSED>
__device__ __forceinline__ void wgmma(float (&d)[64], u64 a, u64 b, __half, bool add = true) {
  WGMMA_N128("f16");
}
template <int B_TRANSPOSED>
__device__ __forceinline__ void wgmma(float (&d)[64], u64 a, u64 b, __nv_bfloat16, bool add = true) {
  WGMMA_N128("bf16");
}
template <int B_TRANSPOSED>
__device__ __forceinline__ void wgmma(float (&d)[128], u64 a, u64 b, __half, bool add = true) {
  WGMMA_N256("f16");
}
template <int B_TRANSPOSED>
__device__ __forceinline__ void wgmma(float (&d)[128], u64 a, u64 b, __nv_bfloat16, bool add = true) {
  WGMMA_N256("bf16");
}

// wgmma m64nNk32 of e4m3: d (64 x N, float) = a (64 x 32) b (32 x N), added to d where `add`. d lies as
// above; a and b, as n rows, are stored with k along their rows: 8-bit types know no other way. the tensor
// cores keep about 14 bits of such sums: let them add up a few steps of k, and the rest in float
#define WGMMA_E4M3(SHAPE, NAMES, A, B, ADD)    \
  "{\n.reg .pred add;\nsetp.ne.b32 add, %" ADD \
  ", 0;\n"                                     \
  "wgmma.mma_async.sync.aligned." SHAPE "k32.f32.e4m3.e4m3 {" NAMES "}, %" A ", %" B ", add, 1, 1;\n}"

__device__ __forceinline__ void wgmma_e4m3(float (&d)[64], u64 a, u64 b, bool add) {
  asm volatile(WGMMA_E4M3("m64n128", NAMES_0_63, "64", "65", "66")
               : FLOATS_64(d, 0)
               : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}
__device__ __forceinline__ void wgmma_e4m3(float (&d)[96], u64 a, u64 b, bool add) {
  asm volatile(WGMMA_E4M3("m64n192", NAMES_0_63 ", " NAMES_64_95, "96", "97", "98")
               : FLOATS_64(d, 0), FLOATS_8(d, 64), FLOATS_8(d, 72), FLOATS_8(d, 80), FLOATS_8(d, 88)
               : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

#undef WGMMA_E4M3
#undef WGMMA_N64
#undef WGMMA_N128
#undef WGMMA_N256
#undef NAMES_0_31
#undef NAMES_0_63
#undef NAMES_64_95
#undef NAMES_64_127
#undef FLOATS_8
#undef FLOATS_32
#undef FLOATS_64

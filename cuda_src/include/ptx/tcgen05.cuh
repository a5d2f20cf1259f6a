// tcgen05: one thread starts a product of tiles in shared memory, whose sums lie in tensor memory. that has 128
// lanes of 512 columns of 32 bits a multiprocessor, shared by the blocks that are there. an address has the lane in
// its upper half and the column in its lower. GROUP is 1, or 2 where a pair of blocks, ranks 0 and 1 of a cluster,
// works on one product; all instructions of a kernel have the same. sm_100a.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "ptx/tma.cuh"

constexpr int TENSOR_COLUMNS = 512, TENSOR_LANES = 128;

#define TCGEN05_GROUP static_assert(GROUP == 1 || GROUP == 2, "products are of one block, or of a pair: take 1 or 2")

// tcgen05.alloc and relinquish_alloc_permit: so many columns, whose address is stored to shared memory, and no more
// after them, so that the next block may allocate. by a whole warp, of both blocks of a pair. waits until there are
// as many. a __syncthreads has to follow, between tensor_hand_over and tensor_take_over
template <int COLUMNS, int GROUP>
__device__ __forceinline__ void tensor_allocate(u32& address) {
  static_assert(COLUMNS >= 32 && COLUMNS <= TENSOR_COLUMNS && (COLUMNS & (COLUMNS - 1)) == 0,
                "an allocation has 32, 64, 128, 256 or 512 columns: round it up");
  TCGEN05_GROUP;
  asm volatile("tcgen05.alloc.cta_group::%2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(shared_address(&address)),
               "n"(COLUMNS), "n"(GROUP)
               : "memory");
  asm volatile("tcgen05.relinquish_alloc_permit.cta_group::%0.sync.aligned;" ::"n"(GROUP));
}

// tcgen05.dealloc: by a whole warp, of both blocks of a pair, after all that use the columns
template <int COLUMNS, int GROUP>
__device__ __forceinline__ void tensor_free(u32 address) {
  asm volatile("tcgen05.dealloc.cta_group::%2.sync.aligned.b32 %0, %1;" ::"r"(address), "n"(COLUMNS), "n"(GROUP)
               : "memory");
}

// tcgen05.fence: around a barrier, or an mbarrier, by which threads hand tensor memory to one another: the first by
// who arrives, after its own instructions, the second by who has waited, before its own
__device__ __forceinline__ void tensor_hand_over() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
__device__ __forceinline__ void tensor_take_over() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }

// the shared-memory descriptor of a tile stored with the 128-byte swizzle, as TMA writes it: see swizzled_operand of
// wgmma, which has other constants. `stride` are the bytes from one atom of 8 lines to the next, `leading` those from
// one panel of 64 columns to the next, of a tile whose rows run along m or n
__device__ __forceinline__ u64 tensor_operand(const void* tile, int leading, int stride) {
  constexpr u64 VERSION = 1ull << 46, SWIZZLE_128_BYTES = 2ull << 61;
  const auto field = [](u32 bytes) { return static_cast<u64>((bytes & 0x3ffff) >> 4); };
  return field(shared_address(tile)) | field(leading) << 16 | field(stride) << 32 | VERSION | SWIZZLE_128_BYTES;
}

// the code of an element type in an instruction descriptor of kind::f16, or f8f6f4 where it has 8 bits
template <class In>
constexpr u32 TENSOR_TYPE = 0;
template <>
constexpr u32 TENSOR_TYPE<__nv_bfloat16> = 1;
template <>
constexpr u32 TENSOR_TYPE<__nv_fp8_e5m2> = 1;

// the instruction descriptor of fp32 sums of an m x n product of such elements. B_ALONG_N: rows of b run along n
template <class In, int M, int N, bool B_ALONG_N>
__host__ __device__ constexpr u32 tensor_form() {
  static_assert(M == 64 || M == 128 || M == 256, "a product has 64 or 128 rows, one of a pair of blocks 128 or 256");
  static_assert(N % 16 == 0 && N >= 16 && N <= 256, "a product has 16 to 256 columns, a multiple of 16");
  constexpr u32 FP32_SUMS = 1 << 4;
  return FP32_SUMS | TENSOR_TYPE<In> << 7 | TENSOR_TYPE<In> << 10 | u32{B_ALONG_N} << 16 | u32{N / 8} << 17 |
         u32{M / 16} << 24;
}

// tcgen05.mma: sums at `d` = or, where `add`, += a (m x 32 bytes) b (32 bytes x n), of elements of 16 or of 8 bits. by
// one thread, whose later products with the same sums follow this one
template <int GROUP, int BYTES = 2>
__device__ __forceinline__ void tensor_multiply(u32 d, u64 a, u64 b, u32 form, bool add) {
  TCGEN05_GROUP;
  static_assert(BYTES == 1 || BYTES == 2, "elements have 1 or 2 bytes here");
#define MULTIPLY(KIND)                                                       \
  asm volatile(                                                              \
      "{\n"                                                                  \
      ".reg .pred add;\n"                                                    \
      "setp.ne.b32 add, %4, 0;\n"                                            \
      "tcgen05.mma.cta_group::%5.kind::" KIND " [%0], %1, %2, %3, add;\n"    \
      "}" ::"r"(d),                                                          \
      "l"(a), "l"(b), "r"(form), "r"(static_cast<u32>(add)), "n"(GROUP)      \
      : "memory")
  if constexpr (BYTES == 2)
    MULTIPLY("f16");
  else
    MULTIPLY("f8f6f4");
#undef MULTIPLY
}

// the same with a in tensor memory: two neighbours of a row in a column, lane by lane
__device__ __forceinline__ void tensor_multiply_from(u32 d, u32 a, u64 b, u32 form, bool add) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %4, 0;\n"
      "tcgen05.mma.cta_group::1.kind::f16 [%0], [%1], %2, %3, add;\n"
      "}" ::"r"(d),
      "r"(a), "l"(b), "r"(form), "r"(static_cast<u32>(add))
      : "memory");
}

// tcgen05.commit: one arrival at `done` when all products that this thread has started are complete: their sums may
// be read, the tiles that they read may be overwritten. of a pair: at the barriers that lie there in both blocks
template <int GROUP = 1>
__device__ __forceinline__ void tensor_commit(Barrier& done) {
  TCGEN05_GROUP;
  if constexpr (GROUP == 1)
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(
                     shared_address(&done))
                 : "memory");
  else
    asm volatile(
        "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" ::"r"(
            shared_address(&done)),
        "h"(static_cast<unsigned short>(3))
        : "memory");
}

// mapa and cp.async.bulk.tensor.2d with cta_group::2: as tma_load, in a pair of blocks, and reported to the `full` that
// lies there in block `rank` of the two, which has initialised it
__device__ __forceinline__ void tma_load_pair(void* to, const TensorMap& map, Barrier& full, int rank, int row,
                                              int column) {
  asm volatile(
      "{\n"
      ".reg .u32 there;\n"
      "mapa.shared::cluster.u32 there, %4, %5;\n"
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2 [%0], [%1, {%2, "
      "%3}], [there];\n"
      "}" ::"r"(shared_address(to)),
      "l"(&map), "r"(column), "r"(row), "r"(shared_address(&full)), "r"(rank)
      : "memory");
}

#define EIGHT(type, x, i)                                                                                      \
  type(x[i]), type(x[i + 1]), type(x[i + 2]), type(x[i + 3]), type(x[i + 4]), type(x[i + 5]), type(x[i + 6]), \
      type(x[i + 7])
#define FLOATS(x) EIGHT("=f", x, 0), EIGHT("=f", x, 8), EIGHT("=f", x, 16), EIGHT("=f", x, 24)
#define WORDS(x) EIGHT("r", x, 0), EIGHT("r", x, 8), EIGHT("r", x, 16), EIGHT("r", x, 24)

// tcgen05.ld and wait::ld: 32 columns of the lane that a thread has, the first at `from`. by a whole warp, w of its
// warpgroup: `from` names lane 32 w
__device__ __forceinline__ void tensor_load(float (&x)[32], u32 from) {
  asm volatile(
      "tcgen05.ld.sync.aligned.32x32b.x32.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, [%32];\n"
      "tcgen05.wait::ld.sync.aligned;"
      : FLOATS(x)
      : "r"(from)
      : "memory");
}

// tcgen05.st and wait::st: the same the other way, of 32 bits each
__device__ __forceinline__ void tensor_store(u32 to, const u32 (&x)[32]) {
  asm volatile(
      "tcgen05.st.sync.aligned.32x32b.x32.b32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32};\n"
      "tcgen05.wait::st.sync.aligned;" ::"r"(to),
      WORDS(x)
      : "memory");
}

#undef EIGHT
#undef FLOATS
#undef WORDS

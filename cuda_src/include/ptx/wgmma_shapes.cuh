// wgmma m64nNkK: d (64 x N, float) = a (64 x K) b (K x N), added to d where `add`. of bf16 and fp16 (K = 16), of
// tf32 (K = 8), of e4m3 and e5m2 in any pair (K = 32). thread t of the warpgroup holds of d, for each 8 columns
// j: row 16 (t / 32) + t % 32 / 4, columns 8 j + 2 (t % 4) and the next in d[4 j], d[4 j + 1]; 8 rows further
// down in d[4 j + 2], d[4 j + 3]. N is twice the number of d's elements.
//
// a lies in shared memory, a matrix descriptor (see wgmma.cuh), or in registers, four of them: those of elements
// of 16 bits hold the rows of d[0], in k 2 (t % 4) and the next, those 8 rows further down, and both again 8 of k
// further on; of 8 bits four elements take the place of two, of 32 bits one. b is a descriptor. operands in
// shared memory are stored with k along their rows (b as n rows); those of 16 bits also otherwise, TRANSPOSED.
//
// here are N = 64, 128, 192 and 256; wgmma_all.cuh has the other multiples of 8. the macros make a function of
// each type and place of a, and of those of 16 bits `wgmma`, which takes the type from its fourth argument. sm_90a
// only.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "ptx/shared.cuh"

// operands 0 to REGISTERS - 1 of an instruction, and the accumulators that they are
#define WGMMA_NAMES_4 "%0, %1, %2, %3"
#define WGMMA_NAMES_8 WGMMA_NAMES_4 ", %4, %5, %6, %7"
#define WGMMA_NAMES_12 WGMMA_NAMES_8 ", %8, %9, %10, %11"
#define WGMMA_NAMES_16 WGMMA_NAMES_12 ", %12, %13, %14, %15"
#define WGMMA_NAMES_20 WGMMA_NAMES_16 ", %16, %17, %18, %19"
#define WGMMA_NAMES_24 WGMMA_NAMES_20 ", %20, %21, %22, %23"
#define WGMMA_NAMES_28 WGMMA_NAMES_24 ", %24, %25, %26, %27"
#define WGMMA_NAMES_32 WGMMA_NAMES_28 ", %28, %29, %30, %31"
#define WGMMA_NAMES_36 WGMMA_NAMES_32 ", %32, %33, %34, %35"
#define WGMMA_NAMES_40 WGMMA_NAMES_36 ", %36, %37, %38, %39"
#define WGMMA_NAMES_44 WGMMA_NAMES_40 ", %40, %41, %42, %43"
#define WGMMA_NAMES_48 WGMMA_NAMES_44 ", %44, %45, %46, %47"
#define WGMMA_NAMES_52 WGMMA_NAMES_48 ", %48, %49, %50, %51"
#define WGMMA_NAMES_56 WGMMA_NAMES_52 ", %52, %53, %54, %55"
#define WGMMA_NAMES_60 WGMMA_NAMES_56 ", %56, %57, %58, %59"
#define WGMMA_NAMES_64 WGMMA_NAMES_60 ", %60, %61, %62, %63"
#define WGMMA_NAMES_68 WGMMA_NAMES_64 ", %64, %65, %66, %67"
#define WGMMA_NAMES_72 WGMMA_NAMES_68 ", %68, %69, %70, %71"
#define WGMMA_NAMES_76 WGMMA_NAMES_72 ", %72, %73, %74, %75"
#define WGMMA_NAMES_80 WGMMA_NAMES_76 ", %76, %77, %78, %79"
#define WGMMA_NAMES_84 WGMMA_NAMES_80 ", %80, %81, %82, %83"
#define WGMMA_NAMES_88 WGMMA_NAMES_84 ", %84, %85, %86, %87"
#define WGMMA_NAMES_92 WGMMA_NAMES_88 ", %88, %89, %90, %91"
#define WGMMA_NAMES_96 WGMMA_NAMES_92 ", %92, %93, %94, %95"
#define WGMMA_NAMES_100 WGMMA_NAMES_96 ", %96, %97, %98, %99"
#define WGMMA_NAMES_104 WGMMA_NAMES_100 ", %100, %101, %102, %103"
#define WGMMA_NAMES_108 WGMMA_NAMES_104 ", %104, %105, %106, %107"
#define WGMMA_NAMES_112 WGMMA_NAMES_108 ", %108, %109, %110, %111"
#define WGMMA_NAMES_116 WGMMA_NAMES_112 ", %112, %113, %114, %115"
#define WGMMA_NAMES_120 WGMMA_NAMES_116 ", %116, %117, %118, %119"
#define WGMMA_NAMES_124 WGMMA_NAMES_120 ", %120, %121, %122, %123"
#define WGMMA_NAMES_128 WGMMA_NAMES_124 ", %124, %125, %126, %127"
#define WGMMA_SUMS_4 "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
#define WGMMA_SUMS_8 WGMMA_SUMS_4, "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
#define WGMMA_SUMS_12 WGMMA_SUMS_8, "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11])
#define WGMMA_SUMS_16 WGMMA_SUMS_12, "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
#define WGMMA_SUMS_20 WGMMA_SUMS_16, "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19])
#define WGMMA_SUMS_24 WGMMA_SUMS_20, "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23])
#define WGMMA_SUMS_28 WGMMA_SUMS_24, "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27])
#define WGMMA_SUMS_32 WGMMA_SUMS_28, "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define WGMMA_SUMS_36 WGMMA_SUMS_32, "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35])
#define WGMMA_SUMS_40 WGMMA_SUMS_36, "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39])
#define WGMMA_SUMS_44 WGMMA_SUMS_40, "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43])
#define WGMMA_SUMS_48 WGMMA_SUMS_44, "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
#define WGMMA_SUMS_52 WGMMA_SUMS_48, "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51])
#define WGMMA_SUMS_56 WGMMA_SUMS_52, "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55])
#define WGMMA_SUMS_60 WGMMA_SUMS_56, "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59])
#define WGMMA_SUMS_64 WGMMA_SUMS_60, "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
#define WGMMA_SUMS_68 WGMMA_SUMS_64, "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67])
#define WGMMA_SUMS_72 WGMMA_SUMS_68, "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71])
#define WGMMA_SUMS_76 WGMMA_SUMS_72, "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75])
#define WGMMA_SUMS_80 WGMMA_SUMS_76, "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79])
#define WGMMA_SUMS_84 WGMMA_SUMS_80, "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83])
#define WGMMA_SUMS_88 WGMMA_SUMS_84, "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87])
#define WGMMA_SUMS_92 WGMMA_SUMS_88, "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91])
#define WGMMA_SUMS_96 WGMMA_SUMS_92, "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95])
#define WGMMA_SUMS_100 WGMMA_SUMS_96, "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99])
#define WGMMA_SUMS_104 WGMMA_SUMS_100, "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103])
#define WGMMA_SUMS_108 WGMMA_SUMS_104, "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107])
#define WGMMA_SUMS_112 WGMMA_SUMS_108, "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111])
#define WGMMA_SUMS_116 WGMMA_SUMS_112, "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115])
#define WGMMA_SUMS_120 WGMMA_SUMS_116, "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119])
#define WGMMA_SUMS_124 WGMMA_SUMS_120, "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123])
#define WGMMA_SUMS_128 WGMMA_SUMS_124, "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])

// N, its registers, and the numbers of the operands after them
#define WGMMA_16(NAME, TYPE, ELEMENT, N, REGISTERS, O0, O1, O2, O3, O4, O5, O6)                               \
  template <int A_TRANSPOSED = 0, int B_TRANSPOSED = 0>                                                       \
  __device__ __forceinline__ void NAME(float (&d)[REGISTERS], u64 a, u64 b, bool add = true) {                \
    asm volatile("{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, %" #O4 ", 0;\n"                         \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" WGMMA_NAMES_##REGISTERS \
                 "}, %" #O0 ", %" #O1 ", accumulate, 1, 1, %" #O2 ", %" #O3 ";\n}"                            \
                 : WGMMA_SUMS_##REGISTERS                                                                     \
                 : "l"(a), "l"(b), "n"(A_TRANSPOSED), "n"(B_TRANSPOSED), "r"(static_cast<int>(add)));         \
  }                                                                                                           \
  template <int B_TRANSPOSED = 0>                                                                             \
  __device__ __forceinline__ void NAME(float (&d)[REGISTERS], const u32(&a)[4], u64 b, bool add = true) {     \
    asm volatile("{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, %" #O6 ", 0;\n"                         \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" WGMMA_NAMES_##REGISTERS \
                 "}, {%" #O0 ", %" #O1 ", %" #O2 ", %" #O3 "}, %" #O4 ", accumulate, 1, 1, %" #O5 ";\n}"      \
                 : WGMMA_SUMS_##REGISTERS                                                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(B_TRANSPOSED),                     \
                   "r"(static_cast<int>(add)));                                                               \
  }                                                                                                           \
  template <int B_TRANSPOSED, int A_TRANSPOSED = 0>                                                           \
  __device__ __forceinline__ void wgmma(float (&d)[REGISTERS], u64 a, u64 b, ELEMENT, bool add = true) {      \
    NAME<A_TRANSPOSED, B_TRANSPOSED>(d, a, b, add);                                                           \
  }                                                                                                           \
  template <int B_TRANSPOSED>                                                                                 \
  __device__ __forceinline__ void wgmma(float (&d)[REGISTERS], const u32(&a)[4], u64 b, ELEMENT,              \
                                        bool add = true) {                                                    \
    NAME<B_TRANSPOSED>(d, a, b, add);                                                                         \
  }
#define WGMMA_K(NAME, TYPES, N, K, REGISTERS, O0, O1, O2, O3, O4, O5)                                         \
  __device__ __forceinline__ void NAME(float (&d)[REGISTERS], u64 a, u64 b, bool add = true) {                \
    asm volatile("{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, %" #O2 ", 0;\n"                         \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k" #K ".f32." TYPES " {" WGMMA_NAMES_##REGISTERS     \
                 "}, %" #O0 ", %" #O1 ", accumulate, 1, 1;\n}"                                                \
                 : WGMMA_SUMS_##REGISTERS                                                                     \
                 : "l"(a), "l"(b), "r"(static_cast<int>(add)));                                               \
  }                                                                                                           \
  __device__ __forceinline__ void NAME(float (&d)[REGISTERS], const u32(&a)[4], u64 b, bool add = true) {     \
    asm volatile("{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, %" #O5 ", 0;\n"                         \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k" #K ".f32." TYPES " {" WGMMA_NAMES_##REGISTERS     \
                 "}, {%" #O0 ", %" #O1 ", %" #O2 ", %" #O3 "}, %" #O4 ", accumulate, 1, 1;\n}"                \
                 : WGMMA_SUMS_##REGISTERS                                                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));           \
  }
#define WGMMA_SHAPE(N, REGISTERS, O0, O1, O2, O3, O4, O5, O6)                                  \
  WGMMA_16(wgmma_bf16, "bf16", __nv_bfloat16, N, REGISTERS, O0, O1, O2, O3, O4, O5, O6)        \
  WGMMA_16(wgmma_f16, "f16", __half, N, REGISTERS, O0, O1, O2, O3, O4, O5, O6)                 \
  WGMMA_K(wgmma_tf32, "tf32.tf32", N, 8, REGISTERS, O0, O1, O2, O3, O4, O5)                    \
  WGMMA_K(wgmma_e4m3, "e4m3.e4m3", N, 32, REGISTERS, O0, O1, O2, O3, O4, O5)                   \
  WGMMA_K(wgmma_e5m2, "e5m2.e5m2", N, 32, REGISTERS, O0, O1, O2, O3, O4, O5)                   \
  WGMMA_K(wgmma_e4m3_e5m2, "e4m3.e5m2", N, 32, REGISTERS, O0, O1, O2, O3, O4, O5)              \
  WGMMA_K(wgmma_e5m2_e4m3, "e5m2.e4m3", N, 32, REGISTERS, O0, O1, O2, O3, O4, O5)

WGMMA_SHAPE(64, 32, 32, 33, 34, 35, 36, 37, 38)
WGMMA_SHAPE(128, 64, 64, 65, 66, 67, 68, 69, 70)
WGMMA_SHAPE(192, 96, 96, 97, 98, 99, 100, 101, 102)
WGMMA_SHAPE(256, 128, 128, 129, 130, 131, 132, 133, 134)

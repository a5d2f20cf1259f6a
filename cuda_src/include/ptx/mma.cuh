// tensor cores a warp at a time: ldmatrix and mma.sync. all 32 lanes have to call together. sm_80 and later.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "ptx/shared.cuh"

// ldmatrix.x4: four 8x8 matrices of 16-bit elements. lane l gives the address of row l % 8 of matrix l / 8
// (16 bytes, aligned); register i receives, in lane l, elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4 of
// matrix i
__device__ __forceinline__ void ldmatrix_x4(u32 (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

// ldmatrix.x4.trans: the same with every matrix transposed on the way
__device__ __forceinline__ void ldmatrix_x4_trans(u32 (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

// stmatrix.x4: stores four 8x8 matrices from the registers into which ldmatrix_x4 would load them. sm_90
__device__ __forceinline__ void stmatrix_x4(void* row, const u32 (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

#define MMA_M16N8K16(TYPE)                                                   \
  asm("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE                 \
      ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                       \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))

// mma.sync m16n8k16: d (16x8, float) += a (16x16) b (16x8). lane l holds of d: row l / 4, columns 2 (l % 4)
// and the next in d[0], d[1]; row l / 4 + 8 in d[2], d[3]
__device__ __forceinline__ void mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1, __half) {
  MMA_M16N8K16("f16");
}
__device__ __forceinline__ void mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1, __nv_bfloat16) {
  MMA_M16N8K16("bf16");
}

#undef MMA_M16N8K16

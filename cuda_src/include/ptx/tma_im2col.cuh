// im2col: the tensor memory accelerator copies pixels of images, one after the other and across their edges, as
// a convolution needs them. the map (cuTensorMapEncodeIm2col) says how many pixels and channels a copy moves and
// within which corners their positions run; the offsets, of a kernel's tap, are added to the position of each
// pixel. dimensions are images n, (d,) (h,) w and channels c, the innermost. sm_90.
#pragma once
#include "ptx/tma.cuh"

// cp.async.bulk.tensor.im2col: copies the pixels from the one at (n, ..., w) on, channels from c on, and reports
// their bytes to `full`. by one thread; else as tma_load
__device__ __forceinline__ void tma_load_im2col(void* to, const TensorMap& map, Barrier& full, int n, int w, int c,
                                                int by_w) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%2, %3, %4}], [%5], {%6};" ::"r"(shared_address(to)),
      "l"(&map), "r"(c), "r"(w), "r"(n), "r"(shared_address(&full)), "h"(static_cast<unsigned short>(by_w))
      : "memory");
}
__device__ __forceinline__ void tma_load_im2col(void* to, const TensorMap& map, Barrier& full, int n, int h, int w, int c,
                                                int by_h, int by_w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%2, %3, %4, %5}], [%6], {%7, %8};" ::"r"(shared_address(to)),
      "l"(&map), "r"(c), "r"(w), "r"(h), "r"(n), "r"(shared_address(&full)), "h"(static_cast<unsigned short>(by_w)), "h"(static_cast<unsigned short>(by_h))
      : "memory");
}
__device__ __forceinline__ void tma_load_im2col(void* to, const TensorMap& map, Barrier& full, int n, int d, int h, int w, int c,
                                                int by_d, int by_h, int by_w) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%2, %3, %4, %5, %6}], [%7], {%8, %9, %10};" ::"r"(shared_address(to)),
      "l"(&map), "r"(c), "r"(w), "r"(h), "r"(d), "r"(n), "r"(shared_address(&full)), "h"(static_cast<unsigned short>(by_w)), "h"(static_cast<unsigned short>(by_h)), "h"(static_cast<unsigned short>(by_d))
      : "memory");
}

// the same into every block of the cluster whose bit is set in `blocks`, as tma_load_to
__device__ __forceinline__ void tma_load_im2col_to(unsigned blocks, void* to, const TensorMap& map,
                                                   Barrier& full, int n, int w, int c, int by_w) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%2, %3, %4}], [%5], {%6}, %7;" ::"r"(shared_address(to)),
      "l"(&map), "r"(c), "r"(w), "r"(n), "r"(shared_address(&full)), "h"(static_cast<unsigned short>(by_w)),
      "h"(static_cast<unsigned short>(blocks))
      : "memory");
}
__device__ __forceinline__ void tma_load_im2col_to(unsigned blocks, void* to, const TensorMap& map,
                                                   Barrier& full, int n, int h, int w, int c, int by_h, int by_w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%2, %3, %4, %5}], [%6], {%7, %8}, %9;" ::"r"(shared_address(to)),
      "l"(&map), "r"(c), "r"(w), "r"(h), "r"(n), "r"(shared_address(&full)), "h"(static_cast<unsigned short>(by_w)), "h"(static_cast<unsigned short>(by_h)),
      "h"(static_cast<unsigned short>(blocks))
      : "memory");
}
__device__ __forceinline__ void tma_load_im2col_to(unsigned blocks, void* to, const TensorMap& map,
                                                   Barrier& full, int n, int d, int h, int w, int c, int by_d, int by_h, int by_w) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%2, %3, %4, %5, %6}], [%7], {%8, %9, %10}, %11;" ::"r"(shared_address(to)),
      "l"(&map), "r"(c), "r"(w), "r"(h), "r"(d), "r"(n), "r"(shared_address(&full)), "h"(static_cast<unsigned short>(by_w)), "h"(static_cast<unsigned short>(by_h)), "h"(static_cast<unsigned short>(by_d)),
      "h"(static_cast<unsigned short>(blocks))
      : "memory");
}

// cp.async.bulk.tensor.im2col_no_offs to global memory: copies pixels of shared memory to where the first of
// them is (n, ..., w), channels from c on. else as tma_store
__device__ __forceinline__ void tma_store_im2col(const TensorMap& map, const void* from, int n, int w, int c) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.im2col_no_offs.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(&map),
      "r"(shared_address(from)), "r"(c), "r"(w), "r"(n)
      : "memory");
}
__device__ __forceinline__ void tma_store_im2col(const TensorMap& map, const void* from, int n, int h, int w, int c) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(&map),
      "r"(shared_address(from)), "r"(c), "r"(w), "r"(h), "r"(n)
      : "memory");
}
__device__ __forceinline__ void tma_store_im2col(const TensorMap& map, const void* from, int n, int d, int h, int w, int c) {
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.im2col_no_offs.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(&map),
      "r"(shared_address(from)), "r"(c), "r"(w), "r"(h), "r"(d), "r"(n)
      : "memory");
}

// Tensor memory is used that nobody has allocated
//
// Without tcgen05.alloc a block writes to columns that another block on the same multiprocessor may own. Alone on its
// multiprocessor it gives the right result.
//
// report: https://github.com/NVIDIA/cutlass/issues/2230
// kind: tensor memory
// finding: tensor_bounds
// launch: --grid 1 --block 32 --arch sm_100a --arg x:u32[32]=arange --arg y:u32[32]
__global__ void through(const unsigned* x, unsigned* y) {
  __shared__ unsigned place;
  unsigned at = __cvta_generic_to_shared(&place), v = x[threadIdx.x];
#ifdef FIXED
  asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 32;" ::"r"(at) : "memory");
  asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
#else
  place = 0;
#endif
  __syncwarp();
  asm volatile("tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {%1};" ::"r"(place), "r"(v) : "memory");  // HERE
  asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
  asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%0}, [%1];" : "=r"(v) : "r"(place) : "memory");
  asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
  y[threadIdx.x] = v;
#ifdef FIXED
  asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 32;" ::"r"(place) : "memory");
#endif
}

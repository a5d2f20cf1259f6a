// Softmax signals before its stores to tensor memory are complete
//
// tcgen05.st is asynchronous. Without tcgen05.wait::st before the signal, the other side may read what was there.
//
// report: https://github.com/NVIDIA/cutlass/pull/2687
// kind: tensor memory
// finding: tensor_store_pending
// launch: --grid 1 --block 64 --arch sm_100a --arg x:u32[64]=arange --arg y:u32[64]
__global__ void hand_over(const unsigned* x, unsigned* y) {
  __shared__ unsigned place;
  unsigned at = __cvta_generic_to_shared(&place), v = x[threadIdx.x];
  if (threadIdx.x < 32) {
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 32;" ::"r"(at) : "memory");
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
  }
  __syncthreads();
  unsigned own = place + (threadIdx.x / 32 << 21);
  asm volatile("tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {%1};" ::"r"(own), "r"(v) : "memory");  // THERE
#ifdef FIXED
  asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
#endif
  asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%0}, [%1];" : "=r"(v) : "r"(own) : "memory");  // HERE
  asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
  y[threadIdx.x] = v;
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
  __syncthreads();
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
  if (threadIdx.x < 32) asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 32;" ::"r"(place) : "memory");
}

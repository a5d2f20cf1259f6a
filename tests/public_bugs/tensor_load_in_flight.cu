// A stage of tensor memory is given back while its load is in flight
//
// tcgen05.ld is asynchronous, too. The registers are used later, so nothing looks wrong; but the arrival that gives
// the stage back comes before tcgen05.wait::ld, and the next product may overwrite what is still being read.
//
// report: https://github.com/flashinfer-ai/flashinfer/issues/5334
// kind: tensor memory
// finding: tensor_load_pending
// launch: --grid 1 --block 64 --arch sm_100a --arg x:u32[64]=arange --arg y:u32[64]
__global__ void accumulate(const unsigned* x, unsigned* y) {
  __shared__ unsigned place;
  unsigned at = __cvta_generic_to_shared(&place), v = x[threadIdx.x], sum;
  if (threadIdx.x < 32) {
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 32;" ::"r"(at) : "memory");
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
  }
  __syncthreads();
  unsigned own = place + (threadIdx.x / 32 << 21);
  asm volatile("tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {%1};" ::"r"(own), "r"(v) : "memory");
  asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
  asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%0}, [%1];" : "=r"(sum) : "r"(own) : "memory");  // THERE
#ifdef FIXED
  asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
#endif
  asm volatile("tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {%1};" ::"r"(own), "r"(0) : "memory");  // HERE
  asm volatile("tcgen05.wait::ld.sync.aligned;\n tcgen05.wait::st.sync.aligned;" ::: "memory");
  y[threadIdx.x] = sum;
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
  __syncthreads();
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
  if (threadIdx.x < 32) asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 32;" ::"r"(place) : "memory");
}

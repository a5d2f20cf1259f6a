// A warp reads the address of tensor memory before it has been stored
//
// tcgen05.alloc stores the address to shared memory. Other warps usually learn that through the barriers of their
// work. A block without work has none, and frees whatever address it reads.
//
// report: https://github.com/NVIDIA/cutlass/pull/2835
// kind: tensor memory
// finding: race
// launch: --grid 1 --block 64 --arch sm_100a --arg y:u32[64]
__global__ void without_work(unsigned* y) {
  __shared__ unsigned place;
  unsigned at = __cvta_generic_to_shared(&place);
  if (threadIdx.x < 32) {
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 32;" ::"r"(at) : "memory");  // THERE
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
  }
#ifdef FIXED
  __syncthreads();
#endif
  unsigned address = place;  // HERE
  y[threadIdx.x] = address;
  __syncthreads();
  if (threadIdx.x < 32) asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 32;" ::"r"(address) : "memory");
}

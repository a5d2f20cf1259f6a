// y[t] = 3 t + 1, stored through a 32-bit address and loaded through a pointer. y: (THREADS)
#include "ptx/shared.cuh"

extern "C" __global__ void addresses(u32* y) {
  __shared__ u32 window[THREADS];
  const int t = threadIdx.x;
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(shared_address(&window[t])), "r"(3 * t + 1) : "memory");
  y[t] = window[t];
}

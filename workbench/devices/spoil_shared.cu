// Leaves NaN behind in shared memory, `words` 32-bit words of it: what a kernel finds there that wrote nothing itself.

extern "C" __global__ void spoil_shared(int words) {
  extern __shared__ volatile unsigned shared[];  // volatile: nobody reads it, and yet it has to be written
  for (int i = threadIdx.x; i < words; i += blockDim.x) shared[i] = 0xffffffffu;
}

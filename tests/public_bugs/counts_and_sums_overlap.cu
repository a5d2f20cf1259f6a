// Two arrays in one block of shared memory overlap
//
// The second array begins behind blockDim.x + 1 elements, and the first has num_experts + 1. With more experts than
// threads, sums are stored over counts.
//
// report: https://github.com/vllm-project/vllm/pull/12413
// kind: shared memory
// finding: race
// launch: --grid 1 --block 32 --shared 1024 --arg ids:i32[64]=arange --arg y:i32[65] --arg i32=64
__global__ void align(const int* ids, int* y, int experts) {
  extern __shared__ int memory[];
  int t = threadIdx.x;
  int* sums = memory;
#ifdef FIXED
  int* counts = memory + experts + 1;
#else
  int* counts = memory + blockDim.x + 1;
#endif
  for (int e = t; e < experts; e += 32) counts[e] = 0;
  __syncwarp();
  for (int i = t; i < 64; i += 32) atomicAdd(counts + ids[i] % experts, 1);
  __syncwarp();
  for (int e = t; e <= experts; e += 32) {
    int sum = 0;
    for (int k = 0; k < e; ++k) sum += counts[k];  // THERE
    sums[e] = sum;  // HERE
  }
  __syncwarp();
  for (int e = t; e <= experts; e += 32) y[e] = sums[e];
}

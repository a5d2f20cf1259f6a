// A token without a valid expert leaves its index as it was
//
// The gate stores the index of the best expert, where there is one. Otherwise the output keeps what was in memory,
// and the next kernel uses that as an index.
//
// report: https://github.com/sgl-project/sglang/pull/15306
// kind: values that were never written
// finding: uninitialised
// launch: --grid 1 --block 32 --entry gate --arg score:f32[32]=zeros --arg index:i32[32] --then 'count --grid 1 --block 32 --arg index --arg n:i32[8]=zeros'
__global__ void gate(const float* score, int* index) {
  int best = score[threadIdx.x] > 0 ? threadIdx.x % 8 : -1;
#ifdef FIXED
  if (best < 0) best = 0;
#endif
  if (best >= 0) index[threadIdx.x] = best;
}
__global__ void count(const int* index, int* n) {
  atomicAdd(n + index[threadIdx.x], 1);  // HERE
}

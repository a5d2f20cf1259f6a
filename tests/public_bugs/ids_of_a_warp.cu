// A lane reads from shared memory what another lane of its warp has just stored
//
// Within a warp no barrier is needed, but a __syncwarp() is: lanes need not stay together.
//
// report: https://github.com/ggml-org/llama.cpp/pull/28475
// kind: shared memory
// finding: race
// launch: --grid 1 --block 32 --arg ids:i32[32]=arange --arg rows:i32[32]
__global__ void sort_ids(const int* ids, int* rows) {
  __shared__ int place[32];
  int lane = threadIdx.x;
  place[31 - lane] = ids[lane];  // THERE
#ifdef FIXED
  __syncwarp();
#endif
  rows[lane] = place[lane];  // HERE
}

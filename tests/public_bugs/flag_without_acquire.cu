// A block polls a flag and reads data without a fence behind the poll
//
// volatile keeps the compiler from removing the poll. It does not order the reads behind it: the data may be older
// than the flag. An acquire, or a fence on both sides, does.
//
// report: https://github.com/vllm-project/vllm/pull/8558
// kind: between blocks
// finding: race
// launch: --grid 2 --block 32 --arg data:f32[32]=zeros --arg flag:i32[1]=zeros --arg y:f32[32]
__global__ void exchange(float* data, volatile int* flag, float* y) {
  int t = threadIdx.x;
  if (blockIdx.x == 0) {
    data[t] = t;  // THERE
    __threadfence();
    __syncthreads();
    if (t == 0) *flag = 1;
  } else {
    while (!*flag);
#ifdef FIXED
    __threadfence();
#endif
    y[t] = data[t];  // HERE
  }
}

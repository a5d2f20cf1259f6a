// blockIdx.x times the row's length needs more than 32 bits
//
// With half a million tokens of 4096 values the offset is 2^31, which becomes negative as an int. Small tests never
// get there, and an index that wraps to a valid one reads another row without a sound.
//
// report: https://github.com/vllm-project/vllm/issues/22419
// kind: indices and addresses
// finding: index_overflow
// launch: --grid 1 --block 32 --arg x:u8[2147487744]=zeros --arg y:u8[32] --arg i32=524288 --arg i32=4096
__global__ void rms_norm(const unsigned char* x, unsigned char* y, int token, int hidden) {
#ifdef FIXED
  long long at = (long long)token * hidden + threadIdx.x;
#else
  int at = token * hidden + threadIdx.x;
#endif
  y[threadIdx.x] = x[at];  // HERE
}

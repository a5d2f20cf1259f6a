// An index of unsigned products wraps at 2^32
//
// The number of a token times heads times the stride of a head is 2^32 for a million tokens, and unsigned arithmetic
// wraps to 0: another row is read and overwritten, in bounds and without an error.
//
// report: https://github.com/vllm-project/vllm/issues/45500
// kind: indices and addresses
// finding: index_overflow
// launch: --grid 1 --block 32 --arg x:u8[4294967552]=zeros --arg y:u8[32] --arg u32=1048576 --arg u32=4096
__global__ void merge_states(const unsigned char* x, unsigned char* y, unsigned token, unsigned row) {
#ifdef FIXED
  y[threadIdx.x] = x[(unsigned long long)token * row + threadIdx.x];
#else
  y[threadIdx.x] = x[token * row + threadIdx.x];  // HERE
#endif
}

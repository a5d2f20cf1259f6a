// A table for two axes is filled for three
//
// The host allocates H + W entries for coordinates; a kernel for three axes writes D + H + W.
//
// report: https://github.com/microsoft/onnxruntime/pull/27419
// kind: indices and addresses
// finding: out_of_bounds
// launch: --grid 1 --block 32 --arg table:f32[20] --arg i32=4 --arg i32=10 --arg i32=10
__global__ void coordinates(float* table, int depth, int height, int width) {
#ifdef FIXED
  int entries = height + width;
#else
  int entries = depth + height + width;
#endif
  if (threadIdx.x < entries) table[threadIdx.x] = threadIdx.x;  // HERE
}

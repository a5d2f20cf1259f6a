// Two elements are loaded at once from a row that begins at an odd one
//
// A row of odd length begins at an address that is aligned to one element. double2 needs 16 bytes.
//
// report: https://github.com/apache/mahout/issues/1107
// kind: indices and addresses
// finding: misaligned
// launch: --grid 2 --block 32 --arg x:f64[70]=ones --arg y:f64[2]=zeros --arg i32=35
__global__ void norm(const double* x, double* y, int length) {
  const double* row = x + length * blockIdx.x;
  double sum = 0;
#ifdef FIXED
  for (int i = threadIdx.x; i < length; i += 32) sum += row[i] * row[i];
#else
  for (int i = threadIdx.x; i < length / 2; i += 32) {
    double2 v = reinterpret_cast<const double2*>(row)[i];  // HERE
    sum += v.x * v.x + v.y * v.y;
  }
#endif
  atomicAdd(y + blockIdx.x, sum);
}

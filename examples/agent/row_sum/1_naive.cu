// y[r] = sum over c of x[r, c]. x: (rows, columns), y: (rows), fp32.
//
// stage 1, naive: a block takes a row. A draft with four mistakes, for agent.py to find.
extern "C" __global__ void row_sum(const float* x, float* y, int columns) {
  __shared__ float parts[THREADS];
  const float* row = x + blockIdx.x * (long long)columns;
  float sum = 0
  for (int c = threadIdx.x; c <= columns; c += THREADS) sum += row[c];
  parts[threadIdx.x] = sum;
  for (int half = THREADS / 2; half > 1; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) y[blockIdx.x] = parts[0];
}

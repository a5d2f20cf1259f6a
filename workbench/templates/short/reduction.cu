// y[r] = sum_c x[r, c]. x: (rows, columns), y: (rows). One block adds up one row.

extern "C" __global__ void reduction_naive(const float* x, float* y, int columns) {
    __shared__ float part[128];
    float sum = 0;
    for (int i = threadIdx.x; i < columns; i += 128) sum += x[(long long)blockIdx.x * columns + i];
    part[threadIdx.x] = sum;
    for (int half = 64; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0) y[blockIdx.x] = part[0];
}

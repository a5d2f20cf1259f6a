// y[i] = x[i]^2. x, y: (n). One thread computes one element.

extern "C" __global__ void elementwise_naive(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i];
}

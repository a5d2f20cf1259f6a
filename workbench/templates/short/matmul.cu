// c[m, n] = sum_k a[m, k] b[k, n]. a: (M, K), b: (K, N), c: (M, N). One thread computes one element of c.

extern "C" __global__ void matmul_naive(const float* a, const float* b, float* c, int M, int N, int K) {
    int n = blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y * blockDim.y + threadIdx.y;
    if (m >= M || n >= N) return;
    float sum = 0;
    for (int k = 0; k < K; ++k) sum += a[m * K + k] * b[k * N + n];
    c[m * N + n] = sum;
}

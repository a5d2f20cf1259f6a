// the exponential of the special function units.
#pragma once

// ex2.approx.ftz: 2^x in one instruction, to 2 ulp; 0 for what is below 2^-126
__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

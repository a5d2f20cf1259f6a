// programmatic dependent launch: a kernel may start while the one before it in the stream still runs. launched
// without the attribute for it, both of these do nothing. sm_90.
#pragma once

// griddepcontrol.wait: until the grids before this one have ended, and what they wrote is visible. whoever reads
// it calls this first
__device__ __forceinline__ void grid_dependency_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// griddepcontrol.launch_dependents: the next grid may start, as soon as all blocks of this one have called it or
// ended. what this one writes it finds only after its grid_dependency_wait
__device__ __forceinline__ void grid_dependency_launch() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

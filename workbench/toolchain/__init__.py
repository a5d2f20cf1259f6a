"""NVIDIA's tools: the run-time compiler, the disassembler, occupancy, Nsight Compute, NVML."""

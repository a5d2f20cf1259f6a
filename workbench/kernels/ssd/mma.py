"""Stages of the chunked scan on tensor cores by mma.sync, whose operands pass through registers."""

"""Stages of the convolution on tensor cores by mma.sync: transforms as products of matrices."""

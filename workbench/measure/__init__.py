"""Timing, tuning, and the implementations to compare with."""

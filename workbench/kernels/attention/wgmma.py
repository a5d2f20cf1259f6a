"""Stages of attention on tensor cores."""

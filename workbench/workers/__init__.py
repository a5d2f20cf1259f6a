"""Processes with deadlines, and clusters of them."""

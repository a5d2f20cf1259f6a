"""The process in which the Python code of stages runs, and what keeps that code from changing what judges it."""

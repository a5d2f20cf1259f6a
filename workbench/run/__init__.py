"""Verifying and timing stages from end to end, from Python and while files are edited."""

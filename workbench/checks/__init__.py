"""Further checks of a stage: replay of a failure, compute-sanitizer, mutants."""

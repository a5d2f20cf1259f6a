"""Whether an answer is right: comparison, error bounds, evidence, and that nothing tampered with the judge."""

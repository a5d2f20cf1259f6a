"""What the operations on rows share: their problems, how threads share a row, and the launches of their stages."""

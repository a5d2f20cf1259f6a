"""One module an operation. Every `Operation` at module level here is in the registry."""

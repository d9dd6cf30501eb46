"""The scenarios; `benchmarks.compare` finds them here by the names of their modules."""

"""The Triton versions, one file an op. Importing a module of this folder imports Triton: only the dispatch does."""

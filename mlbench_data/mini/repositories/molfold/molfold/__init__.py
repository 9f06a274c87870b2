"""Protein embeddings and inverse folding at toy size."""

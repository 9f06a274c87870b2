"""Networks with random weights."""

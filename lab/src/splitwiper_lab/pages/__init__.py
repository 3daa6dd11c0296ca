"""Pages of results: the paper's, comparisons, trade-offs."""

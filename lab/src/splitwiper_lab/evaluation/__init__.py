"""Comparisons of systems, trade-offs of hiding labels, and reproductions of the paper's results."""

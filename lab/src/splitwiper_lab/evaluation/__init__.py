"""Judging defences: what they cost, and what is left for the strongest attack."""

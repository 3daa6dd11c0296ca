"""Evaluation of defences: their costs, and what the strongest attack still achieves."""

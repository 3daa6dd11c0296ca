"""Baselines and attacks of somebody else's: written with docs/how-to/extend-laboratory.md alone."""

"""Data sets in their published formats, and how they are divided over clients."""

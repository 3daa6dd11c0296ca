"""A package as somebody else would write it: a codec, a hiding mode, a loss, an optimiser and a schedule."""

"""An adversarial client: harm that the holder of a client's certificate may try to do to everybody else."""

from benchmarks.adversary import bad_data, bad_traffic
from benchmarks.adversary.harm import HARMS, Harm

__all__ = ["HARMS", "Harm", "bad_data", "bad_traffic"]

"""An adversarial client: harm that the holder of a client's certificate may try to do to everybody else."""

"""From the socket to a caller who is known: connections, who is calling, and how much each caller may use."""

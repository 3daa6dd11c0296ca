"""The networked service: clients and a server that communicate over HTTPS."""

"""The service: clients and a server with a network between them."""

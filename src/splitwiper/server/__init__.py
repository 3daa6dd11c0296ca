"""The server's side of the protocol. It never imports the client's, nor anything that only clients may know."""

from splitwiper.server.server import Server

__all__ = ["Server"]

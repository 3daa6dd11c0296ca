"""The client's side of the protocol. It never imports the server's; what passes between them is in `wire`."""

from splitwiper.client.checking import check_rows
from splitwiper.client.client import Client
from splitwiper.client.context import create_client
from splitwiper.client.row_store import Added

__all__ = ["Added", "Client", "check_rows", "create_client"]

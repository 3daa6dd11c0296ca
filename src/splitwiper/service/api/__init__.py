"""The server's HTTPS interface for clients, operators, auditors and probes."""

from splitwiper.service.api.app import Service, create_app

__all__ = ["Service", "create_app"]

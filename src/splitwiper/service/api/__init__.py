"""The HTTPS interface of the server: what clients, operators and probes can ask."""

from splitwiper.service.api.app import Service, create_app

__all__ = ["Service", "create_app"]

"""The client's side: its home, the link to the server, the keys that never leave, and agreement with other homes."""

from splitwiper.service.home.config import HomeConfig
from splitwiper.service.home.home import Certified, Home
from splitwiper.service.home.joining import join

__all__ = ["Certified", "Home", "HomeConfig", "join"]

"""The networked service: clients and a server that communicate over HTTPS, certificates and identities."""

import importlib.util

from splitwiper.errors import ConfigError

if importlib.util.find_spec("cryptography") is None:
    raise ConfigError("certificates need the package cryptography: pip install 'splitwiper[service]'.")

"""Packages that not every installation has, and the extras of this one that install them."""

from __future__ import annotations

import importlib.util

from splitwiper.errors import ConfigError

EXTRAS = {"transformers": "text", "tokenizers": "text", "zstandard": "zstd", "dp_accounting": "plus"}
EXTRAS |= dict.fromkeys(
    ("cryptography", "fastapi", "starlette", "pydantic", "uvicorn", "httptools", "httpx", "prometheus_client"),
    "service",
)
"""The extra that installs each package."""


def is_installed(package: str) -> bool:
    """Return whether a package is there to be imported, without importing it."""
    return importlib.util.find_spec(package) is not None


def check_installed(package: str, use: str, *, extra: str = "", otherwise: str = "") -> None:
    """Refuse a use that needs a package which is not installed.

    The message is "USE needs the package PACKAGE: pip install …, or OTHERWISE."; ``extra`` is the extra to install, if
    not that in `EXTRAS`.
    """
    if not is_installed(package):
        how = f"pip install 'splitwiper[{extra or EXTRAS[package]}]'"
        raise ConfigError(f"{use} needs the package {package}: {how}{f', or {otherwise}' if otherwise else ''}.")

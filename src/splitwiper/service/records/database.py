"""The service's own database."""

from __future__ import annotations

from pathlib import Path

from splitwiper.service.records import attestations, client_keys, negotiations, overrides, requests, uploads
from splitwiper.store.database import Database


def service_database(root: Path) -> Database:
    """Open the service's database.

    It holds uploads, received requests, sites' registered keys, negotiations, operators' decisions and attestations;
    `witnesses` adds a table of countersigned heads.
    """
    parts = (uploads, overrides, requests, client_keys, negotiations, attestations)
    return Database(root / "service.db", "".join(part.SCHEMA for part in parts))

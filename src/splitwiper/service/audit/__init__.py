"""Auditing a server: download what its model was trained from, check every shard's signature, recompute, attest."""

from splitwiper.service.audit.auditing import Audited, audit
from splitwiper.service.audit.config import AuditConfig, read_audit

__all__ = ["AuditConfig", "Audited", "audit", "read_audit"]

"""Prometheus metrics: calls and their durations, bytes, and the state of the store. No labels, no data."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from splitwiper.server import Server

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60)
CONTENT = "text/plain; version=0.0.4; charset=utf-8"
LITTLE = 64 << 20
"""Free bytes on the store's disk below which the service reports that there is no room."""


def room(folder: Path) -> int:
    """Return the free bytes on a folder's disk."""
    free = os.statvfs(folder)
    return free.f_bavail * free.f_frsize


class Metrics:
    """The metrics of one service, in a registry of its own, so that several services can share a process."""

    def __init__(self) -> None:
        # the package's global registry would refuse a second service in one process
        self._registry = CollectorRegistry()
        own: dict[str, Any] = {"namespace": "splitwiper", "registry": self._registry}
        self._calls = Counter("calls", "Calls by route and status.", ["method", "route", "status"], **own)
        self._seconds = Histogram("call_seconds", "How long calls took.", ["route"], buckets=_SECONDS, **own)
        self.received = Counter("received_bytes", "Bytes of shards that came in.", **own)
        self._clients = Gauge("clients", "Clients that the server ever heard from.", **own)
        self._rows = Gauge("rows", "Rows of all shards.", **own)
        self._open = Gauge("open_requests", "Requests to forget that are not settled.", ["state"], **own)
        self._model = Gauge("model", "1 where there is a model that answers.", **own)
        self._current = Gauge("model_is_current", "1 where the model is the manifest's.", **own)
        self._room = Gauge("free_bytes", "Bytes that are free on the store's disk.", **own)
        self._training = Gauge("training_seconds", "What the training of the present model took.", **own)

    def called(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a call."""
        self._calls.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self, server: Server) -> bytes:
        """Return all metrics in Prometheus' text format."""
        server_store = server.store
        model, states = server_store.model(), [ticket.state for ticket in server_store.tickets()]
        self._clients.set(len(server_store.clients()))
        self._rows.set(server_store.rows())
        for state in ("accepted", "erased"):
            self._open.labels(state).set(states.count(state))
        self._model.set(model is not None)
        self._current.set(server_store.is_current())
        self._room.set(room(server_store.root))
        self._training.set(model.seconds if model else 0)
        return generate_latest(self._registry)

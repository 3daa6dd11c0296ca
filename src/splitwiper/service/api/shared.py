"""Helpers that all routes need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import Request

if TYPE_CHECKING:
    from splitwiper.service.api.app import Service


ABOUT = "splitwiper.about"
"""Key under which a call's scope holds what the call is about, besides the names in its path."""


def note(request: Request, **about: object) -> None:
    """Add what a call is about to its log line."""
    request.scope.setdefault(ABOUT, {}).update(about)


def service_of(request: Request) -> Service:
    """Return the service that a request is for."""
    service: Service = request.app.state.service
    return service

"""What all routes need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import Request

if TYPE_CHECKING:
    from splitwiper.service.api.app import Service


ABOUT = "splitwiper.about"
"""Where a call's scope has what the call is about, beside what its path names."""


def note(request: Request, **about: object) -> None:
    """Have the log's line of a call name what it is about."""
    request.scope.setdefault(ABOUT, {}).update(about)


def service_of(request: Request) -> Service:
    """The service that a request is for."""
    service: Service = request.app.state.service
    return service

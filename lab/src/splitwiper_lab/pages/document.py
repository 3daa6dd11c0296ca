"""Documents from the templates in ``templates/``, in the frame and with the style sheet of the product's report."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader

from splitwiper.report.page import clean, templates


def document(template: str, **values: Any) -> str:
    """Render a template with these values. The same values give the same bytes."""
    return clean(_environment().get_template(template).render(**values))


@cache
def _environment() -> Environment:
    # The report's own environment stays as it is: only the overlay also finds the laboratory's templates.
    loaders = [PackageLoader("splitwiper_lab.pages"), PackageLoader("splitwiper.report")]
    return templates().overlay(loader=ChoiceLoader(loaders))

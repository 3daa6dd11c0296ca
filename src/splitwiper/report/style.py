"""The report's style sheet, for pages of the laboratory."""

from __future__ import annotations

from pathlib import Path

CSS = (Path(__file__).parent / "templates" / "style.css").read_text(encoding="utf-8")
"""All of it."""
PALETTE = CSS.partition("\n* {")[0]
"""Colours by name, light and dark."""

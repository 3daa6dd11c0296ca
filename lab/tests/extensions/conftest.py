"""The command line as the product's own tests call it, and results to look at."""

from cli.conftest import _narrow, _one_thread, call, call_json, master, place, ward
from commands.comparing import compared, nothing_is_computed, smoke

__all__ = [
    "_narrow",
    "_one_thread",
    "call",
    "call_json",
    "compared",
    "master",
    "nothing_is_computed",
    "place",
    "smoke",
    "ward",
]

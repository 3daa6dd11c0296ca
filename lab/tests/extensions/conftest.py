"""The command line as the product's own tests call it, for tests of `attack`."""

from cli.conftest import _narrow, _one_thread, call, call_json

__all__ = ["_narrow", "_one_thread", "call", "call_json"]

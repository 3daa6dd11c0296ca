"""The command line: the library's verbs, with tables for people and ``--json`` for programs."""

from splitwiper.cli.app import app, main

__all__ = ["app", "main"]

"""The fixtures of the laboratory's commands."""

from commands.conftest import *  # noqa: F403

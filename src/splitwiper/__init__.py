"""Split learning that can forget: exact, verifiable unlearning between organisations.

The program users write::

    from splitwiper import Federation, split

    halves = split(model, at="layer1", example=x[:1])
    fed = Federation("runs/ward", halves, config)
    fed.learn({"north": north, "south": south})
    receipt = fed.unlearn("north", classes=["bird"])
    fed.predict("south", x)
    fed.verify(receipt).exact  # True
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from splitwiper.checks import Verification
    from splitwiper.config import ClientConfig, Config, ModelConfig, ServerConfig
    from splitwiper.errors import SplitWiperError
    from splitwiper.federation import Federation
    from splitwiper.splitting import Halves, split
    from splitwiper.wire import Label, Receipt

__version__ = "0.1.0"

__all__ = [
    "ClientConfig",
    "Config",
    "Federation",
    "Halves",
    "Label",
    "ModelConfig",
    "Receipt",
    "ServerConfig",
    "SplitWiperError",
    "Verification",
    "split",
]

_HOME = {
    "checks": ("Verification",),
    "config": ("ClientConfig", "Config", "ModelConfig", "ServerConfig"),
    "errors": ("SplitWiperError",),
    "federation": ("Federation",),
    "splitting": ("Halves", "split"),
    "wire": ("Label", "Receipt"),
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that ``splitwiper --help`` need not wait for torch."""
    for room, names in _HOME.items():
        if name in names:
            return getattr(import_module(f"splitwiper.{room}"), name)
    raise AttributeError(f"module 'splitwiper' has no attribute {name!r}")

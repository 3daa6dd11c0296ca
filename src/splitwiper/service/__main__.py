"""The worker process: ``python -m splitwiper.service CONFIG STORE PARENT``, started by ``splitwiper serve``."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

from splitwiper.exclusive import own
from splitwiper.service.logs import to_stderr
from splitwiper.service.storing import open_store, read_server
from splitwiper.service.worker import on_signals, work


def _end_with(parent: int) -> None:
    """End this process at once when the service that started it is gone, however it ended.

    A training that went on would hold the store's lease, so that a service that is started again could not train.
    """
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(0)


def main() -> None:
    """Train whenever a request or a new shard makes it necessary."""
    config, root, parent = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    settings = read_server(config)
    to_stderr()
    stop = on_signals()
    own(threading.Thread(target=_end_with, args=(parent,), daemon=True)).start()
    work(root, open_store(root, settings).server, settings.service, stop=stop)


if __name__ == "__main__":
    main()

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


def _outlived(parent: int, stop: threading.Event) -> None:
    """Set ``stop`` once the service that started this worker is gone, however it ended."""
    while not stop.is_set():
        if os.getppid() != parent:
            stop.set()
        time.sleep(0.5)


def main() -> None:
    """Train whenever a request or a new shard makes it necessary."""
    config, root, parent = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    settings = read_server(config)
    to_stderr()
    stop = on_signals()
    own(threading.Thread(target=_outlived, args=(parent, stop), daemon=True)).start()
    work(root, open_store(root, settings).server, settings.service, stop=stop)


if __name__ == "__main__":
    main()

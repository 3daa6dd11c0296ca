"""The link of docs/how-to/extend.md: messages of bytes over two queues, with the server in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from queue import Queue
from types import ModuleType
from typing import Any

from splitwiper.splitting import ServerHalf
from splitwiper.wire import Link

PAGE = Path(__file__).parent.parent / "docs" / "how-to" / "extend.md"


@cache
def _page() -> ModuleType:
    """The file that the page shows."""
    _, found, rest = PAGE.read_text(encoding="utf-8").partition("```python\n# ward_link.py\n")
    assert found
    module = ModuleType("ward_link")
    exec(compile(rest.partition("```\n")[0], "ward_link.py", "exec"), module.__dict__)
    return module


@contextmanager
def queue_link(root: Path, half: ServerHalf) -> Iterator[Link]:
    """A link to the server in a folder, while its thread runs."""
    calls, answers = Queue[Any](), Queue[Any]()
    thread = threading.Thread(target=_page().serve, args=(root, half, calls, answers))
    thread.start()
    try:
        yield _page().QueueLink(calls, answers)
    finally:
        calls.put(None)
        thread.join(60)
        assert not thread.is_alive()

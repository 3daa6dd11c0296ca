"""A client that floods a server with predictions, as a process: ``python -m benchmarks.flooding URL CERTS ROWS WIDTH``.

It has many connections, sends the largest accepted predictions on each, and starts again immediately, whatever the
answer is. It says ``flooding`` once it does, counts answers by status, and prints them when its input is closed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import torch
from safetensors.torch import save

from benchmarks.harness import ROOT
from splitwiper.service.identity import client_context

CONNECTIONS = 12


@contextmanager
def flood(url: str, certs: Path, rows: int, width: int) -> Iterator[Counter[str]]:
    """Flood a server during the block; yield an object that afterwards counts the answers by status."""
    answers: Counter[str] = Counter()
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", "benchmarks.flooding", url, str(certs), str(rows), str(width)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        if process.stdout:
            process.stdout.readline()
        try:
            yield answers
        finally:
            told, _ = process.communicate()
            answers.update(json.loads(told))


def main() -> None:
    """Flood until nobody listens any more."""
    url, certs, rows, width = sys.argv[1:]
    body = save({"activation": torch.zeros(int(rows), int(width))})
    context, answers, stop = client_context(certs), Counter[str](), threading.Event()

    def ask() -> None:
        with httpx.Client(base_url=url, verify=context, trust_env=False, timeout=60) as http:
            while not stop.is_set():
                try:
                    answers[str(http.post("/v1/predict", content=body).status_code)] += 1
                except httpx.TransportError as problem:
                    answers[type(problem).__name__] += 1
                    time.sleep(0.1)

    threads = [threading.Thread(target=ask) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    time.sleep(1.0)
    sys.stdout.write("flooding\n")
    sys.stdout.flush()
    sys.stdin.read()
    stop.set()
    for thread in threads:
        thread.join()
    sys.stdout.write(json.dumps(answers))


if __name__ == "__main__":
    main()

"""What a process was doing when it died, and what its user does next.

A scenario *prepares* a folder, *acts* on it (telling `ack` after each call that returned), and *recovers* by making
the same calls again. A request counts as acknowledged when `submit` returned its ticket. One that was never
acknowledged may or may not have been recorded: its user settles what is there, asks again, and is told so
(`RequestError`: no such rows any more) where it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reliability.stage import config, halves, ids_at, place_keys, reopen, rows
from splitwiper import Federation
from splitwiper.config import Masking
from splitwiper.errors import RequestError

Ack = Callable[[str], None]
ALL = {"east": rows("east", "aab"), "north": rows("north", "abc"), "south": rows("south", "bbc")}
ASKING = ("north", "south")
MORE = {"south": rows("south", "ca", part=1), "west": rows("west", "ab")}


@dataclass(frozen=True)
class Scenario:
    prepare: Callable[[Path], None]
    act: Callable[[Path, Ack], None]
    recover: Callable[[Path, list[str]], None]
    tickets: int
    """Settled tickets at the end."""
    steps: int
    """Fewer steps than this would mean that some no longer announce themselves."""
    deaths: int
    """Fewer different images of the folder than this would mean that steps no longer change it."""


# --- create a federation and learn three clients ------------------------------------------------------------


def _start_and_learn(path: Path, ack: Ack) -> None:
    fed = Federation(path, halves(), config())
    ack("made")
    fed.learn(ALL)
    ack("learned")


# --- two requests from two clients, settled together --------------------------------------------------------


def learned(path: Path, slices: int = 3) -> None:
    place_keys(path)
    Federation(path, halves(), config(slices)).learn({name: ALL[name] for name in ASKING})


def requests(path: Path) -> dict[str, dict[str, list[Any]]]:
    """What each client asks for."""
    return {"north": {"classes": ["c"]}, "south": {"samples": ids_at(path, "south", ALL["south"], [0])}}


def _ask_and_settle(path: Path, ack: Ack) -> None:
    fed = reopen(path)
    for name, what in requests(path).items():
        ack(f"{name} {fed.submit(name, **what).id}")
    fed.settle()
    ack("settled")


def _settle_and_ask_again(path: Path, acked: list[str]) -> None:
    fed = reopen(path)
    fed.settle()
    for name in set(ASKING) - {line.split()[0] for line in acked}:
        try:
            fed.submit(name, **requests(path)[name])
        except RequestError:
            continue  # it had been recorded
    fed.settle()


# --- more rows and a late joiner, while a request is open ---------------------------------------------------


def _learned_and_asked(path: Path) -> None:
    learned(path, slices=1)
    reopen(path).submit("north", classes=["a"])


def _learn_more(path: Path, ack: Ack) -> None:
    reopen(path).learn(MORE)
    ack("learned")


# --- labels are hidden: clients agree on them, and agree anew -----------------------------------------------

# seeded keys make clients say the same words in every run, so that each takes the same steps
HIDDEN = Masking(mode="partition", gamma=2)
TWO = {"east": ALL["east"], "north": ALL["north"]}


def _learn_hidden(path: Path, ack: Ack) -> None:
    Federation(path, halves(), config(masking=HIDDEN, keys="seeded")).learn(TWO)
    ack("learned")


def _hidden(path: Path) -> None:
    place_keys(path)
    _learn_hidden(path, lambda _: None)


def _rekey(path: Path, ack: Ack) -> None:
    reopen(path).rekey()
    ack("agreed")


def _finish_rekey(path: Path, _acked: list[str]) -> None:
    fed = reopen(path)
    fed.settle()
    codebook = fed.codebook()
    if codebook is not None and codebook.version == 1:  # it died before anybody spoke
        fed.rekey()


SCENARIOS = {
    "learn": Scenario(
        place_keys, _start_and_learn, lambda path, _: _start_and_learn(path, lambda _: None), 0, 300, 100
    ),
    "settle": Scenario(learned, _ask_and_settle, _settle_and_ask_again, 2, 150, 50),
    "join": Scenario(_learned_and_asked, _learn_more, lambda path, _: _learn_more(path, lambda _: None), 1, 200, 80),
    "hide": Scenario(place_keys, _learn_hidden, lambda path, _: _learn_hidden(path, lambda _: None), 0, 250, 90),
    "rekey": Scenario(_hidden, _rekey, _finish_rekey, 0, 60, 20),
}

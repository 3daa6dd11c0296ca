"""The talk over the relay: right in the end, unreadable to the server, and noticed at once if it is tampered with."""

from dataclasses import dataclass, field
from random import Random

import pytest

from splitwiper import Label
from splitwiper.config import Masking
from splitwiper.errors import ConfigError, CorruptError
from splitwiper.masking.consensus import Participant
from splitwiper.masking.negotiation import Negotiation
from splitwiper.masking.sealing import SIZE, Draws, GroupKey, invitation
from splitwiper.wire import Posted, lock_of

SECRET = "a secret passed by telephone"
SETS = {"north": {Label("", "measles"), Label("", "mumps")}, "south": {Label("", "mumps"), Label("", "rubella")}}


@dataclass
class Paper:
    """A relay that can be written to by hand, as an operator could."""

    said: list[Posted] = field(default_factory=list)

    def post(self, client: str, topic: str, place: int, body: bytes) -> None:
        self.said.append(Posted(place, client, body))

    def posted(self, topic: str, since: int = 0) -> tuple[Posted, ...]:
        return tuple(self.said[since:])


def key(secret: str = SECRET, federation: str = "f") -> GroupKey:
    return GroupKey.of(secret, federation=federation)


def speak(relay: Paper, keys: dict[str, GroupKey], turns: int = 200) -> dict[str, Negotiation]:
    talks = {name: Negotiation(relay, keys[name], 1) for name in SETS}
    people = {name: Participant(name, own, Masking(), Random(name)) for name, own in SETS.items()}
    for _ in range(turns):
        for name, talk in talks.items():
            talk.speak(people[name], list(SETS))
            if talk.consensus:
                return talks
    return talks


def test_all_agree_and_a_latecomer_hears_the_same() -> None:
    relay = Paper()
    talks = speak(relay, dict.fromkeys(SETS, key()))
    late = Negotiation(relay, key(), 1)
    late.listen()
    for talk in talks.values():
        talk.listen()
    found = [talk.consensus for talk in (*talks.values(), late)]
    assert all(f is not None and {x.name for x in f.labels} == {"measles", "mumps", "rubella"} for f in found)


def test_the_server_sees_messages_of_one_size_without_names() -> None:
    relay = Paper()
    speak(relay, dict.fromkeys(SETS, key()))
    sizes = {len(message.body) for message in relay.said}
    assert sizes == {12 + SIZE + 16}
    assert not any(word in message.body for message in relay.said for word in (b"measles", b"mumps", b"rubella"))


def test_another_invitation_is_noticed_at_the_first_word() -> None:
    with pytest.raises(CorruptError, match="another invitation secret"):
        speak(Paper(), {"north": key(), "south": key("quite another secret")})


def test_a_key_is_of_one_federation() -> None:
    sealed = key(federation="f").seal({"x": 1}, "topic")
    with pytest.raises(CorruptError, match="another federation or invitation"):
        key(federation="g").open(sealed, "topic")


@pytest.mark.parametrize("how", ["swap", "drop", "repeat", "flip", "forge"])
def test_a_server_that_meddles_is_noticed(how: str) -> None:
    relay = Paper()
    speak(relay, dict.fromkeys(SETS, key()), turns=4)
    said = relay.said
    assert len(said) >= 3
    if how == "swap":
        said[0], said[1] = Posted(0, said[1].sender, said[1].body), Posted(1, said[0].sender, said[0].body)
    elif how == "drop":
        said[:] = [Posted(n, m.sender, m.body) for n, m in enumerate(said[1:])]
    elif how == "repeat":
        said.insert(1, Posted(1, said[0].sender, said[0].body))
    elif how == "flip":
        body = bytearray(said[1].body)
        body[100] ^= 1
        said[1] = Posted(1, said[1].sender, bytes(body))
    else:
        said[1] = Posted(1, "mallory", said[1].body)
    with pytest.raises(CorruptError, match="cannot be read"):
        Negotiation(relay, key(), 1).listen()


def shared(relay: Paper) -> Negotiation:
    talk = Negotiation(relay, key(), 1, strangers=True)
    talk.listen()
    return talk


def said_by(name: str, relay: Paper) -> Negotiation:
    talk = shared(relay)
    assert talk.speak(Participant(name, SETS[name], Masking(), Random(name)), list(SETS))
    return talk


def erase(relay: Paper) -> None:
    lock = lock_of(shared(relay).proof)
    relay.said = [Posted(m.place, m.sender, b"" if m.body.startswith(lock) else m.body) for m in relay.said]


def test_that_a_talk_was_given_up_is_heard_when_all_else_is_erased() -> None:
    relay = Paper()
    talks = [said_by("north", relay), said_by("south", relay)]
    talks[0].give_up("north", ["north", "east"])
    erase(relay)
    assert [bool(message.body) for message in relay.said] == [False, False, True]
    late = shared(relay)
    for talk in (late, *talks):
        talk.listen()
        assert talk.successors == ("north", "east") and talk.consensus is None and not talk.unread
    assert late.turns == 0
    relay.said[1:] = [Posted(1, "north", relay.said[2].body)]  # the server moves it
    assert shared(relay).successors == () and shared(relay).unread == {"north": 1}


def test_a_talk_that_was_erased_begins_anew_for_those_who_heard_it_too() -> None:
    relay = Paper()
    heard = [said_by("north", relay), said_by("south", relay)]
    erase(relay)
    assert not shared(relay).turns
    anew = said_by("north", relay)
    for talk in (anew, *heard):
        talk.listen()
        assert talk.turns == 1 and talk.roster == tuple(SETS) and talk.speaker == "south" and not talk.unread


def test_who_slept_while_a_talk_was_erased_speaks_of_the_new_one() -> None:
    relay = Paper()
    said_by("north", relay)
    slept = shared(relay)  # it is south's turn, and it is suspended
    erase(relay)
    assert not slept.speak(Participant("south", SETS["south"], Masking(), Random(1)), list(SETS))  # north begins
    said_by("north", relay)
    assert slept.speak(Participant("south", SETS["south"], Masking(), Random(1)), list(SETS))
    for talk in (slept, shared(relay)):
        assert talk.turns == 2 and not talk.unread


def test_what_was_agreed_on_does_not_begin_anew() -> None:
    relay = Paper()
    while (done := shared(relay)).consensus is None:
        said_by(str(done.speaker or "north"), relay)
    found = done.consensus
    erase(relay)
    said_by("north", relay)
    done.listen()
    assert done.consensus == found and set(done.unread) == {"north"}


def test_a_short_invitation_is_refused_and_a_made_one_is_not() -> None:
    with pytest.raises(ConfigError, match="at least 16"):
        key("short")
    assert invitation() != invitation() and key(invitation())
    assert SECRET not in repr(key()) and key().raw.hex() not in repr(key())


def test_draws_are_fair() -> None:
    draws = Draws(b"k", "fair")
    counts = [0] * 6
    for _ in range(6000):
        counts[draws.below(6)] += 1
    assert max(counts) - min(counts) < 200

"""The same `forget`, run again after it was interrupted, finishes the request that it made, and no other's."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from service.processes import Running, data
from splitwiper.errors import RequestError
from splitwiper.service.site import Site, resuming


def test_the_same_call_finds_its_request_until_it_is_finished(server: Running, tmp_path: Path) -> None:
    with closing(server.site("north")) as north:
        north.learn(data()["north"])
        earlier = resuming.forget(north, classes=["dog"])
        resuming.finish(north)
        ticket = resuming.forget(north, classes=["cat", "bird"])
    with closing(Site(tmp_path / "sites" / "north")) as north:  # as after a kill
        assert resuming.forget(north, classes=["bird", "cat"]) == ticket != earlier
        for other in (["bird"], ["dog"], ["unicorn"]):
            with pytest.raises(RequestError, match="holds no rows"):
                resuming.forget(north, classes=other)
        with pytest.raises(RequestError):
            resuming.forget(north, everything=True)
        resuming.finish(north)
        with pytest.raises(RequestError, match="holds no rows"):
            resuming.forget(north, classes=["bird", "cat"])
        assert not north.client.store.database.meta("asking")


def test_rows_that_are_there_are_a_request_of_their_own(server: Running, tmp_path: Path) -> None:
    with closing(server.site("north")) as north:
        north.learn(data()["north"])
        first, second, *_ = north.client.holdings.ids()
        tickets = [resuming.forget(north, samples=[one]) for one in (first, second)]
        assert len(set(tickets)) == 2
        assert resuming.forget(north, samples=[second]) == tickets[1]
        with pytest.raises(RequestError):
            resuming.forget(north, samples=[first])

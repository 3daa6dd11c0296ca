"""A run belongs to one network: its code and constants, not only the shapes of its weights."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from federation.runs import FEATURES, settings, three
from splitwiper import ClientConfig, Federation, Halves, split
from splitwiper.config import Masking
from splitwiper.errors import InputError
from splitwiper.splitting import identity


class Stem(nn.Module):
    def __init__(self, gain: float) -> None:
        super().__init__()
        self.layer, self.gain = nn.Linear(FEATURES, 8), gain

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x) * self.gain)


class Body(nn.Module):
    def __init__(self, heads: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, heads, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.attention(x[:, None], x[:, None], x[:, None], need_weights=False)[0]
        return found[:, 0]


def network(*, gain: float = 1.0, heads: int = 2, outputs: int = 3, seed: int = 0) -> Halves:
    torch.manual_seed(seed)
    model = nn.Sequential(Stem(gain), Body(heads), nn.Linear(8, outputs))
    return split(model, at="0", example=torch.zeros(1, FEATURES), head="2")


def test_the_same_network_built_again_opens_its_run(tmp_path: Path) -> None:
    Federation(tmp_path / "run", network(), settings()).learn(three())
    again = Federation(tmp_path / "run", network(seed=7))
    receipt = again.unlearn("north", classes=["bird"])
    assert again.verify(receipt).exact
    assert receipt.context["server_model"] == again._server.network


@pytest.mark.parametrize(("half", "change"), [("client", {"gain": 1.5}), ("server", {"heads": 4})])
def test_another_constant_is_another_network(tmp_path: Path, half: str, change: dict[str, float]) -> None:
    Federation(tmp_path / "run", network(), settings())
    other = network(**change)  # type: ignore[arg-type]
    assert str(other.client) == str(network().client) and str(other.server) == str(network().server)
    with pytest.raises(InputError, match=f"the {half} half is not the network.*code or constants differ"):
        Federation(tmp_path / "run", other)


def test_requires_grad_is_part_of_a_network(tmp_path: Path) -> None:
    Federation(tmp_path / "run", network(), settings())
    frozen = network()
    frozen.client.get_parameter("0.layer.bias").requires_grad_(False)
    with pytest.raises(InputError, match="the client half is not the network"):
        Federation(tmp_path / "run", frozen)


def test_verify_compares_the_networks_at_hand(tmp_path: Path) -> None:
    fed = Federation(tmp_path / "run", network(), settings())
    fed.learn(three())
    receipt = fed.unlearn("north", classes=["bird"])
    stem = fed.halves.client.get_submodule("0")
    stem.gain = 2.0  # type: ignore[assignment]
    with pytest.raises(InputError, match="the client half was changed after"):
        fed.verify(receipt)
    stem.gain = 1.0  # type: ignore[assignment]
    assert fed.verify(receipt).exact
    fed.halves.server.get_submodule("1.attention").num_heads = 4  # type: ignore[assignment]
    with pytest.raises(InputError, match="the server half was changed after"):
        fed.verify(receipt)


def test_hidden_labels_do_not_show_in_what_the_server_remembers(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    kept = []
    for outputs in (3, 9):
        config = settings(masking=Masking(mode="duplicate"))
        fed = Federation(tmp_path / str(outputs), network(outputs=outputs), config)
        kept.append([fed._server.store.database.meta(name) for name in ("architecture", "model")])
    assert kept[0] == kept[1]


def test_a_client_keeps_the_half_it_joined_with(tmp_path: Path) -> None:
    def run(gain: float | None) -> Federation:
        halves = network()
        own = {} if gain is None else {"north": Stem(gain)}
        return Federation(tmp_path / "run", halves.with_clients(own), settings())

    run(2.0).learn(three())
    assert run(2.0).verify().exact
    for other in (3.0, None):
        with pytest.raises(InputError, match="'north' joined with another client half"):
            run(other).unlearn("north", classes=["bird"])
        found = run(other).verify()
        assert found.outcome == "mismatch" and "'north' joined with another" in found.reason


def test_clients_elsewhere_join_with_the_operators_client_half_alone() -> None:
    pytest.importorskip("httpx")
    from splitwiper.service.site.joining import _check

    told = {"at": "0", "architecture": identity(network().client), "codec": "none"}
    _check(network(seed=3, heads=4, outputs=9), told, ClientConfig(codec="none"))  # the server half is not theirs
    with pytest.raises(InputError, match="code or constants"):
        _check(network(gain=1.5), told, ClientConfig(codec="none"))

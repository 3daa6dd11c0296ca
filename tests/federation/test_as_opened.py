"""A run that is open: halves that are changed and folders that are moved meanwhile are refused, and accuse nobody."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from federation.runs import FEATURES, assert_same, settings, three
from splitwiper import Federation, Halves, split
from splitwiper.errors import InputError, NotFoundError
from splitwiper.splitting import ClientHalf, ServerHalf

Change = Callable[[nn.Module], object]


def halves() -> Halves:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(FEATURES, 8),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(8, 16),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(16, 3),
    )
    with pytest.warns(UserWarning, match="dropout"):
        return split(model, at="2", example=torch.zeros(1, FEATURES))


@pytest.fixture
def fed(tmp_path: Path) -> Federation:
    fed = Federation(tmp_path / "run", halves(), settings(keys="seeded"))
    fed.learn(three())
    return fed


def dropout(half: nn.Module) -> None:
    for module in half.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.7


LAST = {ClientHalf: 0, ServerHalf: -1}
"""Which layer a half computes itself: the other is the other half's."""
CHANGES: dict[str, Change] = {
    "dropout": dropout,
    "a hook": lambda half: [m for m in half.modules() if isinstance(m, nn.ReLU)][
        LAST[type(half)]
    ].register_forward_hook(lambda module, given, out: out * 1.01),
    "frozen": lambda half: next(half.parameters()).requires_grad_(False),
    "double": lambda half: half.double(),
}
CALLS: dict[str, Callable[[Federation], object]] = {
    "learn": lambda fed: fed.learn(three()),
    "unlearn": lambda fed: fed.unlearn("north", classes=["bird"]),
    "submit": lambda fed: fed.submit("north", classes=["bird"]),
    "settle": lambda fed: fed.settle(),
    "predict": lambda fed: fed.predict("north", three()["north"][0]),
    "predict_proba": lambda fed: fed.predict_proba("north", three()["north"][0]),
    "predict_both": lambda fed: fed.predict_both("north", three()["north"][0]),
    "evaluate": lambda fed: fed.evaluate(three()),
    "reupload": lambda fed: fed.reupload("north"),
    "verify": lambda fed: fed.verify(),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("side", ["client", "server"])
def test_a_half_that_was_changed_after_opening_is_refused(fed: Federation, side: str, change: str) -> None:
    CHANGES[change](getattr(fed.halves, side))
    for name, call in CALLS.items():
        with pytest.raises(InputError, match=f"the {side} half was changed after") as error:
            call(fed)
        assert len(str(error.value)) < 500, name
    again = Federation(fed.path, halves())
    assert again.unlearn("north", classes=["bird"]).exact and again.verify().exact


def test_a_half_of_ones_own_that_was_changed_is_refused(tmp_path: Path) -> None:
    common, own = halves(), halves()
    fed = Federation(tmp_path / "run", common.with_clients({"south": own}), settings())
    fed.learn(three())
    dropout(fed.halves.clients["south"])
    fed.predict("north", three()["north"][0])
    with pytest.raises(InputError, match="'south' joined with another client half"):
        fed.predict("south", three()["south"][0])
    with pytest.raises(InputError, match="'south' joined with another client half"):
        fed.unlearn("south", classes=["cat"])


def test_a_change_that_was_taken_back_leaves_nothing_behind(fed: Federation, tmp_path: Path) -> None:
    other = fed.twin(tmp_path / "twin")
    hook = CHANGES["a hook"](fed.halves.server)
    with pytest.raises(InputError):
        fed.unlearn("north", classes=["bird"])
    hook.remove()  # type: ignore[attr-defined]
    fed.unlearn("north", classes=["bird"])
    other.learn(three())
    other.unlearn("north", classes=["bird"])
    assert_same(fed, other)


def test_weights_of_the_halves_may_change(fed: Federation) -> None:
    """They are only where a run begins, and the run has its own copy of that."""
    with torch.no_grad():
        for half in (fed.halves.client, fed.halves.server):
            for parameter in half.parameters():
                parameter.mul_(2)
    assert fed.verify(fed.unlearn("north", classes=["bird"])).exact


def test_a_model_whose_file_is_edited_stays_the_same_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "edited_model.py"
    text = (
        "import torch\nfrom torch import nn\n\n\nclass Net(nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.cut, self.head = nn.Linear(6, 8), nn.Linear(8, 3)\n\n"
        "    def forward(self, x):\n        return self.head(torch.relu(self.cut(x)))\n"
    )
    file.write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    import edited_model  # type: ignore[import-not-found]

    fed = Federation(tmp_path / "run", split(edited_model.Net(), at="cut", example=torch.zeros(1, 6)), settings())
    fed.learn(three())
    file.write_text("# a remark\n" + text.replace("relu", "tanh"), encoding="utf-8")
    assert fed.verify(fed.unlearn("north", classes=["bird"])).exact


def test_another_working_directory_is_no_other_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fed = Federation("run", halves(), settings())
    fed.learn(three())
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert fed.verify(fed.unlearn("north", classes=["bird"])).exact
    assert len(fed.predict("north", three()["north"][0])) == 30 and fed.status().todo == ()
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("moved", [True, False])
def test_a_folder_that_is_moved_or_deleted_while_open(fed: Federation, tmp_path: Path, moved: bool) -> None:
    if moved:
        fed.path.rename(tmp_path / "moved")
    else:
        shutil.rmtree(fed.path)
    for call in CALLS.values():
        with pytest.raises(NotFoundError, match="was moved or deleted while it was open") as error:
            call(fed)
        assert "forget" not in str(error.value)
    assert not fed.path.exists()
    if moved:
        (tmp_path / "moved").rename(fed.path)
        assert fed.verify().exact

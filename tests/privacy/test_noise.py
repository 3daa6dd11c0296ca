"""Noise: its distribution, what it depends on, and what it does not."""

import hashlib
import itertools

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats
from torch import Tensor

from splitwiper.errors import ConfigError, DataError
from splitwiper.privacy import ByContent, ByPlace, Noise, SecureStream, protect, row_contents, scale, secure_stream
from splitwiper.privacy.clipping import clip_rows, row_factors

KEY = hashlib.sha256(b"a test's key").digest()


def noise(mechanism: str = "laplace", reading: str = "value", **more: object) -> Noise:
    return Noise(**{"mechanism": mechanism, "reading": reading, "epsilon": 1.0, "clip": 1.0} | more)  # type: ignore[arg-type]


def stream(key: bytes = KEY, purpose: str = "upload", content: bytes = b"rows") -> SecureStream:
    return secure_stream(key, purpose, content)


def rows(count: int, *shape: int) -> Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(3))


def test_words_are_aes_in_counter_mode_from_any_place() -> None:
    here = stream()
    cipher = Cipher(algorithms.AES(here.secret), modes.CTR(bytes(16))).encryptor()
    for kind in ("<i4", "<i2"):
        whole = here.words(0, 300_000, kind)
        for start, count in ((0, 1), (1, 7), (4, 4), (131_071, 5), (65_537, 200_000)):
            assert np.array_equal(here.words(start, count, kind), whole[start : start + count])
    assert here.words(0, 64).tobytes() == cipher.update(bytes(256))


def test_streams_of_other_keys_purposes_and_contents_differ() -> None:
    streams = [stream(), stream(key=bytes(32)), stream(purpose="predict"), stream(content=b"other"), stream().part("a")]
    assert len({s.words(0, 8).tobytes() for s in streams}) == len(streams)
    assert stream().words(0, 8).tobytes() == stream().words(0, 8).tobytes()
    assert stream().secret.hex() not in repr(stream()) and "secret" not in repr(stream())


def test_a_key_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="4 bytes is too short"):
        secure_stream(b"1234", "upload")


@pytest.mark.parametrize(("mechanism", "law"), [("laplace", stats.laplace), ("gaussian", stats.norm)])
@pytest.mark.parametrize("reading", ["value", "mean"])
def test_noise_has_its_distribution(mechanism: str, law: stats.rv_continuous, reading: str) -> None:
    settings = noise(mechanism, reading, epsilon=0.25)
    drawn = protect({"x": torch.zeros(2000, 100)}, settings, ByPlace(stream()), group=7)["x"].double().numpy().ravel()
    size = scale(settings, group=7)
    cell = 2.0 ** (np.floor(np.log2(size)) - 10)
    jitter = np.random.default_rng(0).uniform(-0.5, 0.5, drawn.size) * cell  # fills the grid's cells
    assert stats.kstest((drawn + jitter) / size, law.cdf).pvalue > 1e-3
    assert stats.kstest((drawn + jitter) / (1.04 * size), law.cdf).pvalue < 1e-3  # so many draws show 4 %
    lag = np.corrcoef(drawn[:-1], drawn[1:])[0, 1]
    assert abs(lag) < 5 / drawn.size**0.5


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("reading", ["value", "row", "mean"])
def test_cuts_into_batches_change_nothing(mechanism: str, reading: str, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = {"x": rows(97, 3, 5, 7) * 4, "y": rows(97, 11).half(), "mask": torch.arange(97)[:, None] % 2}
    sizes, settings = torch.arange(1, 98), noise(mechanism, reading)
    whole = protect(batch, settings, ByPlace(stream()), group=sizes)
    for cuts, block in (((1, 2, 50), 1 << 18), ((33,), 400), ((), 1)):
        monkeypatch.setattr("splitwiper.privacy.noise.BLOCK", block)
        ends = [0, *cuts, 97]
        parts = [
            protect({n: v[a:b] for n, v in batch.items()}, settings, ByPlace(stream(), a), group=sizes[a:b])
            for a, b in itertools.pairwise(ends)
        ]
        for name, values in whole.items():
            assert torch.equal(torch.cat([part[name] for part in parts]), values)
            assert values.dtype == batch[name].dtype and values.shape == batch[name].shape
    assert whole["mask"] is batch["mask"]


def test_noise_is_a_matter_of_key_rows_column_and_settings() -> None:
    x = torch.zeros(4, 16)
    base = protect({"x": x}, noise(), ByPlace(stream()))["x"]
    others = [
        protect({"x": x}, noise(), ByPlace(stream(key=bytes(32))))["x"],
        protect({"x": x}, noise(), ByPlace(stream(content=b"fewer rows")))["x"],
        protect({"x": x}, noise(), ByPlace(stream(), 4))["x"],
        protect({"y": x}, noise(), ByPlace(stream()))["y"],
        protect({"x": x}, noise(epsilon=2.0), ByPlace(stream()))["x"] * 2,  # the same words at half the scale?
        protect({"x": x}, noise(reading="mean"), ByPlace(stream()), group=2)["x"] * 2,
    ]
    assert all(not torch.allclose(base, other, rtol=1e-2) for other in others)
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    assert torch.equal(protect({"x": x}, noise(), ByPlace(stream()))["x"], base)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_asking_again_repeats_the_noise() -> None:
    inputs = {"image": rows(6, 2, 3), "age": torch.arange(6)}
    first, again = (ByContent(stream(purpose="predict"), row_contents(inputs)) for _ in range(2))
    x = rows(6, 40)
    sent = protect({"x": x}, noise(), first)["x"]
    assert torch.equal(sent, protect({"x": x}, noise(), again)["x"])
    order = torch.tensor([4, 0])
    some = ByContent(stream(purpose="predict"), row_contents({n: v[order] for n, v in inputs.items()}))
    assert torch.equal(protect({"x": x[order]}, noise(), some)["x"], sent[order])
    older = ByContent(stream(purpose="predict"), row_contents(inputs | {"age": torch.arange(1, 7)}))
    assert not (protect({"x": x}, noise(), older)["x"] == sent).all(dim=1).any()
    with pytest.raises(DataError, match="2 rows came with the contents of 6"):
        protect({"x": x[:2]}, noise(), first)


def test_contents_tell_apart_names_types_and_shapes() -> None:
    x = torch.zeros(1, 4)
    kinds = [{"a": x}, {"b": x}, {"a": x.int()}, {"a": x.reshape(1, 2, 2)}, {"a": x, "b": x}]
    assert len({row_contents(kind)[0] for kind in kinds}) == len(kinds)
    with pytest.raises(DataError, match=r"\[1, 2\] rows"):
        row_contents({"a": x, "b": torch.zeros(2)})


def test_values_are_clipped() -> None:
    x = torch.tensor([[-9.0, -0.5, 0.25, float("inf")]])
    assert clip_rows(x, noise()).tolist() == [[-1.0, -0.5, 0.25, 1.0]]
    assert clip_rows(x, noise(nonnegative=True)).tolist() == [[0.0, 0.0, 0.25, 1.0]]
    near, far = (protect({"x": torch.full((1, 50), v)}, noise(), ByPlace(stream()))["x"] for v in (1.0, 1e9))
    assert torch.equal(near, far)
    assert protect({"x": x * torch.nan}, noise(), ByPlace(stream()))["x"].isnan().all()


@pytest.mark.parametrize(("mechanism", "power"), [("laplace", 1), ("gaussian", 2)])
def test_rows_are_brought_down_to_their_bound(mechanism: str, power: int) -> None:
    settings = noise(mechanism, "row", clip=2.0)
    columns = {"x": rows(50, 6, 6) * torch.linspace(0.001, 30, 50)[:, None, None], "y": rows(50, 3)[:, :1]}
    columns["y"][:5] = 0
    factors = row_factors(columns, settings)
    flat = torch.cat([clip_rows(v.flatten(1), settings) for v in columns.values()], dim=1)
    before, after = (v.double().norm(p=power, dim=1) for v in (flat, flat * factors))
    assert (after <= 2.0).all()
    assert torch.allclose(after, before.clamp(max=2.0), rtol=1e-5)
    assert (factors[before < 1.99] == 1).all() and (factors[before > 2.01] < 1).all()


def test_sums_lie_on_one_grid_whatever_the_value() -> None:
    settings = noise(epsilon=0.3)
    sent = protect({"x": rows(64, 300)}, settings, ByPlace(stream()))["x"]
    cell = 2.0 ** (np.floor(np.log2(scale(settings))) - 10)
    assert torch.equal(sent / cell, (sent / cell).round())


@pytest.mark.parametrize("group", [0, torch.tensor([1, 2]), torch.tensor([1.0] * 4), torch.tensor([1, 1, 0, 1])])
def test_groups_that_do_not_fit_are_refused(group: int | Tensor) -> None:
    with pytest.raises(DataError, match="group must be a whole number"):
        protect({"x": torch.zeros(4, 2)}, noise(reading="mean"), ByPlace(stream()), group=group)


def test_batches_that_do_not_fit_are_refused() -> None:
    with pytest.raises(DataError, match=r"\[3, 4\] rows"):
        protect({"x": torch.zeros(4, 2), "y": torch.zeros(3)}, noise(), ByPlace(stream()))
    with pytest.raises(DataError, match="at least one column"):
        protect({}, noise(), ByPlace(stream()))
    with pytest.raises(DataError, match="starts at row -1"):
        protect({"x": torch.zeros(4, 2)}, noise(), ByPlace(stream(), -1))


def test_no_noise_and_no_rows() -> None:
    x = rows(3, 4)
    assert protect({"x": x}, Noise(), ByPlace(stream()))["x"] is x
    assert protect({"x": x[:0], "y": torch.zeros(0)}, noise(), ByPlace(stream()))["x"].shape == (0, 4)
    assert protect({"y": torch.zeros(5)}, noise(reading="row"), ByPlace(stream()))["y"].shape == (5,)


@pytest.mark.gpu
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_a_gpu_draws_the_same_noise_but_for_last_bits(mechanism: str) -> None:
    values, settings = rows(3000, 5, 40), noise(mechanism, "mean")
    group = torch.arange(1, 3001)
    here = protect({"x": values}, settings, ByPlace(stream(), 7), group=group)["x"]
    there, again = (protect({"x": values.cuda()}, settings, ByPlace(stream(), 7), group=group)["x"] for _ in range(2))
    assert torch.equal(there, again)
    whole = protect({"x": values.cuda()[1000:]}, settings, ByPlace(stream(), 1007), group=group[1000:])["x"]
    assert torch.equal(whole, there[1000:])
    cell = 2.0**-10 * scale(settings, group=1) / group[:, None, None]
    assert ((there.cpu() - here).abs() <= 2 * cell).all()

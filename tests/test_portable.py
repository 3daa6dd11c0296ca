"""Portable numerics: recorded bits, fingerprints without a processor, and no other bits by accident.

torch reads its switches when it first computes, and has computed in this process long ago: everything here runs in
processes of its own. Most are forks of one that has imported torch and computed nothing (see `warm`), which is what
counts; what NumPy reads when it is loaded, and a command as users start it, need processes that are started cold.
"""

from __future__ import annotations

import json
import os
import platform
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import warm
from federation.runs import table
from splitwiper import ClientConfig, ServerConfig
from splitwiper.config import config_digest, to_toml
from splitwiper.errors import ConfigError
from splitwiper.portable import SWITCHES

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "scripts" / "portable.py"
RECORD = ROOT / "scripts" / "portable_record.py"
ENVIRONMENT = {k: v for k, v in os.environ.items() if k not in SWITCHES}
here = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64") or not torch.cpu._is_avx2_supported(),
    reason="portable numerics are for x86-64 processors with AVX2",
)
PRELUDE = f"""
import json, sys, tempfile
from pathlib import Path
sys.path.insert(0, {str(ROOT / "tests")!r})
import numpy as np, torch
from splitwiper import ClientConfig, Config, Federation, ServerConfig
from splitwiper.federation import verify
from federation.runs import halves, three
def settings(**client):
    own = {{"epochs": 2, "batch": 8, "head_width": 4, "keys": "seeded", "numerics": "portable", **client}}
    return Config(seed=5, server=ServerConfig(epochs=2, batch=16, numerics="portable"), client=ClientConfig(**own))
"""


def run(*command: object, code: int = 0, cold: bool = False, **environment: str) -> str:
    """What a Python process prints."""
    words, given = [str(word) for word in command], {**ENVIRONMENT, **environment}
    if cold:
        done = subprocess.run([sys.executable, *words], env=given, capture_output=True, text=True)
    else:
        done = warm.run(words, cwd=Path.cwd(), env=given, fresh=True)
    assert done.returncode == code, done.stderr or done.stdout
    return done.stdout if code == 0 else done.stdout + done.stderr


def program(tmp_path: Path, text: str, *starter: str, cold: bool = False, **environment: str) -> Any:
    """What a program prints, which is JSON."""
    path = tmp_path / "program.py"
    path.write_text(PRELUDE + text, encoding="utf-8")
    return json.loads(run(*starter, path, cold=cold, **environment).splitlines()[-1])


# --- settings ------------------------------------------------------------------------------------------------

SERVER_BEFORE = "c4c1dc604089acc4b11f643c6390205bf4c0c33bea7e3e4d662393e34868b877"
CLIENT_BEFORE = "93298f51f0aab6839416c8675ddec5799abca24ef3449f2b49d6e46c83222238"


@pytest.mark.parametrize("other", [{"threads": 2}, {"device": "cuda"}])
def test_portable_is_one_thread_of_the_cpu(other: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="one thread of the CPU"):
        ServerConfig(numerics="portable", **other)
    assert ServerConfig(numerics="portable", threads=1).numerics == "portable"


def test_settings_made_before_keep_their_digests() -> None:
    """The digests are those of the version before the setting came."""
    assert config_digest(ServerConfig(), seed=0) == SERVER_BEFORE
    assert config_digest(ClientConfig(), seed=0) == CLIENT_BEFORE
    assert 'numerics = "portable"' in to_toml(ServerConfig(numerics="portable"))


# --- programs ------------------------------------------------------------------------------------------------

EXACT = """
fed = Federation(Path(tempfile.mkdtemp()) / "run", halves(), settings(slices=2, codec="int8", standardise=True))
fed.learn(three())
receipt = fed.unlearn("north", classes=["bird"])
torch.set_num_threads(2)  # what a caller sets does not matter, and is there again afterwards
torch.backends.mkldnn.enabled = True
torch.set_flush_denormal(True)
from splitwiper import numerics
numerics._cpu_model = lambda: "another processor"
torch.backends.cpu.get_cpu_capability = lambda: "AVX9000"
found = fed.verify()
print(json.dumps({
    "outcome": found.outcome, "reason": found.reason, "fingerprint": receipt.fingerprint,
    "native": numerics.fingerprint(torch.device("cpu"), 1),
    "after": [torch.get_num_threads(), torch.backends.mkldnn.enabled, torch.backends.nnpack.set_flags(True)[0],
              torch.backends.cuda.flash_sdp_enabled(), float(torch.tensor([1e-40]) / 2)],
}))
"""


@here
def test_a_run_verifies_on_another_processor(tmp_path: Path) -> None:
    found = program(tmp_path, EXACT, "-m", "splitwiper.portable")
    assert found["outcome"] == "exact", found["reason"]
    for side in ("client", "server"):
        fingerprint = found["fingerprint"][side]
        assert fingerprint["numerics"] == "portable 1" and fingerprint["threads"] == "1"
        assert fingerprint["torch"] == torch.__version__ and fingerprint["numpy"] == np.__version__
        assert fingerprint["environment"] == ""
        assert not {"machine", "instruction_set", "mkldnn"} & set(fingerprint)
    assert "another processor" in found["native"]["machine"]  # a native run would not be comparable
    assert found["after"] == [2, True, True, True, 0.0]


@here
def test_a_program_that_computed_before_is_refused(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        """
import os
first = halves()
try:
    Federation(Path(tempfile.mkdtemp()) / "run", first, settings())
except Exception as problem:
    left = [name for name in os.environ if name.startswith(("ATEN", "MKL_C"))]
    print(json.dumps([type(problem).__name__, str(problem), left]))
""",
    )
    kind, message, left = found
    assert kind == "ConfigError" and left == []
    assert "already computed" in message and "python -m splitwiper.portable program.py" in message
    assert all(f"{name}={value}" in message for name, value in SWITCHES.items())


@here
def test_portable_numerics_are_asked_for_before_anything_is_computed(tmp_path: Path) -> None:
    text = """
from splitwiper.numerics import reproducible
with reproducible(torch.device("cpu"), 1, "portable"):
    print(json.dumps(torch.backends.cpu.get_cpu_capability()))
"""
    assert program(tmp_path, text) == "AVX2"


@here
def test_the_environment_may_not_say_otherwise(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        """
from splitwiper import numerics
try:
    numerics.prepare("portable")
except Exception as problem:
    print(json.dumps(str(problem)))
""",
        MKL_CBWR="AVX2",
    )
    assert "MKL_CBWR=AVX2" in found


def test_the_starter_wants_a_program() -> None:
    assert "usage" in run("-m", "splitwiper.portable", code=1)


# --- the command line ----------------------------------------------------------------------------------------

CLI = "from splitwiper.cli import main; main()"
WARD = """
seed = 3
[model]
factory = "splitwiper.models:mlp"
args = {inputs = 6, outputs = 3}
inputs = {x = "float32[6]"}
at = "stem"
head = "head"
[server]
epochs = 2
numerics = "portable"
[client]
epochs = 2
numerics = "portable"
[clients.north]
data = "north.npz"
"""


@here
def test_the_command_line_sets_the_switches_itself(tmp_path: Path) -> None:
    """What it computes is what a process computes that was started with the switches."""
    (tmp_path / "ward.toml").write_text(WARD, encoding="utf-8")
    inputs, labels = table(1, ("bird", "cat", "dog"), 60)
    np.savez(tmp_path / "north.npz", inputs=inputs, labels=labels)
    learn = ("-c", CLI, "learn", tmp_path / "ward.toml", "--run", tmp_path / "run", "--json")
    found = json.loads(run(*learn, cold=True))
    assert found["trained"]
    checked = json.loads(run("-c", CLI, "verify", tmp_path / "run", "--json", **SWITCHES))
    assert checked["exact"], checked["reason"]


# --- bits ----------------------------------------------------------------------------------------------------


@here
def test_this_processor_computes_the_recorded_bits() -> None:
    done = warm.run([SCRIPT], cwd=ROOT, env=ENVIRONMENT, fresh=True)
    if done.returncode == 3:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "digests equal" in done.stdout


def test_the_comparison_sees_one_digest_that_differs() -> None:
    compare = runpy.run_path(str(RECORD))["compare"]
    recorded = next(
        iter(json.loads((ROOT / "results" / "portable.json").read_text(encoding="utf-8"))["profile"].values())
    )
    now = json.loads(json.dumps({"digests": recorded["digests"]}))
    assert compare(now, recorded) == []
    now["digests"]["nets"]["gru, sgd"] = "0" * 16
    assert [line.partition(" was")[0] for line in compare(now, recorded)] == ["nets: gru, sgd"]
    del now["digests"]["federations"]  # safetensors is not there
    assert len(compare(now, recorded)) == 1


def test_the_page_is_written_from_the_record() -> None:
    page = runpy.run_path(str(RECORD))["page"]
    kept = json.loads((ROOT / "results" / "portable.json").read_text(encoding="utf-8"))
    assert page(kept) == (ROOT / "results" / "portable.md").read_text(encoding="utf-8")


@here
def test_numpy_may_use_any_instruction_set(tmp_path: Path) -> None:
    """Standardised inputs and both ways of hiding labels that look at values, with and without NumPy's wide kernels."""
    pytest.importorskip("cryptography")
    from numpy._core import _multiarray_umath as core

    wide = [name for name in core.__cpu_dispatch__ if core.__cpu_features__.get(name)]
    text = """
from splitwiper.config import Masking
out = []
for mode in ("subclass", "keyed"):
    masking = Masking(mode=mode, **({"buckets": 3} if mode == "keyed" else {"gamma": 2}))
    config = settings(standardise=True, masking=masking)
    fed = Federation(Path(tempfile.mkdtemp()) / "run", halves(), config)
    fed.learn(three())
    out += [fed._server.store.model().digest, *(s.digest for s in fed._server.store.shards())]
print(json.dumps(out))
"""
    starter = ("-m", "splitwiper.portable")
    ways = [{}, {"NPY_DISABLE_CPU_FEATURES": " ".join(wide), "OPENBLAS_CORETYPE": "Haswell"}]
    one, other = (program(tmp_path, text, *starter, cold=bool(way), **way) for way in ways)
    assert one == other

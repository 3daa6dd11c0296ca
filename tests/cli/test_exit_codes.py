from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

import splitwiper
import warm
from splitwiper import Federation, errors
from splitwiper.cli import app
from splitwiper.cli.exit_codes import TABLE, exit_code
from splitwiper.errors import DiskFullError, SplitWiperError
from splitwiper.store import ServerStore
from splitwiper.store.files import disk_full

COMMANDS = ("demo", "learn", "unlearn", "settle", "predict", "verify", "status")
SERVICE = ("join", "forget", "certificate", "audit", "head", "restore", "accept-restore")
SRC = Path(splitwiper.__file__).parents[1]


def test_every_code_is_in_the_help(call) -> None:
    shown = call("--help").stdout
    for text in TABLE.strip().splitlines()[2:]:
        assert text.strip() in shown
    codes = [int(code) for code in re.findall(r"^ +(\d+)  ", TABLE, re.MULTILINE)]
    assert codes == [*range(13), 130]


def test_every_error_raised_on_purpose_has_a_code_of_its_own_kind() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, SplitWiperError)]
    assert [kind for kind in kinds if exit_code(kind("x")) == 1] == [SplitWiperError]


def test_warnings_are_told_without_their_place_in_the_source(capsys: pytest.CaptureFixture[str]) -> None:
    from splitwiper.cli.app import _warned

    _warned(UserWarning("the cut is odd"), UserWarning, "halves.py", 12)
    assert capsys.readouterr().err.strip() == "warning: the cut is odd"


def test_spaces_that_keep_words_together_are_plain_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    from splitwiper.cli import output

    output.output().print(output.table(("a", ">b"), [("100.0\xa0%", "1\xa0s")]))
    output.line(output.output(), "3\xa0rows")
    shown = capsys.readouterr().out
    assert "\xa0" not in shown and "100.0 %" in shown and "3 rows" in shown


@pytest.mark.parametrize("command", COMMANDS + SERVICE)
def test_every_command_shows_an_example(call, command: str) -> None:
    shown = call(command, "--help").stdout
    assert "Example:" in shown
    assert f"  splitwiper {command}" in shown
    assert "--json" in shown
    assert all(len(text) <= 80 for text in shown.splitlines())
    assert "\x1b" not in shown and "\\" not in shown


@pytest.mark.parametrize("command", ["join", "audit", "serve"])
def test_the_tables_of_a_file_are_named(call, command: str) -> None:
    assert "[model]" in call(command, "--help").stdout


def test_version(call) -> None:
    assert call("--version").stdout == f"splitwiper {splitwiper.__version__}\n"


def test_1_an_unforeseen_error_keeps_its_traceback(ward: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Federation) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Federation, "settle", fail)
    result = CliRunner().invoke(app, ["settle", str(ward)])
    assert isinstance(result.exception, ZeroDivisionError)
    assert result.exit_code == 1


def test_2_wrong_usage(call, ward: Path) -> None:
    assert "No such option" in call("status", ward, "--colour", code=2).stderr
    assert "No such command" in call("forge", code=2).stderr


def test_3_an_altered_receipt(call, call_json, ward: Path, tmp_path: Path) -> None:
    file = tmp_path / "receipt.json"
    call("unlearn", ward, "north", "--class", "1", "--receipt", file)
    altered = json.loads(file.read_text(encoding="utf-8")) | {"level": "client"}
    file.write_text(json.dumps(altered), encoding="utf-8")
    found = call_json("verify", ward, file, code=3)
    assert found["exact"] is False
    assert "Mismatch: the receipt is not the one" in call("verify", ward, file, code=3).stdout


def test_4_other_numerics(call, ward: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("splitwiper.federation.verify.fingerprint", lambda *_: {"torch": "another"})
    assert "Not comparable: torch was" in call("verify", ward, code=4).stdout


def test_5_a_key_that_was_destroyed(call, ward: Path) -> None:
    (ward / "clients" / "south" / "key").unlink()
    shown = call("verify", ward, code=5).stdout.replace("\n", "")
    assert "Unverifiable: the key that seals" in shown and "south/client.db was destroyed" in shown


def test_6_not_found(call, ward: Path, place: Path, tmp_path: Path) -> None:
    for words in (("status",), ("settle",), ("verify",), ("unlearn", "north", "--class", "1")):
        result = call(words[0], tmp_path / "none", *words[1:], code=6)
        assert result.stderr.startswith("error: there is no run in")
        assert not (tmp_path / "none").exists()
    assert "Did you mean 'north'" in call("predict", ward, "noth", place / "north-test.npz", code=6).stderr
    assert "no ticket 'abc'" in call("verify", ward, "abc", code=6).stderr
    assert "no receipt" in call("verify", ward, "abc.json", code=6).stderr


def test_7_a_damaged_file_and_a_full_disk(call, ward: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = next((ward / "clients" / "north" / "slices").iterdir())
    *content, last = file.read_bytes()
    file.write_bytes(bytes([*content, last ^ 1]))
    assert "restore it from a backup" in call("status", ward, "--client", "north", code=7).stderr
    assert "restore it from a backup" in call("unlearn", ward, "north", "--class", "1", code=7).stderr

    def fail(_: Federation) -> DiskFullError:
        raise disk_full(ward)

    monkeypatch.setattr(Federation, "settle", fail)
    said = call("settle", ward, code=7).stderr
    assert said.startswith("error: no room left")
    assert "Errno" not in said


def test_7_a_file_where_a_folder_should_be(call, place: Path) -> None:
    said = call("learn", place / "ward.toml", "--run", place / "south.csv" / "new", code=7).stderr
    assert said.startswith(f"error: {place / 'south.csv'}")
    assert "Move that away" in said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("words", [["--version"], ["--help"], ["data", "list"], ["status", "RUN", "--json"]])
def test_7_output_that_cannot_be_written(ward: Path, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    given = [str(ward) if word == "RUN" else word for word in words]
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # what is left in the buffer must not trouble the exit
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        if words == ["--help"]:  # with the exit of a whole interpreter
            program = [sys.executable, "-c", "from splitwiper.cli import main; main()", *given]
            process = subprocess.Popen(program, stdout=full, stderr=subprocess.PIPE, text=True)
        else:
            process = warm.start(["splitwiper", *given], cwd=ward, stdout=full, stderr=subprocess.PIPE)
        _, told = process.communicate(timeout=200)
    said = "the output could not be written: no space left on device. Make room, or send it elsewhere."
    assert told.count("\n") == 1
    assert said == (json.loads(told)["error"]["message"] if "--json" in words else told[7:-1])
    assert process.returncode == 7


def test_8_busy(call, ward: Path) -> None:
    with ServerStore(ward / "server").database.lease("server training"):
        assert "in use by process" in call("settle", ward, code=8).stderr


def test_9_training_goes_wrong(call, place: Path, tmp_path: Path) -> None:
    config = place / "ward.toml"
    text = config.read_text(encoding="utf-8").replace("[client]", "[client]\nlr = 1e30")
    config.write_text(text, encoding="utf-8")
    assert "Lower lr" in call("learn", config, "--run", tmp_path / "new", code=9).stderr


def test_10_a_passphrase_that_is_missing(call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPLITWIPER_CA_PASSPHRASE", "a passphrase of some length")
    call("certs", "init", tmp_path / "certs", "--name", "ward")
    monkeypatch.delenv("SPLITWIPER_CA_PASSPHRASE")
    said = call("certs", "client", tmp_path / "certs", "north", code=10).stderr
    assert "is encrypted: put its passphrase into SPLITWIPER_CA_PASSPHRASE" in said


def test_130_an_interrupted_request_is_not_lost(call, ward: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Federation, "settle", stop)
        said = call("unlearn", ward, "north", "--class", "1", code=130).stderr
        assert said.startswith("interrupted: The request is accepted")
        assert f"splitwiper settle {ward}" in said
        assert "Nothing acknowledged is lost" in call("settle", ward, code=130).stderr
    assert "initial weights" in call("settle", ward).stdout


def test_130_a_real_interrupt_and_the_same_command_again(call_json, place: Path, tmp_path: Path) -> None:
    config, run = place / "ward.toml", tmp_path / "run"
    long = config.read_text(encoding="utf-8").replace("epochs = 12", "epochs = 600")
    config.write_text(long, encoding="utf-8")
    # a shell's background job has interrupts switched off, and its children with it
    program = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    program += "from splitwiper.cli import main; main()"
    words = ["-c", program, "learn", config, "--run", run]
    process = warm.start(words, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    shards = run / "server" / "shards"
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline and not (shards.is_dir() and len(list(shards.iterdir())) == 2):
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=200)
    assert process.returncode == 130, said
    assert said == (
        "interrupted: Nothing acknowledged is lost: run the same command again, and it continues from there.\n"
    )
    found = call_json("learn", config, "--run", run)
    assert found["trained"] is True
    assert found["clients"]["north"]["held"] == 36


def test_help_wraps_paragraphs_and_shows_brackets(call) -> None:
    said = call("join", "--help").stdout
    assert "[client]  " in said and "[model]  " in said
    words = [line.strip() for line in said.splitlines()]
    assert "key," not in words  # a line of its own where the source's line was a little longer than the terminal's


def test_help_needs_nothing_heavy() -> None:
    """The command line imports torch only when a command runs; the root package is left out of the account."""
    program = f"""
import sys, types
root = types.ModuleType("splitwiper")
root.__path__ = [{str(SRC / "splitwiper")!r}]
sys.modules["splitwiper"] = root
import splitwiper.cli
heavy = {{"torch", "numpy", "sklearn", "safetensors"}} & set(sys.modules)
sys.exit(f"imported {{heavy}}" if heavy else 0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_errors_are_json_where_json_is_asked_for(call, ward: Path, tmp_path: Path) -> None:
    told = call("unlearn", ward, "north", "--class", "bird", "--json", code=2)
    error = json.loads(told.stderr)["error"]
    assert (error["kind"], error["exit_code"], told.stdout) == ("RequestError", 2, "")
    assert "holds no rows of class 'bird'" in error["message"]
    assert json.loads(call("status", tmp_path / "no", "--json", code=6).stderr)["error"]["exit_code"] == 6


def test_advice_is_given_in_commands(call, call_json, ward: Path, tmp_path: Path, place: Path) -> None:
    assert "splitwiper learn" in call("settle", tmp_path, code=6).stderr
    shard = next((ward / "server" / "shards").iterdir())
    shard.write_bytes(b"")
    said = " ".join(call("unlearn", ward, "south", "--class", "3", code=7).stderr.split())
    client = re.search(r"splitwiper settle RUN --resend (\w+)", said)
    assert client and "reupload" not in said
    assert call_json("settle", ward, "--resend", client[1])["model"] == "current"
    assert call_json("verify", ward)["exact"]
    changed = place / "ward.toml"
    changed.write_text(changed.read_text().replace("epochs = 12", "epochs = 13"), encoding="utf-8")
    said = " ".join(call("learn", changed, "--run", ward, code=2).stderr.split())
    assert "set them as they were" in said and "without a config" not in said


def test_a_package_that_is_not_installed_is_named(tmp_path: Path) -> None:
    program = """
import sys
for name in list(sys.modules):  # a warm process has imported the service
    if name.startswith("splitwiper.service"):
        del sys.modules[name]
sys.modules["fastapi"] = None
sys.argv = ["splitwiper", "serve", "s.toml", "--store", "store"]
from splitwiper.cli import main
main()
"""
    ended = warm.run(["-c", program], cwd=tmp_path, env=os.environ)
    said = " ".join(ended.stderr.split())
    assert ended.returncode == 2 and "Traceback" not in said
    assert "needs the package fastapi" in said and "pip install 'splitwiper[service]'" in said

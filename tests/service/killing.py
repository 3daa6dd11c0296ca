"""A command of a site, carried out again and again: each time site, server or worker is killed at another step of it.

One process is killed at one step that changes the disk; a killed server is started again, as by a supervisor (the
service starts its worker again itself), and the user runs the same command again. What is there in the end is compared
with what a run that nobody disturbed leaves.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import steps
import warm
from federation.runs import table
from reliability.stage import client_bits, query, server_bits
from service.processes import ENVIRONMENT, MODEL_TOML, Running, settled
from steps import Step

ROLES = ("site", "server", "worker")
LIMIT = 90
"""Seconds that a command may take, however busy the machine is."""
CLIENT = f"""
name = "NAME"
url = "https://127.0.0.1:PORT"
certs = "certs/clients/NAME"
data = "NAME.npz"
{MODEL_TOML}
[client]
epochs = 2
batch = 8
head_width = 4
threads = 1
slices = 2
keys = "seeded"
"""
JOIN = ("join", "north.toml", "--site", "sites/north")
FORGET = ("forget", "sites/north", "--class", "bird", "--certificate", "bird.json", "--patience", "60")
COMMANDS = {"join": JOIN, "forget": FORGET, "certificate": ("certificate", "sites/north")}
"""The commands, each in the state that the ones before have left; a certificate is fetched by its ticket."""


@dataclass
class Outcome:
    """What a command left, and the ways in which that is wrong."""

    bits: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    runs: list[int] = field(default_factory=list)
    """What the command exited with, each time it was run."""
    died: bool = False


class Campaign:
    """One command, and a folder in the state that it is run in."""

    def __init__(self, folder: Path, command: str) -> None:
        self._port = socket.socket()  # held, so that nobody takes it while no server listens
        self._port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._port.bind(("127.0.0.1", 0))
        self.case, self._prepared, self._steps = folder / "case", folder / "prepared", folder / "steps"
        self.command = COMMANDS[command]
        self.case.mkdir(parents=True)
        server = Running(self.case, port=self._port.getsockname()[1])
        for number, name in enumerate(("north", "south")):
            x, y = table(number, ("bird", "cat", "dog") if name == "north" else ("cat", "dog"), 12)
            np.savez(self.case / f"{name}.npz", inputs=x, labels=y)
            text = CLIENT.replace("NAME", name).replace("PORT", str(server.port))
            (self.case / f"{name}.toml").write_text(text, encoding="utf-8")
        self._must(["join", "south.toml", "--site", "sites/south"])
        settled(self.case / "store")
        for before in list(COMMANDS.values())[: list(COMMANDS).index(command)]:
            self._must(before)
            settled(self.case / "store")
        server.stop()
        if command == "certificate":
            (asked,) = query(self.case / "store" / "server.db", "SELECT id FROM tickets")
            self.command = ("certificate", "sites/north", asked["id"], "--out", "bird.json")
        (self.case / "bird.json").unlink(missing_ok=True)
        shutil.rmtree(self.case / "sites/north/north/certificates", ignore_errors=True)
        shutil.copytree(self.case, self._prepared)

    def close(self) -> None:
        self._port.close()

    def undisturbed(self) -> tuple[Outcome, list[Step]]:
        """Run the command in peace; what it leaves, and all steps that were taken on the way."""
        found = self.run()
        return found, [step for role in ROLES for step in steps.taken(self._steps, role)]

    def run(self, death: Step | None = None) -> Outcome:
        """Run the command, be killed, and run it again."""
        for folder in (self.case, self._steps):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self._prepared, self.case)
        self._steps.mkdir()
        environment = {**ENVIRONMENT, **steps.environment(self._steps, death)}
        server, out = self._started(environment), Outcome()
        try:
            self._carry_out(server, out, environment)
            self._look(server, out, death)
        finally:
            if server.process.poll() is None:
                server.stop()
        return out

    def _started(self, environment: dict[str, str]) -> Running:
        """Start the server; once more where it was killed before it served."""
        port = self._port.getsockname()[1]
        try:
            return Running(self.case, port=port, environment=environment)
        except AssertionError:
            if not steps.died(self._steps):
                raise
        return Running(self.case, port=port, environment=environment)

    def _carry_out(self, server: Running, out: Outcome, environment: dict[str, str]) -> None:
        """Run the command until it succeeds: once more where it was killed, or where the server was."""
        for _ in range(4):
            code, told = self._run(list(self.command), environment, server)
            out.runs.append(code)
            if code == 0 or (code == 2 and (self.case / "bird.json").exists() and "holds no rows" in told):
                return  # done, or killed when all of it was done
            if code != -9 and not steps.died(self._steps):
                break
        out.problems.append(f"the command ends with {out.runs}: {told}")

    def _look(self, server: Running, out: Outcome, death: Step | None) -> None:
        store, end = None, time.monotonic() + LIMIT
        while store is None:
            self._supervise(server)
            try:
                store = settled(self.case / "store", seconds=1)
            except AssertionError:
                if time.monotonic() > end:
                    out.problems.append("the server's model is not that of its shards")
                    return
        out.died = steps.died(self._steps)
        if death is not None and death.role == "server" and not out.died:
            server.stop()  # it takes steps when it ends, too
            out.died = steps.died(self._steps)
        self._supervise(server)
        for ticket in query(self.case / "store" / "server.db", "SELECT id, state FROM tickets"):
            if ticket["state"] != "settled":
                out.problems.append(f"ticket {ticket['id']} is {ticket['state']}")
        if self.command is not JOIN:
            self._check(["verify", "bird.json", "--key", "sites/north/north/server-keys"], out, server)
        self._check(["forget", "sites/north"], out, server)
        out.bits = {"server": server_bits(self.case / "store"), "north": client_bits(self.case / "sites/north/north")}
        self._check(["verify", "sites/north"], out, server)

    def _check(self, command: list[str], out: Outcome, server: Running) -> None:
        code, told = self._run(command, ENVIRONMENT, server)
        if code:
            out.problems.append(f"{' '.join(command)} ends with {code}: {told}")

    def _supervise(self, server: Running) -> None:
        """Start a server again that is gone."""
        if server.process.poll() is not None:
            server.process.stdout.close()
            server.start()

    def _run(self, command: list[str], environment: dict[str, str], server: Running) -> tuple[int, str]:
        with tempfile.TemporaryFile("w+", encoding="utf-8") as told:
            process = warm.start(["splitwiper", *command], cwd=self.case, env=environment, stdout=told, stderr=told)
            end = time.monotonic() + LIMIT
            while True:
                self._supervise(server)
                try:
                    code = process.wait(0.05)
                    break
                except subprocess.TimeoutExpired:
                    if time.monotonic() > end:
                        process.kill()
                        process.wait()
                        return 124, "it did not end"
            told.seek(0)
            return code, told.read()[-2000:]

    def _must(self, command: list[str] | tuple[str, ...]) -> None:
        done = warm.run(["splitwiper", *command], cwd=self.case, env=ENVIRONMENT)
        assert done.returncode == 0, done.stdout + done.stderr


def judged(out: Outcome, quiet: Outcome) -> list[str]:
    """Everything that is wrong with what a disturbed run left."""
    wrong = list(out.problems)
    if out.bits != quiet.bits:
        differs = [
            f"{a} {b}" for a in quiet.bits for b in quiet.bits[a] if out.bits.get(a, {}).get(b) != quiet.bits[a][b]
        ]
        wrong.append(f"other bits: {json.dumps(differs)}")
    return wrong

"""What probes, operators and logs see: enough to run the service, and nothing of what is learned."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path

import pytest

from federation.runs import three
from service.conftest import COMMITTED, announced, finished, said, shard
from service.serving import link_of
from splitwiper.service.logs import JsonLines
from splitwiper.wire import Request


def test_probes_need_no_identity_of_their_own(url: str, http) -> None:
    north = http(url)
    assert north.get("/healthz").json()["status"] == "alive"
    assert north.get("/readyz").json() == {"status": "ready", "model": False, "room": True}


def test_an_operator_sees_the_state_and_no_label(serve, http, certs: Path, run) -> None:
    run.learn(three())
    url = serve()
    link_of(url, certs, "north").submit(Request("t1", "north", "class", COMMITTED))
    ops = http(url, "ops", "operators")
    found = ops.get("/v1/status")
    told = found.json()
    assert told["clients"]["north"] == {"generation": 1, "rows": 30, "removed": "", "evicted": False}
    assert told["current"] and told["model"]
    (open_,) = told["open"]
    assert (open_["ticket"], open_["state"]) == ("t1", "accepted") and open_["deadline"].startswith("20")
    for word in ("bird", "cat", "dog", "eel"):
        assert word not in found.text and word not in ops.get("/metrics").text


def test_metrics_count(serve, http, certs: Path, tmp_path: Path) -> None:
    url = serve()
    path = shard(tmp_path / "s", 50)
    link_of(url, certs, "north").upload("north", path, said())
    text = http(url, "ops", "operators").get("/metrics").text
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(lines["splitwiper_received_bytes_total"]) == path.stat().st_size
    assert float(lines["splitwiper_rows"]) == 50 and float(lines["splitwiper_model"]) == 0
    begun = 'splitwiper_calls_total{method="POST",route="/v1/uploads",status="201"}'
    assert float(lines[begun]) == 1


def test_logs_name_who_called_and_what_about_and_no_data(serve, http, certs: Path, tmp_path: Path, caplog) -> None:
    url = serve()
    with caplog.at_level(logging.INFO, "splitwiper.service"):
        link = link_of(url, certs, "north")
        link.upload("north", shard(tmp_path / "s"), said())
        link.submit(Request("t1", "north", "class", COMMITTED))
        http(url, "south").get(f"/v1/requests/{'long' * 100}/receipt")
        http(url, "ops", "operators").get("/v1/status")
        end = time.monotonic() + 10
        while "/v1/status" not in [getattr(record, "route", "") for record in caplog.records]:
            assert time.monotonic() < end  # a line is written once the answer is out
            time.sleep(0.01)
    lines = [json.loads(JsonLines().format(record)) for record in caplog.records if record.message == "call"]
    assert {line["route"] for line in lines} >= {"/v1/uploads", "/v1/uploads/{upload}/finish"}
    assert all(line["seconds"] >= 0 and line["level"] == "info" for line in lines)
    told = {line["route"]: line for line in lines}
    assert all(line["caller"] and line["address"] == "127.0.0.1" for line in lines)
    assert told["/v1/uploads"]["caller"] == "client north" and told["/v1/status"]["caller"] == "operator ops"
    assert told["/v1/requests"]["about"] == {"ticket": "t1"}
    assert told["/v1/requests/{ticket}/receipt"]["about"] == {"ticket": "long" * 16}
    assert told["/v1/uploads"]["about"] == told["/v1/uploads/{upload}/finish"]["about"]
    whole = json.dumps(lines)
    assert "cat" not in whole and COMMITTED not in whole


def test_the_openapi_document_describes_every_call(url: str, http) -> None:
    document = http(url).get("/openapi.json").json()
    assert document["openapi"].startswith("3.1") and document["info"]["title"] == "SplitWiper"
    known, names = {tag["name"] for tag in document["tags"]}, list[str]()
    for path, methods in document["paths"].items():
        for method, told in methods.items():
            assert told["description"] and told["tags"][0] in known, (method, path)
            names.append(told["operationId"])
            wrong = [told["responses"][code]["content"] for code in told["responses"] if code >= "400"]
            assert len(wrong) >= 5 or path in ("/healthz", "/readyz"), (method, path)
            assert all(w["application/json"]["schema"]["$ref"].endswith("/ProblemShape") for w in wrong), (method, path)
            right = {code: answer for code, answer in told["responses"].items() if code < "300"}
            assert right and all(code == "204" or answer.get("content") for code, answer in right.items()), path
            assert ("requestBody" in told) == (method in ("post", "put", "patch")), (method, path)
    assert len(set(names)) == len(names) and set(document["components"]["securitySchemes"]) == {"certificate", "token"}


def test_the_document_tells_how_pieces_are_sent(url: str, http, tmp_path: Path) -> None:
    """Send a shard with nothing but what the document says of PATCH, in each of its media types."""
    north, path = http(url), shard(tmp_path / "s", 50)
    told = north.get("/openapi.json").json()["paths"]["/v1/uploads/{upload}"]["patch"]
    (offset,) = (one for one in told["parameters"] if one["in"] == "header" and one["required"])
    assert offset["required"] and offset["description"] and offset["schema"]["minimum"] == 0
    body, kinds = told["requestBody"], list(told["requestBody"]["content"])
    assert body["required"] and set(kinds) == {"application/octet-stream", "application/offset+octet-stream"}
    assert all(one["schema"] == {"type": "string", "format": "binary"} for one in body["content"].values())
    data, here = path.read_bytes(), 0
    place = f"/v1/uploads/{north.post('/v1/uploads', json=announced(path)).json()['id']}"
    for kind, piece in zip(kinds, (data[:100], data[100:]), strict=True):
        headers = {offset["name"]: str(here), "Content-Type": kind}
        here = north.patch(place, content=piece, headers=headers).json()["offset"]
    assert north.post(f"{place}/finish", json=finished(path)).status_code == 200
    gone = north.patch(place, content=b"x", headers={offset["name"]: "0"})
    assert str(gone.status_code) in told["responses"] and gone.status_code == 404


@pytest.mark.parametrize("path", ["/v1/nothing", "/v1/uploads/../../etc/passwd", "/v1/uploads/%2e%2e%2fx", "/nowhere"])
def test_paths_that_lead_nowhere(path: str, url: str, http) -> None:
    told = http(url).get(path)
    assert told.status_code in (404, 405) and told.json()["kind"] == "NotFoundError", told.text


def test_what_is_not_json_is_told_so(url: str, http) -> None:
    told = http(url).post("/v1/requests", content=b'{"ticket": "t"}', headers={"Content-Type": "text/plain"})
    assert told.status_code == 422 and "with 'Content-Type: application/json'" in told.json()["message"]


def test_pages_that_run_scripts_of_others_are_not_served(url: str, http) -> None:
    assert [http(url).get(path).status_code for path in ("/docs", "/redoc")] == [404, 404]


def test_what_nobody_thought_of_is_answered_and_logged(serve, http, monkeypatch, caplog) -> None:
    url = serve()
    ops = http(url, "ops", "operators")
    for problem, status in ((OSError(28, "No space left on device"), 507), (ZeroDivisionError("secret"), 500)):

        def broken(*_: object, problem: Exception = problem) -> None:
            raise problem

        monkeypatch.setattr("splitwiper.store.ServerStore.clients", broken)
        told = ops.get("/v1/status")
        assert (told.status_code, told.json()["kind"]) == (status, "FailingError")
        assert "secret" not in told.text and str(problem) in caplog.text

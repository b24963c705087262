"""`seq2seq serve` itself: what it refuses at the start, where it listens, and how it stops."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import torch
from safetensors.torch import load_file, save_file
from service import KEPT, RNN, SOURCES, random_bundle

from seq2seq.cli import run
from seq2seq.errors import UserError
from seq2seq.run import checkpoint_name
from seq2seq.serving.request_limits import Limits
from seq2seq.serving.served import load_models, unique_names
from seq2seq.serving.server import listen

ROOT = Path(__file__).parents[2]


def refusal(capsys, *arguments: str) -> str:
    assert run(["serve", "port=0", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") <= 2 and "Traceback" not in error
    return error


@pytest.mark.slow
def test_serve_with_a_broken_bundle_is_refused_at_the_start(tmp_path, capsys):
    assert "does not exist" in refusal(capsys, f"checkpoints=[{KEPT},{tmp_path}/nothing]")
    cut = tmp_path / "cut"
    shutil.copytree(KEPT, cut)
    (cut / "model.safetensors").write_bytes((KEPT / "model.safetensors").read_bytes()[:5000])
    assert "damaged" in refusal(capsys, f"checkpoints=[{KEPT},{cut}]")
    empty = tmp_path / "not-numbers"
    shutil.copytree(KEPT, empty)
    weights = load_file(KEPT / "model.safetensors")
    save_file({name: torch.full_like(value, torch.nan) for name, value in weights.items()}, empty / "model.safetensors")
    assert "has values that are not finite" in refusal(capsys, f"checkpoints={empty}")
    assert "names no checkpoint" in refusal(capsys, "checkpoints=[]")


@pytest.mark.slow
def test_serve_with_wrong_settings_is_refused(capsys):
    given = f"checkpoints={KEPT}"
    assert "limits.text=0 must be a whole number of at least 1" in refusal(capsys, given, "limits.text=0")
    assert "limits.texts=5000 exceeds limits.queue=1000" in refusal(capsys, given, "limits.texts=5000")
    assert "limits.sekonds" in refusal(capsys, given, "+limits.sekonds=3")
    assert "batching.size=0" in refusal(capsys, given, "batching.size=0")
    assert "port=99999" in refusal(capsys, given, "port=99999")
    assert "device=nonsense" in refusal(capsys, given, "device=nonsense")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"cannot listen on 127.0.0.1:{port}" in refusal(capsys, given, f"port={port}")


@pytest.mark.parametrize("values", [{"body": 0}, {"seconds": -1}, {"beam_size": True}, {"queue": 2.5}])
def test_impossible_limits_are_refused(values):
    (name,) = values
    with pytest.raises(UserError, match=f"limits.{name}="):
        Limits(**values)


def test_listen_on_an_impossible_address_is_refused():
    with listen("127.0.0.1", 0) as local:
        assert local.getsockname()[0] == "127.0.0.1"
    for host in ("no.such.host.invalid", ".", "a" * 80, 127):
        with pytest.raises(UserError, match=f"cannot listen on {re.escape(str(host))}:0"):
            listen(host, 0)


def test_checkpoint_names_are_those_of_their_runs_and_unique():
    assert checkpoint_name(Path("/a/runs/one/bundle")) == "one"
    assert checkpoint_name(Path("/a/runs/one")) == "one"
    assert checkpoint_name(Path("/a/runs/one/checkpoints/best.ckpt")) == "one"
    assert checkpoint_name(Path("/a/runs/other.ckpt")) == "other"
    assert unique_names(["a", "b", "a", "a-2", "a"]) == ["a", "b", "a-2", "a-2-2", "a-3"]


def test_served_bundle_alone_has_no_scores(tmp_path):
    random_bundle(RNN).save(tmp_path / "alone")
    (model,) = load_models([tmp_path / "alone"])
    assert (model.run, model.heads, model.architecture) == (None, 0, "rnn")


@pytest.mark.fork
@pytest.mark.slow
def test_serve_after_sigterm_answers_accepted_requests():
    """As people start it: it says where it listens, on this machine only; SIGTERM comes while 40 clients wait."""
    command = [sys.executable, "-m", "seq2seq", "serve", f"checkpoints={KEPT}", "port=0", "batching.seconds=4"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r"kept: (http://127\.0\.0\.1:\d+)", line)
        assert found, line
        url = found[1]
        (expected,) = load_models([KEPT])[0].translator.translate(SOURCES[0])

        async def everybody() -> list[httpx.Response]:
            async with httpx.AsyncClient(timeout=60) as client:
                waiting = [
                    asyncio.create_task(client.post(f"{url}/translate", json={"text": SOURCES[0]})) for _ in range(40)
                ]
                for _ in range(1000):
                    metrics = (await client.get(f"{url}/metrics")).text
                    if 'seq2seq_waiting_texts{model="kept"} 40.0' in metrics:
                        break
                process.send_signal(signal.SIGTERM)
                return await asyncio.gather(*waiting)

        responses = asyncio.run(everybody())
        assert [response.json()["translations"][0]["text"] for response in responses] == [expected.text] * 40
        assert process.wait(60) == 0
        assert "everything accepted was answered" in process.stderr.read()
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{url}/health")
    finally:
        process.kill()


def test_serve_help_names_its_settings(capsys):
    assert run(["serve", "--help"]) == 0
    text = capsys.readouterr().out
    for word in ("checkpoints", "127.0.0.1", "limits", "429", "pip install"):
        assert word in text

"""Several processes of one training, started by Lightning on one machine or by torchrun as two nodes."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

TRAINING = [
    *("seq2seq", "train", "model=rnn", "data.sizes={train: 200, valid: 7, test: 7}", "data.maximum_words=9"),
    *("data.cache_dir=cache", "tokenizer.vocabulary=450", "model.width=8", "model.embedding_width=8"),
    *("trainer.max_steps=4", "trainer.val_check_interval=2", "trainer.threads=1", "trainer.strategy=ddp"),
    *("search=greedy", "search.max_length_a=1", "logger=none"),
]


@pytest.mark.slow
def test_two_nodes_train_the_weights_of_two_processes(tmp_path: Path) -> None:
    def start(*command: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-m", *command], cwd=tmp_path)

    assert start(*TRAINING, "trainer.devices=2", "run_dir=processes").wait(600) == 0
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = ["--master-addr", "127.0.0.1", "--master-port", str(port)]
    nodes = [
        start(
            *("torch.distributed.run", "--nnodes=2", f"--node-rank={rank}", "--nproc-per-node=1", *address),
            *("-m", *TRAINING, "trainer.devices=1", "trainer.num_nodes=2", "run_dir=nodes"),
        )
        for rank in (0, 1)
    ]
    assert [node.wait(600) for node in nodes] == [0, 0]
    weights = [(tmp_path / name / "bundle" / "model.safetensors").read_bytes() for name in ("processes", "nodes")]
    assert weights[0] == weights[1]

"""The arithmetic of scripts/benchmark.py: operations, padding, exponents, memory, tables."""

import math
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from small_models import SMALL
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from seq2seq.data.batching import collate
from seq2seq.kernels.cross_entropy import fused_cross_entropy
from seq2seq.training.criterion import Criterion

SCRIPTS = Path(__file__).parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))

from benchmarks import complexity, decoding, flops, training  # noqa: E402
from benchmarks.process import fresh, memory_mb  # noqa: E402
from benchmarks.record import markdown, without_folders  # noqa: E402


def test_padding_by_hand() -> None:
    """Source rows of 3 and 1 tokens are 4 and 2 with their end marks, in a matrix of 2 x 4; targets 2, 6 of 2 x 6."""
    counts = training.count_tokens([collate([([5, 6, 7], [5]), ([8], [5, 6, 7, 8, 9])], [0, 1])])
    assert counts == {"sentences": 2, "source": 6, "source_padded": 8, "target": 8, "target_padded": 12}
    assert training.padding(counts) == pytest.approx({"source_padding": 2 / 8, "target_padding": 4 / 12})


def test_operations_of_products_by_hand() -> None:
    left, right, vector = torch.randn(3, 5), torch.randn(5, 7), torch.randn(5)
    assert flops.count_flops(lambda: left @ right) == 2 * 3 * 5 * 7
    assert flops.count_flops(lambda: left @ vector) == 2 * 3 * 5
    layer, inputs = nn.Linear(5, 7), torch.randn(3, 5, requires_grad=True)
    assert flops.count_flops(lambda: layer(inputs).sum().backward()) == 3 * 2 * 3 * 5 * 7
    gru, sequence = nn.GRU(5, 4, batch_first=True), torch.randn(2, 6, 5)
    assert flops.count_flops(lambda: gru(sequence)) == 2 * 2 * 6 * (3 * 4) * (5 + 4)


def test_operations_of_attention_do_not_depend_on_the_kernel() -> None:
    """Forward 2 products of n x n x d; backward 4, and the fused kernel makes one of the forward again."""
    queries, keys, values = (torch.randn(2, 3, 16, 4, requires_grad=True) for _ in range(3))
    product = 2 * (2 * 3) * 16 * 16 * 4

    def explicit() -> torch.Tensor:
        return torch.softmax(queries @ keys.mT, -1) @ values

    def fused() -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(queries, keys, values)

    assert flops.count_flops(explicit) == flops.count_flops(fused) == 2 * product
    assert flops.count_flops(lambda: explicit().sum().backward()) == 6 * product
    assert flops.count_flops(lambda: fused().sum().backward()) == 7 * product


def test_operations_of_the_fused_loss_by_hand() -> None:
    """Logits, their gradients to features and to weights: three products whatever the chunks, and a narrow one."""
    rows, width, vocabulary = 12, 6, 10
    features, weight = torch.randn(rows, width, requires_grad=True), torch.randn(vocabulary, width, requires_grad=True)
    target = torch.randint(4, vocabulary, (rows,))

    def loss(chunk: int) -> None:
        fused_cross_entropy(features, weight, None, target, 0.1, chunk)[0].backward()

    expected = 3 * 2 * rows * width * vocabulary + 2 * rows * width
    assert flops.count_flops(lambda: loss(1000)) == flops.count_flops(lambda: loss(40)) == expected


@pytest.mark.parametrize("name", SMALL)
def test_no_product_of_a_training_step_is_left_out(name: str, build_model: Callable[..., nn.Module]) -> None:
    model = build_model(name, ["model.dropout=0.1"])
    seen: set[Any] = set()

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.add(function._overloadpacket)
            return function(*args, **(kwargs or {}))

    batch = collate([([5, 6, 7] * 5, [5, 6] * 5), ([8], [5, 6, 7, 8, 9])], [0, 1])
    with Watch():
        decoded = model.decode(batch.target_in, model.encode(batch.source, batch.source_mask), batch.target_mask)
        Criterion(0.1)(decoded, model.output, batch.target_out, batch.target_mask).loss.backward()
    products = {one for one in seen if re.search(r"mm_?$|mv_?$|dot|conv|attention|gru|lstm|rnn", str(one))}
    assert len(products) > 2
    assert products <= flop_registry.keys() | flops.more_formulas().keys()


def test_the_rate_of_products_is_positive_and_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flops, "SIZE", 32)
    assert 0 < flops.matmul_rate(repeats=3) < math.inf


@pytest.mark.parametrize("power", [0.5, 1.0, 2.3])
def test_the_exponent_of_a_known_law(power: float) -> None:
    lengths = [16, 64, 128, 256, 512]
    values = [7.0 * n**power for n in lengths]
    values[0] = 1e6  # below the range of the fit
    assert complexity.exponent(lengths, values, 64) == pytest.approx(power)
    assert complexity.exponent(lengths, values, 512) is None


def test_kept_bytes_by_hand() -> None:
    """y = relu(W x): backward needs x (for W) and y, each 3 x 5 or 3 x 7 floats; y is the output as well. Not W."""
    layer = nn.Linear(5, 7, bias=False)
    inputs = torch.randn(3, 5, requires_grad=True)
    kept = complexity.kept_bytes(layer, lambda x: torch.relu(layer(x)), inputs)
    assert kept == 4 * (3 * 5 + 3 * 7)


def test_outputs_of_another_length_are_refused() -> None:
    assert decoding.result(2.0, 1.5, [30, 30, 30], 30)["sentences_per_second"] == 1.5
    with pytest.raises(RuntimeError, match="29 to 30"):
        decoding.result(1.0, 1.0, [30, 29], 30)


@pytest.mark.slow
def test_a_fresh_process_has_memory_of_its_own() -> None:
    """A process of its own measures a layer; its peak would hold this process's if it were inherited."""
    ballast = torch.ones(2**26)
    settings = {"layer": "convolution", "lengths": [8], "repetitions": 1}
    found = fresh("complexity.measure", {**settings, "width": 4, "heads": 2, "kernel": 3, "radius": 1})
    assert found["parameters"] == 2 * 4 * 4 * 3 + 2 * 4 and len(found["seconds"]) == 1
    code = "from benchmarks.process import peak_memory_mb; print(peak_memory_mb())"
    done = subprocess.run([sys.executable, "-c", code], cwd=SCRIPTS, capture_output=True, text=True, check=True)
    assert 0 < float(done.stdout) < ballast.nbytes / 2**20


def test_memory_has_its_parts() -> None:
    found = memory_mb()
    assert found["RssAnon"] + found["RssFile"] <= found["VmRSS"] + 1 and found["VmRSS"] <= found["VmHWM"]


def test_results_name_no_folder() -> None:
    assert without_folders("data.root=/a/b/multi30k") == "data.root=.../multi30k"
    assert without_folders("checkpoint=[/x/y,/x/z]") == "checkpoint=[.../y,.../z]"
    assert without_folders("model/attention/score=dot") == "model/attention/score=dot"


def test_tables_line_up() -> None:
    text = markdown(("a", "long name"), [("x", 1234567), ("yy", 0.123456), ("z", None)])
    assert text.splitlines() == [
        "| a  | long name |",
        "|----|-----------|",
        "| x  | 1,234,567 |",
        "| yy | 0.123     |",
        "| z  | -         |",
    ]

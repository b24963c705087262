"""The section of an ONNX export's model card on running it with ONNX Runtime alone."""

from __future__ import annotations

from collections.abc import Mapping
from string import Template
from typing import Any

from seq2seq.data.tokenizer import TokenizerPair

EXAMPLE = Template('''\
import numpy
import onnxruntime
import sentencepiece

source_tokenizer = sentencepiece.SentencePieceProcessor(model_file="$source")
target_tokenizer = sentencepiece.SentencePieceProcessor(model_file="$target")
encoder, step = (onnxruntime.InferenceSession(name) for name in ("encoder.onnx", "step.onnx"))
PAD, BOS, EOS = $pad, $bos, $eos


def run(graph, **inputs):
    names = [output.name for output in graph.get_outputs()]
    return dict(zip(names, graph.run(names, inputs)))


def translate(text):
    """Greedy search."""
    source = numpy.array([[*source_tokenizer.encode(text), EOS]])
    state = run(encoder, source=source, mask=numpy.ones_like(source, dtype=bool))
    tokens, output = numpy.array([[BOS]]), []
    while len(output) < 2 * source.shape[1] + 10:
        found = run(step, tokens=tokens, **state)
        found["logits"][..., [PAD, BOS]] = -numpy.inf
        tokens = found["logits"].argmax(-1)
        if tokens[0, 0] == EOS:
            break
        output.append(int(tokens[0, 0]))
        state |= {name[len("next_") :]: value for name, value in found.items() if name.startswith("next_")}
    return target_tokenizer.decode(output)


print(translate("A sentence."))
''')

TEXT = Template("""
## ONNX

`encoder.onnx` reads sources and gives the first state; `step.onnx` takes the previous tokens and a state, and gives the
logits of the next tokens and, under `next_state.NAME`, the changed parts of the state. `onnx.json` has the same as
the tables below. The search around them is the caller's (or `seq2seq translate checkpoint=THIS_FOLDER`). Run in this
folder, with numpy, onnxruntime and sentencepiece installed:

```python
$example```

Ids end with EOS ($eos) in a source, whose padding is masked; the first tokens of a target are BOS ($bos). Many
sentences go through at once along `batch`. `steps` counts the steps taken, `past` the entries of a cache, one for each
step and beam; in the encoder's outputs both are 0 and `beam` is 1. For a beam of K, repeat every tensor that has the
axis `beam` K times along it before the first step; after each step, give every such tensor of the state the beams that
were chosen (the others belong to a sentence, or to all).$limits

$tables
""")


def onnx_card(description: Mapping[str, Any], tokenizers: TokenizerPair) -> str:
    """Markdown from the description in onnx.json."""
    names = list(tokenizers.state())
    example = EXAMPLE.substitute(description["special_tokens"], source=names[0], target=names[-1])
    tables = "\n\n".join(
        table(f"{graph}.onnx: {kind}", description[graph][kind])
        for graph in ("encoder", "step")
        for kind in ("inputs", "outputs")
    )
    limits = "".join(f" `{axis}` is at most {length}." for axis, length in description["limits"].items())
    return TEXT.substitute(description["special_tokens"], example=example, tables=tables, limits=limits)


def table(title: str, ports: list[dict[str, Any]]) -> str:
    rows = [f"| `{port['name']}` | {port['dtype']} | {', '.join(map(str, port['axes']))} |" for port in ports]
    return "\n".join([f"### {title}", "", "| name | type | axes |", "|---|---|---|", *rows])

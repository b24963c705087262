"""The service over a real socket: right answers to many clients, and kind ones to wrong requests."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest
from precision import float32_approx
from service import REFERENCES, SOURCES, ask, counted, running

from seq2seq.evaluation.metrics import References, sentence_scores
from seq2seq.search import BeamSearch, GreedySearch, Sampling
from seq2seq.serving.batcher import Gathering
from seq2seq.serving.request_limits import Limits

TEXTS = [" ".join(source.split()[start:]) for source in SOURCES for start in range(4)]


def translations(url: str, **body) -> list[dict]:
    response = ask(url, **body)
    assert response.status_code == 200, response.text
    return response.json()["translations"]


def close(value):
    """The value, equal to others but for the last digits of numbers, which depend on the batch; attention is rounded to
    4 digits."""
    if isinstance(value, dict):
        return {key: near(one) if key in ("alignment", "heads") else close(one) for key, one in value.items()}
    if isinstance(value, list):
        return [close(one) for one in value]
    return float32_approx(value) if isinstance(value, float) else value


def near(rows):
    return [near(row) for row in rows] if isinstance(rows[0], list) else pytest.approx(rows, abs=2e-4)


def same(record: dict, expected: dict) -> bool:
    return record == close(expected)


def translator(models, name):
    return next(model.translator for model in models if model.name == name)


@pytest.mark.slow
def test_two_hundred_clients_get_the_translators_answers(models):
    """Every client asks its own text, model and options at once; each gets the translator's own answer."""
    searches = [
        ("attentive", {}, None),
        ("attentive", {"method": "greedy"}, GreedySearch()),
        ("many-headed", {"method": "beam", "beam_size": 3}, BeamSearch(beam_size=3)),
        ("fixed", {"method": "sampling", "seed": 7, "max_length_a": 1.0}, Sampling(seed=7, max_length_a=1.0)),
    ]  # fmt: skip
    asked = [(f"{TEXTS[number % len(TEXTS)]} {number}", *searches[number % 4]) for number in range(200)]

    async def everybody(url: str) -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(timeout=120, limits=limits) as client:
            requests = [
                client.post(f"{url}/translate", json={"text": text, "model": name, "search": options})
                for text, name, options, _ in asked
            ]
            return await asyncio.gather(*requests)

    with running(models, batching=Gathering(64, 1.0)) as url:
        responses = asyncio.run(everybody(url))
        batches = sum(counted(url, "seq2seq_batch_texts_count").values())
        assert sum(counted(url, "seq2seq_texts_total").values()) == 200
    assert [response.status_code for response in responses] == [200] * 200
    assert batches < 50
    expected = {}
    for name, _, search in searches:
        own = [text for text, model, _, wish in asked if (model, wish) == (name, search)]
        for text in own:
            (expected[text],) = translator(models, name).translate(text, search=search)
    for (text, name, _, _), response in zip(asked, responses, strict=True):
        answer = response.json()
        assert answer["model"] == name
        assert same(answer["translations"][0], expected[text].record()), text


def test_answer_has_n_best_and_attention_of_many_texts(service, models):
    records = translations(service, text=SOURCES, model="many-headed", n_best=2, heads=True)
    found = translator(models, "many-headed").translate(SOURCES, n_best=2, alignment=True)
    for record, translation in zip(records, found, strict=True):
        assert [one["text"] for one in record["n_best"]] == [one.text for one in translation.nbest]
        assert same(record, translation.record(heads=True))
        assert len(record["heads"]) == 2
        mean = [[sum(pair) / 2 for pair in zip(*rows, strict=True)] for rows in zip(*record["heads"], strict=True)]
        assert record["alignment"] == [pytest.approx(row, abs=2e-4) for row in mean]


def test_answers_do_not_depend_on_the_size_of_a_pass(models):
    with running(models[:1], Limits(search=1), Gathering(64, 1.0)) as url:
        records = translations(url, text=SOURCES)
        assert counted(url, "seq2seq_batch_texts_count") == {("attentive",): len(SOURCES)}
    for record, translation in zip(records, translator(models, "attentive").translate(SOURCES), strict=True):
        assert same(record, translation.record())


def test_samples_equal_those_of_a_file_with_the_same_lines(service, models):
    options = {"method": "sampling", "seed": 3, "max_length_a": 1.0}
    records = translations(service, text=TEXTS, model="fixed", search=options)
    found = translator(models, "fixed").translate(TEXTS, search=Sampling(seed=3, max_length_a=1.0))
    assert [record["text"] for record in records] == [one.text for one in found]
    assert len({record["text"] for record in records}) > 5


def test_search_options_change_the_models_own_search(service, models):
    own = translator(models, "attentive").search
    assert isinstance(own, BeamSearch) and own.max_length_a == 1.5
    (record,) = translations(service, text=TEXTS[0], model="attentive", search={"max_length_a": 0, "max_length_b": 2})
    assert len(record["tokens"]) == 2
    assert record["finished"] is False


def test_request_without_a_model_is_answered_by_the_first(service):
    answer = ask(service, text="the cat sees a dog.").json()
    assert answer["model"] == "attentive"
    assert answer["translations"][0]["text"] == "eht tac sees a god."
    assert "alignment" not in answer["translations"][0]


def test_model_without_attention_sends_none(service):
    (record,) = translations(service, text=SOURCES[0], model="fixed", heads=True)
    assert "alignment" not in record and "heads" not in record


def test_request_with_references_is_scored(service):
    records = translations(service, text=SOURCES, model="attentive", reference=REFERENCES)
    expected = sentence_scores({"x": [record["text"] for record in records]}, References(REFERENCES))["x"]
    for metric, values in expected.items():
        assert [record[metric] for record in records] == pytest.approx(values, abs=0.01)
    assert records[0]["chrf"] == 100


def test_blank_and_odd_texts_are_translated(service):
    blank, odd = translations(service, text=["", "\x00\u2028 \U0001f600 \n the cat"])
    assert blank["text"] == "" and blank["parts"] == 0
    assert odd["parts"] == 1
    half = httpx.post(
        f"{service}/translate", content=b'{"text": "\\ud800 cat"}', headers={"content-type": "application/json"}
    )
    assert half.json()["translations"][0]["parts"] == 1
    assert translations(service, text=[]) == []


WRONG = [
    ({}, "text: field required"),
    ({"text": 5}, "text: input should be a valid string"),
    ({"text": ["a", None]}, "text.1: input should be a valid string"),
    ({"text": "a", "model": "nobody"}, "there is no model 'nobody'; served are attentive, many-headed, fixed"),
    ({"text": "a", "modell": "fixed"}, "modell: extra inputs are not permitted"),
    ({"text": "a", "search": {"beam_size": "wide"}}, "search.beam_size: input should be a valid integer"),
    ({"text": "a", "search": {"beam_size": 0}}, "search.beam_size=0 must be a whole number of at least 1"),
    ({"text": "a", "search": {"beam_size": 21}}, "search.beam_size=21: at most 20 is allowed"),
    ({"text": "a", "search": {"method": "sampling"}, "n_best": 21}, "search.n_best=21: at most 20 is allowed"),
    ({"text": "a", "search": {"method": "greedy", "beam_size": 2}}, "search.beam_size is not an option of greedy"),
    ({"text": "a", "search": {"max_length_b": 1e9}}, "more than 2000 tokens"),
    (
        {"text": ["a"] * 64, "search": {"method": "beam", "beam_size": 20, "max_length_a": 0, "max_length_b": 2000}},
        "text 1 together could have 40000 tokens; at most 30000 are allowed",
    ),
    ({"text": "big " * 1200, "search": {"method": "sampling"}, "n_best": 20}, "at most 30000 are allowed"),
    ({"text": "a", "search": {"method": "magic"}}, "search.method: input should be 'beam', 'greedy' or 'sampling'"),
    ({"text": "a", "n_best": 9}, "n_best=9 exceeds search.beam_size=3"),
    ({"text": "a" * 5001}, "text 1 has 5001 characters; at most 5000 are allowed"),
    ({"text": ["a"] * 201}, "201 texts in one request; at most 200 are allowed"),
    ({"text": "a", "reference": ["a", "b"]}, "2 references were given for 1 texts"),
    ({"text": "big " * 1200, "alignment": True}, "at most 1000000 are allowed"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "message"), WRONG, ids=[message[:40] for _, message in WRONG])
def test_wrong_request_is_explained(service, body, message):
    response = ask(service, **body)
    assert response.status_code == 422
    assert message in response.json()["detail"]


@pytest.mark.slow
def test_error_repeats_little_of_a_request(service):
    for body in (
        {"text": "a", "model": "m" * 5000},
        {"text": "a", "f" * 5000: 1},
        {"text": "a", **{f"{number}{'f' * 200}": 1 for number in range(2000)}},
        {"text": list(range(100_000))},
    ):
        response = ask(service, **body)
        assert response.status_code == 422
        assert len(response.json()["detail"]) < 2000
        assert "m" * 101 not in response.text and "f" * 101 not in response.text


RAW = [
    (b"{", "not valid JSON"),
    (b"", "field required"),
    (b"[" * 100_000, ""),
    (b'{"text": "\xff"}', "not UTF-8: invalid start byte at byte 10"),
    (b'{"text": "a", "search": {"length_penalty": NaN}}', ""),
    (b'{"text": "a", "search": {"max_length_a": 1e999}}', ""),
    (b'"text"', ""),
]


@pytest.mark.parametrize(("content", "message"), RAW, ids=range(len(RAW)))
def test_malformed_body_is_answered_422(service, content, message):
    response = httpx.post(f"{service}/translate", content=content, headers={"content-type": "application/json"})
    assert response.status_code == 422
    assert message in response.json()["detail"]


def test_other_content_types_and_paths_are_refused(service):
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonlines", None):
        headers = {"content-type": kind} if kind else {}
        response = httpx.post(f"{service}/translate", content=b'{"text": "a"}', headers=headers)
        assert response.status_code == 415
        assert "content-type: application/json" in response.json()["detail"]
    assert translations(service, text="a", search=None, n_best=None) == translations(service, text="a")
    assert httpx.get(f"{service}/translate").status_code == 405
    assert httpx.get(f"{service}/../../etc/passwd").status_code == 404


@pytest.mark.parametrize("path", ["/", "/docs", "/models", "/quality", "/health", "/metrics"])
def test_head_is_answered_like_get_without_a_body(service, path):
    response = httpx.head(f"{service}{path}")
    assert response.status_code == 200 and response.content == b""
    assert response.headers["content-type"] == httpx.get(f"{service}{path}").headers["content-type"]


def test_models_route_describes_the_served_models(service):
    first, second, third = httpx.get(f"{service}/models").json()
    assert (first["name"], first["architecture"], first["heads"]) == ("attentive", "bahdanau", 1)
    assert (second["name"], second["architecture"], second["heads"]) == ("many-headed", "transformer", 2)
    assert (third["name"], third["attends"], third["heads"]) == ("fixed", False, 0)
    assert first["search"]["method"] == "beam" and first["search"]["beam_size"] == 3
    assert (first["source_language"], first["target_language"]) == ("en", "xx")
    assert httpx.get(f"{service}/health").json() == {"status": "ok", "models": ["attentive", "many-headed", "fixed"]}


def test_metrics_route_counts_requests_and_texts(models):
    with running(models) as url:
        ask(url, text=SOURCES)
        ask(url, text="a", model="fixed")
        ask(url, text=5)
        assert counted(url, "seq2seq_texts_total") == {("attentive",): 4, ("many-headed",): 0, ("fixed",): 1}
        requests = counted(url, "seq2seq_requests_total")
        assert requests["/translate", "200"] == 2 and requests["/translate", "422"] == 1
        assert counted(url, "seq2seq_waiting_texts") == {("attentive",): 0, ("many-headed",): 0, ("fixed",): 0}
        httpx.get(f"{url}/{'x' * 50}")
        assert counted(url, "seq2seq_requests_total")["other", "404"] == 1


def test_documentation_loads_nothing_from_outside(service):
    schema = httpx.get(f"{service}/openapi.json").json()
    assert set(schema["paths"]) == {"/translate", "/models", "/quality", "/health", "/metrics"}
    assert set(schema["paths"]["/translate"]["post"]["responses"]) >= {"200", "408", "413", "422", "429", "503"}
    docs = httpx.get(f"{service}/docs")
    for name in ("POST", "/translate", "beam_size", "length_penalty", "TranslationMessage", "429"):
        assert name in docs.text
    for response in (docs, httpx.get(service)):
        assert "//" not in response.text.replace("http://www.w3.org/2000/svg", "").replace("// ", "")
        assert "default-src 'none'" in response.headers["content-security-policy"]


def test_quality_route_shows_the_scores_of_the_runs(service):
    quality = httpx.get(f"{service}/quality").json()
    assert (quality["split"], quality["segments"]) == ("test", 4)
    short, long = quality["buckets"]
    assert {name: scores["bleu"]["score"] for name, scores in short["scores"].items()} == {"attentive": 40, "fixed": 35}
    assert {name: scores["bleu"]["score"] for name, scores in long["scores"].items()} == {"attentive": 38, "fixed": 9}
    assert short["examples"] == [{"source": SOURCES[i], "reference": REFERENCES[i]} for i in (0, 1)]
    assert [json.loads(json.dumps(one))["source"] for one in long["examples"]] == SOURCES[2:]

"""`score_text` and `hardsight score-text`: formats, windows, resuming, sums, and bad input by name."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import transformers as hf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from typer.testing import CliRunner

from hardsight.cli import app
from hardsight.language import score_tokens
from hardsight.language import text_scoring as module
from hardsight.language.text_scoring import (
    hardest,
    means_by,
    means_by_frequency,
    means_by_position,
    means_by_source,
    score_text,
)

TEXTS = ["the cat sat on the mat", "a dog ran — naïve façade", "the end of the story " * 8, "x", "on the mat"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A GPT-2 of random weights with a byte-level tokenizer, as `save_pretrained` leaves them."""
    words = Tokenizer(models.BPE())
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<s>", "<pad>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )  # fmt: skip
    words.train_from_iterator(TEXTS, trainer)
    tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", bos_token="<s>", eos_token="<s>")
    config = hf.GPT2Config(
        vocab_size=304, n_embd=16, n_layer=1, n_head=2, n_positions=16, bos_token_id=0, eos_token_id=0, pad_token_id=1
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = hf.GPT2LMHeadModel(config)
    path = tmp_path_factory.mktemp("model")
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def loaded(folder):
    return hf.GPT2LMHeadModel.from_pretrained(folder), hf.AutoTokenizer.from_pretrained(folder)


def write(path, texts=TEXTS):
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"body": texts, "from": ["a", "b", "a", "b", "a"][: len(texts)]}), path)
    elif path.suffix == ".jsonl":
        path.write_text("\n".join(json.dumps({"body": one, "from": "ab"[at % 2]}) for at, one in enumerate(texts)))
    else:
        path.write_text("\n\n".join(texts), encoding="utf-8")
    return path


@pytest.mark.parametrize("suffix", ["txt", "parquet", "jsonl"])
def test_each_format_gives_the_tokens_of_its_documents(suffix, tmp_path, loaded) -> None:
    model, tokenizer = loaded
    text = write(tmp_path / f"in.{suffix}")
    columns = {} if suffix == "txt" else {"column": "body", "source": "from"}
    beside = score_text(model, tokenizer, text, tmp_path / "tokens.parquet", **columns)
    tokens, documents = pq.read_table(tmp_path / "tokens.parquet"), pq.read_table(beside)
    assert documents.column("text").to_pylist() == TEXTS
    if suffix != "txt":
        assert documents.column("source").to_pylist() == ["a", "b", "a", "b", "a"]
    assert tokens.schema.metadata[b"documents file"] == b"tokens-documents.parquet"
    assert documents.schema.metadata[b"tokens file"] == b"tokens.parquet"
    for row in tokens.to_pylist():
        piece = tokenizer.decode([row["token"]]).strip("\ufffd ")
        assert piece in TEXTS[row["document"]][row["start"] : row["end"]]
    for at, one in enumerate(TEXTS):
        ids = tokenizer(one)["input_ids"]
        mine = [row for row in tokens.to_pylist() if row["document"] == at]
        assert [row["token"] for row in mine] == ids[1:]
        assert [row["position"] for row in mine] == list(range(1, len(ids)))
        if len(ids) <= 16 and len(ids) > 1:
            expected = score_tokens(model, torch.tensor([ids]))
            for name in ("log_probability", "rank", "avh"):
                np.testing.assert_allclose([row[name] for row in mine], expected.column(name).to_numpy(), atol=2e-5)
            means = documents.column("avh")[at].as_py()
            assert means == pytest.approx(expected.column("avh").to_numpy().mean(), abs=1e-5)
        if len(ids) == 1:
            assert documents.column("tokens")[at].as_py() == 0
            assert documents.column("avh")[at].as_py() is None


def test_windows_share_their_context(tmp_path, loaded) -> None:
    """Each token of a long document is scored once, by what its own window shows of the text before it."""
    model, tokenizer = loaded
    beside = score_text(model, tokenizer, write(tmp_path / "in.txt"), tmp_path / "t.parquet", length=10, context=4)
    ids = tokenizer(TEXTS[2])["input_ids"]
    mine = [row for row in pq.read_table(tmp_path / "t.parquet").to_pylist() if row["document"] == 2]
    assert [row["position"] for row in mine] == list(range(1, len(ids)))
    # The second window begins four tokens before the tenth.
    second = score_tokens(model, torch.tensor([ids[6:16]])).to_pylist()
    for row in second[3:]:
        found = mine[row["position"] + 6 - 1]
        assert found["log_probability"] == pytest.approx(row["log_probability"], abs=2e-5)
    assert pq.read_table(beside).num_rows == 5


def test_a_stopped_run_goes_on(tmp_path, loaded, monkeypatch) -> None:
    model, tokenizer = loaded
    text, output = write(tmp_path / "in.txt"), tmp_path / "t.parquet"
    monkeypatch.setattr(module, "_PART_DOCUMENTS", 2)
    score_text(model, tokenizer, text, tmp_path / "whole.parquet")
    calls, real = [], module.score_batch

    def stops(*args, **kwargs):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    monkeypatch.setattr(module, "score_batch", stops)
    with pytest.raises(KeyboardInterrupt):
        score_text(model, tokenizer, text, output)
    assert not output.exists()
    monkeypatch.setattr(module, "score_batch", lambda *args: calls.append(2) or real(*args))
    score_text(model, tokenizer, text, output)
    assert 0 < calls.count(2) < 5
    assert pq.read_table(output).equals(pq.read_table(tmp_path / "whole.parquet"))
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        "in.txt", "t-documents.parquet", "t.parquet", "whole-documents.parquet", "whole.parquet",
    ]  # fmt: skip


def test_other_settings_do_not_go_on(tmp_path, loaded, monkeypatch) -> None:
    model, tokenizer = loaded
    text, output = write(tmp_path / "in.txt"), tmp_path / "t.parquet"
    parts = module._Parts(output, {"length": 3})
    parts.add(pa.table({"x": [1]}), pa.table({"x": [1]}))
    score_text(model, tokenizer, text, output)
    assert pq.read_table(output).column_names[:3] == ["document", "position", "token"]


def test_sums() -> None:
    tokens = pa.table(
        {"document": [0, 0, 1, 3], "position": [1, 2, 1, 1], "token": [5, 6, 5, 5], "avh": [0.1, 0.3, 0.5, 0.9]}
    )
    by_document = means_by(tokens, tokens.column("document").to_numpy())
    assert by_document.to_pydict() == {"group": [0, 1, 2, 3], "tokens": [2, 1, 0, 1], "avh": [0.2, 0.5, None, 0.9]}
    assert means_by_position(tokens).column("avh").to_pylist() == [None, pytest.approx(0.5), pytest.approx(0.3)]
    assert means_by_position(tokens, 2).to_pydict()["tokens"] == [3, 1]
    frequency = means_by_frequency(tokens)
    assert frequency.column("group").to_pylist() == [1, 2]
    assert frequency.column("avh").to_pylist() == [pytest.approx(0.3), pytest.approx(0.5)]
    documents = pa.table(
        [["a", None, "a"], [1, 3, 3], [0.2, 0.6, 0.4]],
        schema=pa.schema(
            [("source", pa.string()), ("tokens", pa.int32()), pa.field("avh", pa.float64(), metadata={"kind": "score"})]
        ),
    )
    found = means_by_source(documents).to_pydict()
    assert found["source"] == ["a", None]
    assert found["avh"] == [pytest.approx(0.35), pytest.approx(0.6)]
    with pytest.raises(ValueError, match=r"group must be a number.*4 rows"):
        means_by(tokens, [0])


def test_hardest_follows_the_direction() -> None:
    down = pa.field("log_probability", pa.float32(), metadata={"direction": "larger is easier"})
    table = pa.table([[0, 1, 2], [-1.0, -5.0, None]], schema=pa.schema([("id", pa.int64()), down]))
    assert hardest(table, "log_probability").column("id").to_pylist() == [1, 0]


def run(*args: object):
    return CliRunner().invoke(app, ["score-text", *map(str, args)])


def test_the_command(tmp_path, folder) -> None:
    text, output = write(tmp_path / "in.jsonl"), tmp_path / "tokens.parquet"
    done = run("--model", folder, "--text", text, "--column", "body", "--source", "from", "-o", output)
    assert done.exit_code == 0, done.output
    assert "5 documents" in done.output
    assert "1 documents have no token to score, first document 3" in done.output
    said = json.loads(run("--model", folder, "--text", text, "--column", "body", "-o", output, "--json").stdout)
    assert said["tokens"] == pq.read_metadata(output).num_rows
    assert said["without_tokens"] == [3]
    assert said["means"]["log_probability"] < 0


def test_bad_input_is_one_sentence(tmp_path, folder, loaded) -> None:
    text, output = write(tmp_path / "in.jsonl"), tmp_path / "t.parquet"
    (tmp_path / "latin.txt").write_bytes("good\nfaçade".encode("latin-1"))
    (tmp_path / "empty.txt").write_text("\n \n")
    (tmp_path / "letters.txt").write_text("x\n")
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\n{"text": 3}\n')
    table = write(tmp_path / "in.parquet")
    base = ["--model", folder, "-o", output]
    for args, words in [
        ([*base, "--text", tmp_path / "latin.txt"], ["UTF-8", "line 2 of latin.txt"]),
        ([*base, "--text", tmp_path / "empty.txt"], ["text", "empty.txt holds none"]),
        ([*base, "--text", tmp_path / "letters.txt"], ["text", "token to score"]),
        ([*base, "--text", tmp_path / "bad.jsonl"], ["line 2 of bad.jsonl", "'text'"]),
        ([*base, "--text", text], ["line 1 of in.jsonl", "'text'", "body"]),
        ([*base, "--text", table], ["column", "'text'", "body, from"]),
        ([*base, "--text", tmp_path / "letters.txt", "--column", "x"], [".parquet or .jsonl", "letters.txt"]),
        ([*base, "--text", text, "--column", "body", "--length", "17"], ["length", "at most 16", "17"]),
        ([*base, "--text", text, "--column", "body", "--context", "16"], ["context", "[1, 16)"]),
        ([*base, "--text", text, "--score", "aum"], ["--score", "aum"]),
        ([*base, "--text", tmp_path / "none.txt"], ["none.txt"]),
        (["--model", tmp_path, "-o", output, "--text", text], ["model", "config.json"]),
        (["--model", folder, "-o", tmp_path / "x.csv", "--text", text], [".parquet", "x.csv"]),
    ]:
        done = run(*args)
        assert done.exit_code == 2, (args, done.output)
        assert done.output.count("\n") == 1, done.output
        assert all(word in done.output for word in words), (words, done.output)
    _, tokenizer = loaded
    small = hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=50, n_embd=8, n_layer=1, n_head=1, n_positions=16))
    with pytest.raises(ValueError, match=r"tokenizer must be.*50 tokens.*has 300"):
        score_text(small, tokenizer, text, output, column="body")

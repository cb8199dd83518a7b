"""Real, tiny trainings by Trainer and SFTTrainer: every token's numbers are its own, however batches are made."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import Trainer, TrainingArguments

from hardsight.language import TokenDynamics, number_tokens, record, score_tokens
from tests.language.conftest import build

LENGTHS = [9, 5, 12, 7, 3, 10, 6, 8]
OPTIONS = {
    "num_train_epochs": 2,
    "per_device_train_batch_size": 2,
    # Nothing is learned at a rate of 0, so what is recorded is what the model says of the token in its own document.
    "learning_rate": 0.0,
    "report_to": "none",
    "disable_tqdm": True,
    "use_cpu": True,
    "save_strategy": "no",
    "logging_strategy": "no",
    "remove_unused_columns": False,
}


def corpus() -> list[dict]:
    generator = torch.Generator().manual_seed(0)
    return [{"input_ids": torch.randint(3, 50, (length,), generator=generator).tolist()} for length in LENGTHS]


def pad(items: list[dict], side: str = "right") -> dict[str, torch.Tensor]:
    """A plain collator."""
    length = max(len(item["input_ids"]) for item in items)
    batch = {"input_ids": [], "attention_mask": [], "labels": []}
    for item in items:
        ids, gap = item["input_ids"], [0] * (length - len(item["input_ids"]))
        marks = [1] * len(ids)
        for name, values, fill in (
            ("input_ids", ids, 0), ("attention_mask", marks, 0), ("labels", ids, -100),
        ):  # fmt: skip
            filled = [fill] * len(gap)
            batch[name].append(filled + values if side == "left" else values + filled)
    return {name: torch.tensor(rows) for name, rows in batch.items()}


def expected_tokens(name: str) -> dict[int, dict[str, float]]:
    """By token number: what the frozen model says of it, one document at a time."""
    found, start = {}, 0
    model = build(name)
    for item in corpus():
        scores = ("log_probability", "avh", "margin", "angular_margin")
        table = score_tokens(model, torch.tensor([item["input_ids"]]), scores=scores)
        for row in table.to_pylist():
            found[start + row["position"]] = row
        start += len(item["input_ids"])
    return found


def check_tokens_are_their_own(dynamics: TokenDynamics, name: str, epochs: int = 2) -> None:
    expected = expected_tokens(name)
    table = dynamics.tokens.table().to_pydict()
    seen = {row for row, count in enumerate(table["epochs"]) if count}
    assert seen == set(expected)
    assert {table["epochs"][row] for row in seen} == {epochs}
    for row in seen:
        own = expected[row]
        assert table["label"][row] == own["token"]
        assert table["loss_mean"][row] == pytest.approx(-own["log_probability"], abs=1e-4)
        assert table["avh_last"][row] == pytest.approx(own["avh"], abs=1e-5)
        assert table["aum"][row] == pytest.approx(own["margin"], abs=1e-4)
        assert table["angular_margin_mean"][row] == pytest.approx(own["angular_margin"], abs=1e-4)
    documents = dynamics.documents.table().to_pydict()
    starts = np.concatenate([[0], np.cumsum(LENGTHS)])
    for document in range(len(LENGTHS)):
        mine = [expected[row] for row in range(starts[document] + 1, starts[document + 1])]
        assert documents["loss_mean"][document] == pytest.approx(
            -np.mean([one["log_probability"] for one in mine]), abs=1e-4
        )


@pytest.mark.parametrize("name", ["gpt2, tied", "gemma2, soft-capped", "granite, divided", "phi, bias"])
@pytest.mark.parametrize("side", ["right", "left"])
def test_trainer_records_every_token(name: str, side: str, tmp_path) -> None:
    if side == "left" and name != "gemma2, soft-capped":
        pytest.skip("absolute positions differ, or another model says the same")
    dataset, starts = number_tokens(corpus())
    arguments = TrainingArguments(str(tmp_path), **OPTIONS, gradient_accumulation_steps=2)
    trainer = Trainer(
        build(name).eval(), arguments, train_dataset=dataset, data_collator=lambda items: pad(items, side)
    )
    for module in trainer.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    dynamics = record(trainer, starts, tokens=True)
    trainer.train()
    check_tokens_are_their_own(dynamics, name)
    assert not trainer.model._forward_hooks
    assert not trainer.model.get_output_embeddings()._forward_pre_hooks


@pytest.mark.parametrize("strategy", ["bfd", "wrapped"])
def test_ids_survive_packing_by_trl(strategy: str, tmp_path) -> None:
    trl = pytest.importorskip("trl")
    datasets = pytest.importorskip("datasets")
    dataset, starts = number_tokens(
        datasets.Dataset.from_list([{**row, "labels": row["input_ids"]} for row in corpus()])
    )
    packed = trl.pack_dataset(dataset, 16, strategy)
    trainer = sft(tmp_path, packed, strategy)
    dynamics = record(trainer, starts, tokens=True)
    trainer.train()
    recorded = dynamics.tokens.aggregates
    numbers = {one for row in packed["token_number"] for one in row}
    first = set(starts.tolist())
    seams = {row[0] for row in packed["token_number"]}
    # In order, each token predicted within its own document: of a document cut in two the second part's first is not.
    expected = {one for one in numbers if one not in first and one not in seams}
    assert set(recorded["epochs"].nonzero().squeeze(1).tolist()) == expected
    flat = [token for row in corpus() for token in row["input_ids"]]
    assert all(int(recorded["label"][one]) == flat[one] for one in expected)
    if strategy == "bfd":
        # Documents do not see each other there where positions start again.
        own = expected_tokens("llama, untied")
        table = dynamics.tokens.table().to_pydict()
        mine = [one for one in sorted(expected) if one in own]
        agree = [abs(table["loss_mean"][one] + own[one]["log_probability"]) < 1e-3 for one in mine]
        assert np.mean(agree) == 1.0


def sft(folder, dataset, strategy: str, model: str = "llama, untied"):
    from trl import SFTConfig, SFTTrainer

    config = SFTConfig(
        str(folder), **OPTIONS, max_length=16, packing=True, packing_strategy=strategy,
        dataset_kwargs={"skip_prepare_dataset": True}, loss_type="nll", bf16=False, activation_checkpointing=False,
    )  # fmt: skip
    return SFTTrainer(build(model), config, train_dataset=dataset, processing_class=processing_class(folder))


def processing_class(folder):
    from tokenizers import Tokenizer as Words
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    words = Words(WordLevel({"<pad>": 0, "<s>": 1, "</s>": 2, **{f"w{one}": one for one in range(3, 50)}}, "<pad>"))
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="</s>", bos_token="<s>")


def test_every_nth_token_in_turn() -> None:
    """Of a long document one token in `every`, others in each epoch; of a short one at least four."""
    from hardsight.language.head import language_head

    model = build("gpt2, tied")
    starts = np.array([0, 40, 46])
    dynamics = TokenDynamics(starts, 50, every=8)
    numbers = torch.full((2, 40), -1)
    numbers[0], numbers[1, :6] = torch.arange(40), torch.arange(40, 46)
    labels = torch.where(numbers >= 0, numbers % 47 + 3, -100)
    head, features = language_head(model), torch.randn(2, 40, 16, generator=torch.Generator().manual_seed(0))
    counts = []
    for _ in range(8):
        dynamics.update(numbers, labels, features, head)
        counts.append((dynamics.documents._recorded.epoch_sums.sums[2:4, 0] & (2**21 - 1)).tolist())
        dynamics.end_epoch()
    # 39 predicted tokens of the first document in eight epochs, every one once; the second has five in each.
    assert sum(long for long, _ in counts) == 39
    assert {short for _, short in counts} == {5}


def test_what_is_missing_is_named(tmp_path) -> None:
    dataset, starts = number_tokens(corpus())
    arguments = TrainingArguments(str(tmp_path), **OPTIONS)
    trainer = Trainer(build("gpt2, tied"), arguments, train_dataset=corpus(), data_collator=pad)
    record(trainer, starts)
    with pytest.raises(ValueError, match=r"token_number.*number_tokens"):
        trainer.train()
    short = [{**item, "token_number": item["token_number"][1:]} for item in dataset]
    trainer = Trainer(build("gpt2, tied"), arguments, train_dataset=short, data_collator=pad)
    record(trainer, starts)
    with pytest.raises(ValueError, match=r"token_number must have one entry for each of the \d+ input_ids"):
        trainer.train()
    changed = TrainingArguments(str(tmp_path), **{**OPTIONS, "remove_unused_columns": True})
    trainer = Trainer(build("gpt2, tied"), changed, train_dataset=dataset, data_collator=pad)
    record(trainer, starts)
    with pytest.raises(ValueError, match="remove_unused_columns"):
        trainer.train()
    with pytest.raises(ValueError, match="input_ids"):
        number_tokens([])


def test_resumed_equals_uninterrupted(tmp_path) -> None:
    def run(folder, stop: int | None = None, resume=None) -> TokenDynamics:
        dataset, starts = number_tokens(corpus())
        changes = {"save_strategy": "steps", "save_steps": 3, "learning_rate": 1e-2, "max_steps": stop or 8}
        arguments = TrainingArguments(str(folder), **{**OPTIONS, **changes, "lr_scheduler_type": "constant"})
        trainer = Trainer(build("gpt2, tied"), arguments, train_dataset=dataset, data_collator=pad)
        for module in trainer.model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        dynamics = record(trainer, starts, tokens=True)
        trainer.train(resume_from_checkpoint=resume)
        return dynamics

    whole = run(tmp_path / "whole")
    run(tmp_path / "cut", stop=6)
    resumed = run(tmp_path / "cut", resume=str(tmp_path / "cut" / "checkpoint-3"))
    for one in ("documents", "tokens"):
        assert getattr(whole, one).table().equals(getattr(resumed, one).table())


def test_two_processes_record_as_one(tmp_path) -> None:
    """Packed documents over two processes: each token once, its own numbers, and both hold the same."""
    pytest.importorskip("trl")
    script = """
        import sys
        import torch
        from datasets import Dataset
        import trl
        from hardsight.language import number_tokens, record
        from tests.language import test_recording as here

        rows = [{**row, "labels": row["input_ids"]} for row in here.corpus()]
        dataset, starts = number_tokens(Dataset.from_list(rows))
        here.OPTIONS["ddp_backend"] = "gloo"
        trainer = here.sft(sys.argv[1], trl.pack_dataset(dataset, 16, "bfd"), "bfd")
        dynamics = record(trainer, starts, tokens=True)
        trainer.train()
        rank = torch.distributed.get_rank()
        torch.save(dynamics.state_dict(), f"{sys.argv[1]}/state-{rank}.pt")
        assert torch.distributed.get_world_size() == 2
    """
    (tmp_path / "script.py").write_text(textwrap.dedent(script))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), *sys.path]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, str(tmp_path / "script.py"), str(tmp_path)], capture_output=True, text=True, check=False,
        env=environment, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    states = [torch.load(tmp_path / f"state-{rank}.pt", weights_only=True) for rank in (0, 1)]
    for name, value in states[0]["tokens"]["aggregates"].items():
        assert torch.equal(value, states[1]["tokens"]["aggregates"][name]), name
    dynamics = TokenDynamics(np.concatenate([[0], np.cumsum(LENGTHS)]), 50, tokens=True)
    dynamics.load_state_dict(states[0])
    check_tokens_are_their_own(dynamics, "llama, untied")

"""A real, tiny Hugging Face training: the callback records every sample, ids travel through the collator."""

import pytest
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerControl,
    TrainerState,
    TrainingArguments,
    default_data_collator,
)

from hardsight.dynamics import Recorder
from hardsight.dynamics.huggingface import IdCollator, RecorderCallback, WithIds
from hardsight.hardness import angular_visual_hardness, logit_margin
from hardsight.heads import observe


def model() -> BertForSequenceClassification:
    config = BertConfig(
        vocab_size=20,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        num_labels=3,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return BertForSequenceClassification(config)


def data() -> list[dict]:
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(20, (14, 5), generator=generator)
    return [{"input_ids": row.tolist(), "labels": int(row[0]) % 3} for row in tokens]


def arguments(folder, **changes) -> TrainingArguments:
    options = {
        "num_train_epochs": 3,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-2,
        "remove_unused_columns": False,
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "save_strategy": "epoch",
        "logging_strategy": "no",
    }
    return TrainingArguments(str(folder), **(options | changes))


def train(folder, recorder, *, resume=None, **changes) -> Trainer:
    trainer = Trainer(
        model(),
        arguments(folder, **changes),
        train_dataset=WithIds(data()),
        data_collator=IdCollator(),
        callbacks=[RecorderCallback(recorder)],
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def test_every_sample_of_every_epoch_is_recorded(tmp_path):
    recorder = Recorder(14)
    trainer = train(tmp_path, recorder)
    assert recorder.aggregates["epochs"].tolist() == [3] * 14
    assert recorder.aggregates["label"].tolist() == [item["labels"] for item in data()]
    assert not trainer.model._forward_hooks


def test_each_id_gets_its_own_numbers(tmp_path):
    # Nothing is learned at a rate of 0, so every sample's record is what the frozen model says of it.
    recorder = Recorder(14)
    network = train(tmp_path, recorder, learning_rate=0.0).model.eval()
    with torch.no_grad(), observe(network) as seen:
        network(torch.tensor([item["input_ids"] for item in data()]))
    labels = torch.tensor([item["labels"] for item in data()])
    scores = recorder.scores()
    torch.testing.assert_close(scores["aum"], logit_margin(seen.logits, labels), atol=1e-5, rtol=0)
    expected = angular_visual_hardness(seen.features, seen.weight.detach(), labels)
    torch.testing.assert_close(scores["avh_mean"], expected, atol=1e-5, rtol=0)
    assert scores["aum"].unique().numel() > 7


def with_text() -> list[dict]:
    return [item | {"text": f"sample {at}", "tags": ["a"] * (at % 3)} for at, item in enumerate(data())]


def tokenised(items: list[dict]) -> dict[str, torch.Tensor]:
    """As a padding collator does: makes tensors of all columns, and fails on text."""
    return {name: torch.tensor([item[name] for item in items]) for name in items[0]}


def passed_on(items: list[dict]) -> dict[str, object]:
    """Leaves text in the batch, as lists; needs it itself."""
    assert all(item["text"].startswith("sample") for item in items)
    numbers = {name: torch.tensor([item[name] for item in items]) for name in ("input_ids", "labels")}
    return numbers | {name: [item[name] for item in items] for name in ("text", "tags")}


@pytest.mark.parametrize("collator", [default_data_collator, tokenised, passed_on])
def test_text_beside_the_models_inputs_is_left_out_of_the_batch(tmp_path, collator):
    recorder = Recorder(14)
    options = {"train_dataset": WithIds(with_text()), "data_collator": IdCollator(collator)}
    Trainer(model(), arguments(tmp_path), callbacks=[RecorderCallback(recorder)], **options).train()
    assert recorder.aggregates["epochs"].tolist() == [3] * 14


def test_what_the_collator_cannot_take_for_another_reason_is_said_in_its_words():
    items = [{"input_ids": [1, 2], "labels": 0, "sample_id": 0}, {"input_ids": [1], "labels": 1, "sample_id": 1}]
    with pytest.raises(ValueError, match="length"):
        IdCollator(tokenised)(items)
    with pytest.raises(ValueError, match="length"):
        IdCollator(tokenised)([item | {"text": "x"} for item in items])


def test_recorded_losses_are_the_trainers(tmp_path):
    recorder = Recorder(14)
    losses: list[float] = []

    def loss(outputs, labels, num_items_in_batch=None):
        value = torch.nn.functional.cross_entropy(outputs.logits, labels, reduction="none")
        losses.extend(value.tolist())
        return value.mean()

    trainer = Trainer(
        model(),
        arguments(tmp_path),
        train_dataset=WithIds(data()),
        data_collator=IdCollator(),
        callbacks=[RecorderCallback(recorder)],
        compute_loss_func=loss,  # keeps the labels from the model: the collator carries them
    )
    trainer.train()
    assert recorder.scores()["loss_mean"].mean().item() == pytest.approx(sum(losses) / len(losses), rel=1e-5)


def test_training_resumed_from_a_checkpoint_records_on(tmp_path):
    whole, resumed = Recorder(14), Recorder(14)
    train(tmp_path, whole)
    train(tmp_path, resumed, resume=str(tmp_path / "checkpoint-4"))
    assert resumed.epoch == 3
    for name, values in whole.scores().items():
        torch.testing.assert_close(resumed.scores()[name], values, rtol=1e-5, atol=1e-6, equal_nan=True)


def test_every_process_saves_its_own_share_of_an_unfinished_epoch(tmp_path, monkeypatch):
    labels = torch.zeros(2, dtype=torch.int64)
    ids = {0: torch.tensor([0, 1]), 1: torch.tensor([2, 3])}
    saved, state, control = arguments(tmp_path), TrainerState(global_step=5), TrainerControl()

    def become(rank):
        monkeypatch.setattr(TrainingArguments, "process_index", rank)
        state.is_world_process_zero = rank == 0

    for rank, own in ids.items():
        become(rank)
        recorder = Recorder(4)
        recorder.update(own, torch.eye(2), labels)
        RecorderCallback(recorder).on_save(saved, state, control)
    for rank, shown in ((0, [0, 1]), (1, [2, 3]), (2, [])):
        become(rank)
        recorder = Recorder(4)
        RecorderCallback(recorder).on_train_begin(saved, state, control, model=model())
        recorder.end_epoch()
        assert recorder.aggregates["epochs"].nonzero().squeeze(1).tolist() == shown, f"process {rank}"


def test_a_process_reads_its_own_file_where_the_first_ones_is_elsewhere(tmp_path, monkeypatch):
    """Machines that share no disk: each has the files of its own processes."""
    monkeypatch.setattr(TrainingArguments, "process_index", 1)
    saved, state, control = arguments(tmp_path), TrainerState(global_step=5), TrainerControl()
    recorder, again = Recorder(4), Recorder(4)
    recorder.update(torch.tensor([2, 3]), torch.eye(2), torch.zeros(2, dtype=torch.int64))
    RecorderCallback(recorder).on_save(saved, state, control)
    RecorderCallback(again).on_train_begin(saved, state, control, model=model())
    again.end_epoch()
    assert again.aggregates["epochs"].tolist() == [0, 0, 1, 1]


def test_a_training_that_goes_on_without_its_record_is_refused(tmp_path):
    """Else scores of the last epochs alone would be taken for those of all."""
    first = Recorder(14)
    train(tmp_path / "there", first, num_train_epochs=1)
    resume = str(tmp_path / "there" / "checkpoint-4")
    with pytest.raises(ValueError, match=r"here/checkpoint-4/dynamics\.pt"):
        train(tmp_path / "here", Recorder(14), resume=resume)
    told = Recorder(14)
    told.load_state_dict(torch.load(f"{resume}/dynamics.pt", weights_only=True))
    train(tmp_path / "here", told, resume=resume)
    assert told.aggregates["epochs"].tolist() == [3] * 14


def test_lost_ids_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"remove_unused_columns.*False"):
        train(tmp_path, Recorder(14), remove_unused_columns=True)
    with pytest.raises(ValueError, match="items must carry 'sample_id'"):
        IdCollator()(data()[:2])
    with pytest.raises(ValueError, match=r"the collator.*'labels'"):
        IdCollator()([{"input_ids": [1, 2], "sample_id": 0}])

"""`fit` trains, evaluates and leaves a record that tells everything without the code."""

import inspect
import json

import pyarrow.parquet as pq
import pytest
import safetensors.torch
import torch
from torch import nn

from hardsight import training
from hardsight.dynamics import Recorder
from hardsight.hardness import class_normalised_norm
from hardsight.losses.contrastive import AMCLoss
from hardsight.losses.metric import CenterLoss
from hardsight.losses.rescaling import GradientRescaling
from hardsight.losses.robust import GCELoss
from hardsight.training import evaluation, network
from hardsight.training.evaluation import score_samples


def adam(model, lr=0.01):
    return torch.optim.Adam(model.parameters(), lr=lr)


def test_equals_a_loop_written_by_hand(problem, small):
    model, reference = small(), small()
    training.fit(model, problem.loader(), optimizer=adam(model), epochs=2, progress=False)
    torch.manual_seed(0)
    small()  # draws what the constructor drew, so that dropout sees the same generator state
    optimizer = adam(reference)
    reference.train()
    loader = problem.loader()
    for epoch in range(2):
        loader.set_epoch(epoch)
        for images, labels, _ in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(reference(images), labels).backward()
            optimizer.step()
    for (name, ours), theirs in zip(model.state_dict().items(), reference.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs), name


class Doubling(nn.Module):
    """Has `forward_features` and `head`, as timm's models have, and does something between the two."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(36, 8), nn.Linear(8, 3)

    def forward_features(self, images):
        return self.body(images.flatten(1))

    def forward(self, images):
        return self.head(2 * self.forward_features(images))


def test_what_a_model_does_between_features_and_head_is_trained(problem):
    torch.manual_seed(0)
    model, reference = Doubling(), Doubling()
    reference.load_state_dict(model.state_dict())
    batches = [(problem.images.float() / 255, problem.labels, torch.arange(90))]
    optimizer, theirs = (torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, reference))
    training.fit(model, batches, optimizer=optimizer, recorder=Recorder(90), epochs=1, progress=False)
    nn.functional.cross_entropy(reference(batches[0][0]), problem.labels).backward()
    theirs.step()
    torch.testing.assert_close(model.state_dict(), reference.state_dict())


def test_record_is_complete(problem, small, tmp_path):
    model = small()
    fitted = training.fit(
        model,
        problem.loader(),
        optimizer=adam(model),
        epochs=3,
        folder=tmp_path / "run",
        test=problem.loader(shuffle=False),
        samples=training.Samples(problem.loader(shuffle=False), clean_labels=problem.clean, fit_every=2),
        recorder=(recorder := Recorder(90)),
        progress=False,
        details=training.Details(seed=5, config={"model": "small"}, class_names=["a", "b", "c"]),
    )
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert run["status"] == "finished"
    assert run["seed"] == 5
    assert run["config"] == {"model": "small"}
    assert run["class_names"] == ["a", "b", "c"]
    assert run["versions"]["torch"] == torch.__version__
    epochs = pq.read_table(tmp_path / "run" / "epochs.parquet")
    assert epochs["epoch"].to_pylist() == [1, 2, 3]
    # Measured every second epoch and after the last: null in between.
    assert [value is None for value in epochs["noisy_accuracy"].to_pylist()] == [True, False, False]
    accuracies = epochs["test_accuracy"].to_pylist()
    assert run["results"]["test_accuracy"] == accuracies[-1]
    assert run["results"]["test_accuracy_best"] == max(accuracies)
    assert run["results"]["best_epoch"] == 1 + accuracies.index(max(accuracies))
    samples = pq.read_table(tmp_path / "run" / "samples.parquet")
    assert samples["id"].to_pylist() == list(range(90))
    assert samples["label"].to_pylist() == problem.labels.tolist()
    assert samples["clean_label"].to_pylist() == problem.clean.tolist()
    assert samples.schema.field("avh").metadata[b"direction"] == b"larger is harder"
    assert samples["forgotten"].to_pylist() == recorder.table()["forgotten"].to_pylist()
    assert samples.schema.field("never_learned").type == "bool"
    assert samples.schema.field("aum").metadata[b"kind"] == b"score"
    model.eval()
    images = torch.cat([batch.images for batch in problem.loader(shuffle=False)])
    with torch.no_grad():
        predicted = model(images).argmax(1)
    assert samples["predicted"].to_pylist() == predicted.tolist()
    assert fitted.samples.equals(samples)


def test_accuracy_on_corrupted_intact_clean_and_noisy_labels(problem, small):
    model = small()
    fitted = training.fit(
        model,
        problem.loader(),
        optimizer=adam(model),
        epochs=2,
        samples=training.Samples(problem.loader(shuffle=False), clean_labels=dict(enumerate(problem.clean.tolist()))),
        progress=False,
    )
    predicted = fitted.samples["predicted"].to_pylist()
    given, clean = problem.labels.tolist(), problem.clean.tolist()
    counts = {"corrupted": [0, 0], "intact": [0, 0], "clean": [0, 0], "noisy": [0, 0]}
    for guess, label, truth in zip(predicted, given, clean, strict=True):
        for name, hit in (("corrupted", guess == label), ("intact", guess == truth)):
            counts[name][0] += hit
            counts[name][1] += 1
        subset = counts["clean" if label == truth else "noisy"]
        subset[0] += guess == label
        subset[1] += 1
    for name, (hits, total) in counts.items():
        assert fitted.results[f"{name}_accuracy"] == hits / total, name


def test_recorder_sees_every_sample_once_an_epoch_with_the_heads_angles(problem, small):
    model, recorder = small(), Recorder(90)
    training.fit(model, problem.loader(), optimizer=adam(model), epochs=3, recorder=recorder, progress=False)
    assert recorder.aggregates["epochs"].tolist() == [3] * 90
    assert torch.isfinite(recorder.scores()["avh_mean"]).all()


def test_accumulated_batches_give_the_gradient_of_the_whole(problem, small):
    for loss in (None, GradientRescaling(beta=4.0, lam=0.5)):
        whole, parts = (small(dropout=0.0).double() for _ in range(2))
        for model in (whole, parts):
            # Batch statistics differ between parts and whole; everything else must not.
            model.norm = nn.Identity()
        sets = [problem.loader(batch_size=size, shuffle=False, dtype=torch.float64) for size in (30, 10)]
        for model, batches, accumulate in zip((whole, parts), sets, (1, 3), strict=True):
            sgd = torch.optim.SGD(model.parameters(), lr=0.1)
            training.fit(
                model, batches, loss, sgd, epochs=2, progress=False, steps=training.Steps(accumulate=accumulate)
            )
        for ours, theirs in zip(parts.parameters(), whole.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("loss", [None, GradientRescaling(), GradientRescaling(reduction="mean"), GCELoss()])
def test_accumulation_counts_the_samples_that_have_a_label(problem, small, loss):
    """-100 in unequal numbers, and a part without any label: the mean runs over the labelled of all parts."""
    labels = problem.labels.clone()
    labels[:10] = labels[13:19] = labels[44] = -100
    images = problem.images.double() / 255
    found = []
    for size, accumulate in ((30, 1), (10, 3), (12, 3)):
        model = small(dropout=0.0).double()
        model.norm = nn.Identity()
        # 30 at a time, the last part smaller where 12 do not go into it.
        parts = [part for whole in torch.arange(90).split(30) for part in whole.split(size)]
        batches = [(images[part], labels[part]) for part in parts]
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        fitted = training.fit(
            model, batches, loss, sgd, epochs=2, progress=False, steps=training.Steps(accumulate=accumulate)
        )
        found.append(([*model.parameters()], fitted.results["train_loss"]))
    for parameters, reported in found[1:]:
        torch.testing.assert_close(parameters, found[0][0], rtol=1e-9, atol=1e-12)
        assert reported == pytest.approx(found[0][1])


def test_feature_loss_follows_its_schedule(problem, small):
    """With a weight of 0 throughout the feature loss changes nothing; with more it does."""
    results = {}
    for weight in (0.0, 5.0, None):
        model = small(dropout=0.0)
        loss = None if weight is None else training.Objective(None, AMCLoss(), feature_weight=weight)
        training.fit(model, problem.loader(drop_last=True), loss, adam(model), epochs=1, progress=False)
        results[weight] = model.head.weight.detach().clone()
    assert torch.equal(results[0.0], results[None])
    assert not torch.equal(results[5.0], results[None])


def test_pairs_are_compared_by_predictions_or_labels(problem, small):
    images, labels, ids = next(iter(problem.loader()))
    model, amc = small(dropout=0.0), AMCLoss()
    features = model.forward_features(images)
    logits = model.head(features)
    plain = nn.functional.cross_entropy(logits, labels)
    for pairs, compared in (("predictions", logits.argmax(1)), ("labels", labels)):
        objective = training.Objective(None, amc, feature_weight=2.0, pairs=pairs)
        reported = objective(logits, features, labels, ids, network.BatchShare()).reported
        torch.testing.assert_close(reported, plain + 2.0 * amc(features, compared))
    # A loss that is not on pairs is always told the labels.
    center = CenterLoss(8, 3)
    reported = training.Objective(None, center)(logits, features, labels, ids, network.BatchShare()).reported
    torch.testing.assert_close(reported, plain + CenterLoss(8, 3)(features, labels))


def test_average_of_the_weights_is_what_is_evaluated(problem, small):
    model = small(dropout=0.0)
    weights = []

    class Watching(torch.optim.SGD):
        def step(self, closure=None):
            super().step(closure)
            weights.append(model.head.weight.detach().clone())

    start = model.head.weight.detach().clone()
    fitted = training.fit(
        model,
        problem.loader(),
        None,
        Watching(model.parameters(), lr=0.1),
        epochs=1,
        progress=False,
        steps=training.Steps(average_decay=0.8),
    )
    average = start
    for weight in weights:
        average = 0.8 * average + 0.2 * weight
    torch.testing.assert_close(fitted.evaluated.head.weight, average)
    assert torch.equal(fitted.evaluated.norm.running_mean, model.norm.running_mean)


def test_any_model_with_a_linear_head_is_watched_and_no_hook_stays(problem):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.ReLU(), nn.Linear(8, 3))
    recorder = Recorder(90)
    training.fit(model, problem.loader(), optimizer=adam(model), epochs=1, recorder=recorder, progress=False)
    assert torch.isfinite(recorder.scores()["avh_mean"]).all()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_bf16_and_clipping_train(problem, small):
    model = small()
    fitted = training.fit(
        model,
        problem.loader(),
        optimizer=adam(model),
        epochs=2,
        progress=False,
        steps=training.Steps(clip=1.0, precision="bf16"),
    )
    assert fitted.epochs[-1]["train_loss"] < fitted.epochs[0]["train_loss"]
    assert next(model.parameters()).dtype == torch.float32


def test_loss_that_is_no_number_stops_with_step_and_ids(problem, small, tmp_path):
    model = small()
    seen = []

    def broken(logits, labels, ids):
        seen.append(ids.tolist())
        # The tenth batch: epoch 2, after the checkpoint of epoch 1 (6 steps).
        return nn.functional.cross_entropy(logits, labels) * (float("nan") if len(seen) == 10 else 1.0)

    with pytest.raises(training.NonFiniteLossError) as stopped:
        training.fit(
            model,
            problem.loader(),
            broken,
            adam(model),
            epochs=3,
            folder=tmp_path,
            progress=False,
            steps=training.Steps(check_every=100),
        )
    sentence = str(stopped.value)
    assert "step 10 (epoch 2)" in sentence
    assert ", ".join(map(str, seen[9])) in sentence
    assert "step-00000006" in sentence
    assert json.loads((tmp_path / "run.json").read_text())["status"] == "failed"
    assert [path.name for path in sorted((tmp_path / "checkpoint").iterdir())] == ["step-00000006"]


class _NoGradient(torch.autograd.Function):
    """The same value, a gradient that is no number."""

    @staticmethod
    def forward(ctx, values):
        return values.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad * float("nan")


@pytest.mark.parametrize("poisoned", [8, 6, 18])
def test_weights_that_are_no_numbers_never_replace_the_last_good_checkpoint(problem, small, tmp_path, poisoned):
    """A finite loss whose gradient is no number, right before a checkpoint: within an epoch, at its end, the last."""
    model, seen = small(), []

    def broken(logits, labels, ids):
        seen.append(ids.tolist())
        return nn.functional.cross_entropy(_NoGradient.apply(logits) if len(seen) == poisoned else logits, labels)

    with pytest.raises(training.NonFiniteLossError) as stopped:
        training.fit(
            model,
            problem.loader(),
            broken,
            adam(model),
            epochs=3,
            folder=tmp_path,
            test=problem.loader(),
            progress=False,
            steps=training.Steps(checkpoint_every=4),
        )
    good = {8: "step-00000006", 6: "step-00000004", 18: "step-00000016"}[poisoned]
    assert f"the weights are no finite numbers after step {poisoned} (epoch {-(-poisoned // 6)})" in str(stopped.value)
    assert f"ids {', '.join(map(str, seen[-1]))};" in str(stopped.value)
    assert good in str(stopped.value)
    kept = safetensors.torch.load_file(tmp_path / "checkpoint" / good / "model.safetensors")
    assert all(bool(tensor.isfinite().all()) for tensor in kept.values())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"epochs": 1, "device": "gpu"}, "device must be one that this machine has, .* got 'gpu'"),
        ({"epochs": 1, "device": "cuda:99"}, "device must be one that this machine has, .* got 'cuda:99'"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"epochs": 1, "samples": []}, "samples must hold at least one batch; got none"),
        ({"epochs": 1, "test": []}, "test must hold at least one batch; got none"),
    ],
)
def test_bad_arguments_are_refused_in_one_sentence(problem, small, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        training.fit(
            small(), problem.loader(), progress=False, hooks=training.Hooks(after_epoch=pytest.fail), **options
        )


@pytest.mark.parametrize("model", [nn.Flatten(), nn.Linear(36, 3).requires_grad_(False)])
def test_a_model_without_anything_to_train_is_refused(problem, model):
    with pytest.raises(ValueError, match="model must have a parameter that takes a gradient; it has none"):
        training.fit(model, problem.loader(), epochs=1, progress=False)


@pytest.mark.parametrize("clean", [torch.zeros(10, dtype=torch.int64), dict.fromkeys(range(10), 0)])
def test_samples_without_a_clean_label_are_named(problem, small, clean):
    batches = problem.loader()
    with pytest.raises(ValueError, match="clean_labels must have every id of samples; 10 has none"):
        training.fit(small(), batches, epochs=1, samples=training.Samples(batches, clean_labels=clean), progress=False)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"checkpoint_every": 0}, "checkpoint_every .* 1; got 0"),
        ({"check_every": 0}, "check_every .* 1; got 0"),
        ({"accumulate": 0}, "accumulate .* 1; got 0"),
        ({"clip": -1.0}, "clip .* got -1.0"),
        ({"clip": float("nan")}, "clip .* got nan"),
        ({"precision": "fp8"}, "precision .* float32, bf16, fp16; got 'fp8'"),
        ({"average_decay": 1.0}, r"average_decay .* \[0, 1\).* got 1.0"),
    ],
)
def test_steps_that_cannot_be_taken_are_refused(options, named):
    with pytest.raises(ValueError, match=named):
        training.Steps(**options)


def test_unknown_scores_are_refused_before_the_training(problem):
    with pytest.raises(ValueError, match="got 'avhh', did you mean 'avh'"):
        training.Samples(problem.loader(), ["avhh"])


def test_files_of_samples_stand_beside_their_scores(problem, small):
    batches, options = problem.loader(), {"epochs": 1, "samples": problem.loader(shuffle=False), "progress": False}
    known = training.Samples(problem.loader(shuffle=False), paths={at: f"{at}.png" for at in range(90)})
    table = training.fit(small(), batches, **options | {"samples": known}).samples
    assert table["path"].to_pylist() == [f"{one}.png" for one in table["id"].to_pylist()]
    assert "path" not in training.fit(small(), batches, **options).samples.column_names
    few = training.Samples(problem.loader(shuffle=False), paths={0: "0.png", 1: "1.png", 2: "2.png"})
    with pytest.raises(ValueError, match=r"paths .* 3 has none"):
        training.fit(small(), batches, **options | {"samples": few})


def test_batches_that_are_no_batches_are_refused(problem, small):
    with pytest.raises(TypeError, match="batches must have a length"):
        training.fit(small(), iter([]), epochs=1, progress=False)
    with pytest.raises(TypeError, match=r"batches must be \(images, labels\)"):
        training.fit(small(), [torch.zeros(2, 1, 6, 6)], epochs=1, progress=False)
    with pytest.raises(ValueError, match="at least one batch"):
        training.fit(small(), [], epochs=1, progress=False)


def test_a_score_of_the_whole_set_is_not_one_of_its_batches(problem, small):
    model = small()
    batches = problem.loader(shuffle=False)
    columns = score_samples(model, batches, ("class_norm", "avh"), torch.device("cpu"))[0]
    with torch.no_grad():
        features = model.eval().forward_features(torch.cat([batch.images for batch in batches]))
    torch.testing.assert_close(columns["class_norm"], class_normalised_norm(features, problem.labels))


def test_samples_without_ids_are_numbered_alike_by_any_number_of_processes(problem, small, monkeypatch):
    model, images = small(), problem.images.float() / 255
    batches = list(zip(images.split(16), problem.labels.split(16), strict=True))
    alone = score_samples(model, batches, (), torch.device("cpu"))[0]
    assert alone["id"].tolist() == list(range(90))
    monkeypatch.setattr(evaluation, "_gather_objects", lambda own: [own])
    rows = {}
    for rank in range(2):
        monkeypatch.setattr(evaluation, "rank_and_count", lambda rank=rank: (rank, 2))
        share = score_samples(model, batches, (), torch.device("cpu"))[0]
        rows |= dict(zip(share["id"].tolist(), share["label"].tolist(), strict=True))
    assert [rows.get(one) for one in range(90)] == problem.labels.tolist()


@pytest.mark.parametrize("kept", [0, 90])
def test_an_epoch_without_a_labelled_sample_is_one_sentence(problem, small, kept):
    batches = [(problem.images[:kept].float() / 255, torch.full((kept,), -100))]
    model = small() if kept else nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
    with pytest.raises(ValueError, match="batches must hold at least one sample that has a label; epoch 1 had none"):
        training.fit(model, batches, epochs=1, progress=False)


def test_a_recorder_with_too_few_rows_for_the_samples_is_one_sentence(problem, small):
    images, few = problem.images.float() / 255, [(problem.images[:16].float() / 255, problem.labels[:16], range(16))]
    with pytest.raises(ValueError, match="recorder must have a row for every id of samples, the largest 89; it has 16"):
        training.fit(small(), few, epochs=1, recorder=Recorder(16), samples=[(images, problem.labels)], progress=False)


def test_labels_may_be_a_list(problem, small):
    ends = []
    for labels in (problem.labels, problem.labels.tolist()):
        batches = [(problem.images.float() / 255, labels)]
        ends.append(training.fit(small(), batches, epochs=1, test=batches, progress=False).results)
    assert ends[0] == ends[1]


def test_samples_without_a_label_are_refused_in_words(problem, small):
    unknown = [(problem.images.float() / 255, torch.full((90,), -100))]
    with pytest.raises(ValueError, match="samples must hold at least one sample that has a label; they hold none"):
        training.fit(small(), problem.loader(), epochs=1, samples=unknown, progress=False)


def test_classes_are_those_of_the_head_whatever_it_is_called(problem):
    """A class that is neither a label nor predicted counts too: chance is one over the number of all of them."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 40))
    with torch.no_grad():
        model[1].bias[3:] = -100
    still = torch.optim.SGD(model.parameters(), lr=0.0)
    batches = problem.loader(shuffle=False)
    fitted = training.fit(model, batches, optimizer=still, epochs=1, samples=batches, progress=False)
    assert fitted.samples["predicted"].to_numpy().max() < 3
    assert fitted.samples.schema.metadata[b"classes"] == b"40"


def test_ignored_labels_are_no_wrong_answers(problem, small):
    # -100, as every loss leaves it out: half a batch, a whole batch, and none.
    labels = problem.labels.clone()
    labels[:24] = -100
    images = problem.images.float() / 255
    batches = list(zip(images.split(16), labels.split(16), strict=True))
    known = [(images[24:], labels[24:])]
    model = small(dropout=0.0)
    with_ignored = evaluation.evaluate(model, batches, torch.device("cpu"))
    assert with_ignored == pytest.approx(evaluation.evaluate(model, known, torch.device("cpu")))
    columns = score_samples(model, batches, ("avh",), torch.device("cpu"))[0]
    assert columns["id"].tolist() == list(range(24, 90))
    alone = score_samples(model, known, ("avh",), torch.device("cpu"))[0]
    torch.testing.assert_close(columns["avh"], alone["avh"])
    still = torch.optim.SGD(model.parameters(), lr=0.0)
    # Batch normalization in training looks at the batch, so it must be the same one: all in one.
    whole = [(images, labels, torch.arange(90))]
    fitted = training.fit(model, whole, GCELoss(), optimizer=still, epochs=1, samples=whole, progress=False)
    with torch.no_grad():
        logits = model.train()(images)[24:]
    assert fitted.results["train_accuracy"] == pytest.approx(float((logits.argmax(1) == labels[24:]).double().mean()))
    assert fitted.results["train_loss"] == pytest.approx(float(GCELoss()(logits, labels[24:])))
    assert fitted.samples["id"].to_pylist() == list(range(24, 90))


def test_what_is_printed_of_a_training_is_one_line_of_numbers(problem, small, tmp_path):
    model, folder = small(), tmp_path / "run"
    fitted = training.fit(
        model,
        problem.loader(),
        epochs=2,
        folder=folder,
        test=problem.loader(),
        samples=problem.loader(),
        progress=False,
    )
    shown = repr(fitted)
    assert "\n" not in shown
    for part in (type(model).__name__, "2 epochs", f"{100 * fitted.results['test_accuracy']:.2f} %", str(folder)):
        assert part in shown


def test_fit_takes_what_the_loop_takes_and_says_so():
    ours, theirs = (inspect.signature(one) for one in (training.fit, training.Loop))
    assert ours.parameters == theirs.parameters
    assert {one.kind for one in ours.parameters.values()}.isdisjoint({inspect.Parameter.VAR_KEYWORD})
    assert ours.return_annotation is training.Fitted
    assert [name for name in ours.parameters if f"`{name}`" not in training.fit.__doc__] == []

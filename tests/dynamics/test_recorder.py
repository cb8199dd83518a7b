"""The recorder: the same numbers whatever the order, the batches, the repeats, the interruptions."""

import copy
import itertools
import math
import subprocess
import sys
from typing import ClassVar

import jaxtyping
import pyarrow as pa
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import hardsight as hs
from hardsight.dynamics import Recorder
from hardsight.dynamics.aggregates import MOST_EPOCHS


def same(first: Recorder, second: Recorder) -> bool:
    ours, theirs = first.aggregates, second.aggregates
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_any_order_and_any_batches_give_the_same(run):
    # A margin is one subtraction, the same in any batch: equal to the bit. Of the others, an exponential's last bit
    # may depend on the row's place in the batch.
    first, exact = run.record(Recorder(23), batch=4, seed=0), run.record(Recorder(23, scores=("aum", "correctness")))
    for batch, seed in ((7, 1), (23, 2)):
        assert same(exact, run.record(Recorder(23, scores=("aum", "correctness")), batch=batch, seed=seed))
        again = run.record(Recorder(23), batch=batch, seed=seed)
        for name, values in first.scores().items():
            torch.testing.assert_close(values, again.scores()[name], rtol=1e-5, atol=1e-5, equal_nan=True)


def test_a_recorder_is_read_as_its_table(run):
    recorder = run.record(Recorder(23))
    assert pa.table(recorder).equals(recorder.table(), check_metadata=True)
    assert hs.audit(recorder).table.equals(hs.audit(recorder.table()).table)


def test_means_of_repeats_do_not_depend_on_their_order(run):
    shown = torch.tensor([3] * 9 + [4] * 5)
    logits = torch.randn(14, 5, generator=torch.Generator().manual_seed(1)) * 30
    labels = run.labels[shown]
    recorders = []
    for seed in range(3):
        order = torch.randperm(14, generator=torch.Generator().manual_seed(seed))
        recorders.append(Recorder(23, scores=("aum",)))
        for part in order.split(5 + seed):
            recorders[-1].update(shown[part], logits[part], labels[part])
        recorders[-1].end_epoch()
    assert same(recorders[0], recorders[1])
    assert same(recorders[0], recorders[2])
    margins = logits.double().gather(1, labels[:, None]).squeeze(1)
    margins -= logits.double().scatter(1, labels[:, None], -math.inf).amax(1)
    assert recorders[0].scores()["aum"][3].item() == pytest.approx(margins[:9].mean().item(), rel=1e-6)


def test_floats_added_in_another_order_would_differ():
    # The law above is not free: float32 sums of the same numbers depend on their order.
    numbers = torch.randn(1000, generator=torch.Generator().manual_seed(0)) * 30
    there, back = torch.zeros(()), torch.zeros(())
    for place in range(1000):
        there, back = there + numbers[place], back + numbers[999 - place]
    assert there != back


def test_repeats_are_refused_on_request():
    recorder = Recorder(4, repeats="raise")
    logits = torch.eye(2)
    recorder.update(torch.tensor([2, 1]), logits, torch.tensor([0, 1]))
    recorder.update(torch.tensor([2, 3]), logits, torch.tensor([0, 1]))
    with pytest.raises(ValueError, match=r"ids.*repeats=.*sample 2 .*2 times.*epoch 0"):
        recorder.end_epoch()
    recorder.discard_epoch()
    recorder.update(torch.tensor([2, 1]), logits, torch.tensor([0, 1]))
    recorder.end_epoch()
    assert recorder.epoch == 1


@pytest.mark.parametrize(("one", "other"), [(0, 2), (0, 1), (5, 3), (998, 1000)])
def test_one_id_for_samples_of_two_classes_is_refused(one, other):
    # The counts of two data sets put together, say: a mean of their labels is a class that neither has.
    recorder = Recorder(4)
    logits = torch.randn(4, 1001)
    recorder.update(torch.tensor([3, 1, 3, 1]), logits, torch.tensor([7, one, 7, other]))
    with pytest.raises(ValueError, match=r"labels.*sample 1 .*epoch 0"):
        recorder.end_epoch()
    recorder.discard_epoch()
    recorder.update(torch.tensor([3, 1, 3, 1]), logits, torch.tensor([7, one, 7, one]))
    recorder.end_epoch()
    # From epoch to epoch labels may be corrected.
    recorder.update(torch.tensor([3, 1]), logits[:2], torch.tensor([7, other]))
    recorder.end_epoch()
    assert recorder.table()["label"].to_pylist() == [None, other, None, 7]


@pytest.mark.parametrize("repeats", ["mean", "raise"])
@pytest.mark.parametrize("stray", [-1, -7, 4, 10**12])
def test_ids_out_of_range_are_refused_or_left_out(stray, repeats):
    logits, labels = torch.eye(2), torch.tensor([0, 1])
    recorder = Recorder(4, repeats=repeats)
    recorder.update(torch.tensor([2, stray]), logits, labels)
    with pytest.raises(ValueError, match=r"ids.*\[0, 4\).*epoch 0 1 did not.*num_samples.*strays="):
        recorder.end_epoch()
    recorder = Recorder(4, repeats=repeats, strays="ignore")
    recorder.update(torch.tensor([2, stray]), logits, labels)
    recorder.end_epoch()
    assert recorder.aggregates["epochs"].tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize(("none", "large"), [(-100, 2), (-1, 10**12), (-(2**63), 2**63 - 1)])
def test_labels_too_large_are_refused_and_negative_ones_left_out(none, large):
    recorder = Recorder(4)
    recorder.update(torch.tensor([2, 3]), torch.eye(2), torch.tensor([0, none]))
    recorder.update(torch.tensor([9]), torch.eye(2)[:1], torch.tensor([none]))
    recorder.end_epoch()
    assert recorder.aggregates["epochs"].tolist() == [0, 0, 1, 0]
    recorder.update(torch.tensor([2, 3]), torch.eye(2), torch.tensor([0, large]))
    with pytest.raises(ValueError, match=r"labels.*\[0, 2\).*epoch 1 1 did not"):
        recorder.end_epoch()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_not_finite_are_counted_and_do_not_poison(run, bad):
    clean = run.record(Recorder(23))
    spoiled = run.logits.clone()
    spoiled[6, 7, 2] = bad  # sample 7 in epoch 6: as if it had not been shown, but flagged
    run.absent.add((6, 7))
    without = run.record(Recorder(23))
    run.absent.remove((6, 7))
    run.logits = spoiled
    recorder = run.record(Recorder(23))
    assert recorder.aggregates["flagged"].tolist() == [int(i == 7) for i in range(23)]
    for name, values in recorder.scores().items():
        torch.testing.assert_close(values, without.scores()[name], rtol=0, atol=0, equal_nan=True)
    assert not torch.equal(recorder.scores()["aum"], clean.scores()["aum"])


def test_a_ruled_out_class_is_no_fault():
    recorder = Recorder(1)
    recorder.update(torch.tensor([0]), torch.tensor([[1.0, -math.inf, 0.0]]), torch.tensor([0]))
    recorder.end_epoch()
    assert recorder.aggregates["flagged"].tolist() == [0]
    assert recorder.scores()["loss_mean"].item() == pytest.approx(math.log1p(math.exp(-1)), rel=1e-6)


def test_huge_logits_stay_finite():
    recorder = Recorder(2)
    logits = torch.tensor([[1e38, -1e38], [1e38, -1e38]])
    recorder.update(torch.tensor([0, 1]), logits, torch.tensor([0, 1]))
    recorder.end_epoch()
    assert recorder.aggregates["flagged"].tolist() == [0, 0]
    scores = recorder.scores()
    assert all(values.isfinite().all() for name, values in scores.items() if "second" not in name)
    # Cut off where the sums' integers end, each to its own side.
    assert scores["aum"].tolist() == [2.0**24, -(2.0**24)]
    assert scores["loss_mean"].tolist() == [0.0, 2.0**24]


def test_right_in_half_of_its_repeats_is_not_learned():
    """A sample counts as right in an epoch where its label won in more than half of the measurements."""
    recorder = Recorder(2, scores=("correctness", "first_learned", "second_split_forgetting"))
    right, wrong = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])

    def show(*samples):
        for sample, logits in samples:
            recorder.update(torch.tensor([sample]), logits, torch.tensor([0]))
        recorder.end_epoch()

    show((0, right), (0, wrong), (1, right), (1, right), (1, wrong))
    show((0, right), (1, right))
    recorder.begin_second_split()
    show((0, right), (0, wrong), (1, right), (1, right), (1, wrong))
    scores = recorder.scores()
    assert scores["correctness"].tolist() == pytest.approx([0.75, 5 / 6])
    assert scores["first_learned"].tolist() == [1.0, 0.0]
    assert scores["second_split_forgetting"].tolist() == [0.0, 1.0]


def test_samples_right_equally_often_tie_in_whatever_order():
    """Seven epochs, three of them right: in any order the same share to the last bit, so that ranks tie."""
    orders = [order for order in itertools.product([0, 1], repeat=7) if sum(order) == 3]
    recorder = Recorder(len(orders), scores=("correctness",))
    for epoch in range(7):
        ahead = torch.tensor([float(order[epoch]) for order in orders])
        recorder.update(torch.arange(len(orders)), torch.stack([ahead, 1 - ahead], 1), torch.zeros(len(orders)).long())
        recorder.end_epoch()
    assert recorder.scores()["correctness"].unique().tolist() == pytest.approx([3 / 7])


def test_a_sample_that_an_epoch_leaves_out_keeps_its_label():
    recorder = Recorder(2, scores=("aum",))
    recorder.update(torch.tensor([0, 1]), torch.eye(2), torch.tensor([1, 1]))
    recorder.end_epoch()
    recorder.update(torch.tensor([0]), torch.eye(2)[:1], torch.tensor([0]))
    recorder.end_epoch()
    assert recorder.table()["label"].to_pylist() == [0, 1]


@pytest.mark.parametrize("cut", [0, 3, 11])
def test_resumed_equals_uninterrupted(run, cut):
    whole = recorder = Recorder(23)
    for epoch in range(12):
        first, second = run.shown(epoch)[:10], run.shown(epoch)[10:]
        for one in {id(one): one for one in (whole, recorder)}.values():
            run.feed(one, epoch, first)
        if epoch == cut:
            recorder = Recorder(23)
            recorder.load_state_dict(whole.state_dict())
        for one in {id(one): one for one in (whole, recorder)}.values():
            run.feed(one, epoch, second)
            one.end_epoch()
    assert whole is not recorder
    assert same(whole, recorder)


def test_the_step_never_looks_at_a_value(run):
    """What makes a GPU wait: reading a number, and shapes that depend on numbers."""

    class Watch(TorchDispatchMode):
        seen: ClassVar[set[str]] = set()

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            name = function.overloadpacket.__name__
            masks = [i for a in args if isinstance(a, list) for i in a if getattr(i, "dtype", None) == torch.bool]
            self.seen.add(f"{name} by mask" if masks else name)
            return function(*args, **(kwargs or {}))

    waiting = {"_local_scalar_dense", "nonzero", "masked_select", "unique", "_unique2", "index by mask", "equal"}
    recorder = Recorder(23)
    run.feed(recorder, 0, run.shown(0))
    with Watch():
        for _ in range(65):  # more than are ever kept back
            run.feed(recorder, 0, run.shown(0))
    assert "scatter_add_" in Watch.seen
    assert not Watch.seen & waiting
    with Watch():  # the watch itself sees a step that looks
        bool((run.logits > 0).any())
        run.logits[run.logits > 0]
    assert {"_local_scalar_dense", "index by mask"} <= Watch.seen


def test_what_a_caller_overwrites_was_copied(run):
    first, second = Recorder(23), Recorder(23)
    ids = run.shown(0)
    logits, labels, bias = run.logits[0, ids].clone(), run.labels[ids].clone(), run.bias.clone()
    run.feed(first, 0, ids)
    second.update(ids, logits, labels, run.features_norm[0, ids], run.weight_norm, bias)
    for tensor in (ids, logits, labels, bias):
        tensor.zero_()
    first.end_epoch()
    second.end_epoch()
    assert same(first, second)


def test_a_callers_logits_are_left_alone(run):
    recorder = Recorder(23)
    before = run.logits.clone()
    for batch in (5, 3, 5, 4):  # kept back, measured at once, kept back
        run.feed(recorder, 0, run.shown(0)[:batch])
    recorder.end_epoch()
    assert torch.equal(run.logits, before)


def test_a_state_of_another_recorder_is_refused(run):
    state = run.record(Recorder(23)).state_dict()
    with pytest.raises(ValueError, match=r"state.*num_samples=24; got 23"):
        Recorder(24).load_state_dict(state)
    with pytest.raises(ValueError, match=r"state.*scores.*got "):
        Recorder(23, scores=("aum",)).load_state_dict(state)


def test_a_saved_state_stands_still_while_the_recorder_goes_on(run):
    recorder = run.record(Recorder(23))
    run.feed(recorder, 0, torch.arange(4))
    saved = recorder.state_dict()
    before = copy.deepcopy(saved)
    run.feed(recorder, 1, torch.arange(8))
    recorder.end_epoch()
    for part in ("aggregates", "ledger"):
        assert all(torch.equal(saved[part][name], tensor) for name, tensor in before[part].items())


@pytest.mark.parametrize(("lost", "within"), [("finished", None), ("num_classes", None), ("label", "aggregates")])
def test_a_damaged_state_is_refused_and_leaves_the_recorder_as_it_was(run, lost, within):
    state = run.record(Recorder(23)).state_dict()
    del (state if within is None else state[within])[lost]
    recorder = Recorder(23)
    with pytest.raises(ValueError, match=rf"state.*state_dict.*no '{lost}'"):
        recorder.load_state_dict(state)
    assert not recorder.started
    assert same(run.record(recorder), run.record(Recorder(23)))


def test_a_checkpoint_before_the_first_update_is_empty_and_loads(run):
    state = Recorder(23).state_dict()
    assert state == {}
    recorder = Recorder(23)
    recorder.load_state_dict(state)
    assert same(run.record(recorder), run.record(Recorder(23)))
    with pytest.raises(ValueError, match=r"state.*state_dict"):
        recorder.load_state_dict(state)  # a recorder that has begun does not forget by the way


def test_a_million_samples_fit_in_200_mebibytes():
    recorder = Recorder(10_000)
    recorder.update(torch.tensor([0]), torch.eye(1, 3), torch.tensor([0]), torch.ones(1), weight_norm=torch.ones(3))
    state = recorder.state_dict()
    held = sum(tensor.nbytes for part in ("aggregates", "ledger") for tensor in state[part].values())
    assert held / 10_000 * 1_000_000 <= 200 * 2**20


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"logits": torch.ones(2)}, r"logits.*\[batch, classes, at least 2\]; .*\[2\]"),
        ({"logits": torch.ones(2, 1)}, r"logits.*at least 2\]; .*\[2, 1\]"),
        ({"labels": torch.ones(3, dtype=torch.int64)}, r"labels.* 2 rows.*got \[3\]"),
        ({"ids": torch.ones(2)}, r"ids must be integers; got torch.float32"),
        ({"features_norm": torch.ones(2)}, r"features_norm.*weight_norm.*got no weight_norm"),
        (
            {"features_norm": torch.ones(2), "weight_norm": torch.ones(4)},
            r"weight_norm.*shape \[3\]; got \[4\]",
        ),
    ],
)
def test_bad_shapes_are_refused_in_one_sentence(change, message):
    batch = {"ids": torch.tensor([0, 1]), "logits": torch.ones(2, 3), "labels": torch.tensor([0, 1])} | change
    with pytest.raises((ValueError, TypeError), match=message):
        Recorder(5).update(**batch)


def test_angles_asked_for_need_norms():
    batch = (torch.tensor([0, 1]), torch.ones(2, 3), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match=r"features_norm.*weight_norm.*got no features_norm"):
        Recorder(5, scores=("avh_mean",)).update(*batch)
    recorder = Recorder(5)
    recorder.update(*batch)
    recorder.end_epoch()
    assert "avh_mean" not in recorder.scores()
    assert "aum" in recorder.scores()


def test_bad_policies_are_refused():
    with pytest.raises(ValueError, match=r"repeats.*mean, raise; got 'first'"):
        Recorder(5, repeats="first")
    with pytest.raises(ValueError, match=r"num_samples.*at least 1"):
        Recorder(0)
    with pytest.raises(ValueError, match=r"num_classes.*at least 2"):
        Recorder(5, num_classes=1)
    with pytest.raises(ValueError, match=r"scores.*recorder.*'avh'"):
        Recorder(5, scores=("avh",))
    with pytest.raises(ValueError, match=r"recorder.*updated"):
        Recorder(5).table()
    with pytest.raises(ValueError, match=r"state.*state_dict\(\).*'num_samples'"):
        Recorder(5).load_state_dict({"weight": 1})


def test_a_table_before_the_end_of_an_epoch_is_refused_and_not_empty():
    recorder = Recorder(4)
    recorder.update(torch.arange(4), torch.randn(4, 3), torch.zeros(4, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"call end_epoch\(\) after each"):
        recorder.table()
    recorder.end_epoch()
    assert recorder.table().column("aum").null_count == 0


def test_what_is_no_tensor_is_refused_by_name(monkeypatch):
    # The annotations, which only the tests enforce, would refuse it first.
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    good = {"ids": torch.arange(4), "logits": torch.randn(4, 3), "labels": torch.zeros(4, dtype=torch.int64)}
    for name in good:
        with pytest.raises(TypeError, match=rf"{name}.*a torch.Tensor; got ndarray"):
            Recorder(4).update(**(good | {name: good[name].numpy()}))


def test_the_table_says_what_its_columns_are(run):
    table = run.record(Recorder(23)).table()
    assert table.column("id").to_pylist() == list(range(23))
    assert table.column("label")[9].as_py() is None
    assert table.column("aum")[9].as_py() is None
    assert table.column("label")[8].as_py() == run.labels[8].item()
    described = table.schema.field("avh_mean").metadata
    assert described[b"direction"] == b"larger is harder"
    assert described[b"range"] == b"[0, 1]"


COMPILED = """
import torch
from hardsight.dynamics import Recorder

generator = torch.Generator().manual_seed(0)
plain, compiled = Recorder(9), Recorder(9)
def batch():
    ids, norms = torch.randint(9, (6,), generator=generator), torch.rand(6, generator=generator)
    return ids, torch.randn(6, 4, generator=generator), ids % 4, norms, torch.arange(1.0, 5.0)

compiled.update(*batch())
compiled.discard_epoch()
step = torch.compile(compiled.update, backend="eager", fullgraph=True)
for _ in range(3):
    one = batch()
    plain.update(*one)
    step(*one)
plain.end_epoch()
compiled.end_epoch()
for name, values in plain.aggregates.items():
    assert torch.equal(values, compiled.aggregates[name]), name
print("same")
"""


def test_the_step_compiles_whole_and_stays_the_same():
    # In a process of its own: the shape checks that tests switch on cannot be traced.
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "same", done.stderr[-2000:]


def test_whole_numbers_are_no_logits_even_where_the_classes_are_known() -> None:
    with pytest.raises(ValueError, match=r"logits.*floats"):
        Recorder(4, 3).update(torch.arange(2), torch.ones(2, 3, dtype=torch.int64), torch.tensor([0, 1]))


def test_epochs_end_before_their_counters_do(monkeypatch):
    assert torch.iinfo(torch.int16).max == MOST_EPOCHS
    monkeypatch.setattr("hardsight.dynamics.recorded_epochs.MOST_EPOCHS", 2)
    recorder = Recorder(2)
    for _ in range(2):
        recorder.update(torch.arange(2), torch.eye(2), torch.tensor([0, 0]))
        recorder.end_epoch()
    before = recorder.scores()["aum"]
    recorder.update(torch.arange(2), -torch.eye(2), torch.tensor([0, 0]))
    with pytest.raises(ValueError, match=r"epochs.*at most 2"):
        recorder.end_epoch()
    assert torch.equal(recorder.scores()["aum"], before), "the rejected epoch counts"

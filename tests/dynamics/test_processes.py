"""Two processes that share the samples end with the same bits as one process that saw them all."""

import subprocess
import sys

WORKER = """
import sys, torch
import torch.distributed as dist
from hardsight.dynamics import Recorder

rank, store = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
generator = torch.Generator().manual_seed(0)
alone = dist.new_group([rank], use_local_synchronization=True)
for repeats in ("mean", "last"):
    shared = Recorder(40, repeats=repeats)
    single = Recorder(40, repeats=repeats, group=alone)
    for epoch in range(3):
        # Sixty presentations, so that samples repeat within and across processes; in the last epoch one has none.
        ids = torch.randint(40, (60,), generator=generator)
        logits = torch.randn(60, 4, generator=generator) * 9
        labels = ids % 4
        mine = torch.arange(rank, 60, 2) if epoch < 2 else torch.arange(60 if rank == 0 else 0)
        for part in mine.split(7 if epoch < 2 else 60):
            shared.update(ids[part], logits[part], labels[part])
        single.update(ids, logits, labels)
        shared.end_epoch()
        single.end_epoch()
    for name, values in single.aggregates.tensors.items():
        if name.split("_")[0] in ("loss", "confidence", "el2n"):
            # An exponential's last bit may depend on the row's place in its batch.
            torch.testing.assert_close(values, shared.aggregates[name], rtol=1e-5, atol=1e-6)
        else:
            assert torch.equal(values, shared.aggregates[name]), (repeats, name)
late = Recorder(5)
if rank == 0:
    late.update(torch.tensor([1]), torch.eye(2)[:1], torch.tensor([0]))
late.end_epoch()
assert late.aggregates["epochs"].tolist() == [0, 1, 0, 0, 0]
differing = Recorder(5)
differing.update(torch.tensor([1]), torch.eye(2 + rank)[:1], torch.tensor([0]))
try:
    differing.end_epoch()
except ValueError as error:
    assert "every process must record the same measures" in str(error)
else:
    raise AssertionError("differing processes were not refused")
dist.destroy_process_group()
print("same")
"""


def test_two_processes_equal_one(tmp_path):
    command = [sys.executable, "-W", "error", "-c", WORKER]
    workers = [
        subprocess.Popen([*command, str(rank), str(tmp_path / "store")], stdout=-1, stderr=-1, text=True)
        for rank in range(2)
    ]
    # Both are heard before either is judged: none is left running.
    for out, errors in [worker.communicate(timeout=120) for worker in workers]:
        assert out.strip() == "same", errors[-3000:]

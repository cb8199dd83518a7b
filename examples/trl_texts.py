"""TRL's SFTTrainer: find the boilerplate among documents while training on them, packed; about a minute.

Needs `pip install trl transformers`. The texts are docstrings of numpy and torch, each twentieth replaced by a notice
that differs in a number alone; a tiny Llama is trained on them from the start.
"""

import random
import tempfile

import numpy as np
import torch
import transformers
import trl
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from hardsight.language import number_tokens, record

draw = random.Random(0)
docs = {" ".join(str(one.__doc__).split()[:40]) for module in (np, torch.nn) for one in vars(module).values()}
texts = sorted(text for text in docs if len(text.split()) >= 15)
wrong = set(draw.sample(range(len(texts)), len(texts) // 20))
for at in wrong:
    texts[at] = f"This message is meant for the person named above alone. If it reached you by mistake, remove it. {at}"

words = Tokenizer(models.BPE(unk_token=None))
words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
words.train_from_iterator(
    texts, trainers.BpeTrainer(vocab_size=1024, special_tokens=["<s>", "</s>"], show_progress=False)
)
tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="</s>", eos_token="</s>")
ids = [[0, *one.ids] for one in words.encode_batch(texts)]

torch.manual_seed(0)
model = transformers.LlamaForCausalLM(
    transformers.LlamaConfig(
        vocab_size=1024, hidden_size=96, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256,
        max_position_embeddings=512, bos_token_id=0, eos_token_id=1,
    )
)  # fmt: skip
data, starts = number_tokens(Dataset.from_list([{"input_ids": one, "labels": one} for one in ids]))
with tempfile.TemporaryDirectory() as folder:
    config = trl.SFTConfig(
        folder, num_train_epochs=4, per_device_train_batch_size=2, learning_rate=3e-3, max_length=256, packing=True,
        dataset_kwargs={"skip_prepare_dataset": True}, remove_unused_columns=False, use_cpu=True, bf16=False,
        loss_type="nll", activation_checkpointing=False, save_strategy="no", logging_strategy="no", report_to="none",
        disable_tqdm=True,
    )  # fmt: skip
    packed = trl.pack_dataset(data, 256, "bfd")  # the numbers are packed too
    trainer = trl.SFTTrainer(model, config, train_dataset=packed, processing_class=tokenizer)
    dynamics = record(trainer, starts)  # every document; tokens=True records every token, too
    trainer.train()

table = dynamics.documents.table()
easiest = np.argsort(table["loss_last"].to_numpy())[: len(wrong)]  # the hardest are at the other end
found = len(wrong & set(easiest.tolist()))
print(f"{found} of {len(wrong)} notices are among the {len(wrong)} documents of smallest loss, out of {len(texts)}")
print(table.take(easiest[:3]).select(["id", "loss_last", "avh_mean", "confidence_mean", "variability"]).to_pylist())

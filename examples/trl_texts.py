"""TRL's SFTTrainer: find the documents that are noise while fine-tuning on packed texts; about a minute.

Needs `pip install trl transformers`. The texts are docstrings of Python's own modules, the words of each twentieth
shuffled; a tiny Llama is trained on them from the start.
"""

import collections
import random
import statistics
import tempfile

import numpy as np
import torch
import transformers
import trl
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from hardsight.language import number_tokens, record

draw = random.Random(0)
modules = [random, statistics, collections, tempfile, np, np.linalg, torch, torch.nn, torch.nn.functional, torch.optim]
docs = {" ".join(str(one.__doc__).split()[:60]) for module in modules for one in vars(module).values()}
texts = sorted(text for text in docs if len(text.split()) >= 15)
wrong = set(draw.sample(range(len(texts)), len(texts) // 20))
texts = [
    " ".join(draw.sample(text.split(), len(text.split()))) if at in wrong else text for at, text in enumerate(texts)
]

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
        folder, num_train_epochs=4, per_device_train_batch_size=4, learning_rate=3e-3, max_length=256, packing=True,
        dataset_kwargs={"skip_prepare_dataset": True}, remove_unused_columns=False, use_cpu=True, bf16=False,
        loss_type="nll", activation_checkpointing=False, save_strategy="no", logging_strategy="no", report_to="none",
        disable_tqdm=True,
    )  # fmt: skip
    packed = trl.pack_dataset(data, 256, "bfd")  # the numbers are packed too
    trainer = trl.SFTTrainer(model, config, train_dataset=packed, processing_class=tokenizer)
    dynamics = record(trainer, starts)  # every document; tokens=True records every token, too
    trainer.train()

table = dynamics.documents.table()
hardest = np.argsort(-np.nan_to_num(table["loss_last"].to_numpy()))[: len(wrong)]
found = len(wrong & set(hardest.tolist()))
print(f"{found} of the {len(wrong)} shuffled documents among the {len(wrong)} of largest loss, out of {len(texts)}")

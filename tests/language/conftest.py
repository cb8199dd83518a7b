"""Tiny language models with random weights, one of each way in which a head makes logits."""

import pytest
import torch
import transformers as hf

VOCABULARY = 50
_SMALL = {"vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
_SMALL |= {"num_attention_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_LLAMA = {**_SMALL, "num_key_value_heads": 2}
BUILDERS = {
    "gpt2, tied": lambda: hf.GPT2LMHeadModel(
        hf.GPT2Config(
            vocab_size=VOCABULARY, n_embd=16, n_layer=1, n_head=2, n_positions=64, bos_token_id=1, eos_token_id=2
        )
    ),
    "llama, untied": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**_LLAMA, tie_word_embeddings=False)),
    "phi, bias": lambda: hf.PhiForCausalLM(hf.PhiConfig(**_LLAMA)),
    "gemma2, soft-capped": lambda: hf.Gemma2ForCausalLM(
        hf.Gemma2Config(**_LLAMA, head_dim=8, final_logit_softcapping=0.5)
    ),
    "cohere, scaled": lambda: hf.CohereForCausalLM(hf.CohereConfig(**_LLAMA, logit_scale=0.0625)),
    "granite, divided": lambda: hf.GraniteForCausalLM(hf.GraniteConfig(**_LLAMA, logits_scaling=4.0)),
    "bert, masked": lambda: hf.BertForMaskedLM(hf.BertConfig(**_SMALL)),
    "roberta, masked": lambda: hf.RobertaForMaskedLM(hf.RobertaConfig(**_SMALL)),
}


def build(name: str) -> torch.nn.Module:
    """A model with random weights and biases."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = BUILDERS[name]().eval()
        bias = model.get_output_embeddings().bias
        if bias is not None:
            torch.nn.init.normal_(bias)
    return model


@pytest.fixture
def gpt2() -> torch.nn.Module:
    return build("gpt2, tied")


def documents(rows: int = 3, length: int = 12, seed: int = 0) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))

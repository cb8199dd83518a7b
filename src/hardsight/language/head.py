"""The head of a language model: the linear layer over its vocabulary, and what the model makes of its output."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from hardsight.geometry import widen
from hardsight.heads import unwrap
from hardsight.validation import check_device

# Configurations name the factor and the divisor of all logits, and the bound of a tanh, in these ways.
_FACTORS = ("logit_scale", "output_multiplier", "lm_head_multiplier")
_DIVISOR = "logits_scaling"
_CAPS = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")


@dataclass(frozen=True)
class LanguageHead:
    """A head: logits = cap tanh(scale (features @ weight.T + bias) / cap), without a cap where that is None.

    `causal`: whether the features of a position predict the next token, or, in a masked model, the one in its place.
    """

    model: nn.Module
    linear: nn.Linear
    causal: bool
    scale: float = 1.0
    cap: float | None = None

    @property
    def size(self) -> int:
        """Tokens in the vocabulary."""
        return len(self.linear.weight)

    def logits(self, features: Float[Tensor, "*tokens dim"]) -> Float[Tensor, "*tokens vocabulary"]:
        """What the model makes of these features, in float32 or wider."""
        weight, bias = widen(self.linear.weight), self.linear.bias
        return self.shaped(
            nn.functional.linear(widen(features).to(weight), weight, None if bias is None else bias.to(weight))
        )

    def shaped(self, products: Float[Tensor, "*tokens vocabulary"]) -> Float[Tensor, "*tokens vocabulary"]:
        """Logits from the linear layer's output."""
        scaled = products if self.scale == 1.0 else products * self.scale
        return scaled if self.cap is None else (scaled / self.cap).tanh() * self.cap


def language_head(model: nn.Module) -> LanguageHead:
    """The head of a causal or masked Hugging Face model; others raise."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES as MASKED

    inner, _ = unwrap(model)
    name, config = type(inner).__name__, getattr(inner, "config", None)
    if getattr(config, "is_encoder_decoder", False):
        raise ValueError(f"model must be a causal or a masked language model; {name} is an encoder with a decoder")
    find = getattr(inner, "get_output_embeddings", None)
    linear = find() if callable(find) else None
    if not isinstance(linear, nn.Linear) or config is None:
        raise ValueError(
            f"model must be a language model with a linear head over its vocabulary, as get_output_embeddings() gives "
            f"it; {name} has {'none' if linear is None else type(linear).__name__}"
        )
    text = config.get_text_config()
    scale = next((one for key in _FACTORS if (one := getattr(text, key, None)) is not None), None)
    if scale is None:
        scale = 1 / (getattr(text, _DIVISOR, None) or 1.0)
    if not scale > 0:
        raise ValueError(f"model must scale its logits by a positive factor; {name} scales by {scale}")
    cap = next((one for key in _CAPS if (one := getattr(text, key, None))), None)
    return LanguageHead(inner, linear, name not in MASKED.values(), float(scale), None if cap is None else float(cap))


@torch.no_grad()
def features_of(head: LanguageHead, **inputs: Any) -> Float[Tensor, "documents length dim"]:
    """What the head is given at every position; of all its logits the model computes those of one position alone.

    These are compared with `head.logits`: a model that makes something else of its head's output raises.
    """
    name, seen = type(head.model).__name__, list[Tensor]()

    def capture(module: nn.Module, inputs: tuple[Any, ...]) -> Any:
        seen.append(inputs[0])
        return (inputs[0][:1, :1], *inputs[1:])

    handle = head.linear.register_forward_pre_hook(capture)
    try:
        given = getattr(head.model(**inputs), "logits", None)
    finally:
        handle.remove()
    if not seen:
        raise ValueError(f"model must call its head on all positions; {name} did not call it")
    features = seen[-1]
    made = head.logits(features[:1, :1])
    if given is not None and given.shape == made.shape:
        # Equal but for rounding, in the type in which the model multiplies.
        eps = max(torch.finfo(one).eps for one in (given.dtype, features.dtype))
        tolerance = (8 if eps > 1e-5 else 1e3) * eps
        if bool((given.float() - made.float()).abs().max() <= tolerance * made.abs().max().clamp(min=1e-30)):
            return features
    raise ValueError(
        "model must give the logits of its linear head, scaled and soft-capped as its configuration says; "
        f"{name} gives something else: scores of it would be wrong"
    )


def load_language_model(folder: Path | str, device: str | None = None) -> tuple[Any, Any, dict[str, Any]]:
    """The model, its tokenizer, and what identifies them; a folder as `save_pretrained` leaves it, with safetensors."""
    folder = Path(folder)
    if not (folder / "config.json").is_file():
        raise ValueError(f"model must be a folder with config.json, as save_pretrained leaves it; {folder} has none")
    try:
        from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer
    except ImportError as error:
        raise ImportError("language models need transformers: pip install transformers") from error
    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        config = AutoConfig.from_pretrained(folder, **local)
        masked = any("MaskedLM" in name for name in config.architectures or ())
        kind = AutoModelForMaskedLM if masked else AutoModelForCausalLM
        model = kind.from_pretrained(folder, config=config, use_safetensors=True, dtype="auto", **local)
        tokenizer = AutoTokenizer.from_pretrained(folder, **local)
    except Exception as error:  # transformers raises many types for a folder that it cannot read
        if isinstance(error, MemoryError):
            raise
        reason = " ".join(str(error).split())[:300]
        raise ValueError(f"model must be a language model that transformers can read; {folder}: {reason}") from error
    files = sorted(one for one in folder.iterdir() if one.suffix in (".json", ".safetensors"))
    said = "\n".join(f"{one.name} {one.stat().st_size} {one.stat().st_mtime_ns}" for one in files)
    wanted = check_device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    model.to(str(wanted))  # type: ignore[arg-type]
    return model, tokenizer, {"model": hashlib.sha256(said.encode()).hexdigest()}

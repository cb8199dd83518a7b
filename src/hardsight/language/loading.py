"""A language model and its tokenizer from a folder: nothing is downloaded, and no code of the folder runs."""

import hashlib
from pathlib import Path
from typing import Any

import torch

from hardsight.validation import check_device


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

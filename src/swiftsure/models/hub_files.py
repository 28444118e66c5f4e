"""Which files of a repository are the model: one GGUF file, or what the transformers library reads; pickles never."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from swiftsure.errors import ModelNotFoundError, UnsupportedModelError

INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_BESIDE_WEIGHTS = (
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json",
    "added_tokens.json", "vocab.json", "merges.txt", "tokenizer.model",
)  # fmt: skip
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_WHY_NOT_PICKLES = "a pickle executes code when loaded"


def refuse_pickle(file: str, shown: str) -> None:
    """Raises UnsupportedModelError for a file that a model name must not name."""
    suffix = PurePosixPath(file).suffix.lower()
    if suffix in _PICKLES:
        raise UnsupportedModelError(f"{shown}/{file}: '{suffix}' files are Python pickles, and {_WHY_NOT_PICKLES}; they are never fetched")
    if suffix == ".safetensors":
        raise UnsupportedModelError(
            f"{shown}/{file}: a .safetensors file is a model only with the configuration and tokenizer beside it: name {shown}"
        )
    if suffix != ".gguf":
        raise UnsupportedModelError(f"{shown}/{file}: only .gguf files are models by themselves, got '{suffix or file}'")


def choose_files(present: Sequence[str], file: str | None, shown: str) -> tuple[str, ...]:
    """The named file; else the one GGUF file; else what makes a folder, the index first and shards left out where there is one.

    Raises ModelNotFoundError when the file is not there or several would do, UnsupportedModelError when nothing can be read.
    """
    if file is not None:
        if file not in present:
            raise ModelNotFoundError(f"{shown}: the repository has no file {file}")
        return (file,)
    found = sorted(name for name in present if name.endswith(".gguf"))
    if len(found) > 1:
        raise ModelNotFoundError(f"{shown}: say which file, as {shown}/FILE: {', '.join(found)}")
    if found:
        return (found[0],)
    weights = [name for name in (_SINGLE, INDEX) if name in present][:1]
    if not weights:
        pickles = sorted(name for name in present if PurePosixPath(name).suffix.lower() in _PICKLES)
        if pickles:
            listed = ", ".join(pickles[:4])
            raise UnsupportedModelError(
                f"{shown}: its weights are Python pickles ({listed}), and {_WHY_NOT_PICKLES}; they are never fetched"
            )
        raise UnsupportedModelError(f"{shown}: the repository holds no GGUF file and no {_SINGLE} or {INDEX}")
    if "config.json" not in present:
        raise UnsupportedModelError(f"{shown}: the repository holds .safetensors files, but no config.json that says what they are")
    return (*weights, *(name for name in _BESIDE_WEIGHTS if name in present))

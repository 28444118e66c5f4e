"""All that a file says of a model, for people who decide whether to run it: also of a sound file that cannot be run, with every reason."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from swiftsure.errors import TemplateError, UnsupportedModelError, quotable
from swiftsure.models.architectures import ARCHITECTURES
from swiftsure.models.chat_template import ChatTemplate, template_name
from swiftsure.models.files import ModelFiles
from swiftsure.models.hf_folder import HFFolder
from swiftsure.models.licences import LICENCES
from swiftsure.models.model import about, describe_file, read_config_or_reasons
from swiftsure.models.model_file import ModelFile, open_model_file
from swiftsure.models.schedule import Schedule
from swiftsure.models.tensors import MATRIX_TYPES
from swiftsure.models.tokenizer import Tokenizer
from swiftsure.models.transformer import write_schedule

_TOKENIZER_KINDS = {"gpt2": "byte-level BPE", "llama": "SentencePiece BPE", "t5": "SentencePiece unigram"}
_IN_FOLDERS = "tokenizer.json"


def model_info(files: ModelFiles) -> tuple[dict[str, Any], Schedule | None]:
    """Facts as :func:`~swiftsure.models.model.describe` gives them, with ``tokenizer``, ``chat_template``, ``licence_terms`` and, where
    there are reasons in ``unsupported``, what is ``supported``; and the schedule of a model whose configuration is understood.

    Builds the tokenizer and asks the template, which takes as long as that takes. Raises ModelFileError for a damaged file, and
    UnsupportedModelError for one that cannot even be described: a pickle, another format.
    """
    with open_model_file(files.path) as file, about(files.path):
        config, reasons = read_config_or_reasons(file)
        schedule = write_schedule(config) if config else None
        tokenizer: Tokenizer | None = None
        try:
            if isinstance(file, HFFolder):
                tokenizer = Tokenizer.from_folder(file.path, rows=config.vocab_size if config else None)
            elif "tokenizer.ggml.model" in file.metadata:
                tokenizer = Tokenizer.from_gguf(file.metadata)
            else:
                reasons.append("the file holds no tokenizer (metadata key 'tokenizer.ggml.model')")
        except UnsupportedModelError as error:
            reasons.append(str(error))
        facts = describe_file(files, file, config, reasons, schedule)
        licence = LICENCES.get(facts["licence"] or "")
        return facts | {
            "licence_terms": asdict(licence) if licence else None,
            "file_sha256": dict(files.file_sha256) if files.file_sha256 else None,
            "tokenizer": _tokenizer_facts(file, tokenizer),
            "chat_template": _template_facts(file, tokenizer),
            "supported": {"architectures": sorted(ARCHITECTURES), "tensor_types": list(MATRIX_TYPES)} if reasons else None,
        }, schedule


def _tokenizer_facts(file: ModelFile, tokenizer: Tokenizer | None) -> dict[str, Any]:
    meta = file.metadata
    if isinstance(file, HFFolder):
        kind, splits = _IN_FOLDERS, None
    else:
        named = quotable(meta.text("tokenizer.ggml.model", "none"))
        kind = f"{_TOKENIZER_KINDS[named]} ({named})" if named in _TOKENIZER_KINDS else named
        splits = quotable(meta.text("tokenizer.ggml.pre", "")) or None
    return {
        "kind": kind,
        "pre_tokenizer": splits,
        "vocab_size": tokenizer.vocab_size if tokenizer else None,
        "begins_with_bos": tokenizer.add_bos if tokenizer else None,
        "end_tokens": [quotable(tokenizer.token_text(token)) for token in sorted(tokenizer.eos_ids)] if tokenizer else None,
    }


def _template_facts(file: ModelFile, tokenizer: Tokenizer | None) -> dict[str, Any] | None:
    """None without a template; ``error`` where it cannot be asked."""
    meta = file.metadata
    sources = {name: meta.text(key) for key in meta if (name := template_name(key)) is not None}
    if not sources:
        return None
    words = {"bos_token": tokenizer.bos_id, "eos_token": tokenizer.eos_id} if tokenizer else {}
    variables = {name: tokenizer.token_text(token) for name, token in words.items() if tokenizer and token is not None}
    template = ChatTemplate(sources, variables=variables)
    try:
        return asdict(template.abilities()) | {"templates": sorted(map(quotable, sources)), "error": None}
    except TemplateError as error:
        return {"templates": sorted(map(quotable, sources)), "error": str(error)}
    finally:
        template.close()

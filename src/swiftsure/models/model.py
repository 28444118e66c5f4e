"""An open model: what the bytes of one file mean."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from swiftsure.errors import ModelFileError, TemplateError, UnsupportedModelError, quotable
from swiftsure.models.architectures import Architecture, architecture
from swiftsure.models.chat_template import ChatTemplate, Message, template_name
from swiftsure.models.config import ModelConfig
from swiftsure.models.control_marks import ControlTokens
from swiftsure.models.conversation import conversation
from swiftsure.models.costs import decode_bytes_per_token
from swiftsure.models.files import ModelFiles
from swiftsure.models.hf_folder import HFFolder
from swiftsure.models.kv_size import kv_bytes_per_position
from swiftsure.models.model_file import ModelFile, open_model_file
from swiftsure.models.schedule import Attention, Schedule
from swiftsure.models.tensors import TensorSource
from swiftsure.models.tokenizer import Tokenizer
from swiftsure.models.transformer import type_reasons, unsupported_reasons, write_schedule

_SAMPLING_PREFIX = "general.sampling."


class Model:
    """Weights, configuration, tokenizer and chat template of one file. Context manager; made by :func:`open_model`.

    The tokenizer and the template are built when first asked for: `models info` and runs on token ids never pay for them.
    """

    def __init__(self, files: ModelFiles, file: ModelFile, config: ModelConfig) -> None:
        self.files = files
        self.config = config
        self._file = file

    @property
    def architecture(self) -> str:
        return self.config.architecture

    @property
    def tensors(self) -> TensorSource:
        return self._file

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Raises UnsupportedModelError for a vocabulary of another kind and ModelFileError for a damaged one; the message starts with the
        path."""
        with about(self.files.path):
            return self._build_tokenizer()

    def _build_tokenizer(self) -> Tokenizer:
        if isinstance(self._file, HFFolder):
            return Tokenizer.from_folder(self._file.path, rows=self.config.vocab_size)
        if "tokenizer.ggml.tokens" in self._file.metadata:  # before anything is built of a vocabulary of any size
            size = len(self._file.metadata.strings("tokenizer.ggml.tokens"))
            if size != self.config.vocab_size:
                raise ModelFileError(f"the vocabulary has {size} tokens, but the embedding {self.config.vocab_size} rows")
        return Tokenizer.from_gguf(self._file.metadata)

    @cached_property
    def chat_template(self) -> ChatTemplate | None:
        """The file's template, or its templates where it holds several by name."""
        meta = self._file.metadata
        sources = {name: meta.text(key) for key in meta if (name := template_name(key)) is not None}
        if not sources:
            return None
        tokenizer = self.tokenizer
        named = {"bos_token": tokenizer.bos_id, "eos_token": tokenizer.eos_id}
        for word, key in (("unk_token", "unknown"), ("pad_token", "padding")):
            token = meta.integer(f"tokenizer.ggml.{key}_token_id", -1)
            named[word] = token if 0 <= token < tokenizer.vocab_size else None
        variables = {name: tokenizer.token_text(token) for name, token in named.items() if token is not None}
        return ChatTemplate(sources, variables=variables)

    @cached_property
    def _control_tokens(self) -> ControlTokens:
        return ControlTokens(self.tokenizer.token_text(token) for token in self.tokenizer.special_ids)

    @cached_property
    def generation_defaults(self) -> dict[str, Any]:
        """Sampling values that the file recommends, by GGUF's own names (``temp``, ``top_p``); empty when it is silent."""
        meta = self._file.metadata
        return {key.removeprefix(_SAMPLING_PREFIX): meta.get(key) for key in meta if key.startswith(_SAMPLING_PREFIX)}

    def encode_chat(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        template_variables: Mapping[str, Any] | None = None,
        add_generation_prompt: bool = True,
        special_in_content: bool = False,
    ) -> list[int]:
        """Ids of a conversation, as the model's template writes it.

        ``tools`` are functions as JSON schemas, ``documents`` objects; ``template_variables`` are switches of this template
        (``enable_thinking``). Special tokens that are spelled out in any of these stay plain text unless ``special_in_content``.

        Raises UsageError for malformed arguments and for those that the template does not read. Raises TemplateError when there is no
        template, when it refuses, and when it rearranges what holds special tokens so that they cannot be told apart.
        """
        template, tokenizer = self.chat_template, self.tokenizer
        if template is None:
            raise TemplateError(f"model '{self.files.name}' has no chat template; give it plain text")
        chat = conversation(messages, tools=tools, documents=documents, template_variables=template_variables)
        control = ControlTokens(()) if special_in_content else self._control_tokens
        text, spans = template.render_guarded(chat, control, add_generation_prompt=add_generation_prompt)
        return tokenizer.encode(text, special=True, plain_spans=spans)

    def vocabulary_difference(self, other: Model) -> str | None:
        """Why an id does not mean the same token in both models; None: every id does."""
        mine, theirs = self.config.vocab_size, other.config.vocab_size
        if mine != theirs:
            return f"it has {mine} tokens, the other {theirs}"
        key = "tokenizer.ggml.tokens"
        if key not in self._file.metadata or key not in other._file.metadata:  # a folder: the two write the same token in different ways
            return self.tokenizer.difference(other.tokenizer)
        pairs = zip(self._file.metadata.strings(key), other._file.metadata.strings(key), strict=True)
        for token, (a, b) in enumerate(pairs):
            if a != b:
                return f"token {token} is {a!r} in one and {b!r} in the other"
        return None

    def schedule(self) -> Schedule:
        """The static program of one pass."""
        return write_schedule(self.config)

    def info(self) -> dict[str, Any]:
        return describe_file(self.files, self._file, self.config, [], self.schedule())

    def check_unchanged(self) -> None:
        """Raises ModelFileError if the file was written to since its digest was taken: then what was read may be other bytes."""
        self._file.check_unchanged()

    def close(self) -> None:
        template = self.__dict__.get("chat_template")
        if template is not None:
            template.close()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def open_model(files: ModelFiles) -> Model:
    """Opens a model that this build can run.

    Raises ModelFileError for a damaged file and UnsupportedModelError for a sound one of another kind; each message starts with the path.
    """
    file = open_model_file(files.path)
    try:
        with about(files.path):
            if files.stamp is not None and file.stamp != files.stamp:
                raise ModelFileError("the file changed after its SHA-256 was taken")
            config, reasons = read_config_or_reasons(file)
            if config is None or reasons:
                more = f" (and {len(reasons) - 1} more: swiftsure models info lists them)" if len(reasons) > 1 else ""
                raise UnsupportedModelError(reasons[0] + more)
    except BaseException:
        file.close()
        raise
    return Model(files, file, config)


def describe(files: ModelFiles) -> dict[str, Any]:
    """What ``models info --json`` prints, also for a sound file that cannot be run: then ``unsupported`` lists why.

    Raises ModelFileError for a damaged file; the message starts with the path.
    """
    with open_model_file(files.path) as file, about(files.path):
        config, reasons = read_config_or_reasons(file)
        return describe_file(files, file, config, reasons, write_schedule(config) if config else None)


def read_config_or_reasons(file: ModelFile) -> tuple[ModelConfig | None, list[str]]:
    """The configuration, where it is understood, and every reason why this build cannot run the file; none: it can."""
    if file.unsupported:
        return None, [*file.unsupported, *type_reasons(file)]
    try:
        config = _architecture_of(file).read_config(file)
    except UnsupportedModelError as error:
        return None, [str(error), *type_reasons(file)]
    return config, unsupported_reasons(file, config)


@contextmanager
def about(path: Path) -> Iterator[None]:
    """Begins the message of what is raised about a file with its path, where it does not yet."""
    try:
        yield
    except (ModelFileError, UnsupportedModelError) as error:
        message = str(error)
        raise type(error)(message if message.startswith(quotable(str(path))) else f"{path}: {message}") from None


def _architecture_of(file: ModelFile) -> Architecture:
    parts = file.metadata.integer("split.count", 1)
    if parts > 1:
        raise UnsupportedModelError(f"the file is one of {parts} parts of a model; only models in one file are supported")
    return architecture(file.metadata.text("general.architecture"))


def describe_file(
    files: ModelFiles, file: ModelFile, config: ModelConfig | None, unsupported: list[str], schedule: Schedule | None
) -> dict[str, Any]:
    infos = [file.info(name) for name in file.names()]
    counts, sizes = Counter(info.type for info in infos), Counter[str]()
    for info in infos:
        sizes[info.type] += info.nbytes
    meta = file.metadata
    return {
        "name": files.name,
        "path": str(files.path),
        "sha256": files.sha256,
        "source": files.source,
        "version": files.version,
        "licence": quotable(files.licence or meta.text("general.license", "")) or None,
        "format": file.format,
        "file_bytes": file.size,
        "architecture": quotable(meta.text("general.architecture", "unknown")),
        "parameters": sum(info.elements for info in infos),
        "tensor_types": {kind: {"tensors": counts[kind], "bytes": sizes[kind]} for kind in sorted(counts)},
        "layers": config.layers if config else None,
        "context_length": config.context_length if config else None,
        "vocab_size": config.vocab_size if config else None,
        "decode_bytes_per_token": decode_bytes_per_token(file, schedule) if schedule else None,
        "kv_bytes_per_position": kv_bytes_per_position(schedule) if schedule else None,
        "attention_windows": _windows(schedule) if schedule else None,
        "kv_format": "int16 values, one float32 scale per head vector",
        "chat_template": any(template_name(key) is not None for key in meta),
        "unsupported": [quotable(reason) for reason in unsupported],
    }


def _windows(schedule: Schedule) -> dict[str, int]:
    """Layers by the window of their attention; layers without one are not counted."""
    return dict(Counter(str(op.window) for op in schedule.ops if isinstance(op, Attention) and op.window is not None))

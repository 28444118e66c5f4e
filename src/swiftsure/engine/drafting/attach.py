"""From what a user names as the draft to a source of drafts: a smaller model of the same vocabulary, or a head made for this very model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from swiftsure.errors import NotActiveError, UsageError
from swiftsure.models.schedule import Embed, Schedule

if TYPE_CHECKING:
    from swiftsure.engine.backend import Backend
    from swiftsure.engine.cpu import CPUBackend
    from swiftsure.engine.drafting.source import DraftSource
    from swiftsure.models.cache import Progress
    from swiftsure.models.draft_head import DraftHead
    from swiftsure.models.files import ModelFiles
    from swiftsure.models.licences import AcceptLicence
    from swiftsure.models.model import Model

NONE = "none"
MAX_ROWS = 256  # rows a pass of a draft model, which reads prompts too
MAX_LOGIT_ROWS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftInfo:
    """Which draft speculates."""

    kind: Literal["head", "model"]
    name: str
    sha256: str
    weight_bytes: int
    kv_bytes_per_token: int  # of its own cache

    def text(self) -> str:
        """For ACTIVE lines."""
        return f"draft={self.kind}:{self.name} draft_weights=sha256:{self.sha256}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenDraft:
    """An open file that was found to fit its target, not packed yet."""

    info: DraftInfo
    head: DraftHead | None = None
    model: Model | None = None

    def close(self) -> None:
        for opened in (self.head, self.model):
            if opened is not None:
                opened.close()


def open_draft(
    draft: str | Path | None,
    target: Model,
    *,
    offline: bool = False,
    progress: Progress | None = None,
    accept_licence: AcceptLicence = False,
) -> OpenDraft | None:
    """Opens the draft that ``draft`` names for ``target``: a model as :func:`swiftsure.load` takes it, or the file of a draft head.

    None and "none": no draft. Raises NotActiveError with the reason for a draft that does not fit the target, and the ModelError family.
    """
    from swiftsure.models.catalogue import resolve
    from swiftsure.models.draft_head import is_draft_head
    from swiftsure.models.model_file import open_model_file

    if draft is None or draft == NONE:
        return None
    files = resolve(draft, offline=offline, progress=progress, accept_licence=accept_licence)
    with open_model_file(files.path) as file:
        is_head = is_draft_head(file)
    return _open_head(files, target) if is_head else _open_model(files, target)


def require_speculation(draft: str | Path | None, mode: str, levers: tuple[str, ...]) -> bool:
    """Whether a draft is of use. Raises UsageError when one is named where nothing speculates."""
    speculates = "speculation" in levers
    if draft is not None and draft != NONE and not speculates:
        raise UsageError(f"a draft serves the lever speculation, which mode {mode} does not have on here; leave --draft out or say none")
    return speculates


def build_source(
    draft: OpenDraft, target: Model, schedule: Schedule, backend: Backend, *, kv_blocks: int, cache: bool = True
) -> BuiltDraft:
    """Packs the draft beside ``backend``, which has not run yet and whose threads it shares. ``schedule``: of the target."""
    from swiftsure.engine.cpu import CPUBackend
    from swiftsure.engine.drafting.head import HeadSource
    from swiftsure.engine.drafting.model import ModelSource
    from swiftsure.engine.packed_store import PackedKey, PackedStore
    from swiftsure.models.draft_head import TARGET_EMBEDDING

    assert isinstance(backend, CPUBackend), "drafts run where their target runs"
    if draft.head is not None:
        head = draft.head
        embedding = next(op.weight for op in schedule.ops if isinstance(op, Embed))
        own = CPUBackend(
            head.schedule(),
            head.tensors(target.tensors, schedule),
            isa=backend.isa,
            threads=backend.threads,
            kv_blocks=1,
            max_rows=MAX_LOGIT_ROWS,
            max_logit_rows=MAX_LOGIT_ROWS,
            shared={TARGET_EMBEDDING: backend.matrix(embedding)},
            threads_of=backend,
        )
        return BuiltDraft(own, HeadSource(own, head.shortlist, vocab_size=backend.vocab_size, hidden=head.config.hidden))
    assert draft.model is not None, "a draft is a head or a model"
    own = CPUBackend(
        draft.model.schedule(),
        draft.model.tensors,
        isa=backend.isa,
        threads=backend.threads,
        kv_blocks=kv_blocks,
        max_rows=MAX_ROWS,
        max_logit_rows=MAX_LOGIT_ROWS,
        threads_of=backend,
        store=PackedStore(PackedKey(weights_sha256=draft.info.sha256)) if cache else None,
    )
    draft.model.check_unchanged()
    return BuiltDraft(own, ModelSource(own, context=draft.model.config.context_length))


@dataclass(frozen=True, slots=True)
class BuiltDraft:
    """A packed draft: its back end, to be closed, and the source that runs on it."""

    backend: CPUBackend
    source: DraftSource


def _open_head(files: ModelFiles, target: Model) -> OpenDraft:
    from swiftsure.models.draft_head import open_draft_head

    head = open_draft_head(files)
    wanted, hidden, vocab = head.config.target_sha256, target.config.hidden, target.config.vocab_size
    reason = None
    if wanted != target.files.sha256:
        reason = f"it was made for the model with sha256:{wanted}, and this one is sha256:{target.files.sha256}"
    elif head.config.hidden != hidden:
        reason = f"its hidden width is {head.config.hidden}, and the model's {hidden}"
    elif head.shortlist[-1] >= vocab:
        reason = f"its shortlist names token {head.shortlist[-1]}, and the model has {vocab}"
    if reason is not None:
        head.close()
        raise NotActiveError(f"draft head '{files.name}' does not fit model '{target.files.name}': {reason}")
    info = DraftInfo(kind="head", name=files.name, sha256=files.sha256, weight_bytes=head.weight_bytes, kv_bytes_per_token=0)
    return OpenDraft(info=info, head=head)


def _open_model(files: ModelFiles, target: Model) -> OpenDraft:
    from swiftsure.engine.cpu import require_runnable
    from swiftsure.models.kv_size import kv_bytes_per_position
    from swiftsure.models.model import open_model

    model = open_model(files)
    try:
        schedule = model.schedule()
        require_runnable(schedule)
        difference = model.vocabulary_difference(target)
        if difference is not None:
            raise NotActiveError(f"draft model '{files.name}' does not fit model '{target.files.name}': {difference}")
    except BaseException:
        model.close()
        raise
    weight_bytes = sum(model.tensors.info(name).nbytes for name in model.tensors.names())
    info = DraftInfo(
        kind="model",
        name=files.name,
        sha256=files.sha256,
        weight_bytes=weight_bytes,
        kv_bytes_per_token=kv_bytes_per_position(schedule),
    )
    return OpenDraft(info=info, model=model)

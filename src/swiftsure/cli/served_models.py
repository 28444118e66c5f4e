"""Models as ``serve`` is given them, ``[NAME=]MODEL[@MODE]``, and what of the other options each one is loaded with."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from swiftsure.errors import UsageError

if TYPE_CHECKING:
    from swiftsure.engine.load_options import LoadOptions
    from swiftsure.serve.settings import ModelSettings

_MODE_WORD = re.compile(r"[A-Za-z_]+")  # what may be meant as a mode: a name, no part of a path


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One model as it was written. ``mode``: its own; None: that of ``--mode``."""

    name: str
    source: str
    mode: str | None


def read_model(text: str) -> Written:
    """``NAME=MODEL``, or a model under its own name, either with ``@MODE`` behind it. What is a path that exists is a path.

    Raises UsageError for an empty part, an unknown mode, and ``hf:ORG/NAME@MODE``, where the last part may be a revision.
    """
    stem, _, word = text.rpartition("@")
    for path in (text, stem) if stem else (text,):
        if Path(path).exists():
            mode = _mode_named(word) if path != text else None
            return Written(name=_with_mode(Path(path).stem, mode), source=path, mode=mode)
    name, equals, model = text.partition("=")
    if equals and not (name and model):
        raise UsageError(f"a model is given as MODEL or NAME=MODEL, with @MODE behind it where it has a mode of its own, got {text!r}")
    source, mode = _split_mode(model if equals else text, text)
    return Written(name=name if equals else _with_mode(source, mode), source=source, mode=mode)


def _mode_named(word: str) -> str:
    from swiftsure.engine.modes import mode_spec

    return mode_spec(word).name


def _with_mode(name: str, mode: str | None) -> str:
    return f"{name}@{mode}" if mode else name


def _split_mode(model: str, text: str) -> tuple[str, str | None]:
    """``text``: as the user wrote it, for messages."""
    from swiftsure.engine.modes import MODES

    source, at, word = model.rpartition("@")
    if not at or Path(model).exists() or not _MODE_WORD.fullmatch(word):
        return model, None
    if not source:
        raise UsageError(f"a model is given as MODEL@MODE, got {text!r}")
    if source.startswith("hf:"):
        if word not in MODES:
            return model, None  # a revision
        if "@" not in source and source.count("/") == 1:
            raise UsageError(
                f"{model}: {word} may be a revision or a mode; write {source}@REVISION@{word} for the mode, {model}@MODE for the revision"
            )
        return source, word
    return source, _mode_named(word)


def model_settings(
    texts: Sequence[str], mode: str | None, options: LoadOptions, *, calls: Sequence[str] = (), reasoning: Sequence[str] = ()
) -> tuple[ModelSettings, ...]:
    """``mode``: of the models that name none. A lever of ``without`` and a draft go to the models whose modes have them. ``calls``,
    ``reasoning``: parsers as ``PARSER`` for every model or ``NAME=PARSER`` for one.

    Raises UsageError for a mode or a lever that no model has a use for, and for parsers and names that do not exist.
    """
    from swiftsure.engine.activation import resolve_mode
    from swiftsure.engine.modes import mode_spec
    from swiftsure.serve.parsing.choose import Formats
    from swiftsure.serve.settings import ModelSettings

    models = [read_model(text) for text in texts]
    if mode is not None and all(model.mode is not None for model in models):
        raise UsageError(f"--mode {mode} is for models that name no mode, and each of these names its own")
    modes = [resolve_mode(model.mode if model.mode is not None else mode) for model in models]
    levers = [mode_spec(each).levers for each in modes]
    for name in options.without:
        if len(set(modes)) > 1 and not any(name in own for own in levers):
            raise UsageError(f"no mode among {', '.join(dict.fromkeys(modes))} has a lever {name!r}")
    names = [model.name for model in models]
    call_names, reasoning_names = _parsers("--tool-call-parser", calls, names), _parsers("--reasoning-parser", reasoning, names)
    settings = []
    for model, own_mode, own in zip(models, modes, levers, strict=True):
        load = options
        if len(set(modes)) > 1:  # where all are of one mode, the load itself says what does not fit
            speculates = "speculation" in own
            load = replace(load, without=[name for name in load.without if name in own], draft=load.draft if speculates else None)
        formats = Formats(calls=call_names[model.name], reasoning=reasoning_names[model.name])
        settings.append(ModelSettings(name=model.name, source=model.source, mode=own_mode, load=load.keywords(), formats=formats))
    return tuple(settings)


def _parsers(option: str, texts: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """By model. What names a model goes before what is for all of them."""
    found: dict[str, str] = {}
    everyone = "auto"
    for text in texts:
        name, equals, parser = text.rpartition("=")
        if not equals:
            everyone = text
        elif name in names:
            found[name] = parser
        else:
            raise UsageError(f"{option} {text}: no model is served as {name!r}; served: {', '.join(names)}")
    return {name: found.get(name, everyone) for name in names}

"""The facts of a model in words, for 80 columns."""

from __future__ import annotations

from typing import Any

from swiftsure.cli.console import count_text, print_pairs, print_table, print_wrapped, size_text


def print_facts(facts: dict[str, Any]) -> None:
    """Prints what ``engine.model_info`` found."""
    print_pairs({name: value for name, value in _pairs(facts).items() if value is not None})
    print()
    _print_tensors(facts)
    if facts["memory"]:
        print()
        _print_memory(facts["memory"])
    if facts["unsupported"]:
        print("\nnot supported")
        for reason in facts["unsupported"]:
            print_wrapped("  ", reason)
        supported = facts["supported"]
        print_wrapped("supported architectures  ", ", ".join(supported["architectures"]))
        print_wrapped("supported tensor types   ", ", ".join(supported["tensor_types"]))


def _pairs(facts: dict[str, Any]) -> dict[str, str | None]:
    terms = facts["licence_terms"]
    shape = f", {facts['layers']} layers, context {facts['context_length']:,}" if facts["layers"] is not None else ""
    reads = facts["decode_bytes_per_token"]
    each = facts["kv_bytes_per_position"]
    return {
        "name": facts["name"],
        "path": facts["path"],
        "source": facts["source"],
        "version": facts["version"],
        "sha256": facts["sha256"],
        "licence": f"{terms['name']}, {terms['url']}" if terms else facts["licence"] or "the file names none",
        "format": f"{facts['format']}, {size_text(facts['file_bytes'])}",
        "architecture": f"{facts['architecture']}{shape}",
        "parameters": f"{count_text(facts['parameters'])} ({facts['parameters']:,})",
        "a token reads": None if reads is None else f"{size_text(reads)} of weights, {size_text(each)} of keys and values per position",
        "windows": _windows(facts),
        "tokenizer": _tokenizer(facts["tokenizer"]),
        "chat template": _template(facts["chat_template"]),
    }


def _windows(facts: dict[str, Any]) -> str | None:
    """What a token reads of keys and values grows slower than what is kept of them."""
    found = facts["attention_windows"]
    if not found:
        return None
    seen = "; ".join(
        f"{layers} of {facts['layers']} layers read the last {int(window):,} positions alone" for window, layers in found.items()
    )
    return f"{seen}; all layers keep the keys and values of all positions"


def _tokenizer(found: dict[str, Any]) -> str:
    parts = [found["kind"]]
    if found["pre_tokenizer"] not in (None, "default"):
        parts.append(f"splits like {found['pre_tokenizer']}")
    if found["vocab_size"] is not None:
        parts += [f"{found['vocab_size']:,} tokens", f"ends with {' '.join(found['end_tokens']) or 'none'}"]
    return ", ".join(parts)


def _template(found: dict[str, Any] | None) -> str:
    if found is None:
        return "none; give the model plain text"
    if found["error"] is not None:
        return str(found["error"])
    can = ", ".join(f"{name} {'yes' if found[name] else 'no'}" for name in ("system", "tools", "documents"))
    return f"{can}; switches: {', '.join(found['switches']) or 'none'}"


def _print_tensors(facts: dict[str, Any]) -> None:
    kinds = sorted(facts["tensor_types"].items(), key=lambda kind: -kind[1]["bytes"])
    total = sum(entry["bytes"] for _, entry in kinds) or 1
    rows = [[kind, f"{one['tensors']}", size_text(one["bytes"]), f"{100 * one['bytes'] / total:.1f} %"] for kind, one in kinds]
    print_table(["tensor type", "tensors", "bytes", "share"], rows, right=(1, 2, 3))


def _print_memory(memory: dict[str, Any]) -> None:
    """A line for each mode; what does not fit says why."""
    rows = []
    for mode, plan in memory.items():
        if plan["fits"]:
            sizes = (plan[name] for name in ("weight_bytes", "kv_bytes_per_token", "kv_bytes", "work_bytes", "total_bytes"))
            rows.append([mode, f"{plan['context']:,}", *map(size_text, sizes)])
        else:
            rows.append([mode, "no room", "", "", "", "", ""])
    head = ["memory in mode", "context", "weights", "kv a token", "kv", "work", "in all"]
    print_table(head, rows, right=range(1, len(head)))
    for reason in {plan["reason"] for plan in memory.values() if not plan["fits"]}:
        print_wrapped("  ", reason)

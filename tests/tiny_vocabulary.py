"""The vocabulary and chat template of the tiny models."""

from __future__ import annotations

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_level_vocabulary(vocab: int) -> tuple[list[str], list[str]]:
    """Tokens and merges of a byte-level BPE tokenizer of exactly ``vocab`` tokens: specials, bytes (common ones first), then merges.

    Below 259 tokens some bytes have no token; the text a test uses should keep to ASCII then.
    """
    common = b" \nabcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,:;!?'\"()-_=+*/<>[]{}#%&@$\\|~^`\t\r"
    order = list(dict.fromkeys([*common, *range(256)]))
    tokens = [*SPECIAL_TOKENS, *(_BYTE_CHARACTERS[byte] for byte in order)][:vocab]
    merges: list[str] = []
    space = _BYTE_CHARACTERS[ord(" ")]
    pairs = [(space, c) for c in "tasiowcbphmdf"] + [(a, b) for a in "theinorasl" for b in "eaionrtsdl"]
    pairs += [(space + "t", "he"), (space + "a", "nd"), (space + "i", "n"), (space + "o", "f")]
    for left, right in pairs:
        if len(tokens) >= vocab:
            break
        if left in tokens and right in tokens and left + right not in tokens:
            merges.append(f"{left} {right}")
            tokens.append(left + right)
    if len(tokens) != vocab:
        raise ValueError(f"vocab must be from {len(SPECIAL_TOKENS)} to {len(tokens)}, got {vocab}")
    return tokens, merges


def _byte_characters() -> dict[int, str]:
    """The printable character that stands for each byte in byte-level BPE vocabularies (GPT-2)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    table = {byte: chr(byte) for byte in printable}
    others = [byte for byte in range(256) if byte not in table]
    return table | {byte: chr(256 + index) for index, byte in enumerate(others)}


_BYTE_CHARACTERS = _byte_characters()

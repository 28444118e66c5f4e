"""Generation within a grammar: it conforms, it ends, it is the same in every mode, and a hostile grammar hurts nobody else."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
from fakes import ALL_LEVERS, FakeSampler, StillCost

from swiftsure import kernels
from swiftsure.engine.compiled import describer, free_sources, sampler_factory
from swiftsure.engine.constraints import compiler as compiler_module
from swiftsure.engine.constraints.compiler import GrammarCompiler
from swiftsure.engine.constraints.grammar import MAX_TEXT, Grammar
from swiftsure.engine.constraints.sampler import ConstrainedSampler, Scratch
from swiftsure.engine.cpu import CPUBackend
from swiftsure.engine.drafting.forced import Forced
from swiftsure.engine.engine import Engine
from swiftsure.engine.request import Request
from swiftsure.engine.sampling import SamplingParams
from swiftsure.errors import GrammarLimitError, UsageError
from tiny_models import TinyModel, TinySpec

pytest.importorskip("llguidance")

END = 0
PIECES = [
    b'{"',
    b'":',
    b'", "',
    b' "',
    b"true",
    b"false",
    b"na",
    b"me",
    b"name",
    b"size",
    b', "',
    b": ",
    b"}}",
    b'"}',
    b"red",
    b"10",
    b"abc",
]
WORDS = [b"", *(bytes([byte]) for byte in range(256)), *PIECES]  # the end, every byte, and some words
VOCAB = 300  # more columns than tokens

SCHEMA = Grammar.of_schema(
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 6},
            "size": {"type": "integer", "minimum": 0, "maximum": 500},
            "colour": {"enum": ["red", "blue"]},
            "flags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
        },
        "required": ["name", "size", "colour", "flags"],
        "additionalProperties": False,
    }
)
GRAMMARS = [
    SCHEMA,
    Grammar(kind="regex", text=r"[a-c]{3,9}(-(red|blue))*"),
    Grammar(kind="lark", text='start: item ("+" item){0,4}\nitem: /[0-9]{1,3}/ | "(" start ")"'),
    None,
]


class Words:
    """A tokenizer over ``WORDS`` that takes the longest word."""

    vocab_size = len(WORDS)
    special_ids = frozenset((END,))

    def token_bytes(self, token: int) -> bytes:
        return WORDS[token] if token < len(WORDS) else b""

    def encode(self, text: str, *, special: bool, continues: bool) -> list[int]:
        rest, ids = text.encode(), []
        while rest:
            token = max((i for i, word in enumerate(WORDS) if word and rest.startswith(word)), key=lambda i: len(WORDS[i]))
            ids.append(token)
            rest = rest[len(WORDS[token]) :]
        return ids


@pytest.fixture(scope="module")
def compiler() -> GrammarCompiler:
    return GrammarCompiler(Words(), vocab_size=VOCAB, end_ids=(END,))


@pytest.fixture(scope="module")
def model() -> TinyModel:
    return TinyModel(TinySpec(seed=3, vocab=VOCAB))


def run(model, compiler, requests, *, levers=(), kv_blocks=64, max_rows=64, cost=None):
    """The finished sequences, and the engine."""
    backend = CPUBackend(
        model.schedule, model.source(), isa=kernels.resolve_isa(None), threads=1, kv_blocks=kv_blocks, max_rows=max_rows, max_logit_rows=32
    )
    engine = Engine(
        backend,
        Words(),
        context=model.spec.context,
        end_ids=(END,),
        levers=levers,
        make_sampler=sampler_factory(VOCAB, backend.isa, compiler),
        sources=free_sources(),
        describe=describer(backend.isa),
    )
    engine.drafting.policy.cost = cost or engine.drafting.policy.cost
    sequences = [engine.add(request) for request in requests]
    while engine.step():
        pass
    backend.close()
    return sequences, engine


def request(grammar, *, prompt=b"abc {", **params) -> Request:
    return Request(prompt_ids=np.array([1 + byte for byte in prompt], np.int32), grammar=grammar, sampling=SamplingParams(**params))


def random_requests(seed: int) -> list[Request]:
    rng = np.random.default_rng(seed)
    return [
        request(
            grammar,
            prompt=bytes(rng.choice(list(b"abc"), rng.integers(1, 40)).tolist()),
            max_tokens=int(rng.integers(10, 120)),
            temperature=float(rng.choice([0.0, 0.5, 1.0])),
            seed=int(rng.integers(100)),
            top_k=int(rng.choice([0, 20])),
            top_p=float(rng.choice([1.0, 0.9])),
            min_p=float(rng.choice([0.0, 0.02])),
            repetition_penalty=float(rng.choice([1.0, 1.2])),
            frequency_penalty=float(rng.choice([0.0, 0.3])),
            logprobs=2,
        )
        for grammar in GRAMMARS * 2
    ]


@pytest.mark.parametrize("seed", range(4))
def test_exact_gives_the_tokens_of_default_under_every_grammar(model, compiler, seed):
    requests = random_requests(seed)
    alone = [run(model, compiler, [one])[0][0] for one in requests]
    together, engine = run(model, compiler, requests, levers=ALL_LEVERS, kv_blocks=20, max_rows=24, cost=StillCost())
    assert [seq.generation().token_ids for seq in together] == [seq.generation().token_ids for seq in alone]
    assert [seq.generation().finish_reason for seq in together] == [seq.generation().finish_reason for seq in alone]
    assert [seq.generation().logprobs for seq in together] == [seq.generation().logprobs for seq in alone]
    assert engine.evidence.speculation.by_source["forced"][1] > 0, "no forced token was drafted"


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_what_ends_conforms(model, compiler, temperature):
    asked = [request(grammar, max_tokens=250, temperature=temperature, seed=seed) for seed in range(3) for grammar in GRAMMARS[:2]]
    done = [seq.generation() for seq in run(model, compiler, asked)[0]]
    ended = [generation.text for generation in done[0::2] if generation.finish_reason == "stop"]
    assert ended
    for text in ended:
        value = json.loads(text)
        assert list(value) == ["name", "size", "colour", "flags"]
        assert 0 <= value["size"] <= 500
        assert len(value["name"]) <= 6
    for generation in done[1::2]:
        assert re.fullmatch(r"[a-c]{3,9}(-(red|blue))*", generation.text) or generation.finish_reason == "length"


def test_a_complete_text_ends_its_request_without_an_end_token(model, compiler):
    for ignore_eos in (False, True):
        for most in (3, 50):  # the last token that there is room for may be the one that completes it
            (seq,), _ = run(model, compiler, [request(Grammar(kind="regex", text="[xy]{3}"), max_tokens=most, ignore_eos=ignore_eos)])
            generation = seq.generation()
            assert re.fullmatch("[xy]{3}", generation.text)
            assert generation.finish_reason == "stop"
            assert END not in generation.token_ids


def test_where_a_text_may_end_or_go_on_the_model_chooses(model, compiler):
    bias = {END: 100.0}
    (seq,), _ = run(model, compiler, [request(Grammar(kind="regex", text="[xy]{2,90}"), logit_bias=bias, ignore_eos=True)])
    assert seq.generation().token_ids[-1] == END
    assert (len(seq.generation().text), seq.generation().finish_reason) == (2, "stop")


def test_callbacks_see_the_raw_logits(model, compiler):
    rows = []
    asked = request(SCHEMA, max_tokens=10)
    asked = Request(prompt_ids=asked.prompt_ids, sampling=asked.sampling, grammar=SCHEMA, on_logits=lambda at, row: rows.append(row.copy()))
    run(model, compiler, [asked])
    assert len(rows) == 10
    assert all(np.isfinite(row).all() for row in rows)


def sampler(compiler, grammar=SCHEMA, **params) -> ConstrainedSampler:
    return ConstrainedSampler(FakeSampler(request(grammar, **params)), compiler.matcher(grammar), Scratch())


def test_a_draft_outside_the_grammar_is_cut_where_it_leaves(compiler):
    ids = Words().encode('{"name": "abc"', special=False, continues=True)
    draft = np.array([*ids, 1 + ord("x"), 1 + ord("y")], np.int32)
    logits = np.zeros((len(draft) + 1, VOCAB), np.float32)
    logits[np.arange(len(draft)), draft] = 5.0
    taken = sampler(compiler).accept(logits, draft)
    assert taken[: len(ids)].tolist() == ids
    assert len(taken) == len(ids) + 1
    assert WORDS[taken[-1]].startswith(b",")


def test_drafts_of_any_length_bring_the_tokens_of_no_draft(compiler):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((200, VOCAB)).astype(np.float32)
    empty = np.zeros(0, np.int32)
    plain, step, tokens = sampler(compiler), 0, []
    while not plain.complete:
        tokens += plain.accept(rows[step : step + 1], empty).tolist()
        step += 1
    for seed in range(20):
        rng = np.random.default_rng(seed)
        drafted, found = sampler(compiler), []
        while not drafted.complete:
            right = tokens[len(found) : len(found) + int(rng.integers(0, 7))]
            draft = [token if rng.random() < 0.8 else int(rng.integers(len(WORDS))) for token in right]
            at = len(found)
            found += drafted.accept(rows[at : at + len(draft) + 1], np.array(draft, np.int32)).tolist()
        assert found == tokens


def test_forced_tokens_are_what_the_grammar_leaves_no_choice_about(compiler):
    source = Forced()
    seq = SimpleNamespace(sampler=sampler(compiler))
    (draft,) = source.propose([seq], [15])
    assert b"".join(WORDS[token] for token in draft.tokens) == b'{"name":'  # what comes next may share a token with the rest
    assert len(source.propose([seq], [2])[0].tokens) == 2
    assert not len(source.propose([SimpleNamespace(sampler=FakeSampler(request(None)))], [15])[0].tokens)


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("yaml", "", "the kind of a grammar must be json_schema, json_object, regex, lark, got 'yaml'"),
        ("regex", "", "a regex must not be empty"),
        ("regex", "a(", "the regex cannot be used: .*unclosed group"),
        ("regex", "(?=a)b", "look-around.*not supported"),
        ("regex", "a" * (MAX_TEXT + 1), f"at most {MAX_TEXT} characters, got {MAX_TEXT + 1}"),
        ("lark", "start: x", 'unknown name: "x"'),
        ("json_object", "{}", "json_object takes no text"),
        ("json_schema", "{", "a JSON schema must be JSON"),
        ("json_schema", "[]", "a JSON schema must be an object, got list"),
        ("json_schema", '{"type": "text"}', "the json_schema cannot be used: Invalid type: text"),
        ("json_schema", '{"not": {"type": "string"}}', "Unimplemented keys"),
        ("json_schema", '{"$ref": "#/nowhere"}', "nowhere"),
        ("json_schema", '{"a":' * 65 + "1" + "}" * 65, "nested at most 64 deep"),
        ("json_schema", '{"a":' * 20_000 + "1" + "}" * 20_000, "nested at most 64 deep"),
    ],
)
def test_a_grammar_that_cannot_be_used_is_refused_with_the_reason(compiler, kind, text, message):
    with pytest.raises(UsageError, match=message):
        compiler.check(Grammar(kind=kind, text=text))


def test_a_grammar_that_cannot_be_compiled_within_the_limits_is_refused(compiler):
    long_ands = Grammar(kind="lark", text="start: X\nX: /(.*a.{200})/ & /(.*b.{150}c)/ & ~/.*z{30}.*/")
    with pytest.raises(UsageError, match=r"the lark cannot be compiled: .*(fuel|states|items)"):
        compiler.check(long_ands)


def test_a_grammar_that_grows_beyond_its_limits_ends_its_own_request(model, compiler):
    ambiguous = Grammar(kind="lark", text='start: s\ns: s s | s s s | "a" | ""')
    (bad, good), _ = run(
        model,
        compiler,
        [request(ambiguous, max_tokens=400, logit_bias={END: -100.0}), request(GRAMMARS[1], max_tokens=5)],
        levers=ALL_LEVERS,
    )
    assert isinstance(bad.error, GrammarLimitError)
    assert re.search(r"the grammar (took more than its limits allow|must take at most 3 ms a token)", str(bad.error))
    assert good.error is None
    assert good.output_length == 5


def test_without_llguidance_a_grammar_is_refused_by_the_name_of_the_extra(compiler, monkeypatch):
    monkeypatch.setattr(compiler_module, "_installed", lambda: False)
    with pytest.raises(UsageError, match=r"needs the package llguidance.*swiftsure\[grammar\]"):
        compiler.check(Grammar(kind="regex", text="never compiled"))

"""The public face of a loaded model, over a back end whose answers depend on every token before them."""

from __future__ import annotations

import math
import signal
import sys
import threading

import numpy as np
import pytest
from fakes import ALL_LEVERS, EOS, VOCAB, FakeBackend, FakeTokenizer, make_llm

import swiftsure
from swiftsure.engine.inputs import split_fields
from swiftsure.errors import ContextLengthError, UsageError

MESSAGES = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def llm():
    with make_llm(levers=ALL_LEVERS) as loaded:
        yield loaded


def test_text_messages_and_ids_are_prompts(llm):
    text = llm.generate("user: Hello\n", max_tokens=5)
    assert text.prompt_ids == tuple(b"user: Hello\n")
    assert llm.generate(MESSAGES, max_tokens=5).token_ids == text.token_ids
    for ids in (list(text.prompt_ids), tuple(text.prompt_ids), np.array(text.prompt_ids)):
        assert llm.generate(ids, max_tokens=5).token_ids == text.token_ids
    assert str(text) == text.text == FakeTokenizer().decode(text.token_ids)


def test_list_of_prompts_gives_the_results_of_single_calls_in_order(llm):
    many = ["one", "two", "three two one"]
    together = llm.generate(many, max_tokens=20, temperature=0.9, seed=4)
    for prompt, result in zip(many, together, strict=True):
        alone = make_llm().generate(prompt, max_tokens=20, temperature=0.9, seed=4)
        assert (result.token_ids, result.text, result.finish_reason) == (alone.token_ids, alone.text, alone.finish_reason)
    assert [r.prompt_ids for r in llm.generate([MESSAGES, MESSAGES], max_tokens=1)] == [tuple(b"user: Hello\n")] * 2


def test_each_prompt_of_a_list_can_have_its_own_values(llm):
    params = [swiftsure.SamplingParams(max_tokens=2, ignore_eos=True), swiftsure.SamplingParams(max_tokens=3, ignore_eos=True)]
    seen: list[int] = []
    results = llm.generate(["a", "b"], sampling=params, on_logits=[None, lambda position, row: seen.append(position)])
    assert [len(r.token_ids) for r in results] == [2, 3]
    assert seen == [0, 1, 2]


@pytest.mark.parametrize("levers", [(), ALL_LEVERS])
@pytest.mark.parametrize("stop", [(), ("e", "<27"), (">1",)])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_streamed_pieces_join_to_the_generated_text(levers, stop, temperature):
    values = {"max_tokens": 60, "stop": stop, "temperature": temperature, "seed": 2}
    backend = FakeBackend(reach=2)
    whole = make_llm(backend, levers=levers).generate("abc", **values)
    stream = make_llm(backend, levers=levers).stream("abc", **values)
    assert "".join(stream) == whole.text
    assert stream.generation.token_ids == whole.token_ids
    assert stream.generation.finish_reason == whole.finish_reason


def test_stop_string_inside_an_accepted_draft_ends_the_text_there():
    """The model repeats 'abcdefgh'; drafts run over the stop string, and nothing behind it comes out."""
    cycle = b"abcdefgh"
    backend = FakeBackend(favour=lambda prefix: cycle[len(prefix) % 8])
    for levers in ((), ALL_LEVERS):
        seen: list[int] = []
        with make_llm(backend, levers=levers) as llm:
            result = llm.generate(
                "xyzxyz" * 8 + "abcdefgh" * 2, max_tokens=100, stop="fg", on_logits=lambda p, row, seen=seen: seen.append(p)
            )
            assert (result.text, result.finish_reason) == ("abcde", "stop")
            assert bytes(result.token_ids) == b"abcdefg"
            assert len(seen) == 7, "only emitted positions are reported"
            if levers:
                assert llm.activation.lever_states[0].counts["accepted"] > 0


@pytest.mark.parametrize("levers", [(), ALL_LEVERS])
def test_a_callback_can_cancel_its_own_request(levers):
    prompt, values = list(range(70)), {"max_tokens": 40, "ignore_eos": True}
    with make_llm(levers=levers) as llm:
        whole = make_llm().generate(prompt, **values)
        for last in range(70, 90):  # at every place in a block
            stopped = llm.generate(prompt, on_logits=lambda position, row, last=last: llm.cancel() if position == last else None, **values)
            assert stopped.finish_reason == "cancelled"
            assert last - 68 <= len(stopped.token_ids) < 40
            assert whole.token_ids[: len(stopped.token_ids)] == stopped.token_ids
            llm.clear_caches()
        assert llm.generate(prompt, **values).token_ids == whole.token_ids


@pytest.mark.parametrize("levers", [(), ALL_LEVERS])
@pytest.mark.parametrize("ask", ["generate", "logits", "stream"])
def test_a_callback_cannot_run_a_pass_inside_its_pass(levers, ask):
    with make_llm(levers=levers) as llm:
        calls = {
            "generate": lambda: llm.generate("b", max_tokens=1),
            "logits": lambda: llm.logits([1, 2]),
            "stream": lambda: next(llm.stream("b")),
        }
        expected = make_llm().generate("abc", max_tokens=9)
        with pytest.raises(UsageError, match="on_logits must not generate or ask for logits"):
            llm.generate("abc", max_tokens=9, on_logits=lambda position, row: calls[ask]())
        assert llm.generate("abc", max_tokens=9).token_ids == expected.token_ids
        assert not llm._engine.has_work


def test_logits_of_every_position_are_float32_and_pure(llm):
    ids = list(range(70))
    llm.generate(ids, max_tokens=2)
    rows = llm.logits(ids)
    assert (rows.shape, rows.dtype) == ((70, VOCAB), np.float32)
    np.testing.assert_array_equal(rows, make_llm().logits(ids))
    np.testing.assert_array_equal(rows[4], llm.backend.logits_of([0, 1, 2, 3, 4]))


def test_logprobs_are_of_the_raw_logits(llm):
    result = llm.generate([1, 2], max_tokens=3, logprobs=2, temperature=0.5, seed=1, logit_bias={5: 50.0}, ignore_eos=True)
    assert len(result.logprobs) == 3
    for n, entry in enumerate(result.logprobs):
        row = llm.backend.logits_of([1, 2, *result.token_ids[:n]]).astype(np.float64)
        assert entry.token_id == result.token_ids[n] == 5
        assert entry.logprob == pytest.approx(row[5] - math.log(np.exp(row).sum()))
        assert [t for t, _ in entry.top] == np.argsort(-row)[:2].tolist()
    assert llm.generate([1, 2], max_tokens=1).logprobs is None


def test_generation_says_which_values_were_used(llm):
    drawn = llm.generate("a", max_tokens=5, temperature=0.8)
    again = llm.generate("a", max_tokens=5, temperature=0.8, seed=drawn.sampling.seed)
    assert again.token_ids == drawn.token_ids
    assert (drawn.sampling.top_p, drawn.sampling.temperature) == (1.0, 0.8)


def test_timing_adds_up(llm):
    timing = llm.generate("hello", max_tokens=30, ignore_eos=True).timing
    phases = timing.tokenize_s + timing.queue_s + timing.prefill_s + timing.decode_s + timing.detokenize_s
    assert phases == pytest.approx(timing.total_s, rel=0.05, abs=2e-3)
    assert timing.ttft_s <= timing.total_s
    assert (timing.prompt_tokens, timing.output_tokens) == (5, 30)
    assert timing.decode_tokens_per_s == pytest.approx(29 / timing.decode_s)
    assert timing.to_dict()["ttft_s"] == timing.ttft_s


@pytest.mark.parametrize(
    ("prompt", "error", "message"),
    [
        ("", UsageError, "a prompt must not be empty"),
        ([], UsageError, "a prompt must not be empty"),
        ([VOCAB], UsageError, f"token ids must be at least 0 and below the vocabulary size {VOCAB}, got {VOCAB}"),
        ([-1], UsageError, "token ids must be at least 0 .* got -1"),
        ([2**40], UsageError, f"got {2**40}"),
        ([1, "a"], UsageError, "must hold messages or integer token ids, got 'a'"),
        ([1.5], UsageError, "integer token ids, got 1.5"),
        ([True], UsageError, "integer token ids, got True"),
        (np.zeros((2, 2), np.int64), UsageError, "one-dimensional array of integers, got 2 dimensions"),
        (np.zeros(3), UsageError, "got 1 dimensions of float64"),
        ([{"role": "user"}], UsageError, "message 0 has no content"),
        (7, UsageError, "a prompt must be text, chat messages or token ids, got int"),
        (list(range(256)), ContextLengthError, "the prompt has 256 tokens; the context of 256 tokens takes a prompt of at most 255"),
        ("a" * 5000, ContextLengthError, "the prompt has 5000 tokens; the context of 256"),
    ],
)
def test_bad_prompt_is_refused_before_anything_runs(llm, prompt, error, message):
    with pytest.raises(error, match=message):
        llm.generate(prompt)
    with pytest.raises(error, match=message):
        llm.stream(prompt)
    assert llm.backend.batches == []


def test_one_bad_prompt_of_a_list_is_named_and_nothing_runs(llm):
    with pytest.raises(UsageError, match="must not be empty") as caught:
        llm.generate(["fine", "", "fine"])
    assert caught.value.__notes__ == ["prompt 1 of 3"]
    assert llm.backend.batches == []


def test_a_word_nearly_like_one_that_goes_with_messages_is_suggested() -> None:
    with pytest.raises(UsageError, match=r"unknown parameter 'tool'; did you mean tools\?"):
        split_fields({"tool": []})  # type: ignore[typeddict-unknown-key]  # what is tested


def test_bad_values_are_refused_by_name(llm):
    with pytest.raises(UsageError, match="temperature must be between"):
        llm.generate("a", temperature=math.nan)
    with pytest.raises(UsageError, match="unknown sampling parameter 'max_new_tokens'"):
        llm.generate("a", max_new_tokens=5)
    with pytest.raises(UsageError, match=f"below the vocabulary size {VOCAB}"):
        llm.generate("a", logit_bias={VOCAB: 1.0})
    with pytest.raises(UsageError, match="exclude each other, got sampling and top_k"):
        llm.generate("a", sampling=swiftsure.SamplingParams(), top_k=3)
    with pytest.raises(UsageError, match="on_logits must be a list"):
        llm.generate(["a", "b"], on_logits=lambda position, row: None)
    with pytest.raises(UsageError, match="sampling must have one entry for each of 2 prompts, got 1"):
        llm.generate(["a", "b"], sampling=[swiftsure.SamplingParams()])
    with pytest.raises(UsageError, match="stream takes one prompt"):
        llm.stream(["a", "b"])


def test_logits_refuse_what_does_not_fit(llm):
    with pytest.raises(ContextLengthError, match="257 tokens do not fit the context of 256 tokens"):
        llm.logits([0] * 257)
    with pytest.raises(UsageError, match="at least 1 token"):
        llm.logits([])
    for bad, message in (
        ([VOCAB], f"got {VOCAB}"),
        ([2**40], f"got {2**40}"),
        ([1.5], "got 1.5"),
        (np.ones(2), "float64"),
        ("ab", "got str"),
    ):
        with pytest.raises(UsageError, match=message):
            llm.logits(bad)


def test_generation_stops_at_the_edge_of_the_context(llm):
    result = llm.generate(list(range(250)), max_tokens=100, ignore_eos=True)
    assert (result.finish_reason, len(result.token_ids)) == ("length", 6)


def test_end_token_can_be_ignored():
    backend = FakeBackend(favour=lambda prefix: EOS)
    llm = make_llm(backend)
    assert llm.generate("a", max_tokens=5).token_ids == (EOS,)
    assert llm.generate("a", max_tokens=5, ignore_eos=True).token_ids == (EOS,) * 5


def test_interrupt_in_the_middle_leaves_the_model_usable(llm):
    expected = make_llm().generate("abc", max_tokens=40)

    def interrupt(number):
        if number == 10:
            signal.raise_signal(signal.SIGINT)

    llm.backend.before_run = interrupt
    with pytest.raises(KeyboardInterrupt):
        llm.generate(["abc", "abd"], max_tokens=40, ignore_eos=True)
    llm.backend.before_run = lambda number: None
    assert not llm._engine.has_work
    assert llm.generate("abc", max_tokens=40).token_ids == expected.token_ids


@pytest.mark.parametrize("after", range(1, 60))
def test_interrupt_at_any_line_of_the_engine_leaves_the_model_usable(after):
    """KeyboardInterrupt can strike between any two lines; a trace function makes it do so, each time a little later."""
    expected = make_llm().generate("abc", max_tokens=12).token_ids
    llm = make_llm(FakeBackend(kv_blocks=8), levers=ALL_LEVERS, context=64)
    lines = 0

    def trace(frame, event, arg):
        nonlocal lines
        name = frame.f_code.co_filename
        if "/swiftsure/engine/" not in name or name.endswith("llm.py"):
            return None
        if event == "line":
            lines += 1
            if lines == after * 23:
                raise KeyboardInterrupt
        return trace

    suspended = llm.stream("abc", max_tokens=12)
    sys.settrace(trace)
    try:
        with pytest.raises(KeyboardInterrupt):
            llm.generate(["abcabcabc", "abd", "xyz"], max_tokens=12, ignore_eos=True)
    finally:
        sys.settrace(None)
    rest = list(suspended)
    if suspended.generation.finish_reason != "cancelled":
        assert suspended.generation.token_ids == expected
        assert "".join(rest) == suspended.generation.text
    assert not llm._engine.has_work
    assert llm.generate("abc", max_tokens=12).token_ids == expected
    assert llm._engine._blocks.free_blocks == 8


def test_stream_that_is_left_early_is_cancelled_and_keeps_what_it_had(llm):
    with llm.stream("abc", max_tokens=100, ignore_eos=True) as stream:
        pieces = [next(stream) for _ in range(5)]
    assert not llm._engine.has_work
    assert stream.generation.finish_reason == "cancelled"
    assert stream.generation.text.startswith("".join(pieces))
    assert list(stream) == [] or "".join(pieces) != stream.generation.text


def test_forgotten_stream_does_not_go_on(llm):
    stream = llm.stream("abc", max_tokens=200, ignore_eos=True)
    next(stream)
    del stream
    llm.generate("xyz", max_tokens=3)
    assert not llm._engine.has_work


def test_requests_can_be_cancelled_from_another_thread(llm):
    def cancel(number):
        if number == 5:
            worker = threading.Thread(target=stream.cancel)
            worker.start()
            worker.join()

    stream = llm.stream("abc", max_tokens=200, ignore_eos=True)
    llm.backend.before_run = cancel
    text = "".join(stream)
    assert stream.generation.finish_reason == "cancelled"
    assert 0 < len(stream.generation.token_ids) < 20
    assert stream.generation.text == text


def test_suspended_stream_and_another_call_do_not_disturb_each_other(llm):
    expected = [make_llm().generate(p, max_tokens=30).text for p in ("abc", "xyz")]
    stream = llm.stream("abc", max_tokens=30)
    first = next(stream)
    assert llm.generate("xyz", max_tokens=30).text == expected[1]
    assert first + "".join(stream) == expected[0]


def test_callers_in_several_threads_share_passes_and_keep_their_own_results():
    prompts = [f"prompt {n}" for n in range(6)]
    expected = {p: make_llm().generate(p, max_tokens=30).token_ids for p in prompts}
    found = {}
    with make_llm(levers=ALL_LEVERS) as llm:
        workers = [threading.Thread(target=lambda p=p: found.update({p: llm.generate(p, max_tokens=30).token_ids})) for p in prompts]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert found == expected


def test_callback_that_raises_reaches_its_caller(llm):
    def fail(position, row):
        raise ValueError("not this one")

    with pytest.raises(ValueError, match="not this one"):
        llm.generate("abc", max_tokens=5, on_logits=fail)
    with pytest.raises(ValueError, match="not this one"):
        list(llm.stream("abc", max_tokens=5, on_logits=fail))
    assert not llm._engine.has_work


@pytest.mark.parametrize("levers", [(), ALL_LEVERS])
def test_no_token_comes_after_a_callback_cancelled_although_a_draft_brought_more(levers):
    backend = FakeBackend(favour=lambda prefix: 65)  # a text that drafts foresee
    with make_llm(backend, levers=levers) as llm:
        seen: list[int] = []
        stopped = llm.generate(
            "A" * 20, max_tokens=60, on_logits=lambda position, row: seen.append(position) or (llm.cancel() if position == 40 else None)
        )
        assert (stopped.finish_reason, len(stopped.token_ids), seen[-1]) == ("cancelled", 22, 40)


def test_callback_that_raises_stop_iteration_does_not_look_like_the_end(llm):
    def fail(position, row):
        raise StopIteration

    with pytest.raises(RuntimeError, match="on_logits raised StopIteration"):
        list(llm.stream("abc", max_tokens=5, on_logits=fail))


def test_callback_that_cannot_be_called_is_refused_before_anything_runs(llm):
    with pytest.raises(UsageError, match=r"on_logits must be callable with .* got 5"):
        llm.stream("abc", on_logits=5)
    with pytest.raises(UsageError, match="on_logits must be callable"):
        llm.generate(["abc", "def"], on_logits=[None, 5])
    assert llm.backend.batches == []


def test_callback_cannot_close_the_model_under_its_pass(llm):
    with pytest.raises(UsageError, match="on_logits must not close the model"):
        llm.generate("abc", max_tokens=5, on_logits=lambda position, row: llm.close())
    assert not llm.backend.closed
    assert llm.generate("abc", max_tokens=5).token_ids


def test_closed_model_says_so_and_can_be_closed_again():
    llm = make_llm()
    line = llm.activation.active_line()
    llm.close()
    llm.close()
    assert llm.backend.closed
    assert llm.activation.active_line() == line
    with pytest.raises(UsageError, match="this model is closed"):
        llm.generate("a")


def test_tools_documents_and_variables_go_with_messages_only(llm):
    given = {"tools": [{"name": "f"}], "documents": [{"text": "t"}], "template_variables": {"x": 1}}
    plain = llm.generate(MESSAGES, max_tokens=1).prompt_ids
    for name, value in given.items():
        assert llm.generate(MESSAGES, max_tokens=1, **{name: value}).prompt_ids == (*plain, *f"{name}: {value}\n".encode())
        assert llm.generate([MESSAGES], max_tokens=1, **{name: value})[0].prompt_ids[: len(plain)] == plain
        for prompt in ("text", [1, 2]):
            with pytest.raises(UsageError, match=f"{name} goes with chat messages"):
                llm.generate(prompt, max_tokens=1, **{name: value})
            with pytest.raises(UsageError, match=f"{name} goes with chat messages"):
                llm.stream(prompt, max_tokens=1, **{name: value})
    assert llm.generate("text", max_tokens=1, tools=None).prompt_ids == tuple(b"text")

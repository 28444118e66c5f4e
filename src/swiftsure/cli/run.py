"""``swiftsure run``: one answer, or a chat in the terminal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

from swiftsure.cli import options
from swiftsure.cli.framework import option
from swiftsure.cli.licence import settle_licences
from swiftsure.cli.session import LoadRequest, run_in_mode
from swiftsure.errors import UsageError

_PROMPT = "Prompt"
_SAMPLING = "Sampling"

OnFail = Annotated[
    str | None,
    option("--on-fail", metavar="default", section=options.MODEL, help="If the mode fails, print FALLBACK and run default; still exit 3."),
]
AllowFallback = Annotated[
    bool, option("--allow-fallback", section=options.MODEL, help="With --on-fail: exit 0 if the run in default succeeds.")
]
PromptText = Annotated[str | None, option("--prompt", "-p", metavar="TEXT", section=_PROMPT, help="The prompt.")]
PromptFile = Annotated[
    Path | None, option("--prompt-file", metavar="FILE", section=_PROMPT, help="Read the prompt from FILE; - is standard input.")
]
System = Annotated[str | None, option("--system", metavar="TEXT", section=_PROMPT, help="System message.")]
Raw = Annotated[bool, option("--raw", section=_PROMPT, help="Continue the text as it is, without the chat template.")]
TemplateVariable = Annotated[
    list[str] | None,
    option(
        "--template-variable",
        metavar="NAME=JSON",
        section=_PROMPT,
        help="Give the chat template a variable, such as enable_thinking=false. May be repeated.",
    ),
]
Chat = Annotated[bool, option("--chat", section=_PROMPT, help="Chat in the terminal; Ctrl-C stops an answer.")]
Temperature = Annotated[
    float, option("--temperature", metavar="T", section=_SAMPLING, help="0 takes the best token, above 0 samples. Default: 0.")
]
TopP = Annotated[
    float,
    option(
        "--top-p",
        metavar="P",
        section=_SAMPLING,
        help="Sample from the likeliest tokens that together have probability P. Default: 1, off.",
    ),
]
TopK = Annotated[int, option("--top-k", metavar="K", section=_SAMPLING, help="Sample from the K likeliest tokens. Default: 0, off.")]
MinP = Annotated[
    float,
    option("--min-p", metavar="P", section=_SAMPLING, help="Sample from tokens at least P times as likely as the best. Default: 0, off."),
]
Seed = Annotated[
    int | None,
    option("--seed", metavar="N", section=_SAMPLING, help="Seed of sampling. Default: drawn; --stats, --json and --record report it."),
]
MaxTokens = Annotated[int, option("--max-tokens", "-n", metavar="N", section=_SAMPLING, help="Most new tokens. Default: 256.")]
Stop = Annotated[list[str] | None, option("--stop", metavar="TEXT", section=_SAMPLING, help="End before this text. May be repeated.")]
RepetitionPenalty = Annotated[
    float,
    option(
        "--repetition-penalty", metavar="X", section=_SAMPLING, help="Weakens tokens of prompt and answer by the factor X. Default: 1, off."
    ),
]
PresencePenalty = Annotated[
    float,
    option("--presence-penalty", metavar="X", section=_SAMPLING, help="Subtracted from the logits of tokens generated before. Default: 0."),
]
FrequencyPenalty = Annotated[
    float,
    option("--frequency-penalty", metavar="X", section=_SAMPLING, help="Subtracted once for each time a token was generated. Default: 0."),
]
LogitBias = Annotated[
    list[str] | None, option("--logit-bias", metavar="ID=X", section=_SAMPLING, help="Add X to a token's logit. May be repeated.")
]
Logprobs = Annotated[
    int | None,
    option(
        "--logprobs",
        metavar="N",
        section=options.OUTPUT,
        help="With --json: log probability of each token and of the N likeliest beside it.",
    ),
]
Stats = Annotated[
    bool, option("--stats", section=options.OUTPUT, help="End with tokens/s, GB/s and the fraction of the memory wall, on standard error.")
]
Record = Annotated[Path | None, option("--record", metavar="FILE", section=options.OUTPUT, help="Write the run record (JSON).")]


def run(
    model: options.ModelArgument = None,
    model_option: options.ModelOption = None,
    mode: options.ModeOption = None,
    without: options.WithoutOption = None,
    draft: options.DraftOption = None,
    on_fail: OnFail = None,
    allow_fallback: AllowFallback = False,
    offline: options.OfflineOption = False,
    accept_licence: options.AcceptLicenceOption = False,
    prompt: PromptText = None,
    prompt_file: PromptFile = None,
    system: System = None,
    template_variable: TemplateVariable = None,
    raw: Raw = False,
    chat: Chat = False,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    top_k: TopK = 0,
    min_p: MinP = 0.0,
    seed: Seed = None,
    max_tokens: MaxTokens = 256,
    stop: Stop = None,
    repetition_penalty: RepetitionPenalty = 1.0,
    presence_penalty: PresencePenalty = 0.0,
    frequency_penalty: FrequencyPenalty = 0.0,
    logit_bias: LogitBias = None,
    logprobs: Logprobs = None,
    json_output: options.JsonFlag = False,
    stats: Stats = False,
    record: Record = None,
    threads: options.ThreadsOption = None,
    context: options.ContextOption = None,
    kv_memory: options.KvMemoryOption = None,
    isa: options.IsaOption = None,
    no_cache: options.NoCacheOption = False,
) -> int:
    """Answer a prompt, streamed as it is generated.

    The prompt comes from -p, from --prompt-file or from standard input.
    The answer goes to standard output; ACTIVE, LEVER and EXIT lines go to standard error.
    """
    from swiftsure.engine.load_options import LoadOptions
    from swiftsure.engine.sampling import SamplingParams

    if logprobs is not None and not json_output:
        raise UsageError("--logprobs needs --json")
    options.check_on_fail(on_fail, allow_fallback=allow_fallback)
    request = LoadRequest(
        model=options.chosen_model(model, model_option),
        mode=mode,
        options=LoadOptions(
            threads=threads,
            context=context,
            kv_memory=kv_memory,
            isa=isa,
            without=options.split_names(without),
            draft=draft,
            offline=offline,
            cache=not no_cache,
        ),
    )
    sampling = SamplingParams(
        max_tokens=max_tokens,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        seed=seed,
        stop=tuple(stop or ()),
        repetition_penalty=repetition_penalty,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
        logit_bias=options.logit_bias_from(logit_bias),
        logprobs=logprobs,
    )
    variables = options.template_variables_from(template_variable) or None
    if raw and variables:
        raise UsageError("--raw continues a text without chat template and takes no --template-variable")
    if chat:
        _refuse_with_chat(prompt=prompt, prompt_file=prompt_file, raw=raw, json_output=json_output, record=record)
        from swiftsure.cli.chat import chat_work

        work = chat_work(system, sampling, stats=stats, template_variables=variables)
    else:
        from swiftsure.cli.answer import answer_work
        from swiftsure.records.run_record import check_writable

        if record is not None:
            check_writable(record)
        asked = _prompt_from(prompt, prompt_file, system, raw)
        work = answer_work(asked, sampling, json_output=json_output, stats=stats, record=record, template_variables=variables)
    settle_licences(request.model, draft, accept=accept_licence, offline=offline)
    return run_in_mode(request, work, fall_back=on_fail is not None, allow_fallback=allow_fallback)


def _refuse_with_chat(**given: Any) -> None:
    for name, value in given.items():
        if value:
            option = "--" + name.removesuffix("_output").replace("_", "-")
            raise UsageError(f"--chat reads its prompts from the terminal and takes no {option}")


def _prompt_from(prompt: str | None, prompt_file: Path | None, system: str | None, raw: bool) -> str | list[dict[str, str]]:
    """The text to continue (``--raw``) or the messages to answer."""
    if prompt is not None and prompt_file is not None:
        raise UsageError("one prompt at a time: give -p or --prompt-file, not both")
    if raw and system is not None:
        raise UsageError("--raw continues a text without chat template and takes no --system")
    text = prompt if prompt is not None else _read_prompt(prompt_file)
    if not text:
        raise UsageError("the prompt is empty")
    if raw:
        return text
    messages = [{"role": "system", "content": system}] if system is not None else []
    return [*messages, {"role": "user", "content": text}]


def _read_prompt(prompt_file: Path | None) -> str:
    if prompt_file is None and sys.stdin.isatty():
        raise UsageError("no prompt: give -p TEXT, --prompt-file FILE, text on standard input, or --chat")
    if prompt_file is None or str(prompt_file) == "-":
        data, source = sys.stdin.buffer.read(), "standard input"
    else:
        source = str(prompt_file)
        try:
            data = prompt_file.read_bytes()
        except OSError as error:
            raise UsageError(f"cannot read the prompt file {source}: {error.strerror}") from None
    try:
        return data.decode("utf-8-sig").removesuffix("\n")  # a byte-order mark is no part of a prompt
    except UnicodeDecodeError as error:
        raise UsageError(f"the prompt in {source} is not UTF-8 (byte {error.start})") from None

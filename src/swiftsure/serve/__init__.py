"""The server: one process that speaks HTTP, and one process for each model's engine.

::

    app.py              routes, limits of size and keys, and how an error becomes an answer
      apis/             one file an interface: a wire format into jobs, chunks back into the wire format
      page/             the page at /, plain files
      parsing/          tool calls and reasoning in generated text
    service.py          models by name: text to token ids, admission, submission
      admission.py      how much may wait, by tier
    audit/              finished answers computed once more in mode default, and what follows from one that differs
    jobs.py             what is asked of an engine and what comes back
    engine_process/     the engine in a process of its own: messages, the loop on that side, the client on this side
"""

"""OpenAI's chat completions, completions and models.

https://platform.openai.com/docs/api-reference

::

    routes.py       paths, keys, and which of the two forms an answer takes
      fields.py       every field: honoured, refused by name, or harmless
      body.py         a body into sampling values, a tier and a number of answers
      chat.py         messages in; messages and their chunks out
      completions.py  prompts in; texts and their chunks out
      answers.py      several answers as one: submission, merging, usage, evidence
      logprobs.py     log probabilities in the two forms that the interface has
"""

from swiftsure.serve.apis.openai.routes import router

__all__ = ["router"]

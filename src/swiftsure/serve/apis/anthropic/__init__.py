"""The Messages interface: ``/v1/messages`` and ``/v1/messages/count_tokens``.

https://platform.claude.com/docs/en/api/messages

::

    routes.py    what arrives, what leaves, which status and headers
      fields.py    every field of the interface: honoured, refused with its reason, or harmless
      request.py   a body into a conversation, sampling values and a tier
      blocks.py    content blocks into the messages of chat templates
      reply.py     parsed output into content blocks, a stop reason and usage
      events.py    the same as server-sent events
"""

from swiftsure.serve.apis.anthropic.routes import router

__all__ = ["router"]

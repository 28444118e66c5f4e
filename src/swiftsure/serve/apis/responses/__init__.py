"""The Responses interface: ``/v1/responses`` over HTTP, and as a WebSocket that is kept open.

https://platform.openai.com/docs/api-reference/responses

::

    routes.py      HTTP: what arrives, what leaves
    socket.py      the WebSocket: frames, lanes, steering
      turn.py        one response from its request to its record
        fields.py      every field of the interface: honoured, refused with its reason, or harmless
        request.py     a body into sampling values, tools and a tier
        items.py       input items into the messages of chat templates
        prompt.py      messages and tools into token ids and what reads the answer
        output.py      parsed output into output items and their events
        objects.py     the response object and its usage
      store.py       responses that are kept, bounded
"""

from swiftsure.serve.apis.responses.routes import router

__all__ = ["router"]

// The server's interfaces: requests with the user's key, server-sent events, and errors in words.

const KEY = "swiftsure-api-key";

export const apiKey = {
  get: () => { try { return sessionStorage.getItem(KEY) ?? ""; } catch { return ""; } },
  set: (key) => { try { key ? sessionStorage.setItem(KEY, key) : sessionStorage.removeItem(KEY); } catch { /* kept nowhere */ } },
};

export class Problem extends Error {
  constructor(message, status = 0) { super(message); this.status = status; }
}

const MEANING = {
  401: "The API key is missing or not known here",
  403: "The server does not allow this",
  404: "It is not served here",
  413: "The request is too large",
  429: "This tier is full",
  500: "The server failed on this request",
  503: "The server takes no requests now",
  504: "The request's time was over",
};

async function problemOf(response) {
  let said = "";
  try { said = (await response.json()).error?.message ?? ""; } catch { /* no JSON: the status must do */ }
  const wait = response.headers.get("retry-after");
  const meaning = MEANING[response.status] ?? `The server answered ${response.status}`;
  return new Problem(meaning + (said ? `: ${said}` : "") + (wait ? `. Try again in ${wait} s.` : ""), response.status);
}

export async function request(path, { body, signal } = {}) {
  const headers = { accept: "application/json, text/event-stream" };
  const key = apiKey.get();
  if (key) headers.authorization = `Bearer ${key}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(path, {
      method: body === undefined ? "GET" : "POST", headers, signal, cache: "no-store",
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("The server cannot be reached");
  }
  if (!response.ok) throw await problemOf(response);
  return response;
}

// Yields {event, data} of server-sent events. Events and characters may be split anywhere; lines that begin with a colon are comments.
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      text += value;
      const blocks = text.split("\n\n");
      text = blocks.pop();
      for (const block of blocks) {
        const found = { event: "message", data: [] };
        for (const line of block.split("\n")) {
          if (line.startsWith("event: ")) found.event = line.slice(7);
          else if (line.startsWith("data: ")) found.data.push(line.slice(6));
        }
        if (found.data.length) yield { event: found.event, data: found.data.join("\n") };
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

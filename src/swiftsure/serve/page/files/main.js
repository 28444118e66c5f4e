// Wires the page: the state of the server as it comes, the form, the race and its verdict.

import { apiKey, events, request } from "/page/api.js";
import { reference, verdict } from "/page/compare.js";
import { byId, el } from "/page/elements.js";
import { Engines } from "/page/engines.js";
import { Facts } from "/page/facts.js";
import { Lane } from "/page/lane.js";

const PRESETS = {
  story: "Tell me a short story about a lighthouse keeper who counts the waves.",
  repeat: "Repeat this text word for word, twice:\nThe tide comes in at six and goes out at noon. The keeper writes both times into the book, and the "
    + "book into the box, and the box under the stairs.",
  code: "Write this Python function again with type hints, changing nothing else:\n\ndef mean(values):\n    total = 0\n    for value in values:\n"
    + "        total = total + value\n    return total / len(values)",
};
const MOST_CONNECTIONS = 5; // browsers open six to a server, and one watches the engines

const engines = new Engines(byId("engines"));
const facts = new Facts(byId("facts"), byId("audit"));
let state = null;
let running = null; // an AbortController while a race runs

// --- the server's state -------------------------------------------------------------------------------------------------------

function take(next) {
  const names = next.models.map((model) => model.name).join("\n");
  const changed = !state || names !== state.models.map((model) => model.name).join("\n");
  state = next;
  showReadiness(next.ready ? "ready" : "unready", next.ready ? "ready" : next.reason);
  byId("version").textContent = `Swiftsure ${next.version}`;
  for (const option of byId("tier").options) option.disabled = !next.tiers.includes(option.value);
  if (byId("tier").selectedOptions[0]?.disabled) byId("tier").value = next.tiers[0];
  if (changed) offerLanes(next.models);
  facts.take(next);
  for (const model of next.models) engines.take(model.name, model);
}

function showReadiness(kind, words) {
  const pill = byId("readiness");
  if (pill.textContent !== words) pill.textContent = words;
  pill.dataset.state = kind;
}

function offerLanes(models) {
  byId("choices").replaceChildren(...models.map((model, i) => {
    const box = el("input");
    Object.assign(box, { type: "checkbox", name: "lane", value: model.name, checked: i < 4 });
    const mode = model.facts?.mode ?? "";
    return el("label", "choice", [box, model.name, mode && mode !== model.name ? el("span", `mode mode-${mode}`, mode) : ""]);
  }));
}

let wake = () => {};

async function watch() {
  for (let wait = 500; ; wait = Math.min(5000, wait * 2)) {
    try {
      const response = await request("/v1/swiftsure/events");
      askForKey(false);
      for await (const { event, data } of events(response)) {
        wait = 500;
        const told = JSON.parse(data);
        if (event === "state") take(told);
        else for (const [name, pulse] of Object.entries(told.models)) {
          engines.take(name, pulse);
          facts.pulse(name, pulse);
        }
      }
      showReadiness("unready", "the server ended the connection");
    } catch (error) {
      if (error.status === 401) {
        askForKey(true, apiKey.get() ? error.message : "");
        showReadiness("unready", "a key is needed");
        await new Promise((resolve) => { wake = resolve; });
        continue;
      }
      showReadiness("unready", error.message ?? String(error));
    }
    await new Promise((resolve) => { setTimeout(resolve, wait); });
  }
}

function askForKey(asks, problem = "") {
  const was = byId("key-form").hidden;
  byId("key-form").hidden = !asks;
  byId("key-problem").textContent = problem;
  byId("key-button").hidden = !asks && !apiKey.get();
  byId("race").inert = asks;
  if (asks && was) byId("key").focus();
}

byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  apiKey.set(byId("key").value.trim());
  byId("key").value = "";
  wake();
});
byId("key-button").addEventListener("click", () => {
  askForKey(true);
  byId("key").focus();
});

// --- the race -----------------------------------------------------------------------------------------------------------------

const number = (id) => byId(id).value.trim() === "" ? null : Number(byId(id).value);

function drawnSeed() {
  const words = crypto.getRandomValues(new Uint32Array(2));
  return (words[0] & 0x1fffff) * 2 ** 32 + words[1];
}

function bodyOf(chat) {
  const prompt = byId("prompt").value;
  const temperature = number("temperature");
  let seed = number("seed");
  if (seed === null && temperature > 0) { // one for all lanes: with noise of their own they would have nothing in common
    seed = drawnSeed();
    byId("seed").placeholder = `drawn: ${seed}`;
  }
  return {
    ...(chat ? { messages: [{ role: "user", content: prompt }] } : { prompt }),
    max_tokens: number("max-tokens"), temperature, ...(seed === null ? {} : { seed }),
    service_tier: byId("tier").value === "priority" ? "priority" : "default",
    stream: true, return_token_ids: true, stream_options: { include_usage: true },
  };
}

// Other answers beside a lane's own, so that its rows share passes. Nobody reads them; they end with the race.
async function keepCompany(name, chat, count, signal) {
  const text = "Name the seas of the world, and say something of each.";
  const response = await request(chat ? "/v1/chat/completions" : "/v1/completions", { signal, body: {
    model: name, ...(chat ? { messages: [{ role: "user", content: text }] } : { prompt: text }),
    n: count, temperature: 1, seed: drawnSeed(), max_tokens: number("max-tokens"), stream: true,
  } });
  for await (const event of events(response)) void event;
}

async function runLanes(lanes, body, chat) {
  const { signal } = running;
  const company = Number(byId("company").value);
  const refused = [];
  const waiting = [...lanes];
  const one = async () => {
    for (let lane = waiting.shift(); lane; lane = waiting.shift()) {
      const leave = new AbortController();
      const beside = company ? keepCompany(lane.name, chat, company, AbortSignal.any([signal, leave.signal])).catch((error) => {
        if (error.name !== "AbortError") refused.push(error.message);
      }) : null;
      await lane.run(body, { chat, signal });
      leave.abort();
      await beside;
    }
  };
  const most = byId("order").value === "in-turn" ? 1 : Math.floor(MOST_CONNECTIONS / (company ? 2 : 1));
  await Promise.all(Array.from({ length: Math.min(most, lanes.length) }, one));
  return refused;
}

function showVerdict(found, more = []) {
  const box = byId("verdict");
  box.dataset.kind = found.kind;
  box.replaceChildren(el("p", "title", found.title), el("p", "text", found.text), ...more.filter(Boolean).map((text) => el("p", "quiet", text)));
}

function speeds(lanes) {
  if (byId("company").value !== "0") return "Speeds are not compared: where a mode batches, company shares the lane's passes; in default it waits its turn.";
  const base = lanes.find((lane) => lane.name === reference(lanes.map((one) => one.result)).name);
  const of = base?.tokensPerSecond;
  const said = lanes.filter((lane) => lane !== base && lane.whole && of && lane.tokensPerSecond)
    .map((lane) => `${lane.name} wrote at ${(lane.tokensPerSecond / of).toFixed(2)} times the speed of ${base.name}`);
  if (!said.length) return "";
  const shared = byId("order").value === "together" && lanes.length > 1;
  return `${said.join("; ")}${shared ? ", while the lanes shared the processor" : ""}. One run in a browser: swiftsure prove measures.`;
}

byId("race").addEventListener("submit", async (event) => {
  event.preventDefault();
  const names = [...document.querySelectorAll("input[name=lane]:checked")].map((box) => box.value);
  const chosen = (state?.models ?? []).filter((model) => names.includes(model.name) && model.facts);
  byId("form-problem").textContent = !byId("prompt").value.trim() ? "A prompt is needed." : chosen.length ? "" : "Choose at least one lane.";
  if (byId("form-problem").textContent || running) return;
  running = new AbortController();
  byId("go").disabled = true;
  byId("stop").hidden = false;
  const lanes = chosen.map((model) => new Lane(model.name, model.facts));
  byId("lanes").replaceChildren(...lanes.map((lane) => lane.element));
  showVerdict({ kind: "running", title: "The race is on", text: "" });
  try {
    const chat = chosen.every((model) => model.chat);
    const refused = await runLanes(lanes, bodyOf(chat), chat);
    const found = verdict(lanes.map((lane) => lane.result));
    const problem = lanes.find((lane) => lane.problem)?.problem;
    if (problem?.status === 401) askForKey(true, problem.message);
    const shown = problem ? { kind: "failed", title: "A lane failed", text: problem.message }
      : running.signal.aborted ? { kind: "none", title: "Stopped", text: "Answers that are not whole are not compared." } : found;
    showVerdict(shown, [speeds(lanes), refused.length ? `The company was refused: ${refused[0]}` : ""]);
    await markDifferences(lanes, found);
  } finally {
    running = null;
    byId("go").disabled = false;
    byId("stop").hidden = true;
  }
});

async function markDifferences(lanes, found) {
  const marks = new Map();
  for (const lane of lanes) {
    const pair = found.pairs[lane.name];
    if (!pair) continue;
    lane.verdict(pair);
    if (pair.at !== null) marks.set(lane, pair.at);
  }
  const base = lanes.find((lane) => !(lane.name in found.pairs));
  if (base && marks.size) marks.set(base, Math.min(...marks.values()));
  await Promise.all([...marks].map(([lane, at]) => lane.mark(at)));
}

byId("stop").addEventListener("click", () => running?.abort());
byId("prompt").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("race").requestSubmit();
});
for (const button of document.querySelectorAll("[data-preset]")) {
  button.addEventListener("click", () => {
    byId("prompt").value = PRESETS[button.dataset.preset];
    byId("prompt").focus();
  });
}
byId("prompt").value ||= PRESETS.story;
watch();

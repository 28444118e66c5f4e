// One lane of the race: sends the request, shows the answer as it streams, and keeps what is compared in the end.

import { events, Problem, request } from "/page/api.js";
import { el } from "/page/elements.js";

const rate = (value) => value === null ? "–" : value >= 100 ? value.toFixed(0) : value.toFixed(1);
const milliseconds = (value) => value === null ? "–" : value >= 9999 ? `${(value / 1000).toFixed(1)} s` : `${value.toFixed(0)} ms`;

export class Lane {
  constructor(name, facts) {
    this.name = name;
    this.facts = facts;
    this.tokenIds = [];
    this.promptIds = [];
    this.digest = null;
    this.whole = false;
    this.finish = null;
    this.firstAt = this.lastAt = null;
    this.firstCount = 0;
    this.rateText = el("b", "rate", "–");
    this.firstText = el("b", "", "–");
    this.countText = el("b", "", "0");
    this.bar = el("span", "bar");
    this.output = el("div", "output");
    this.output.tabIndex = 0;
    this.output.setAttribute("role", "region");
    this.output.setAttribute("aria-label", `Answer of ${name}`);
    this.status = el("p", "status", "waits");
    this.digestText = el("p", "digest");
    this.element = el("article", "lane", [
      el("h3", "", [name, el("span", `mode mode-${facts.mode}`, facts.mode)]),
      el("div", "track", [this.bar]),
      el("div", "figures", [
        el("span", "main", [this.rateText, " tokens/s"]),
        el("span", "", [this.firstText, " first token"]),
        el("span", "", [this.countText, " tokens"]),
      ]),
      this.output, this.status, this.digestText,
    ]);
    this.state("waiting", "waits");
  }

  state(state, words) {
    this.element.dataset.state = state;
    this.status.textContent = words;
  }

  // What compare.js reads.
  get result() {
    const { mode, keeps_bits, weights_sha256, numerics } = this.facts;
    return {
      name: this.name, mode, keepsBits: keeps_bits, weights: weights_sha256, numerics, fingerprint: `${numerics}-${weights_sha256}`,
      promptIds: this.promptIds, tokenIds: this.tokenIds, digest: this.digest, whole: this.whole,
    };
  }

  get tokensPerSecond() {
    const seconds = (this.lastAt - this.firstAt) / 1000;
    const tokens = this.tokenIds.length - this.firstCount;
    return tokens > 0 && seconds > 0 ? tokens / seconds : null;
  }

  async run(body, { chat, signal }) {
    this.most = body.max_tokens;
    this.state("running", "reads the prompt");
    const began = performance.now();
    try {
      const response = await request(chat ? "/v1/chat/completions" : "/v1/completions", { body: { ...body, model: this.name }, signal });
      for await (const { data } of events(response)) {
        if (data === "[DONE]") break;
        this.take(JSON.parse(data), began);
      }
      if (this.finish === null) throw new Problem("The answer broke off");
      this.whole = true;
      const why = { stop: "the model ended it", length: "as long as asked for" }[this.finish] ?? this.finish;
      this.state("done", `done: ${why}${this.engineRate ? `; ${rate(this.engineRate)} tokens/s by the engine's own clock` : ""}`);
    } catch (error) {
      if (error.name === "AbortError") this.state("stopped", "stopped");
      else {
        this.state("failed", error.message);
        this.problem = error;
      }
    }
    this.draw();
  }

  take(event, began) {
    if (event.error) throw new Problem(event.error.message);
    if (event.prompt_token_ids) this.promptIds = event.prompt_token_ids;
    for (const choice of event.choices ?? []) {
      if (choice.prompt_token_ids) this.promptIds = choice.prompt_token_ids;
      const ids = choice.token_ids ?? [];
      const text = choice.delta?.content ?? choice.text ?? "";
      const reasoning = choice.delta?.reasoning_content ?? "";
      if (ids.length) {
        this.lastAt = performance.now();
        if (this.firstAt === null) {
          this.firstAt = this.lastAt;
          this.firstCount = ids.length;
          this.firstMs = this.firstAt - began;
          this.state("running", "writes");
        }
        this.tokenIds.push(...ids);
      }
      if (text || reasoning) this.write(text || reasoning, ids.length > 1, Boolean(reasoning));
      if (choice.finish_reason) this.finish = choice.finish_reason;
    }
    if (event.swiftsure) {
      this.digest = event.swiftsure.digest ?? null;
      this.digestText.textContent = this.digest ?? "no digest came";
      this.digestText.title = "digest of the chain of logits behind the tokens";
      this.engineRate = event.swiftsure.timing?.decode_tokens_per_s ?? null;
    }
    this.drawing ??= requestAnimationFrame(() => this.draw());
  }

  write(text, together, reasoning) {
    const names = [together ? "together" : "", reasoning ? "reasoning" : ""].join(" ").trim();
    this.output.append(names ? el("span", names, text) : text);
    this.output.scrollTop = this.output.scrollHeight;
  }

  draw() {
    this.drawing = null;
    this.rateText.textContent = rate(this.tokensPerSecond);
    this.firstText.textContent = milliseconds(this.firstMs ?? null);
    this.countText.textContent = String(this.tokenIds.length);
    this.bar.style.transform = `scaleX(${this.most ? Math.min(1, this.tokenIds.length / this.most) : 0})`;
  }

  // Writes the answer anew with the token at `at` marked. Needs the server's words for each part: tokens need not be whole characters.
  async mark(at) {
    const parts = [this.tokenIds.slice(0, at), this.tokenIds.slice(at, at + 1), this.tokenIds.slice(at + 1)];
    try {
      const texts = await Promise.all(parts.map(async (tokens) => tokens.length
        ? (await (await request("/detokenize", { body: { model: this.name, tokens } })).json()).prompt : ""));
      const mark = el("mark", "", texts[1] || "(ended here)");
      mark.title = parts[1].length ? `token ${at + 1}: id ${parts[1][0]}` : `no token ${at + 1}`;
      this.output.replaceChildren(texts[0], mark, texts[2]);
      this.output.scrollTop = Math.max(0, mark.offsetTop - this.output.clientHeight / 2);
    } catch { /* the sentence names the token; the mark is beside it */ }
  }

  verdict(pair) {
    this.element.dataset.verdict = pair.kind;
    this.status.replaceChildren(el("strong", "", pair.text), ` · ${this.status.textContent}`);
  }
}

// What each engine reported of itself: the facts of its ACTIVE line, and the evidence of its levers.

import { el } from "/page/elements.js";

function evidence(name, { state, ...counts }) {
  const words = { on: "works", idle: "no occasion yet", off: "switched off" }[state] ?? state;
  return el("tr", `lever-${state}`, [
    el("th", "", name.replaceAll("_", " ")), el("td", "", words),
    el("td", "counts", Object.entries(counts).map(([key, value]) => `${value.toLocaleString("en")} ${key.replaceAll("_", " ")}`).join(", ")),
  ]);
}

function rows(pairs) {
  return el("dl", "", pairs.flatMap(([name, value]) => [el("dt", "", name), el("dd", "", value)]));
}

class Card {
  constructor(name) {
    this.title = el("h3");
    this.promise = el("p", "promise");
    this.trouble = el("p", "problem");
    this.values = el("div");
    this.levers = el("table", "levers");
    this.line = el("code");
    this.element = el("article", "card panel", [
      this.title, this.promise, this.trouble, this.values, el("div", "scroll", [this.levers]),
      el("details", "", [el("summary", "", "ACTIVE line"), this.line]),
    ]);
    this.name = name;
  }

  take(model) {
    const facts = model.facts;
    this.title.replaceChildren(model.name, ...(facts ? [el("span", `mode mode-${facts.mode}`, facts.mode)] : []),
      el("span", `pill small state-${model.state}`, model.state));
    const trouble = [model.breach, model.fell_back ? "it fell back to mode default" : "", model.state === "ready" ? "" : model.reason,
      model.deaths ? `its process ended ${model.deaths} times by itself` : ""];
    this.trouble.textContent = trouble.filter(Boolean).join("; ");
    if (!facts) return;
    this.promise.textContent = facts.promise + (facts.keeps_bits ? "" : ": no bits of default are promised");
    this.values.replaceChildren(rows([
      ["model", facts.model],
      ["weights", el("code", "", `sha256:${facts.weights_sha256}`)],
      ["numerics", facts.numerics], ["instructions", facts.isa], ["threads", String(facts.threads)],
      ["context", `${facts.context.toLocaleString("en")} tokens`],
      ...(facts.notes.length ? [["notes", facts.notes.join("; ")]] : []),
    ]));
    this.line.textContent = facts.active_line;
    this.takeLevers(model.levers);
  }

  takeLevers(levers) {
    const gist = JSON.stringify(levers);
    if (gist === this.gist) return;
    this.gist = gist;
    const lines = Object.entries(levers).map(([name, lever]) => evidence(name, lever));
    this.levers.replaceChildren(...(lines.length
      ? [el("caption", "", "Levers and their evidence since the load"), ...lines]
      : [el("caption", "", "No levers: this is the reference")]));
  }
}

export class Facts {
  constructor(container, audit) {
    this.container = container;
    this.audit = audit;
    this.byName = new Map();
  }

  take(state) {
    for (const model of state.models) {
      if (!this.byName.has(model.name)) {
        const card = new Card(model.name);
        this.byName.set(model.name, card);
        this.container.append(card.element);
      }
      this.byName.get(model.name).take(model);
    }
    const audit = state.audit;
    this.audit.dataset.kind = audit?.audit_mismatch_total ? "bad" : audit ? "on" : "off";
    this.audit.replaceChildren(...(audit
      ? [el("b", "", String(audit.audited_total)), " answers computed once more in default, ", el("b", "", String(audit.audit_mismatch_total)),
        ` differed; ${audit.audit_failed_total} came to no result, ${audit.audit_waiting} wait, ${audit.audit_dropped_total} found no room `
        + `(--audit ${+(100 * audit.share).toPrecision(3)}%)`]
      : ["Audits are off: with --audit 1% that share of answers is computed once more in mode default, and digests are compared."]));
  }

  pulse(name, pulse) {
    this.byName.get(name)?.takeLevers(pulse.levers);
  }
}

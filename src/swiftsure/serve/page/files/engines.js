// Engines as they run: rows of passes over time, sequences by tier, key-value blocks.

import { el } from "/page/elements.js";

const WINDOW_MS = 20000;
const MOST_ROWS = 24; // of the scale: a prompt's chunk may have hundreds, and would press everything else flat
const TIERS = ["standard", "priority"];

class Engine {
  constructor(name) {
    this.name = name;
    this.samples = []; // {at, standard, priority}
    this.canvas = el("canvas", "rows");
    this.canvas.setAttribute("role", "img");
    this.now = el("p", "now");
    this.queues = Object.fromEntries(TIERS.map((tier) => [tier, el("span", "queue")]));
    this.kv = el("span", "fill");
    this.kvText = el("span", "quiet");
    this.lane = el("p", "quiet");
    this.element = el("article", "engine panel", [
      el("h3", "", [name]), this.canvas, this.now,
      el("div", "meters", [
        ...TIERS.map((tier) => el("div", "", [el("span", "label", tier), this.queues[tier]])),
        el("div", "", [el("span", "label", "key-value blocks"), el("span", "meter", [this.kv]), this.kvText]),
      ]),
      this.lane,
    ]);
  }

  take(pulse) {
    const engine = pulse.engine;
    if (engine.passes === undefined) {
      this.now.textContent = "no pass yet";
      return;
    }
    const at = performance.now();
    const busy = engine.running_standard + engine.running_priority + engine.waiting_standard + engine.waiting_priority > 0;
    this.samples.push({
      at, standard: busy ? engine.last_pass_rows_standard : 0, priority: busy ? engine.last_pass_rows_priority : 0,
    });
    while (this.samples.length > 1 && this.samples[1].at < at - WINDOW_MS) this.samples.shift();
    const before = this.before;
    if (!before || engine.passes !== before.passes || !busy) {
      const passes = before ? engine.passes - before.passes : 0;
      const seconds = before ? (at - before.at) / 1000 : 0;
      const words = passes > 0 && seconds > 0
        ? `${((engine.rows - before.rows) / passes).toFixed(1)} rows a pass, ${(passes / seconds).toFixed(0)} passes/s, `
          + `${((engine.tokens - before.tokens) / seconds).toFixed(0)} tokens/s` : "";
      this.now.textContent = busy ? words || "at work" : `idle · ${engine.passes.toLocaleString("en")} passes, `
        + `${engine.tokens.toLocaleString("en")} tokens since the load`;
      this.before = { at, passes: engine.passes, rows: engine.rows, tokens: engine.tokens };
    }
    for (const tier of TIERS) this.drawQueue(tier, engine[`running_${tier}`], engine[`waiting_${tier}`]);
    const used = engine.kv_blocks_total - engine.kv_blocks_free;
    this.kv.style.transform = `scaleX(${engine.kv_blocks_total ? used / engine.kv_blocks_total : 0})`;
    this.kvText.textContent = `${used.toLocaleString("en")} of ${engine.kv_blocks_total.toLocaleString("en")} held`;
    const refused = TIERS.map((tier) => [tier, pulse.lanes[tier].refused]).filter(([, count]) => count);
    this.lane.textContent = refused.length ? `refused at the door: ${refused.map(([tier, count]) => `${count} ${tier}`).join(", ")}` : "";
  }

  drawQueue(tier, running, waiting) {
    const dots = [];
    for (let i = 0; i < Math.min(running, 24); i++) dots.push(el("i", `dot ${tier}`));
    for (let i = 0; i < Math.min(waiting, 24 - dots.length); i++) dots.push(el("i", `dot hollow ${tier}`));
    this.queues[tier].replaceChildren(...dots, el("span", "quiet", `${running} running, ${waiting} waiting`));
  }

  draw() {
    const { canvas } = this;
    const width = canvas.clientWidth, height = canvas.clientHeight, scale = devicePixelRatio || 1;
    if (!width) return;
    if (canvas.width !== Math.round(width * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
    }
    const context = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    const now = performance.now(), highest = Math.max(0, ...this.samples.map((sample) => sample.standard + sample.priority));
    const most = Math.min(MOST_ROWS, Math.max(4, highest));
    const left = 26, bottom = height - 14, top = 16;
    const x = (at) => left + (width - left) * (1 - (now - at) / WINDOW_MS), y = (rows) => bottom - (bottom - top) * Math.min(rows, most) / most;
    context.font = "10px system-ui, sans-serif";
    context.fillStyle = colour("--quiet");
    context.strokeStyle = colour("--line");
    context.textAlign = "right";
    for (const rows of [0, Math.round(most / 2), most]) {
      context.fillText(String(rows), left - 6, y(rows) + 3);
      context.beginPath();
      context.moveTo(left, Math.round(y(rows)) + 0.5);
      context.lineTo(width, Math.round(y(rows)) + 0.5);
      context.stroke();
    }
    context.textAlign = "left";
    context.fillText("−20 s", left, height - 2);
    context.textAlign = "right";
    context.fillText("now", width, height - 2);
    this.samples.forEach((sample, i) => {
      const from = Math.max(left, x(sample.at)), to = Math.max(left, x(this.samples[i + 1]?.at ?? now));
      let base = 0;
      for (const tier of TIERS) {
        if (!sample[tier]) continue;
        context.fillStyle = colour(tier === "priority" ? "--s2" : "--s1");
        context.fillRect(from, y(base + sample[tier]), Math.max(0.5, to - from), y(base) - y(base + sample[tier]));
        base += sample[tier];
      }
      if (base > most) { // cut off: the number says how many they were
        context.fillStyle = colour("--quiet");
        context.textAlign = from > width - 20 ? "right" : "left";
        context.fillText(`↑${base}`, from, top - 4);
      }
    });
    const last = this.samples.at(-1);
    const words = last ? `${last.standard} standard and ${last.priority} priority rows` : "no pass yet";
    canvas.setAttribute("aria-label", `Rows a pass of ${this.name} over the last 20 seconds, at most ${highest}; now ${words}`);
  }
}

export class Engines {
  constructor(container) {
    this.container = container;
    this.byName = new Map();
    setInterval(() => this.drawMoving(), 100);
    addEventListener("resize", () => this.drawAll());
    document.addEventListener("themechange", () => this.drawAll());
  }

  take(name, pulse) {
    if (!this.byName.has(name)) {
      const engine = new Engine(name);
      this.byName.set(name, engine);
      this.container.append(engine.element);
      engine.draw();
    }
    this.byName.get(name).take(pulse);
  }

  drawMoving() {
    if (document.hidden) return;
    const since = performance.now() - WINDOW_MS - 2500;
    for (const engine of this.byName.values()) {
      if (engine.samples.some((sample) => sample.at > since && sample.standard + sample.priority > 0) || !engine.drawn) engine.draw();
      engine.drawn = engine.samples.length > 0;
    }
  }

  drawAll() {
    for (const engine of this.byName.values()) engine.draw();
  }
}

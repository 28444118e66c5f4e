// What may be said of answers to one prompt. Bits are spoken of only where digests of the logits were returned and agree.

export const SCHEME = "sw1:";

const isDigest = (digest) => typeof digest === "string" && digest.startsWith(SCHEME);
const same = (a, b) => a.length === b.length && a.every((value, i) => value === b[i]);

export function firstDifference(a, b) {
  const shorter = Math.min(a.length, b.length);
  for (let i = 0; i < shorter; i++) if (a[i] !== b[i]) return i;
  return a.length === b.length ? null : shorter;
}

// A lane: {name, mode, keepsBits, weights, numerics, fingerprint, promptIds, tokenIds, digest, whole}.
export function reference(lanes) {
  return lanes.find((lane) => lane.mode === "default") ?? lanes[0];
}

// Of one lane against the reference: {kind, text, at}; kind is same, tokens, differ, broken or none.
export function compare(base, lane) {
  const sameFunction = base.fingerprint === lane.fingerprint;
  const promised = sameFunction && base.keepsBits && lane.keepsBits;
  if (!base.whole || !lane.whole) return { kind: "none", text: "not compared: an answer is not whole", at: null };
  if (!same(base.promptIds, lane.promptIds)) {
    return { kind: "none", text: "not comparable: the prompt is other tokens here (another template or vocabulary)", at: null };
  }
  const at = firstDifference(base.tokenIds, lane.tokenIds);
  if (at !== null) {
    if (promised) return { kind: "broken", text: `tokens part at ${at + 1}, though mode ${lane.mode} promises the bits of ${base.mode}`, at };
    const why = base.weights !== lane.weights ? "another model file" : `mode ${base.keepsBits ? lane.mode : base.mode} promises no bits`;
    return { kind: "differ", text: `the first differing token is number ${at + 1} (${why})`, at };
  }
  if (!isDigest(base.digest) || !isDigest(lane.digest)) {
    return { kind: "tokens", text: "same tokens; no digest came, so only tokens were compared", at };
  }
  if (base.digest === lane.digest) return { kind: "same", text: "0 bits differ", at };
  if (promised) return { kind: "broken", text: "same tokens, but digests differ: some logit behind them is not the same", at };
  const why = base.weights !== lane.weights ? "another model file" : `numerics ${lane.numerics} is another function`;
  return { kind: "tokens", text: `same tokens; their bits are not ${base.mode}'s and need not be (${why})`, at };
}

// Of all lanes: {kind, title, text, pairs}, pairs by lane name.
export function verdict(lanes) {
  if (lanes.length === 0) return { kind: "none", title: "Nothing ran", text: "", pairs: {} };
  const base = reference(lanes);
  const others = lanes.filter((lane) => lane !== base);
  const pairs = Object.fromEntries(others.map((lane) => [lane.name, compare(base, lane)]));
  if (others.length === 0) {
    const digest = isDigest(base.digest) ? ` Its digest, ${base.digest.slice(0, 20)}…, says which bits it had.` : "";
    return { kind: "none", title: "One lane: nothing to compare with", pairs,
      text: (base.whole ? `${base.tokenIds.length} tokens.${digest} ` : "")
        + "Serve the model in two modes, NAME=MODEL@MODE, or choose another lane." };
  }
  const kinds = new Set(Object.values(pairs).map((pair) => pair.kind));
  const spoken = others.map((lane) => `${lane.name}: ${pairs[lane.name].text}`).join(". ") + ".";
  const count = base.tokenIds.length;
  if (kinds.has("broken")) return { kind: "broken", title: "A promise is broken", text: spoken, pairs };
  if (kinds.size === 1 && kinds.has("same")) {
    return { kind: "same", title: "0 bits differ", pairs,
      text: `${count} tokens in each of ${lanes.length} lanes, and one digest, ${base.digest.slice(0, 20)}…, `
        + "over the float32 logits that every token was chosen from." };
  }
  if (kinds.has("differ")) {
    const equal = others.filter((lane) => pairs[lane.name].kind === "same").map((lane) => lane.name);
    const parted = others.filter((lane) => pairs[lane.name].kind === "differ").sort((a, b) => pairs[a.name].at - pairs[b.name].at)[0];
    const title = equal.length ? `0 bits differ in ${equal.join(", ")}; ${parted.name} parts at token ${pairs[parted.name].at + 1}`
      : `First differing token: number ${pairs[parted.name].at + 1}`;
    return { kind: "differ", title, text: `Against ${base.name}. ${spoken}`, pairs };
  }
  if (kinds.has("none")) return { kind: "none", title: "Not compared", text: spoken, pairs };
  return { kind: "tokens", title: `Same ${count} tokens; bits not claimed`, text: `Against ${base.name}. ${spoken}`, pairs };
}

// Behavior of the page at `/`: asks every model for the same sentence, draws what each looked at, and shows quality by length.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("payload").textContent);
  const by = (id) => document.getElementById(id);
  const text = by("text"), problem = by("problem");
  const cards = new Map([...document.querySelectorAll(".card")].map((card) => [card.dataset.model, card]));
  const sourceUnit = data.quality ? data.quality.unit : "words";
  const size = (sentence) => sourceUnit === "words" ? sentence.split(/\s+/).filter(Boolean).length : [...sentence.replace(/\s+/g, "")].length;
  let reference = null, running = null;

  const grow = () => {
    text.style.height = "auto";
    text.style.height = `${text.scrollHeight + 2}px`;
  };

  // Translating.
  const send = async (body, signal) => {
    let response;
    try {
      response = await fetch("translate", {
        method: "POST", signal, headers: { "content-type": "application/json" }, body: JSON.stringify(body),
      });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Error("The service does not answer. Is it still running?");
    }
    const answer = await response.json().catch(() => ({ detail: "The service is busy; try again in a moment." }));
    return { ...answer, status: response.status };
  };
  const ask = async (model, signal) => {
    const began = performance.now();
    const body = { text: text.value, model: model.name, heads: model.attends };
    if (reference !== null) body.reference = reference;
    let answer = await send(body, signal);
    const again = answer.status === 422 && model.attends;  // if this is answered, the attention alone was too large
    if (again) answer = await send({ ...body, heads: false }, signal);
    if (!answer.translations) throw new Error(answer.detail.charAt(0).toUpperCase() + answer.detail.slice(1).replace(/\.?$/, "."));
    return { ...answer.translations[0], tooLarge: again, milliseconds: performance.now() - began };
  };
  const clear = (card) => {
    card.querySelector(".translation").textContent = "";
    card.querySelector(".translation").classList.remove("failed");
    card.querySelector(".scores").textContent = "";
    const map = card.querySelector(".map");
    if (map) map.replaceChildren();
  };
  const show = (card, result) => {
    clear(card);
    card.querySelector(".translation").textContent = result.text || "(nothing)";
    const facts = [`${Math.max(1, Math.round(result.milliseconds))} ms`];
    const scores = data.metrics.filter(({ key }) => typeof result[key] === "number").map(({ key, name }) => `${name} ${result[key].toFixed(0)}`);
    if (scores.length) facts.unshift(`${scores.join(", ")} against the reference`);
    if (!result.finished) facts.push("cut at the maximum length");
    card.querySelector(".scores").textContent = facts.join(" · ");
    const map = card.querySelector(".map");
    if (result.tooLarge) {
      map.append(Object.assign(document.createElement("p"), { className: "note", textContent: "The attention of this text is too large to draw." }));
    } else if (map && result.heads && result.tokens.length) {
      drawHeatmap(map, { source: result.source_tokens, target: result.tokens, weights: result.heads, title: "What it looked at" });
      const drawing = map.querySelector("svg");  // a long sentence scrolls before its labels become too small to read
      drawing.style.minWidth = `${Math.round(0.62 * drawing.getAttribute("width"))}px`;
    }
  };
  const fail = (message) => { problem.textContent = message; problem.hidden = false; };
  const translate = async () => {
    if (running) running.abort();
    problem.hidden = true;
    if (!text.value.trim()) {
      fail("Type a sentence first.");
      text.focus();
      return;
    }
    const mine = running = new AbortController();
    by("given").hidden = reference === null;
    by("reference").textContent = reference || "";
    by("status").textContent = "Translating\u2026";
    cards.forEach((card) => card.classList.add("busy"));
    const failures = new Map();
    await Promise.all(data.models.map(async (model) => {
      const card = cards.get(model.name);
      try {
        const result = await ask(model, mine.signal);
        if (mine === running) show(card, result);
      } catch (error) {
        if (mine === running) { clear(card); failures.set(model.name, error.message); }
      }
      if (mine === running) card.classList.remove("busy");
    }));
    if (mine !== running) return;
    const done = data.models.length - failures.size;
    by("status").textContent = done ? `${done} of ${data.models.length} translations ready` : "";
    const messages = new Set(failures.values());
    if (done === 0 && messages.size === 1) {
      fail([...messages][0]);
    } else {
      failures.forEach((message, name) => {
        const line = cards.get(name).querySelector(".translation");
        line.classList.add("failed");
        line.textContent = message;
      });
    }
  };
  by("form").addEventListener("submit", (event) => { event.preventDefault(); translate(); });
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); translate(); }
  });
  text.addEventListener("input", () => {
    grow();
    reference = null;
    by("examples").querySelectorAll("button").forEach((button) => button.setAttribute("aria-pressed", "false"));
  });
  for (const radio of document.querySelectorAll('input[name="view"]')) {
    radio.addEventListener("change", () => cards.forEach((card, name) => { card.hidden = radio.value !== "" && radio.value !== name; }));
  }

  // Examples of growing length.
  const take = (example) => {
    text.value = example.source;
    grow();
    reference = example.reference === undefined ? null : example.reference;
    by("examples").querySelectorAll("button").forEach((button) =>
      button.setAttribute("aria-pressed", String(button.title === example.source)));
    translate();
  };
  const samples = data.quality ? data.quality.buckets.map((bucket) => bucket.examples[0]).filter(Boolean)
    : data.examples.map((source) => ({ source }));
  by("examples").hidden = samples.length === 0;
  for (const example of samples) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = `${size(example.source)} ${sourceUnit}`;
    button.title = example.source;
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", () => take(example));
    by("examples").append(button);
  }
  if (samples.length) {
    text.value = samples[0].source;
    reference = samples[0].reference === undefined ? null : samples[0].reference;
  }
  grow();
  window.addEventListener("resize", grow);

  // Quality by length.
  if (!data.quality) return;
  const { buckets, metrics, primary, unit } = data.quality, slider = by("slider");
  const primaryName = metrics.find(({ key }) => key === primary).name;
  const scored = data.models.filter((model) => buckets.some((bucket) => bucket.scores[model.name]));
  const SVG = "http://www.w3.org/2000/svg";
  const make = (parent, name, attributes = {}, content = null) => {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (content !== null) node.textContent = content;
    parent.append(node);
    return node;
  };
  const score = (bucket, model, key = primary) => (bucket.scores[model.name] || {})[key];
  const best = Math.max(...buckets.flatMap((bucket) => scored.map((model) => (score(bucket, model) || {}).high || (score(bucket, model) || {}).score || 0)), 1);
  const ceiling = Math.min(100, Math.ceil(best / 10) * 10);
  const longest = Math.max(...scored.map((model) => model.name.length));
  const chart = () => {
    const width = Math.max(280, by("chart").clientWidth), narrow = width < 520;
    const height = narrow ? 260 : 340, left = 40, right = narrow ? 14 : Math.min(180, 14 + 8 * longest), top = 26, bottom = 46;
    const x = (i) => left + (i + 0.5) * (width - left - right) / buckets.length;
    const y = (value) => height - bottom - value / ceiling * (height - top - bottom);
    const svg = document.createElementNS(SVG, "svg");
    for (const [key, value] of Object.entries({ class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${primaryName} by source length; the table holds the numbers` })) svg.setAttribute(key, value);
    const step = ceiling <= 50 ? 10 : 20;
    for (let value = 0; value <= ceiling; value += step) {
      make(svg, "line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) });
      make(svg, "text", { class: "tick", x: left - 8, y: y(value) + 4, "text-anchor": "end" }, String(value));
    }
    buckets.forEach((bucket, i) => make(svg, "text", { class: narrow ? "small" : "tick", x: x(i), y: height - bottom + 18, "text-anchor": "middle" }, bucket.label));
    make(svg, "text", { class: "axis", x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, `source ${unit}`);
    make(svg, "text", { class: "axis", x: 2, y: 13 }, primaryName);
    const here = Number(slider.value);
    make(svg, "line", { class: "here", x1: x(here), x2: x(here), y1: top, y2: height - bottom });
    const ends = [];
    for (const model of scored) {
      const group = make(svg, "g", { class: `c${model.color}` });
      const points = buckets.map((bucket, i) => [i, score(bucket, model)]).filter(([, value]) => value);
      make(group, "polyline", { class: "stroke line", points: points.map(([i, value]) => `${x(i)},${y(value.score)}`).join(" ") });
      for (const [i, value] of points) {
        if (value.low !== undefined && value.low !== null) make(group, "line", { class: "stroke whisker", x1: x(i), x2: x(i), y1: y(value.low), y2: y(value.high) });
        make(group, "circle", { class: i === here ? "mark on" : "mark", cx: x(i), cy: y(value.score), r: i === here ? 6 : 4 });
      }
      if (points.length) ends.push({ model, at: y(points[points.length - 1][1].score) });
    }
    if (!narrow) {
      ends.sort((a, b) => a.at - b.at).forEach((end, i) => { if (i && end.at < ends[i - 1].at + 17) end.at = ends[i - 1].at + 17; });
      for (const { model, at } of ends) {
        const name = model.name.length > 21 ? model.name.slice(0, 20) + "\u2026" : model.name;
        make(make(svg, "g", { class: `c${model.color}` }), "text", { class: "label", x: width - right + 8 - (width - left - right) / buckets.length / 2 + 8, y: at + 4 }, name);
      }
    }
    by("chart").replaceChildren(svg);
  };
  const row = (model, bucket) => {
    const own = score(bucket, model), first = score(buckets[0], model), ratio = score(bucket, model, "length_ratio");
    const line = document.createElement("tr"), head = document.createElement("th");
    head.scope = "row";
    head.className = `c${model.color}`;
    head.innerHTML = '<span class="dot"></span><span class="name"></span>';
    head.lastChild.textContent = model.name;
    line.append(head);
    const cell = (content, small) => {
      const node = document.createElement("td");
      node.textContent = content;
      if (small) node.append(Object.assign(document.createElement("small"), { textContent: small }));
      line.append(node);
    };
    const range = (value) => (value && value.low !== undefined && value.low !== null ? `${value.low.toFixed(1)}\u2013${value.high.toFixed(1)}` : "");
    for (const { key } of metrics) {
      const value = score(bucket, model, key);
      cell(value ? value.score.toFixed(1) : "\u2013", range(value));
    }
    cell(typeof ratio === "number" ? ratio.toFixed(2) : "\u2013");
    cell(own && first && first.score > 0 ? `${Math.round(100 * own.score / first.score)}%` : "\u2013");
    return line;
  };
  const choose = () => {
    const bucket = buckets[Number(slider.value)];
    by("bucket").textContent = `${bucket.label} ${unit}`;
    slider.setAttribute("aria-valuetext", `${bucket.label} ${unit}: ` + scored.filter((model) => score(bucket, model))
      .map((model) => `${model.name} ${score(bucket, model).score.toFixed(1)} ${primaryName}`).join(", "));
    by("kept-from").textContent = `of ${buckets[0].label} ${unit}`;
    by("scores").replaceChildren(...scored.map((model) => row(model, bucket)));
    chart();
  };
  let turn = 0;
  slider.addEventListener("input", () => { turn = 0; choose(); });
  by("sample").addEventListener("click", () => {
    const examples = buckets[Number(slider.value)].examples;
    if (!examples.length) return;
    take(examples[turn++ % examples.length]);
    text.scrollIntoView({ block: "start" });
  });
  window.addEventListener("resize", chart);
  choose();
})();

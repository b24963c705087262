// Attention heatmap: target tokens down, source tokens across; the darker, the more weight.
// drawHeatmap(container, {source: [..], target: [..], weights: [[..]] or one such table a head, title}) fills the
// container and returns {select(row, column)}. Pointer or arrow keys trace one target word's weights. A page that uses it
// also takes in theme.css (colors, light and dark) and heatmap.css.
"use strict";
const drawHeatmap = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const make = (parent, name, attributes = {}, text = null) => {
    const svg = parent.namespaceURI === SVG || name === "svg";
    const node = svg ? document.createElementNS(SVG, name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== null) node.textContent = text;
    parent.append(node);
    return node;
  };
  // SentencePiece marks a word's first piece; people read better where the other pieces are marked.
  const readable = (tokens) => {
    const marked = tokens.some((token) => token.startsWith("\u2581"));
    return tokens.map((token, index) => {
      if (/^<\/?(s|eos)>$/i.test(token)) return "\u25a0";
      if (token === "\u2581") return "\u2423";
      if (token.startsWith("\u2581")) return token.slice(1);
      return marked && index > 0 ? "\u00b7" + token : token;
    });
  };
  const percent = (weight) => (weight >= 0.995 ? "100" : (100 * weight).toFixed(weight < 0.095 ? 1 : 0)) + "%";

  return function drawHeatmap(container, { source, target, weights, title = "Attention" }) {
    const heads = Array.isArray(weights[0] && weights[0][0]) ? weights : [weights];
    const across = readable(source), down = readable(target);
    const rows = Math.min(down.length, heads[0].length), columns = across.length;
    const longest = (tokens) => Math.max(1, ...tokens.map((token) => token.length));
    const size = Math.max(13, Math.min(26, Math.floor(620 / Math.max(rows, columns, 1))));
    const left = Math.min(150, 12 + 7.2 * longest(down)), top = Math.min(150, 12 + 7.2 * longest(across));
    const width = left + columns * size + 4, height = top + rows * size + 4;

    container.replaceChildren();
    container.classList.add("heatmap");
    make(container, "h4", { class: "name" }, title);
    let head = 0;
    if (heads.length > 1) {
      const label = make(container, "label", {}, "Head ");
      const choice = make(label, "select");
      make(choice, "option", { value: "mean" }, "mean of all");
      heads.forEach((_, index) => make(choice, "option", { value: index }, String(index + 1)));
      head = "mean";
      choice.addEventListener("change", () => {
        head = choice.value === "mean" ? "mean" : Number(choice.value);
        paint();
        select(row, column);
      });
    }
    const frame = make(container, "div", { class: "frame" });
    const svg = make(frame, "svg", {
      viewBox: `0 0 ${width} ${height}`, width, height, tabindex: 0, role: "application",
      "aria-roledescription": "attention heatmap",
      "aria-label": `${title}: ${rows} target tokens by ${columns} source tokens. Arrow keys trace a word.`,
    });
    const cells = make(svg, "g");
    make(svg, "rect", { class: "box", x: left, y: top, width: columns * size, height: rows * size });
    const rowLabels = down.slice(0, rows).map((token, i) =>
      make(svg, "text", { x: left - 6, y: top + (i + 0.5) * size + 4, "text-anchor": "end" }, token));
    const columnLabels = across.map((token, j) =>
      make(svg, "text", { transform: `translate(${left + (j + 0.5) * size + 4} ${top - 6}) rotate(-90)` }, token));
    const trace = make(svg, "rect", { class: "trace", x: left, width: columns * size, height: size, visibility: "hidden" });
    const mark = make(svg, "rect", { class: "trace", width: size, height: size, "stroke-width": 2.4, visibility: "hidden" });
    const reading = make(container, "p", { class: "reading", "aria-live": "polite" });
    const words = make(container, "div", { class: "words", "aria-hidden": "true" });

    const table = () => {
      if (head !== "mean") return heads[head];
      return heads[0].map((line, i) => line.map((_, j) =>
        heads.reduce((sum, each) => sum + each[i][j], 0) / heads.length));
    };
    let shown = table(), row = -1, column = -1;
    const paint = () => {
      shown = table();
      cells.replaceChildren();
      shown.slice(0, rows).forEach((line, i) => line.slice(0, columns).forEach((weight, j) => {
        if (weight < 0.004) return;
        make(cells, "rect", {
          class: "cell", x: left + j * size, y: top + i * size, width: size, height: size,
          "fill-opacity": Math.min(1, Math.pow(weight, 0.8)).toFixed(3),
        });
      }));
    };
    const select = (i, j = -1) => {
      if (!rows || i < 0) return;
      row = Math.min(i, rows - 1);
      const line = shown[row];
      const order = line.slice(0, columns).map((weight, index) => [weight, index]).sort((a, b) => b[0] - a[0]);
      column = j < 0 ? order[0][1] : Math.min(j, columns - 1);
      trace.setAttribute("y", top + row * size);
      mark.setAttribute("x", left + column * size);
      mark.setAttribute("y", top + row * size);
      trace.setAttribute("visibility", "visible");
      mark.setAttribute("visibility", "visible");
      rowLabels.forEach((label, index) => label.classList.toggle("on", index === row));
      const most = order.filter(([weight]) => weight >= 0.1).map(([, index]) => index);
      columnLabels.forEach((label, index) => label.classList.toggle("on", index === column || most.includes(index)));
      const listed = order.slice(0, 3).filter(([weight]) => weight >= 0.01)
        .map(([weight, index]) => `${across[index]} ${percent(weight)}`).join(", ");
      reading.textContent = `\u201c${down[row]}\u201d looks at ${listed || "nothing"}` +
        (j < 0 ? "." : `; \u201c${across[column]}\u201d gets ${percent(line[column])}.`);
      words.replaceChildren();
      across.forEach((token, index) => {
        const word = make(words, "span", {}, token);
        word.style.background = `rgba(var(--heat), ${(0.75 * line[index]).toFixed(3)})`;
        words.append(" ");
      });
    };
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const x = (event.clientX - box.left) * width / box.width, y = (event.clientY - box.top) * height / box.height;
      const i = Math.floor((y - top) / size), j = Math.floor((x - left) / size);
      if (i >= 0 && i < rows) select(i, j >= 0 && j < columns ? j : -1);
    });
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key];
      if (!step) return;
      event.preventDefault();
      if (row < 0) select(0);
      else if (step[0]) select(Math.max(0, Math.min(rows - 1, row + step[0])));
      else select(row, Math.max(0, Math.min(columns - 1, column + step[1])));
    });
    svg.addEventListener("focus", () => { if (row < 0) select(0); });
    paint();
    select(0);
    return { select };
  };
})();

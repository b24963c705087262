// Behavior of report.html: sorting the table, browsing sentences, choosing the sentence of the heatmaps.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("payload").textContent);
  const element = (name, className, text) => {
    const node = document.createElement(name);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const option = (value, text) => { const node = element("option", "", text); node.value = value; return node; };
  const color = Object.fromEntries(data.systems.map((system) => [system.name, `c${system.color}`]));

  for (const table of document.querySelectorAll("table.sortable")) {
    const headings = [...table.tHead.rows[0].cells];
    headings.forEach((heading, index) => {
      const button = heading.querySelector("button");
      if (!button) return;
      button.addEventListener("click", () => {
        const first = heading.dataset.first || "descending";
        const other = first === "descending" ? "ascending" : "descending";
        const direction = heading.getAttribute("aria-sort") === first ? other : first;
        headings.forEach((each) => each.removeAttribute("aria-sort"));
        heading.setAttribute("aria-sort", direction);
        const sign = direction === "ascending" ? 1 : -1;
        const value = (row) => row.cells[index].dataset.value;
        const rows = [...table.tBodies[0].rows].sort((a, b) => {
          const x = value(a), y = value(b);
          if (x === "" || y === "") return (x === "") - (y === "");
          return sign * (isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y);
        });
        table.tBodies[0].append(...rows);
      });
    });
  }

  const browse = (root, sentences) => {
    const PAGE = 10;
    const names = data.systems.map((system) => system.name).filter((name) => name in sentences.systems);
    const by = (name) => root.querySelector(`[name="${name}"]`);
    const split = (text, unit) => unit === "words" ? text.split(/\s+/).filter(Boolean) : [...text.replace(/\s+/g, "")];
    const words = (text) => split(text, data.units.target);
    const lengths = sentences.sources.map((text) => split(text, data.units.source).length);
    data.metrics.forEach((metric) => by("metric").append(option(metric.key, `sentence ${metric.name}`)));
    const rising = () => data.metrics.find((metric) => metric.key === by("metric").value).rising ? 1 : -1;
    names.forEach((name) => { by("first").append(option(name, name)); by("second").append(option(name, name)); });
    by("first").value = names[0];
    by("second").value = data.baseline === names[0] || !names.includes(data.baseline) ? names[names.length - 1] : data.baseline;
    let page = 0;
    const score = (name, index) => sentences.systems[name][by("metric").value][index];
    const orders = {
      difference: (i) => -Math.abs(score(by("first").value, i) - score(by("second").value, i)),
      first: (i) => -rising() * (score(by("first").value, i) - score(by("second").value, i)),
      second: (i) => -rising() * (score(by("second").value, i) - score(by("first").value, i)),
      worst: (i) => rising() * score(by("first").value, i),
      long: (i) => -lengths[i],
      row: (i) => sentences.rows[i],
    };
    const output = (text, reference) => {
      const node = element("span", "text");
      if (!text.trim()) { node.append(element("span", "empty", "(nothing)")); return node; }
      const left = new Map();
      for (const word of words(reference)) left.set(word, (left.get(word) || 0) + 1);
      for (const word of words(text)) {
        const known = (left.get(word) || 0) > 0;
        if (known) left.set(word, left.get(word) - 1);
        node.append(known ? word : element("span", "miss", word), data.units.target === "words" ? " " : "");
      }
      return node;
    };
    const line = (parent, who, value, text, className) => {
      const row = element("div", `line ${className}`);
      row.append(element("span", `who ${color[who] || ""}`, who), element("span", "value", value), text);
      parent.append(row);
    };
    const show = () => {
      const low = Number(by("low").value) || 0, high = Number(by("high").value) || Infinity;
      const wanted = by("search").value.trim().toLowerCase();
      const found = sentences.rows.map((_, index) => index).filter((i) => {
        if (lengths[i] < low || lengths[i] > high) return false;
        if (!wanted) return true;
        const texts = [sentences.sources[i], sentences.references[i], ...names.map((n) => sentences.systems[n].hypotheses[i])];
        return texts.some((text) => text.toLowerCase().includes(wanted));
      });
      const order = orders[by("order").value];
      const keys = new Map(found.map((i) => [i, order(i)]));
      found.sort((a, b) => keys.get(a) - keys.get(b) || a - b);
      const pages = Math.max(1, Math.ceil(found.length / PAGE));
      page = Math.max(0, Math.min(page, pages - 1));
      const list = root.querySelector(".list");
      list.replaceChildren();
      for (const i of found.slice(page * PAGE, page * PAGE + PAGE)) {
        const item = element("article", "segment");
        item.append(element("p", "", `Segment ${sentences.rows[i] + 1} · ${lengths[i]} source ${data.units.source}`));
        line(item, "source", "", element("span", "text", sentences.sources[i]), "given");
        line(item, "reference", "", element("span", "text", sentences.references[i]), "given");
        for (const name of names) {
          const text = output(sentences.systems[name].hypotheses[i], sentences.references[i]);
          line(item, name, score(name, i).toFixed(1), text, "");
        }
        list.append(item);
      }
      root.querySelector(".count").textContent =
        found.length ? `${found.length} segments, page ${page + 1} of ${pages}` : "No segment fits";
      root.querySelector(".previous").disabled = page === 0;
      root.querySelector(".next").disabled = page >= pages - 1;
    };
    root.querySelector(".controls").addEventListener("input", () => { page = 0; show(); });
    root.querySelector(".previous").addEventListener("click", () => { page -= 1; show(); });
    root.querySelector(".next").addEventListener("click", () => { page += 1; show(); });
    show();
  };
  const browser = document.getElementById("browser");
  if (browser && data.sentences) browse(browser, data.sentences);

  const attention = document.getElementById("heatmaps");
  if (attention && data.attention.length) {
    const choice = document.querySelector('[name="attention-row"]');
    data.attention.forEach((example, index) => {
      const any = Object.values(example.systems)[0];
      choice.append(option(index, `${example.row + 1}: ${any.source.length} source tokens`));
    });
    const show = () => {
      attention.replaceChildren();
      const { systems } = data.attention[Number(choice.value)];
      for (const { name } of data.systems) {
        if (!(name in systems)) continue;
        const box = element("div");
        attention.append(box);
        drawHeatmap(box, { ...systems[name], title: name });
        box.firstChild.classList.add(color[name]);
      }
    };
    choice.addEventListener("change", show);
    show();
  }
})();

"use strict";
(() => {
  const number = (value) => value === null || value === undefined ? "unknown" : Math.round(value).toLocaleString("en");
  const rate = (value) => value === null || value === undefined ? "unknown" : (value < 100 ? value.toFixed(1) : Math.round(value).toLocaleString("en")) + "/s";
  const show = (cell, text, cause) => {
    cell.replaceChildren();
    if (text !== "unknown") { cell.textContent = text; return; }
    const mark = document.createElement("span");
    mark.className = "unknown"; mark.title = cause || "nobody told"; mark.textContent = "unknown";
    cell.append(mark);
  };
  const moment = (ms) => ms > 0 ? new Date(ms).toISOString().slice(0, 19).replace("T", " ") : "–";

  const button = document.querySelector(".menu-button");
  if (button) button.addEventListener("click", () => {
    const isOpen = document.getElementById("menu").classList.toggle("open");
    button.setAttribute("aria-expanded", String(isOpen));
  });
  document.addEventListener("submit", (event) => {
    const question = event.target.dataset.confirm;
    if (question && !window.confirm(question)) event.preventDefault();
  });

  // Charts, live on the overview.
  window.charts.begin();
  window.addEventListener("resize", window.charts.redraw);
  if (document.querySelector("[data-live]")) {
    const source = new EventSource("/live/samples");
    source.addEventListener("sample", (event) => {
      const sample = JSON.parse(event.data);
      window.charts.add(sample);
      for (const cell of document.querySelectorAll("[data-live]")) {
        const field = cell.dataset.live;
        show(cell, field === "lag" ? number(sample[field]) : rate(sample[field]));
      }
    });
  }

  // Counts of the topics on this page: asked for afterwards, so that the page itself is quick.
  const table = document.querySelector("[data-counts]");
  if (table) {
    const rows = [...table.querySelectorAll("[data-topic]")];
    const fill = async (part) => {
      const names = part.map((row) => row.dataset.topic).join(",");
      let counts = [], cause = "";
      try {
        const response = await fetch("/api/topic-counts?topics=" + encodeURIComponent(names));
        if (response.ok) counts = (await response.json()).counts; else cause = (await response.json()).error;
      } catch (error) { cause = String(error); }
      const found = new Map(counts.map((count) => [count.topic, count]));
      for (const row of part) {
        const count = found.get(row.dataset.topic);
        show(row.querySelector("[data-count]"), count ? number(count.count) : "unknown", count ? count.cause : cause);
        show(row.querySelector("[data-rate]"), count ? rate(count.put_tps) : "unknown", count ? count.cause : cause);
        show(row.querySelector("[data-last]"), count && count.count !== null ? moment(count.last_update_ms) : "unknown", count ? count.cause : cause);
      }
    };
    (async () => { for (let at = 0; at < rows.length; at += 20) await fill(rows.slice(at, at + 20)); table.dataset.filled = "yes"; })();
  }

  // Live tail.
  const tail = document.querySelector("[data-tail]");
  if (tail) {
    const state = document.querySelector("[data-tail-state]"), body = document.querySelector("[data-tail-rows]");
    let source = null, count = 0;
    const stop = (text) => { if (source) source.close(); source = null; tail.textContent = "Live tail"; state.textContent = text; };
    const cell = (row, text, name) => { const td = document.createElement("td"); if (name) td.className = name; td.textContent = text; row.append(td); return td; };
    const begin = () => {
      body.closest("table").hidden = false;
      tail.textContent = "Stop"; state.textContent = "waiting for messages…"; count = 0;
      source = new EventSource(tail.dataset.tail);
      source.onopen = () => { state.textContent = "connected; waiting for messages…"; tail.dataset.connected = "yes"; };
      source.addEventListener("message", (event) => {
        const message = JSON.parse(event.data), row = document.createElement("tr");
        cell(row, moment(message.stored_ms)); cell(row, `${message.queue.broker_name}/${message.queue.queue_id}`); cell(row, message.queue_offset, "n");
        const link = document.createElement("a");
        link.href = `/messages/${encodeURIComponent(message.offset_id)}?topic=${encodeURIComponent(message.queue.topic)}`; link.textContent = message.message_id; link.className = "id";
        cell(row, "").append(link); cell(row, message.tag); cell(row, message.keys.join(" "));
        const code = document.createElement("code"); code.textContent = message.body.text.slice(0, 300); cell(row, "", "body").append(code);
        body.prepend(row); while (body.children.length > 200) body.lastChild.remove();
        count += 1; state.textContent = count + " so far";
      });
      source.addEventListener("failed", (event) => stop(JSON.parse(event.data).error));
      source.addEventListener("ended", () => stop(count + " shown; press to go on"));
      source.onerror = () => { state.textContent = "the connection broke; trying again…"; };
    };
    tail.addEventListener("click", () => source ? stop("stopped after " + count) : begin());
    if (location.hash === "#tail") begin();
  }
})();

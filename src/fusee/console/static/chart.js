"use strict";
// Lines over time, drawn as SVG. A value that is not known is a gap, never a zero.
(() => {
  const HEIGHT = 170, LEFT = 46, BOTTOM = 20, TOP = 8;
  const make = (name, attributes, text) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const short = (value) => value >= 1e6 ? (value / 1e6).toFixed(1) + "M" : value >= 1e4 ? (value / 1e3).toFixed(0) + "k" : value >= 10 || value === 0 ? value.toFixed(0) : value.toFixed(1);
  const draw = (box) => {
    const fields = box.dataset.chart.split(","), names = box.dataset.names.split(",");
    const points = box.points, WIDTH = Math.max(box.clientWidth, 200);
    const svg = make("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": names.join(" and ") + " over time" });
    const known = points.flatMap((point) => fields.map((field) => point[field])).filter((value) => value !== null && value !== undefined);
    const top = Math.max(1, ...known) * 1.1;
    const first = points.length ? points[0].at_ms : 0, last = points.length ? points[points.length - 1].at_ms : 1;
    const x = (at) => LEFT + (WIDTH - LEFT - 4) * (last > first ? (at - first) / (last - first) : 1);
    const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top);
    for (const share of [0, 0.5, 1]) {
      svg.append(make("line", { class: "grid", x1: LEFT, x2: WIDTH - 4, y1: y(top * share), y2: y(top * share) }));
      svg.append(make("text", { x: LEFT - 6, y: y(top * share) + 4, "text-anchor": "end" }, short(top * share)));
    }
    if (points.length) {
      const clock = (at) => new Date(at).toISOString().slice(11, 19);
      svg.append(make("text", { x: LEFT, y: HEIGHT - 4 }, clock(first)));
      svg.append(make("text", { x: WIDTH - 4, y: HEIGHT - 4, "text-anchor": "end" }, clock(last) + " UTC"));
    }
    fields.forEach((field, index) => {
      let path = "", isDown = false;
      for (const point of points) {
        const value = point[field];
        if (value === null || value === undefined) { isDown = false; continue; }
        path += `${isDown ? "L" : "M"}${x(point.at_ms).toFixed(1)} ${y(value).toFixed(1)}`;
        isDown = true;
      }
      if (path) svg.append(make("path", { class: "line" + index, d: path }));
      const newest = points.length ? points[points.length - 1] : null;
      if (newest && newest[field] !== null && newest[field] !== undefined) {
        svg.append(make("circle", { class: "dot" + index, cx: x(newest.at_ms), cy: y(newest[field]), r: 3 }));
      }
    });
    const legend = document.createElement("div");
    legend.className = "legend";
    names.forEach((name, index) => { const key = document.createElement("span"); key.className = "k" + index; key.textContent = name; legend.append(key); });
    if (!known.length) { const none = document.createElement("span"); none.textContent = points.length ? "unknown" : "no samples yet"; legend.append(none); }
    box.replaceChildren(svg, legend);
  };
  window.charts = {
    all: () => [...document.querySelectorAll("[data-chart]")],
    redraw: () => window.charts.all().forEach(draw),
    begin: () => window.charts.all().forEach((box) => { box.points = JSON.parse(box.dataset.points); draw(box); }),
    add: (point) => window.charts.all().forEach((box) => { box.points.push(point); if (box.points.length > 720) box.points.shift(); draw(box); }),
  };
})();

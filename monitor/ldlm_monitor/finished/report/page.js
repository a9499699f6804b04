// Values at a step and a closer look, by pointer or keys. Without it the page has all but these.
const short = (value) => (value === null ? "not finite" : String(Number(value.toPrecision(5))));
const steps = (low, high) => {
  const raw = (high - low) / 5, power = 10 ** Math.floor(Math.log10(raw));
  const by = Math.max(1, [1, 2, 5, 10].find((each) => each * power >= raw * 0.8) * power);
  const found = [];
  for (let at = Math.ceil(low / by) * by; at <= high; at += by) found.push(at);
  return found;
};
const draw = () => document.querySelectorAll("[data-plot]").forEach((plot) => {
  const { title, low, high, lines } = JSON.parse(plot.dataset.plot);
  const chart = plot.querySelector("svg"), frame = chart.querySelector("svg");
  const xs = [...new Set(lines.flatMap((line) => line.steps))].sort((a, b) => a - b);
  const values = lines.map((line) => new Map(line.steps.map((step, n) => [step, line.means[n]])));
  const make = (tag, name) => plot.appendChild(Object.assign(document.createElement(tag), { className: name }));
  const [cursor, chosen, said, buttons] = [make("i", "cursor"), make("i", "chosen"), make("output", "said"), make("div", "zoom")];
  let from = low, to = high, at = xs.length - 1, began = null;
  const across = (x) => (100 * (x - from)) / (to - from);
  const step = (event) => {
    const box = chart.getBoundingClientRect();
    return from + Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1) * (to - from);
  };
  const read = (index) => {
    at = Math.min(Math.max(index, xs.findIndex((x) => x >= from)), xs.findLastIndex((x) => x <= to));
    cursor.style.left = `calc(var(--gutter) + ${across(xs[at]) / 100} * (100% - var(--gutter)))`;
    const parts = lines.flatMap((line, n) =>
      values[n].has(xs[at]) ? [(lines.length > 1 ? line.name + " " : "") + short(values[n].get(xs[at]))] : []);
    said.textContent = `step ${xs[at]}: ${parts.join(", ")}`;
    plot.classList.add("read");
  };
  const view = (first, last) => {
    if (!xs.some((x) => x >= first && x <= last)) return;
    [from, to] = [Math.max(low, first), Math.min(high, last)];
    if (to - from < 2) [from, to] = [Math.max(low, from - 1), Math.min(high, to + 1)];
    const left = (from - low) / (high - low), wide = (to - from) / (high - low);
    frame.setAttribute("viewBox", `${1000 * left} 0 ${1000 * wide} 1000`);
    const old = [...chart.querySelectorAll(".step")];
    for (const tick of steps(from, to)) {
      const label = chart.appendChild(old[0].cloneNode()), share = across(tick);
      label.textContent = short(tick);
      label.setAttribute("x", share + "%");
      label.setAttribute("text-anchor", share < 5 ? "start" : share > 95 ? "end" : "middle");
    }
    old.forEach((label) => label.remove());
    for (const note of chart.querySelectorAll("[data-x]")) {
      const x = Number(note.dataset.x);
      note.setAttribute("x", across(x) + "%");
      note.style.display = x < from || x > to ? "none" : "";
    }
    read(at);
  };
  const zoom = (factor) => {
    const half = ((to - from) * factor) / 2;
    view(xs[at] - half, xs[at] + half);
  };
  const nearest = (x) => xs.reduce((best, each, n) => (Math.abs(each - x) < Math.abs(xs[best] - x) ? n : best), 0);
  for (const [text, act] of [["Zoom in", () => zoom(0.5)], ["Zoom out", () => zoom(2)], ["Whole run", () => view(low, high)]]) {
    const button = buttons.appendChild(document.createElement("button"));
    Object.assign(button, { type: "button", textContent: text, onclick: act });
    button.setAttribute("aria-label", `${text}: ${title}`);
  }
  plot.tabIndex = 0;
  plot.setAttribute("role", "group");
  plot.setAttribute("aria-label", `${title}: arrow keys read values, + and - zoom, 0 shows the whole run`);
  plot.onkeydown = ({ key }) => {
    const act = { ArrowLeft: () => read(at - 1), ArrowRight: () => read(at + 1), "+": () => zoom(0.5), "-": () => zoom(2), 0: () => view(low, high) }[key];
    if (act) { act(); return false; }
  };
  chart.onpointerdown = (event) => { began = step(event); };
  chart.onpointermove = (event) => {
    const x = step(event);
    read(nearest(x));
    const [left, right] = [Math.min(began ?? x, x), Math.max(began ?? x, x)].map(across);
    chosen.style.cssText = `left:calc(var(--gutter) + ${left / 100} * (100% - var(--gutter)));width:calc(${(right - left) / 100} * (100% - var(--gutter)))`;
  };
  chart.onpointerup = (event) => {
    const [left, right] = [began ?? 0, step(event)].sort((a, b) => a - b);
    if (began !== null && across(right) - across(left) > 2) view(left, right);
    began = null;
    chosen.style.cssText = "";
  };
  chart.onpointerleave = () => { began = null; chosen.style.cssText = ""; };
});
draw();
document.addEventListener("replaced", draw);

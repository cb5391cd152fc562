"use strict";
// Hides labels, follows the pointer, and switches between light and dark. Values are read back from coordinates.
const hidden = new Set();
const tip = document.getElementById("tip");
const theme = document.getElementById("theme");
const dark = matchMedia("(prefers-color-scheme: dark)");
const SVG = "http://www.w3.org/2000/svg";

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : dark.matches;
}

function nameTheme() {
  theme.textContent = isDark() ? "Light" : "Dark";
}

theme.addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  nameTheme();
});
dark.addEventListener("change", nameTheme);
nameTheme();

function showLabels() {
  for (const each of document.querySelectorAll("main [data-s]")) each.classList.toggle("off", hidden.has(each.dataset.s));
  for (const each of document.querySelectorAll("[data-toggle]"))
    each.setAttribute("aria-pressed", String(!hidden.has(each.dataset.toggle)));
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-toggle]");
  if (!button) return;
  const label = button.dataset.toggle;
  if (!hidden.delete(label)) hidden.add(label);
  showLabels();
});

function write(x) {
  const text = Math.abs(x) >= 1000 ? Math.round(x).toLocaleString("en") : String(Number(x.toPrecision(3)));
  return text.replace("-", "\u2212");
}

function axis(text) {
  const [low, high, start, end] = text.split(" ").map(Number);
  return (at) => low + ((at - start) / (end - start)) * (high - low);
}

function coordinates(shape) {
  return shape.getAttribute("points").split(" ").map((pair) => pair.split(",").map(Number));
}

function heightAt(points, x) {
  const after = points.findIndex((point) => point[0] >= x);
  if (after < 0 || x < points[0][0] - 0.05) return null;
  const [x1, y1] = points[after];
  if (after === 0) return y1;
  const [x0, y0] = points[after - 1];
  return x1 === x0 ? y1 : y0 + ((x - x0) / (x1 - x0)) * (y1 - y0);
}

function read(chart, x) {
  const found = [];
  for (const line of chart.querySelectorAll("polyline:not(.off)")) {
    const label = line.dataset.s;
    const y = heightAt(coordinates(line), x);
    if (y === null) continue;
    const band = chart.querySelector(`polygon[data-s="${label}"]`);
    let range = null;
    if (band) {
      const around = coordinates(band);
      const half = around.length / 2;
      range = [heightAt(around.slice(half).reverse(), x), heightAt(around.slice(0, half), x)];
    }
    found.push({ label, y, range });
  }
  return found.sort((a, b) => a.y - b.y);
}

function nearest(chart, x) {
  const all = [...chart.querySelectorAll("polyline:not(.off)")].flatMap((line) => coordinates(line).map((point) => point[0]));
  return all.reduce((best, each) => (Math.abs(each - x) < Math.abs(best - x) ? each : best), Infinity);
}

function mark(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function describe(chart, x, found) {
  const value = axis(chart.dataset.y);
  const table = document.createElement("table");
  for (const { label, y, range } of found.slice(0, 14)) {
    const row = table.insertRow();
    const button = document.querySelector(`[data-toggle="${label}"]`);
    row.insertCell().append(button.firstChild.cloneNode(true), button.textContent);
    row.insertCell().textContent = write(value(y));
    row.insertCell().textContent = range ? `${write(value(range[0]))} to ${write(value(range[1]))}` : "";
  }
  const head = document.createElement("div");
  head.className = "faint";
  head.textContent = `${write(axis(chart.dataset.x)(x))} ${chart.dataset.unit}`;
  tip.replaceChildren(head, table);
}

function leave() {
  tip.hidden = true;
  for (const each of document.querySelectorAll(".pointer")) each.replaceChildren();
}

document.addEventListener("pointermove", (event) => {
  const chart = event.target.closest ? event.target.closest("svg.chart") : null;
  leave();
  if (!chart) return;
  const box = chart.getBoundingClientRect();
  const x = nearest(chart, ((event.clientX - box.left) / box.width) * chart.viewBox.baseVal.width);
  const found = Number.isFinite(x) ? read(chart, x) : [];
  if (!found.length) return;
  const [bottom, top] = chart.dataset.y.split(" ").slice(2);
  const pointer = chart.querySelector(".pointer");
  pointer.append(mark("line", { x1: x, x2: x, y1: bottom, y2: top }));
  for (const { label, y } of found) pointer.append(mark("circle", { class: `s${label}`, cx: x, cy: y, r: 3.5 }));
  describe(chart, x, found);
  tip.hidden = false;
  const left = event.clientX + 16 + tip.offsetWidth > innerWidth ? event.clientX - 16 - tip.offsetWidth : event.clientX + 16;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, Math.min(event.clientY + 12, innerHeight - tip.offsetHeight - 4))}px`;
});
document.addEventListener("pointerleave", leave);

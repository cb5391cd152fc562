"use strict";
// Asks the server for a newer page every second and puts it in place; what is hidden or open stays so.
async function look() {
  const sub = document.getElementById("sub");
  let answer;
  try {
    answer = await fetch(location.href, { cache: "no-store", headers: { "If-None-Match": `"${sub.dataset.version}"` } });
  } catch {
    sub.textContent += " The server has ended.";
    return;
  }
  if (answer.status === 200) {
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const open = new Set([...document.querySelectorAll("details[open]")].map((each) => each.dataset.key));
    for (const name of ["#sub", "#labels", ".legend", "main"])
      document.querySelector(name).replaceWith(page.querySelector(name));
    for (const each of document.querySelectorAll("details")) each.open = open.has(each.dataset.key);
    showLabels();
  }
  setTimeout(look, 1000);
}
setTimeout(look, 1000);

// Replaces the part of the page that changes, every two seconds while somebody looks. The server has escaped it.
"use strict";
const state = document.getElementById("state"), main = document.getElementById("main");
const url = new URL(location.href);
url.searchParams.set("format", "html");
url.searchParams.set("part", "main");

async function update() {
	if (document.hidden || !getSelection().isCollapsed) return; // nobody looks, or somebody copies
	try {
		const response = await fetch(url, {cache: "no-store"});
		if (!response.ok) throw new Error(response.status);
		main.innerHTML = await response.text();
		state.textContent = "live, " + main.querySelector(".totals").dataset.clock;
		state.className = "";
	} catch {
		state.textContent = "no answer since " + main.querySelector(".totals").dataset.clock;
		state.className = "stale";
	}
}
setInterval(update, 2000);
document.addEventListener("visibilitychange", update);

// Polls the state and shows it.

import { Graph } from "./graph.js";
import { Tables } from "./tables.js";
import { Tiles, showHeader, showHealth } from "./summary.js";
import { complete } from "./model.js";
import { showDetail } from "./detail.js";

const RETRY_MS = 3000;
const part = (id) => document.getElementById(id);

let state = null;
let tag = null;
let changed = performance.now();
let selected = null;
let timer = 0;

const tiles = new Tiles(part("tiles"));
const graph = new Graph(part("graph"), select);
const tables = new Tables({ tabs: part("tabs"), filter: part("filter"), table: part("table") }, select);

// Chooses an object; the same one again, or null, chooses none.
function select(key) {
  selected = key === selected ? null : key;
  show(false);
  // On a narrow page the details are below the graph.
  if (selected && !part("detail").hidden) part("detail").scrollIntoView({ block: "nearest" });
}

function show(isNew) {
  if (!state) return;
  header();
  const { daemon } = state;
  document.body.classList.toggle("is-stale", Boolean(state.error));
  if (!daemon) return;
  tiles.show(daemon, isNew);
  graph.show(daemon, state.host, selected);
  tables.show(daemon, selected);
  showHealth(part("health"), state, select);
  showDetail(part("detail"), daemon, selected, () => select(null));
}

function header() {
  if (state) showHeader({ host: part("host"), live: part("live"), about: part("about") }, state, performance.now() - changed);
}

// Shows a text above everything; an empty text hides it.
function banner(text) {
  part("banner").hidden = !text;
  part("banner").textContent = text;
}

// Asks for a newer state.
async function poll() {
  clearTimeout(timer);
  let pause = RETRY_MS;
  try {
    const reply = await fetch("/api/state", { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
    if (reply.status === 200) {
      state = await reply.json();
      if (state.daemon) complete(state.daemon);
      tag = reply.headers.get("ETag");
      changed = performance.now();
      banner(state.error ? `${state.error}\n${state.daemon ? "The last known state is shown." : ""}` : "");
      show(true);
      pause = state.daemon?.seconds === undefined ? 1000 : state.interval_ms;
    } else if (reply.status === 304) {
      pause = Math.min(1000, state.interval_ms);
    } else if (reply.status === 503) {
      banner("Waiting for the first answer of causewayd.");
    } else {
      banner(`causeway web answered with status ${reply.status}.`);
    }
  } catch {
    banner("causeway web does not answer; trying again. Is it still running?");
  }
  header();
  if (!document.hidden) timer = setTimeout(poll, pause);
}

function theme() {
  const root = document.documentElement;
  const isDark = (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  root.dataset.theme = isDark ? "light" : "dark";
  try {
    localStorage.setItem("theme", root.dataset.theme);
  } catch {
    // A browser may refuse to store; the choice then ends with the page.
  }
}

try {
  const stored = localStorage.getItem("theme");
  if (stored === "light" || stored === "dark") document.documentElement.dataset.theme = stored;
} catch {
  // As above.
}
part("theme").addEventListener("click", theme);
document.addEventListener("visibilitychange", () => document.hidden || poll());
document.addEventListener("keydown", (event) => event.key === "Escape" && selected && select(null));
setInterval(header, 1000);
poll();

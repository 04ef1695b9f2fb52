// The debug page. All that comes from the job is put in as text, never as HTML.
"use strict";

// The token comes behind the # of the address, which a browser sends to nobody; from
// then on this tab keeps it, and no other origin can read it.
function takeToken() {
  const given = location.hash.slice(1);
  if (given) {
    sessionStorage.setItem("token", given);
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem("token") ?? "";
}

const token = takeToken();
window.addEventListener("hashchange", () => location.reload());

const PAUSE = 1000; // ms between two looks at the ranks
const at = (id) => document.querySelector(`#${id} > div`);

async function fetchFrom(path) {
  const headers = { Authorization: `Bearer ${token}` };
  const answer = await fetch(path, { headers, cache: "no-store" });
  if (!answer.ok) {
    throw new Error(`${answer.status}: ${(await answer.text()).trim()}`);
  }
  return answer;
}

const problems = new Map(); // by what it is of, so that each goes with its own cause

function say(what, problem) {
  problems.set(what, problem);
  const place = document.getElementById("problem");
  place.textContent = [...problems.values()].filter(Boolean).join("; ");
  place.hidden = !place.textContent;
}

// Elements

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

function drawn(name, attributes, title) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) {
    made.setAttribute(key, value);
  }
  if (title) {
    const told = document.createElementNS("http://www.w3.org/2000/svg", "title");
    told.textContent = title;
    made.append(told);
  }
  return made;
}

// heads: names; those that begin with > are of columns of numbers.
function table(heads, rows) {
  const kinds = heads.map((head) => (head.startsWith(">") ? { class: "number" } : {}));
  const head = heads.map((each, i) =>
    element("th", kinds[i], each.replace(/^>/, "")),
  );
  const body = rows.map(([attributes, cells]) =>
    element(
      "tr",
      attributes,
      ...cells.map((cell, i) => element("td", kinds[i], String(cell))),
    ),
  );
  return element(
    "table",
    {},
    element("thead", {}, element("tr", {}, ...head)),
    element("tbody", {}, ...body),
  );
}

// Numbers

function seconds(value) {
  if (value === null) return "";
  if (value >= 1) return `${value.toFixed(1)} s`;
  if (value >= 1e-3) return `${(value * 1e3).toPrecision(3)} ms`;
  return `${(value * 1e6).toPrecision(3)} us`;
}

const percent = (share) => `${Math.round(share * 100)} %`;

function short(number) {
  if (number === 0) return "0";
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (number >= size) return `${(number / size).toPrecision(3)}${unit}`;
  }
  return number.toPrecision(3);
}

// The parts of the page

let job = null; // what the ranks answered last
let live = []; // what their memory says now

function showVerdict() {
  const place = document.querySelector("#verdict p");
  place.textContent = job.verdict?.line ?? "nothing is wrong, as far as these records go";
  place.className = job.verdict ? "bad" : "";
  const silent = job.silent.map(({ ranks, why }) =>
    element("li", { class: "bad" }, `no answer of ${ranks}: ${why}`),
  );
  document.querySelector("#verdict ul").replaceChildren(...silent);
  const time = new Date(job.time_ns / 1e6).toLocaleTimeString();
  document.getElementById("whose").textContent =
    `${job.size} ${job.size === 1 ? "rank" : "ranks"}, as rank ${job.rank} sees them; ` +
    `records of ${time}`;
}

function doing(row) {
  if (row.state !== "waits") return row.state;
  const more = row.num_awaited - row.waits_for.length;
  return `waits for ${row.waits_for.join(", ")}${more ? ` and ${more} more` : ""}`;
}

function liveRow(row, where) {
  const { operation } = row;
  const attributes = { "data-rank": row.rank };
  if (["stopped", "dead"].includes(row.state)) attributes.class = "bad";
  return [
    attributes,
    [
      row.rank,
      doing(row),
      operation ? `${operation.op} #${operation.sequence}` : "",
      operation?.group ?? "",
      operation ? seconds(operation.seconds) : "",
      short(row.operations_per_second),
      short(row.bytes_per_second),
      percent(row.in_communication),
      percent(row.awaited),
      percent(row.cpu),
      `${row.host} ${row.pid}`,
      where,
    ],
  ];
}

function showRanks() {
  const asked = new Map((job?.ranks ?? []).map((each) => [each.rank, each]));
  const rows = live.map((row) => liveRow(row, asked.get(row.rank)?.where ?? ""));
  const seen = new Set(live.map((row) => row.rank));
  for (const each of asked.values()) {
    if (seen.has(each.rank)) continue;
    const { rank, state, operation, group, host, pid, where } = each;
    const cells = [rank, state, operation, group, each.for, "", "", "", "", ""];
    rows.push([{ "data-rank": rank }, [...cells, `${host} ${pid}`, where]]);
  }
  for (const { ranks, numbers, why } of job?.silent ?? []) {
    if (numbers.every((rank) => seen.has(rank))) continue;
    const cells = [ranks.replace(/^ranks? /, ""), why];
    rows.push([{ class: "bad" }, [...cells, ...Array(10).fill("")]]);
  }
  const heads = [">rank", "state", "operation", "group", ">for", ">op/s", ">B/s"];
  heads.push(">comm", ">late", ">CPU", "process", "where, when asked");
  at("ranks").replaceChildren(table(heads, rows));
}

function showStats() {
  const heads = ["group", "description", "operation", ">calls", ">MB", ">p50", ">p99"];
  heads.push(">transfer", ">waited", "last most often");
  at("stats").replaceChildren(table(heads, job.stats.map((cells) => [{}, cells])));
}

function showGroups() {
  const rows = job.groups.map((group) => {
    const reached = group.reached.map(
      ([rank, issued, ended]) =>
        `${rank}: ${issued === ended ? ended : `${ended}, in ${issued}`}`,
    );
    return [{}, [group.name, group.desc, group.ranks, reached.join("; ")]];
  });
  const heads = ["group", "description", "ranks", "last collective by rank"];
  at("groups").replaceChildren(table(heads, rows));
}

function stackOf(thread) {
  const head = `${thread.name}${thread.is_main ? ", the main thread" : ""}`;
  const inside = thread.inside ? `, in ${thread.inside}()` : "";
  return [
    element("h3", {}, head + inside),
    element("pre", {}, thread.frames.join("\n") || "none of the program's code"),
  ];
}

function showStacks() {
  const made = job.ranks.map((each) =>
    element(
      "details",
      { "data-rank": each.rank, ...keptOpen("stacks", each.rank, job.size <= 4) },
      element("summary", {}, `rank ${each.rank}: ${each.where || each.state}`),
      ...each.threads.flatMap(stackOf),
    ),
  );
  at("stacks").replaceChildren(...made);
}

function showRecorder() {
  const heads = ["group", ">number", "operation", "state", ">issued ago", ">took"];
  heads.push("where");
  const made = job.ranks.map((each) => {
    const rows = each.operations.toReversed().map((told) => [
      told.is_under_way ? { class: "bad" } : {},
      [
        told.group,
        told.number,
        told.call + (told.is_async ? ", async" : ""),
        told.state,
        seconds(told.age),
        seconds(told.took),
        told.where,
      ],
    ]);
    const current = each.operations.filter((told) => told.is_under_way).length;
    const head = `rank ${each.rank}: ${current} under way, the last ones of ` +
      `${each.num_operations} on record`;
    return element(
      "details",
      { "data-rank": each.rank, ...keptOpen("recorder", each.rank, false) },
      element("summary", {}, head),
      table(heads, rows),
    );
  });
  at("recorder").replaceChildren(...made);
}

// Whether the part of that rank is open, as the reader has left it.
function keptOpen(section, rank, usually) {
  const before = document.querySelector(`#${section} details[data-rank="${rank}"]`);
  return (before ? before.open : usually) ? { open: "" } : {};
}

// The picture: events as `allhands trace` writes them.

const WIDTH = 1000;
const LEFT = 60;
const LANE = 16;

function lanesOf(events) {
  const lanes = new Map(); // by rank and track, in order
  for (const { pid, tid } of events) lanes.set(`${pid}/${tid}`, [pid, tid]);
  return [...lanes.values()].sort(([a, b], [c, d]) => a - c || b - d);
}

function showTimeline() {
  const events = job.timeline.traceEvents;
  const bars = events.filter(({ ph }) => ph === "X");
  if (!bars.length) {
    at("timeline").replaceChildren("no operation is on record");
    return;
  }
  const begin = bars.reduce((least, { ts }) => Math.min(least, ts), Infinity);
  const end = bars.reduce((most, { ts, dur }) => Math.max(most, ts + dur), -Infinity);
  const x = (time) => LEFT + ((time - begin) / (end - begin || 1)) * (WIDTH - LEFT - 10);
  const lanes = lanesOf(bars);
  const y = new Map(lanes.map(([pid, tid], i) => [`${pid}/${tid}`, i * LANE + 4]));
  const height = lanes.length * LANE + 24;
  const picture = drawn("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img" });
  picture.append(...axis(x, begin, end, height - 16));
  let before = -1;
  for (const [pid, tid] of lanes) {
    if (pid === before) continue;
    const label = drawn("text", { x: 0, y: y.get(`${pid}/${tid}`) + 10 });
    label.textContent = `rank ${pid}`;
    picture.append(label);
    before = pid;
  }
  for (const event of bars) {
    const top = y.get(`${event.pid}/${event.tid}`);
    const isWait = event.cat === "wait";
    const place = {
      x: x(event.ts).toFixed(2),
      y: top + (isWait ? 3 : 0),
      width: Math.max(0.6, x(event.ts + event.dur) - x(event.ts)).toFixed(2),
      height: isWait ? LANE - 10 : LANE - 4,
      class: event.cat,
      "data-rank": event.pid,
      "data-name": event.name,
    };
    picture.append(drawn("rect", place, titleOf(event)));
  }
  for (const { pid, ts, name, args } of events.filter(({ ph }) => ph === "i")) {
    const top = lanes.findIndex(([rank]) => rank === pid) * LANE + 4;
    const place = { cx: x(ts).toFixed(2), cy: Math.max(4, top) + 6, r: 4 };
    const told = `${name}: ${args.message}`;
    picture.append(drawn("circle", { ...place, class: "failure" }, told));
  }
  at("timeline").replaceChildren(picture);
}

function titleOf({ name, pid, dur, args }) {
  const number = args.number === undefined ? "" : ` #${args.number}`;
  const more = ["group", "bytes", "state", "call_site"]
    .filter((key) => args[key] !== undefined)
    .map((key) => `${key}: ${args[key]}`);
  return [`rank ${pid}: ${name}${number}, ${seconds(dur / 1e6)}`, ...more].join("\n");
}

function axis(x, begin, end, bottom) {
  const rough = (end - begin) / 6 || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
  const made = [];
  for (let time = 0; time <= end - begin; time += step) {
    const place = x(begin + time).toFixed(2);
    made.push(
      drawn("line", { x1: place, x2: place, y1: 0, y2: bottom, class: "axis" }),
    );
    const label = drawn("text", { x: place, y: bottom + 13, "text-anchor": "middle" });
    label.textContent = time ? seconds(time / 1e6) : "0";
    made.push(label);
  }
  return made;
}

// What is asked for, and when

async function ask() {
  const button = document.getElementById("ask");
  button.disabled = true;
  try {
    job = await (await fetchFrom("job")).json();
    say("asked", "");
    showVerdict();
    showRanks();
    showTimeline();
    showStats();
    showGroups();
    showStacks();
    showRecorder();
    document.body.dataset.asked = "yes";
  } catch (error) {
    say("asked", error.message);
  } finally {
    button.disabled = false;
  }
}

async function watch() {
  while (true) {
    if (!document.hidden) {
      try {
        live = (await (await fetchFrom("live")).json()).ranks;
        say("live", "");
        document.body.dataset.live = "yes";
      } catch (error) {
        live = []; // what the record has is as of its own time, which the page says
        say("live", `the ranks are not seen now: ${error.message}`);
        document.body.dataset.live = "no";
      }
      showRanks();
    }
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
  }
}

async function download(path) {
  try {
    const blob = await (await fetchFrom(path)).blob();
    const address = URL.createObjectURL(blob);
    element("a", { href: address, download: `allhands_${path}.json` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
    say("kept", "");
  } catch (error) {
    say("kept", error.message);
  }
}

if (token) {
  document.getElementById("ask").addEventListener("click", ask);
  for (const button of document.querySelectorAll("[data-download]")) {
    button.addEventListener("click", () => download(button.dataset.download));
  }
  ask();
  watch();
} else {
  say("token", "this page needs its token: open the whole address, with what is behind the #");
}

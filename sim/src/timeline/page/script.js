"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const data = JSON.parse($("data").textContent);
  const GUTTER = 138, RULER = 30, LANE = 40, MIDDLE = 20, NARROWEST_NS = 200, ARROWS_MOST = 2000, FRAMES_KEPT = 240;
  const IDLE = data.kinds.indexOf("idle"), BLOCKED = data.kinds.indexOf("blocked");
  const STALLED = data.kinds.indexOf("stalled"), TURN = 0, DIM = data.kinds.length;
  /* When slices share a pixel, the one worth seeing gives the colour. */
  const WEIGHT = data.kinds.map((kind) => ["turn", "tick", "step", "commands", "compact", "idle",
    "walk", "merge", "stalled", "blocked"].indexOf(kind));

  // ---- Data ------------------------------------------------------------------------------------

  /** The first index at or after `from` whose value is not below `value`. */
  function lower(sorted, value, from = 0) {
    let low = from, high = sorted.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (sorted[middle] < value) low = middle + 1; else high = middle;
    }
    return low;
  }

  /* Where nothing at all happens for a large part of a run, the axis is cut: times are drawn, and kept below, without
     what is cut out, and shown to people with it. */
  const cuts = quiet().map(([from, to, keep]) => ({ from, to, keep }));
  function quiet() {
    const busy = [[0, 0], [data.end, data.end]];
    const at = (ns) => { if (ns !== null && ns !== undefined) busy.push([ns, ns]); };
    for (const lane of data.threads) {
      let begin = 0;
      lane.begin.forEach((after, i) => {
        begin += after;
        if (lane.kind[i] !== IDLE && lane.depth[i] === 0) busy.push([begin, begin + lane.length[i]]);
      });
    }
    data.commands.forEach((command) => { at(command.sent); at(command.delivered); });
    data.peeks.forEach((peek) => { at(peek.asked); at(peek.answered?.[0]); });
    data.collections.forEach((strip) => ["upper", "since", "allowed", "held"].forEach((name) => strip[name].forEach((step) => at(step[0]))));
    data.faults.forEach(([, from, to]) => { at(from); at(to); });
    at(data.violation?.at); at(data.healed);
    busy.sort((a, b) => a[0] - b[0]);
    const gaps = [];
    let until = 0;
    for (const [from, to] of busy) {
      if (from - until > Math.max(5e6, data.end * 0.2)) gaps.push([until, from]);
      until = Math.max(until, to);
    }
    const left = data.end - gaps.reduce((sum, [from, to]) => sum + to - from, 0);
    return gaps.map(([from, to]) => [from, to, Math.min(to - from, left * 0.06)]);
  }
  /** From virtual time to the axis, and back. */
  function warp(ns) {
    let out = ns;
    for (const { from, to, keep } of cuts) {
      if (ns >= to) out -= to - from - keep;
      else if (ns > from) out -= (ns - from) * (1 - keep / (to - from));
    }
    return out;
  }
  function unwarp(at) {
    for (const { from, to, keep } of cuts) {
      if (at <= from) break;
      at = at >= from + keep ? at + to - from - keep : from + (at - from) * (to - from) / keep;
    }
    return at;
  }
  function warpAll() {
    for (const lane of data.threads) {
      let begin = 0, last = 0;
      lane.begin.forEach((after, i) => {
        begin += after;
        const from = warp(begin), to = warp(begin + lane.length[i]);
        lane.begin[i] = from - last;
        lane.length[i] = to - from;
        last = from;
      });
      if (lane.died !== null) lane.died = warp(lane.died);
    }
    const pair = (list, index) => { list[index] = warp(list[index]); };
    data.wakes.forEach((wake) => { pair(wake, 1); pair(wake, 3); });
    data.commands.forEach((command) => {
      command.sent = warp(command.sent);
      if (command.delivered !== null) command.delivered = warp(command.delivered);
      command.applied.forEach((step) => pair(step, 1));
    });
    data.peeks.forEach((peek) => {
      peek.asked = warp(peek.asked);
      [peek.canceled, peek.answered, ...peek.steps].forEach((step) => { if (step) pair(step, 0); });
    });
    data.collections.forEach((strip) => ["upper", "since", "allowed", "held"].forEach((name) => strip[name].forEach((step) => pair(step, 0))));
    data.faults.forEach((fault) => { pair(fault, 1); pair(fault, 2); });
    if (data.violation?.holding) pair(data.violation.holding, 1);
    if (data.violation) data.violation.at = warp(data.violation.at);
    if (data.healed !== null) data.healed = warp(data.healed);
    data.end = warp(data.end);
  }
  if (cuts.length) warpAll();

  /** Slices of a thread that are disjoint: all at one depth, or all waits. */
  function track(lane, indexes) {
    const begin = new Float64Array(indexes.length), end = new Float64Array(indexes.length);
    const busy = new Float64Array(indexes.length + 1);
    indexes.forEach((slice, i) => {
      begin[i] = lane.from[slice];
      end[i] = lane.to[slice];
      busy[i + 1] = busy[i] + end[i] - begin[i];
    });
    return { begin, end, busy, slices: Uint32Array.from(indexes) };
  }

  function unpack(lane, number) {
    const count = lane.begin.length;
    lane.number = number;
    lane.from = new Float64Array(count);
    lane.to = new Float64Array(count);
    let at = 0;
    for (let i = 0; i < count; i++) {
      at += lane.begin[i];
      lane.from[i] = at;
      lane.to[i] = at + lane.length[i];
    }
    const depths = [], idle = [];
    for (let i = 0; i < count; i++) {
      if (lane.kind[i] === IDLE) idle.push(i);
      else (depths[lane.depth[i]] ??= []).push(i);
    }
    lane.tracks = Array.from(depths, (indexes) => track(lane, indexes ?? []));
    lane.idle = track(lane, idle);
  }

  data.threads.forEach(unpack);
  const peekByName = new Map(data.peeks.map((peek) => [peek.peek, peek]));
  data.peeks.forEach((peek) => {
    const last = peek.steps.length ? peek.steps[peek.steps.length - 1][0] : peek.asked;
    peek.end = peek.answered ? peek.answered[0] : Math.max(data.end, last);
    peek.kind = peek.answered ? peek.answered[1] : "unanswered";
    if (peek.steps.some((step) => step[3] === "refused")) peek.kind = "refused";
    peek.title = `peek ${peek.peek}`;
    peek.walks = [];
  });
  data.threads.forEach((lane) => lane.peek.forEach((index, slice) => {
    if (index) data.peeks[index - 1].walks.push([lane.number, slice]);
  }));
  const commandTimes = Float64Array.from(data.commands, (command) => command.sent);
  const wakeTimes = Float64Array.from(data.wakes, (wake) => wake[3]);
  const answers = data.peeks.filter((peek) => peek.answered).sort((a, b) => a.end - b.end);
  const answerTimes = Float64Array.from(answers, (peek) => peek.end);
  data.collections.forEach((strip) => {
    strip.lines = ["upper", "since", "allowed", "held"].map((name) => ({
      name,
      at: Float64Array.from(strip[name], (step) => step[0]),
      level: Float64Array.from(strip[name], (step) => step[1] ?? Infinity),
    }));
  });

  const commandTitle = (command) => [command.kind, command.id,
    command.peek === null ? "" : `(peek ${command.peek})`, command.detail].filter(Boolean).join(" ");

  function time(ns, span = Math.abs(ns)) {
    if (span >= 1e6) return `${trim(ns / 1e6, span >= 2e7 ? 2 : 3)} ms`;
    return `${trim(ns / 1e3, span >= 2e4 ? 1 : 3)} µs`;
  }
  const trim = (value, digits) => value.toFixed(digits).replace(/\.?0+$/, "");
  const clock = (at) => `${(unwarp(at) / 1e6).toFixed(3)} ms`;
  /** How long it is between two places on the axis. */
  const lasts = (from, to) => time(unwarp(to) - unwarp(from));

  // ---- State -----------------------------------------------------------------------------------

  const view = { from: 0, to: Math.max(data.end, 1) };
  const state = {
    selection: null, path: [], filter: "", allArrows: false, hover: null, row: -1, cursor: null,
    matches: null, frames: [], draws: 0, keys: false,
  };
  const canvas = $("canvas"), scroll = $("scroll"), space = $("space"), overview = $("overview");
  const pen = canvas.getContext("2d"), small = overview.getContext("2d");
  let rows = [], contentHeight = 0, width = 0, height = 0, ink = {}, hatches = {}, pending = false;

  const plotWidth = () => Math.max(1, width - GUTTER);
  const X = (ns) => GUTTER + (ns - view.from) / (view.to - view.from) * plotWidth();
  const T = (x) => view.from + (x - GUTTER) / plotWidth() * (view.to - view.from);

  function look(from, to) {
    const whole = Math.max(data.end, 1), margin = whole * 0.04 + 1000;
    let length = Math.min(Math.max(to - from, NARROWEST_NS), whole + 2 * margin);
    const middle = (from + to) / 2;
    view.from = Math.min(Math.max(middle - length / 2, -margin), whole + margin - length);
    view.to = view.from + length;
    redraw();
  }
  function zoom(factor, at = (view.from + view.to) / 2) {
    const length = Math.max((view.to - view.from) * factor, NARROWEST_NS);
    const share = (at - view.from) / (view.to - view.from);
    look(at - share * length, at + (1 - share) * length);
  }
  const pan = (share) => {
    const by = (view.to - view.from) * share;
    look(view.from + by, view.to + by);
  };
  /** Brings a moment into view without changing the scale more than needed. */
  function reveal(at) {
    const length = view.to - view.from;
    if (at < view.from + length * 0.05 || at > view.to - length * 0.05) {
      look(at - length / 2, at + length / 2);
    }
  }

  // ---- Rows ------------------------------------------------------------------------------------

  /** Puts overlapping reads below each other. */
  function pack(peeks) {
    const ends = [];
    for (const peek of peeks) {
      let row = ends.findIndex((end) => end <= peek.asked);
      if (row < 0) row = ends.push(0) - 1;
      ends[row] = peek.end;
      peek.row = row;
    }
    return ends.length;
  }

  function layout() {
    const shown = state.matches;
    rows = [];
    let y = RULER;
    const add = (row, h) => { rows.push({ ...row, y, h }); y += h; };
    const head = (text) => add({ type: "head", text }, 28);
    head("Controller");
    add({ type: "controller", text: "commands" }, 34);
    data.faults.forEach((fault, index) => add({ type: "fault", fault, index, text: "fault" }, 22));
    const strips = data.collections.filter((strip) => !shown?.collections || shown.collections.has(strip.id));
    const named = strips.filter((strip) => data.violation?.collections.includes(strip.id)).slice(0, 3);
    const addStrip = (strip) => add({ type: "strip", strip, text: strip.id }, strip.source ? 34 : 56);
    if (named.length) head("Named by the violation");
    named.forEach(addStrip);
    const groups = new Map();
    for (const lane of data.threads) {
      if (shown?.threads && !shown.threads.has(lane.number)) continue;
      const name = `Process ${lane.process} · ${lane.role}`;
      groups.set(name, [...(groups.get(name) ?? []), lane]);
    }
    const order = (name) => name.replace("interactive", "a").replace("maintenance", "b");
    for (const name of [...groups.keys()].sort((a, b) => order(a) < order(b) ? -1 : 1)) {
      head(name);
      groups.get(name).forEach((lane) => add({ type: "lane", lane, text: lane.name }, LANE));
    }
    const peeks = data.peeks.filter((peek) => !shown?.peeks || shown.peeks.has(peek));
    if (peeks.length) {
      const deep = pack(peeks), each = deep <= 8 ? 15 : deep <= 20 ? 10 : 5;
      head(peeks.length === data.peeks.length ? `Reads (${peeks.length})`
        : `Reads (${peeks.length} of ${data.peeks.length})`);
      add({ type: "reads", peeks, each, text: "peeks" }, deep * each + 8);
    }
    const others = strips.filter((strip) => !named.includes(strip));
    if (others.length) head("Collections");
    others.forEach(addStrip);
    contentHeight = y + 24;
    space.style.height = `${contentHeight}px`;
    state.row = Math.min(state.row, rows.length - 1);
    redraw();
  }

  // ---- Colours ---------------------------------------------------------------------------------

  function hatch(color, paper) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const brush = tile.getContext("2d");
    brush.fillStyle = paper;
    brush.fillRect(0, 0, 6, 6);
    brush.strokeStyle = color;
    brush.lineWidth = 1.6;
    brush.beginPath();
    for (const shift of [-6, 0, 6]) { brush.moveTo(shift - 1, 7); brush.lineTo(shift + 7, -1); }
    brush.stroke();
    return pen.createPattern(tile, "repeat");
  }

  function dress() {
    const style = getComputedStyle(document.documentElement);
    for (const name of ["paper", "raised", "ink", "soft", "faint", "line", "hair", "accent", "alarm",
      "alarm-paper", "good", "turn", "commands", "step", "compact", "merge", "walk", "tick", "blocked",
      "stalled", "upper", "since", "allowed", "band", "error", "canceled"]) {
      ink[name] = style.getPropertyValue(`--${name}`).trim();
    }
    hatches = {
      blocked: hatch(ink.blocked, ink["alarm-paper"]), stalled: hatch(ink.stalled, ink.raised),
    };
    ink.kinds = data.kinds.map((kind) => hatches[kind] ?? ink[kind] ?? ink.faint);
    ink.kinds.push(ink.line);
    legend();
    redraw();
  }
  function setTheme(theme) {
    document.documentElement.dataset.theme = theme;
    dress();
  }
  const theme = () => document.documentElement.dataset.theme;
  const peekColor = (peek) => ({ rows: ink.walk, error: ink.error, refused: ink.error,
    canceled: ink.canceled })[peek.kind] ?? ink.alarm;

  function legend() {
    const box = (fill, stroke) => `<svg width="14" height="12"><rect x="0.5" y="0.5" width="13"
      height="11" rx="2" fill="${fill}" stroke="${stroke ?? fill}"/></svg>`;
    const stripes = (color) => `<svg width="14" height="12"><rect x="0.5" y="0.5" width="13" height="11"
      rx="2" fill="none" stroke="${color}"/><path d="M1 9 8 1M5 11 13 3" stroke="${color}" stroke-width="1.6"/></svg>`;
    const line = (color, dash) => `<svg width="18" height="12"><path d="M0 6H18" stroke="${color}"
      stroke-width="2" stroke-dasharray="${dash}"/></svg>`;
    const names = { commands: "applies commands", step: "steps", compact: "compacts", merge: "merges",
      walk: "walks for a read", tick: "ticks", turn: "turn" };
    const parts = Object.entries(names).map(([kind, name]) => box(ink[kind]) + name);
    parts.push(stripes(ink.blocked) + "blocked", stripes(ink.stalled) + "stalled",
      line(ink.line, "") + "idle");
    const strips = [box(ink.band) + "readable", line(ink.upper, "") + "upper", line(ink.since, "") + "since",
      line(ink.allowed, "5 3") + "allowed", line(ink.alarm, "2 2") + "held"];
    $("legend").innerHTML = `${parts.map((part) => `<span>${part}</span>`).join("")}<i></i>${
      strips.map((part) => `<span>${part}</span>`).join("")}`;
  }

  // ---- Drawing ---------------------------------------------------------------------------------

  function redraw() {
    if (pending) return;
    pending = true;
    requestAnimationFrame(() => { pending = false; draw(); });
  }

  function resize() {
    const ratio = window.devicePixelRatio || 1;
    width = scroll.clientWidth;
    height = scroll.clientHeight;
    for (const [sheet, w, h] of [[canvas, width, height], [overview, width, 40]]) {
      sheet.width = Math.round(w * ratio);
      sheet.height = Math.round(h * ratio);
      sheet.style.width = `${w}px`;
      sheet.style.height = `${h}px`;
      sheet.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    redraw();
  }

  const font = (size, weight = 400) => `${weight} ${size}px system-ui, -apple-system, "Segoe UI", "Noto Sans", sans-serif`;

  function draw() {
    const start = performance.now();
    const top = scroll.scrollTop;
    pen.globalAlpha = 1;
    pen.fillStyle = ink.paper;
    pen.fillRect(0, 0, width, height);
    pen.save();
    pen.translate(0, -top);
    const seen = rows.filter((row) => row.y + row.h > top + RULER && row.y < top + height);
    grid(top);
    seen.forEach(drawBackground);
    pen.save();
    pen.beginPath();
    pen.rect(GUTTER, top, width - GUTTER, height);
    pen.clip();
    drawLanes(seen.filter((row) => row.type === "lane"));
    seen.forEach((row) => ({ controller: drawController, fault: drawFault, reads: drawReads,
      strip: drawStrip })[row.type]?.(row));
    drawSelection(seen);
    drawArrows();
    drawMarks(top);
    pen.restore();
    seen.forEach(drawLabel);
    pen.restore();
    drawRuler();
    drawOverview();
    state.draws++;
    state.frames.push(performance.now() - start);
    if (state.frames.length > FRAMES_KEPT) state.frames.shift();
  }

  /** Round distances of about 110 pixels. */
  function ticks() {
    const rough = (view.to - view.from) / plotWidth() * 110;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((times) => times * power).find((step) => step >= rough);
    const list = [];
    for (let at = Math.ceil(unwarp(view.from) / step) * step; at <= unwarp(view.to); at += step) {
      const cut = cuts.find(({ from, to }) => at > from && at < to);
      if (cut) at = Math.ceil(cut.to / step) * step;
      list.push(warp(at));
    }
    return { step, list };
  }
  function grid(top) {
    pen.fillStyle = ink.hair;
    for (const at of ticks().list) pen.fillRect(Math.round(X(at)), top, 1, height);
  }
  function drawRuler() {
    pen.fillStyle = ink.paper;
    pen.fillRect(0, 0, width, RULER);
    pen.fillStyle = ink.line;
    pen.fillRect(0, RULER - 1, width, 1);
    pen.font = font(11.5);
    pen.textBaseline = "middle";
    pen.fillStyle = ink.faint;
    pen.fillText("virtual time", 20, RULER / 2);
    pen.fillStyle = ink.soft;
    const { step, list } = ticks(), flag = flagPlace();
    const hidden = (x, wide) => flag && x < flag.left + flag.wide + 4 && x + wide > flag.left - 4;
    const digits = Math.max(0, Math.min(6, Math.ceil(6 - Math.log10(step))));
    for (const at of list) {
      const text = `${(unwarp(at) / 1e6).toFixed(digits)} ms`, x = X(at) + 5;
      if (X(at) >= GUTTER && !hidden(x, pen.measureText(text).width)) pen.fillText(text, x, RULER / 2);
    }
    drawCuts(hidden);
    if (flag) drawFlag(flag);
  }
  function flagPlace() {
    if (!data.violation || X(data.violation.at) < GUTTER || X(data.violation.at) > width) return null;
    const text = `${data.violation.oracle} violated`, x = X(data.violation.at);
    pen.font = font(11.5, 650);
    const wide = pen.measureText(text).width + 14, left = Math.min(Math.max(x - wide / 2, GUTTER), width - wide - 4);
    pen.font = font(11.5);
    return { text, x, wide, left };
  }
  function drawFlag({ text, x, wide, left }) {
    pen.font = font(11.5, 650);
    pen.fillStyle = ink.alarm;
    pen.beginPath();
    pen.roundRect(left, 5, wide, RULER - 11, 4);
    pen.fill();
    pen.beginPath();
    pen.moveTo(x - 5, RULER - 7); pen.lineTo(x + 5, RULER - 7); pen.lineTo(x, RULER);
    pen.fill();
    pen.fillStyle = ink.paper;
    pen.fillText(text, left + 7, RULER / 2);
  }


  function drawCuts(hidden) {
    pen.font = font(11);
    for (const { from, to, keep } of cuts) {
      const left = X(warp(from)), right = left + keep / (view.to - view.from) * plotWidth();
      if (right < GUTTER || left > width) continue;
      const text = `${time(to - from)} of nothing`, wide = pen.measureText(text).width, middle = (left + right) / 2;
      pen.fillStyle = ink.raised;
      pen.fillRect(Math.max(left, GUTTER), 0, right - Math.max(left, GUTTER), RULER - 1);
      const start = hidden(middle - wide / 2, wide) ? left - wide - 8 : middle - wide / 2;
      pen.fillStyle = ink.paper;
      pen.fillRect(start - 5, 0, wide + 10, RULER - 1);
      pen.fillStyle = ink.faint;
      pen.fillText(text, start, RULER / 2);
      pen.strokeStyle = ink.faint;
      pen.lineWidth = 1;
      pen.setLineDash([3, 3]);
      pen.beginPath();
      for (const x of [left, right]) { pen.moveTo(x, RULER); pen.lineTo(x, height); }
      pen.stroke();
      pen.setLineDash([]);
    }
  }

  function drawBackground(row) {
    if (row.type === "head") return;
    pen.fillStyle = ink.line;
    pen.globalAlpha = 0.6;
    pen.fillRect(GUTTER, row.y + row.h - 1, width, 1);
    pen.globalAlpha = 1;
  }
  function drawLabel(row) {
    const focused = state.keys && rows[state.row] === row && document.activeElement === scroll;
    pen.textBaseline = "middle";
    if (row.type === "head") {
      pen.font = font(11.5, 650);
      pen.fillStyle = ink.soft;
      pen.fillText(row.text, 20, row.y + row.h - 11);
      return;
    }
    pen.fillStyle = ink.paper;
    pen.fillRect(0, row.y, GUTTER, row.h);
    const chosen = state.selection?.kind === "collection" && state.selection.id === row.strip?.id;
    pen.font = font(12.5, chosen ? 650 : 400);
    pen.fillStyle = row.type === "lane" || row.type === "strip" ? ink.ink : ink.soft;
    pen.fillText(row.text, 20, row.y + row.h / 2);
    if (row.range && row.type === "strip") {
      pen.font = font(10.5);
      pen.fillStyle = ink.faint;
      pen.textAlign = "right";
      pen.fillText(String(row.range[1]), GUTTER - 6, row.y + 9);
      if (row.range[0] !== row.range[1]) pen.fillText(String(row.range[0]), GUTTER - 6, row.y + row.h - 9);
      pen.textAlign = "left";
    }
    if (row.strip?.source) {
      pen.fillStyle = ink.faint;
      pen.font = font(11);
      pen.fillText("source", 66, row.y + row.h / 2);
    }
    if (focused) {
      pen.strokeStyle = ink.accent;
      pen.lineWidth = 2;
      pen.strokeRect(8, row.y + 1, width - 12, row.h - 2);
      if (state.cursor !== null) {
        pen.fillStyle = ink.accent;
        pen.fillRect(X(state.cursor) - 1, row.y, 2, row.h);
      }
    }
  }

  /* What is nested is drawn lower in its lane. */
  const TOPS = [17, 5, 13, 22, 28], HEIGHTS = [6, 30, 22, 13, 7];
  const slicePlace = (depth, kind) => kind === BLOCKED || kind === STALLED ? [5, 30]
    : [TOPS[Math.min(depth, 4)], HEIGHTS[Math.min(depth, 4)]];

  /** Collects rectangles by style and fills each style once. */
  function drawLanes(lanes) {
    pen.fillStyle = ink.line;
    for (const row of lanes) {
      const [from, to] = [Math.max(X(0), GUTTER), Math.min(X(row.lane.died ?? data.end), width)];
      pen.fillRect(from, row.y + MIDDLE - 0.5, Math.max(0, to - from), 1);
      if (row.lane.died !== null) drawDeath(row);
    }
    const dimmed = state.path.length > 0;
    for (let depth = 0; depth < 6; depth++) {
      const styles = new Map();
      for (const row of lanes) {
        const track = row.lane.tracks[depth];
        if (track) collect(row, track, depth, styles);
      }
      for (const [style, rects] of styles) {
        const kind = style >> 2, bucket = style & 3;
        pen.globalAlpha = (0.52 + 0.16 * bucket) * (dimmed ? 0.38 : 1);
        pen.fillStyle = ink.kinds[kind];
        pen.beginPath();
        for (let i = 0; i < rects.length; i += 4) pen.rect(rects[i], rects[i + 1], rects[i + 2], rects[i + 3]);
        pen.fill();
      }
    }
    pen.globalAlpha = dimmed ? 0.5 : 1;
    lanes.forEach(drawSliceLabels);
    pen.globalAlpha = 1;
  }

  function collect(row, track, depth, styles) {
    const { begin, end, busy, slices } = track, lane = row.lane;
    const perPixel = (view.to - view.from) / plotWidth();
    const matches = state.matches?.labels;
    const kindOf = (i) => {
      const slice = slices[i];
      if (matches && !matches[lane.label[slice]] && !state.matches.peekOf?.has(lane.peek[slice] - 1)) return DIM;
      return lane.kind[slice];
    };
    let run = null;
    const put = (kind, bucket, x, w) => {
      const key = kind << 2 | bucket, [top, high] = slicePlace(depth, kind);
      let rects = styles.get(key);
      if (!rects) styles.set(key, rects = []);
      rects.push(x, row.y + top, w, high);
    };
    const flush = () => { if (run) { put(run.kind, run.bucket, run.x, run.w); run = null; } };
    let i = lower(end, view.from);
    while (i < begin.length && begin[i] < view.to) {
      const x = X(begin[i]), w = X(end[i]) - x;
      if (w >= 1.2) {
        flush();
        const left = Math.max(x, GUTTER - 4), right = Math.min(x + w, width + 4);
        put(kindOf(i), 3, left, Math.max(0.8, right - left - (w > 3 ? 0.6 : 0)));
        i++;
        continue;
      }
      const pixel = Math.floor(x);
      let next = lower(begin, T(pixel + 1), i + 1);
      if (next > i + 1 && end[next - 1] - begin[next - 1] >= 1.2 * perPixel) next--;
      let kind = kindOf(i);
      const stride = Math.max(1, (next - i) >> 3);
      for (let j = i + stride; j < next; j += stride) {
        const other = kindOf(j);
        if (other !== DIM && (kind === DIM || WEIGHT[other] > WEIGHT[kind])) kind = other;
      }
      const share = (busy[next] - busy[i]) / perPixel;
      const bucket = kind === BLOCKED || kind === STALLED ? 3 : share > 0.75 ? 3 : share > 0.4 ? 2 : share > 0.12 ? 1 : 0;
      if (run && run.kind === kind && run.bucket === bucket && run.x + run.w === pixel) run.w++;
      else { flush(); run = { kind, bucket, x: pixel, w: 1 }; }
      i = next;
    }
    flush();
  }

  function drawSliceLabels(row) {
    pen.font = font(11);
    pen.textBaseline = "middle";
    const least = (view.to - view.from) / plotWidth() * 46;
    for (let depth = 0; depth < row.lane.tracks.length; depth++) {
      const { begin, end, slices } = row.lane.tracks[depth];
      let i = lower(end, view.from), drawn = 0;
      if (lower(begin, view.to) - i > 3000) continue;
      for (; i < begin.length && begin[i] < view.to && drawn < 120; i++) {
        if (end[i] - begin[i] < least) continue;
        const slice = slices[i], kind = row.lane.kind[slice];
        const left = Math.max(X(begin[i]), GUTTER) + 5, room = Math.min(X(end[i]), width) - left - 4;
        const inside = row.lane.tracks[depth + 1];
        const [top, high] = slicePlace(depth, kind);
        if (room < 34 || high < 12 || kind === TURN || (inside && covered(inside, begin[i], end[i]))) continue;
        const text = fit(data.labels[row.lane.label[slice]].split(":")[0], room);
        if (!text) continue;
        if (kind === BLOCKED || kind === STALLED) {
          pen.fillStyle = ink.paper;
          pen.fillRect(left - 2, row.y + top + 4, pen.measureText(text).width + 4, high - 8);
          pen.fillStyle = kind === BLOCKED ? ink.alarm : ink.soft;
        } else pen.fillStyle = theme() === "dark" ? "#0d1218" : kind === 3 || kind === 6 ? "#2a2414" : "#ffffff";
        pen.fillText(text, left, row.y + top + high / 2 + 0.5);
        drawn++;
      }
    }
  }
  /** Whether what is inside hides the text of what is around it. */
  const covered = (inside, from, to) => {
    const first = lower(inside.end, from), last = lower(inside.begin, to);
    return last > first && inside.busy[last] - inside.busy[first] > 0.15 * (to - from);
  };
  function fit(text, room) {
    if (pen.measureText(text).width <= room) return text;
    const keep = Math.floor(text.length * room / pen.measureText(text).width) - 1;
    return keep >= 4 ? `${text.slice(0, keep)}…` : "";
  }
  function drawDeath(row) {
    const x = X(row.lane.died);
    pen.strokeStyle = ink.alarm;
    pen.lineWidth = 2;
    pen.beginPath();
    pen.moveTo(x - 5, row.y + 15); pen.lineTo(x + 5, row.y + 25);
    pen.moveTo(x + 5, row.y + 15); pen.lineTo(x - 5, row.y + 25);
    pen.stroke();
  }

  function drawController(row) {
    const dimmed = state.path.length > 0;
    const chosen = new Set(state.selection ? related().map((command) => command) : []);
    let last = -9;
    for (let i = lower(commandTimes, view.from); i < commandTimes.length && commandTimes[i] <= view.to; i++) {
      const command = data.commands[i], x = X(command.sent), on = chosen.has(command);
      if (!on && x - last < 0.7) continue;
      last = x;
      pen.globalAlpha = dimmed && !on ? 0.3 : 1;
      pen.fillStyle = on ? ink.accent : command.kind === "CancelPeek" ? ink.error
        : command.peek !== null ? ink.walk : command.kind === "AllowCompaction" ? ink.allowed : ink.commands;
      pen.fillRect(x - (on ? 1.5 : 1), row.y + 4, on ? 3 : 2, 12);
    }
    last = -9;
    for (let i = lower(answerTimes, view.from); i < answerTimes.length && answerTimes[i] <= view.to; i++) {
      const peek = answers[i], x = X(peek.end), on = focus() === peek;
      if (!on && x - last < 0.7) continue;
      last = x;
      pen.globalAlpha = dimmed && !on ? 0.3 : 1;
      pen.fillStyle = on ? ink.accent : peekColor(peek);
      pen.beginPath();
      pen.arc(x, row.y + 24, on ? 4 : 3, 0, 7);
      pen.fill();
    }
    pen.globalAlpha = 1;
  }
  function drawFault(row) {
    const [, from, to] = row.fault, left = X(from), right = X(to);
    if (right < GUTTER || left > width) return;
    pen.fillStyle = hatches.stalled;
    pen.beginPath();
    pen.roundRect(left, row.y + 4, Math.max(2, right - left), row.h - 9, 3);
    pen.fill();
    pen.strokeStyle = ink.stalled;
    pen.lineWidth = 1;
    pen.stroke();
    pen.font = font(11.5);
    const text = row.fault[0], wide = pen.measureText(text).width;
    const roomy = Math.min(right, width) - Math.max(left, GUTTER) > wide + 24;
    const at = roomy ? Math.max(left, GUTTER) + 10 : Math.max(right, GUTTER) + 7;
    pen.fillStyle = ink.paper;
    if (roomy) pen.fillRect(at - 4, row.y + 5, wide + 8, row.h - 11);
    pen.fillStyle = ink.soft;
    pen.textBaseline = "middle";
    pen.fillText(text, at, row.y + row.h / 2);
  }
  function drawReads(row) {
    const high = row.each - 2, dimmed = state.path.length > 0;
    pen.font = font(10.5);
    pen.textBaseline = "middle";
    for (const peek of row.peeks) {
      const left = X(peek.asked), right = X(peek.end);
      if (right < GUTTER || left > width) continue;
      const y = row.y + 4 + peek.row * row.each, on = focus() === peek;
      const wide = Math.max(2.5, right - left);
      pen.globalAlpha = dimmed && !on ? 0.35 : 1;
      pen.fillStyle = peekColor(peek);
      pen.beginPath();
      pen.roundRect(left, y, wide, high, Math.min(3, high / 2));
      if (peek.kind === "canceled" || peek.kind === "unanswered") {
        pen.save();
        pen.globalAlpha *= 0.28;
        pen.fill();
        pen.restore();
        pen.strokeStyle = peekColor(peek);
        pen.lineWidth = 1;
        pen.stroke();
      } else pen.fill();
      if (on) {
        pen.strokeStyle = ink.accent;
        pen.lineWidth = 2;
        pen.stroke();
      }
      const from = Math.max(left, GUTTER) + 5, room = Math.min(right, width) - from - 4;
      if (high >= 12 && room > 40) {
        const text = fit(`${peek.title} · ${peek.reads.join(" ")} at ${peek.at}`, room);
        pen.fillStyle = peek.kind === "canceled" || peek.kind === "unanswered" ? ink.ink
          : theme() === "dark" ? "#0d1218" : "#ffffff";
        pen.fillText(text, from, y + high / 2 + 0.5);
      }
    }
    pen.globalAlpha = 1;
  }

  // A step line never moves back, so of many steps in a pixel the last one is enough.
  function levelAt(line, at) {
    const index = lower(line.at, at + 0.5) - 1;
    return index < 0 ? null : line.level[index];
  }
  function visibleSteps(line) {
    const steps = [], perPixel = (view.to - view.from) / plotWidth();
    let i = Math.max(0, lower(line.at, view.from) - 1);
    while (i < line.at.length && line.at[i] <= view.to) {
      const next = lower(line.at, line.at[i] + perPixel, i + 1);
      steps.push([line.at[i], line.level[next - 1]]);
      i = next;
    }
    return steps;
  }
  function drawStrip(row) {
    const lines = row.strip.lines.map((line) => ({ name: line.name, steps: visibleSteps(line) }));
    const finite = lines.flatMap((line) => line.steps.map((step) => step[1])).filter(Number.isFinite);
    row.range = null;
    if (!finite.length) return;
    let least = Infinity, most = -Infinity;
    for (const level of finite) { least = Math.min(least, level); most = Math.max(most, level); }
    row.range = [least, most];
    const peek = focus(), chosen = peek ? new Set(peek.reads) : null;
    pen.globalAlpha = chosen && !chosen.has(row.strip.id) ? 0.35 : 1;
    const span = Math.max(1, most - least), inner = row.h - 14;
    const Y = (level) => Number.isFinite(level) ? row.y + row.h - 7 - (level - least) / span * inner : row.y + 4;
    const [upper, since] = lines;
    if (since.steps.length) {
      pen.fillStyle = ink.band;
      pen.beginPath();
      trace(upper.steps, Y, true);
      traceBack(since.steps, Y, Math.max(since.steps[0][0], upper.steps[0]?.[0] ?? 0));
      pen.fill();
    }
    const looks = { upper: [ink.upper, []], since: [ink.since, []], allowed: [ink.allowed, [5, 3]], held: [ink.alarm, [2, 2]] };
    for (const { name, steps } of [lines[3], lines[1], lines[2], lines[0]]) {
      if (!steps.length) continue;
      [pen.strokeStyle] = looks[name];
      pen.setLineDash(looks[name][1]);
      pen.lineWidth = 1.4;
      pen.beginPath();
      traceOpen(steps, Y, name === "upper" ? row.strip.lines[1] : null);
      pen.stroke();
    }
    pen.setLineDash([]);
    if (chosen?.has(row.strip.id)) {
      const y = Y(peek.at);
      if (peek.at >= least && peek.at <= most) {
        pen.fillStyle = ink.accent;
        pen.fillRect(X(peek.asked), y - 1, Math.max(2, X(peek.end) - X(peek.asked)), 2);
      }
    }
    pen.globalAlpha = 1;
  }
  function trace(steps, Y, fresh) {
    const end = Math.min(data.end, view.to);
    steps.forEach(([at, level], i) => {
      const x = X(at), next = X(i + 1 < steps.length ? steps[i + 1][0] : end);
      if (fresh && i === 0) pen.moveTo(x, Y(level)); else pen.lineTo(x, Y(level));
      pen.lineTo(next, Y(level));
    });
  }
  /** A line without what is closed; a closed upper is a line as long as there is something to read. */
  function traceOpen(steps, Y, since) {
    const end = Math.min(data.end, view.to);
    let fresh = true;
    steps.forEach(([at, level], i) => {
      const x = X(at), next = X(i + 1 < steps.length ? steps[i + 1][0] : end);
      const open = Number.isFinite(level) || (since && Number.isFinite(levelAt(since, at) ?? Infinity));
      if (open && fresh) pen.moveTo(x, Y(level)); else if (open) pen.lineTo(x, Y(level));
      if (open) pen.lineTo(next, Y(level));
      fresh = !open;
    });
  }
  function traceBack(steps, Y, from) {
    const end = Math.min(data.end, view.to);
    for (let i = steps.length - 1; i >= 0; i--) {
      const next = i + 1 < steps.length ? steps[i + 1][0] : end;
      pen.lineTo(X(next), Y(steps[i][1]));
      pen.lineTo(X(Math.max(steps[i][0], from)), Y(steps[i][1]));
    }
  }

  // ---- Arrows and marks ------------------------------------------------------------------------

  const rowOfLane = (thread) => rows.find((row) => row.type === "lane" && row.lane.number === thread);
  const controllerRow = () => rows.find((row) => row.type === "controller");

  function arrow(x1, y1, x2, y2, color, strong) {
    pen.strokeStyle = pen.fillStyle = color;
    pen.lineWidth = strong ? 1.6 : 1;
    const bend = Math.min(60, Math.max(8, Math.abs(x2 - x1) / 2));
    pen.beginPath();
    pen.moveTo(x1, y1);
    pen.bezierCurveTo(x1 + bend * 0.5, y1 + (y2 - y1) * 0.3, x2 - bend, y2 + Math.sign(y1 - y2) * 4, x2 - 3, y2);
    pen.stroke();
    pen.beginPath();
    pen.moveTo(x2, y2); pen.lineTo(x2 - 7, y2 - 3.5); pen.lineTo(x2 - 7, y2 + 3.5);
    pen.fill();
  }
  function commandArrows(command, strong) {
    const from = controllerRow();
    for (const [thread, at] of command.applied) {
      const to = rowOfLane(thread);
      if (to && at >= view.from && command.sent <= view.to) {
        arrow(X(command.sent), from.y + 16, X(at), to.y + MIDDLE, strong ? ink.accent : ink.commands, strong);
      }
    }
  }
  function wakeArrow([by, at, thread, runs], strong) {
    const to = rowOfLane(thread), from = by < 0 ? null : rowOfLane(by);
    if (!to || runs < view.from || at > view.to) return;
    if (from) arrow(X(at), from.y + MIDDLE, X(runs), to.y + MIDDLE, strong ? ink.accent : ink.soft, strong);
  }
  function answerArrows(peek, strong) {
    const to = controllerRow();
    if (!peek.answered) return;
    for (const [at, thread, what] of peek.steps) {
      const from = rowOfLane(thread);
      if (what === "answered" && from) {
        arrow(X(at), from.y + MIDDLE, X(peek.end), to.y + 24, strong ? ink.accent : ink.walk, strong);
      }
    }
  }
  /** The read that is selected, or that the selected violation is about. */
  function focus() {
    const { kind, id } = state.selection ?? {};
    if (kind === "peek") return peekByName.get(id);
    return kind === "violation" && data.violation.peeks.length === 1 ? peekByName.get(data.violation.peeks[0]) : null;
  }
  /** Commands that concern what is selected. */
  function related() {
    const { kind, id } = state.selection ?? {};
    if (kind === "command") return [data.commands[id]];
    if (kind === "collection") return data.commands.filter((command) => command.id === id);
    const peek = focus();
    if (!peek) return [];
    const query = peek.target.startsWith("t") ? peek.target : null;
    return data.commands.filter((command) => command.peek === peek.peek
      || (query && command.id === query && command.kind !== "AllowCompaction"));
  }
  /** The wakes that let waiting workers go on with a read. */
  function wakesOf(peek) {
    const list = [];
    for (const [at, thread, what] of peek.steps) {
      if (what !== "waits") continue;
      const until = peek.steps.find((step) => step[1] === thread && step[0] >= at && step[2] !== "waits")?.[0] ?? peek.end;
      let last = null;
      for (let i = lower(wakeTimes, at); i < wakeTimes.length && wakeTimes[i] <= until; i++) {
        if (data.wakes[i][2] === thread) last = data.wakes[i];
      }
      if (last && !list.includes(last)) list.push(last);
    }
    return list;
  }
  function drawArrows() {
    state.arrows = 0;
    if (state.allArrows) {
      pen.globalAlpha = 0.45;
      const last = lower(wakeTimes, view.to), first = lower(wakeTimes, view.from);
      const stride = Math.max(1, Math.ceil((last - first) / ARROWS_MOST));
      for (let i = first; i < last; i += stride) { wakeArrow(data.wakes[i], false); state.arrows++; }
      const until = lower(commandTimes, view.to);
      const since = lower(commandTimes, view.from - (view.to - view.from));
      const skip = Math.max(1, Math.ceil((until - since) * data.threads.length / ARROWS_MOST));
      for (let i = since; i < until; i += skip) { commandArrows(data.commands[i], false); state.arrows++; }
      pen.globalAlpha = 1;
    }
    if (!state.selection) return;
    related().slice(0, 200).forEach((command) => { commandArrows(command, true); state.arrows++; });
    const peek = focus();
    if (peek) {
      answerArrows(peek, true);
      wakesOf(peek).forEach((wake) => wakeArrow(wake, true));
    }
    if (state.selection.kind === "slice") {
      const wake = wakeBefore(state.selection.thread, state.selection.slice);
      if (wake) wakeArrow(wake, true);
    }
  }
  function wakeBefore(thread, slice) {
    const at = data.threads[thread].from[slice];
    for (let i = lower(wakeTimes, at + 0.5) - 1; i >= 0; i--) {
      if (data.wakes[i][2] === thread) return data.wakes[i];
    }
    return null;
  }

  function outline(row, slice, color, fill) {
    const lane = row.lane, [top, high] = slicePlace(lane.depth[slice], lane.kind[slice]);
    const left = Math.max(X(lane.from[slice]), GUTTER - 4), right = Math.min(X(lane.to[slice]), width + 4);
    if (right < GUTTER || left > width) return;
    if (fill) {
      pen.fillStyle = ink.kinds[lane.kind[slice]];
      pen.fillRect(left, row.y + top, Math.max(2, right - left), high);
    }
    pen.strokeStyle = color;
    pen.lineWidth = 2;
    pen.strokeRect(left - 1, row.y + top - 1, Math.max(3, right - left + 2), high + 2);
  }
  function drawSelection(seen) {
    const lanes = new Map(seen.filter((row) => row.type === "lane").map((row) => [row.lane.number, row]));
    for (const [thread, slice] of state.lit ?? []) {
      const row = lanes.get(thread);
      if (row) outline(row, slice, ink.accent, true);
    }
    for (const point of state.path) {
      const row = lanes.get(point.thread);
      if (!row) continue;
      pen.fillStyle = ink.accent;
      pen.beginPath();
      pen.arc(X(point.at), row.y + MIDDLE, 3.2, 0, 7);
      pen.fill();
      pen.strokeStyle = ink.paper;
      pen.lineWidth = 1;
      pen.stroke();
    }
  }
  function drawMarks(top) {
    if (data.healed !== null) {
      pen.fillStyle = ink.good;
      pen.globalAlpha = 0.5;
      pen.fillRect(X(data.healed), top, 1, height);
      pen.globalAlpha = 1;
      pen.font = font(11);
      pen.textBaseline = "middle";
      pen.fillStyle = ink.good;
      pen.fillText("faults are over", X(data.healed) + 6, top + RULER + 13);
    }
    if (data.end < view.to) {
      pen.fillStyle = ink.raised;
      pen.fillRect(X(data.end), top, width, height);
      pen.fillStyle = ink.line;
      pen.fillRect(X(data.end), top, 1, height);
    }
    if (!data.violation) return;
    const x = X(data.violation.at);
    pen.fillStyle = ink.alarm;
    pen.globalAlpha = 0.1;
    pen.fillRect(x - 7, top, 14, height);
    pen.globalAlpha = 1;
    pen.fillRect(x - 0.75, top, 1.5, height);
    const row = data.violation.thread === null ? null : rowOfLane(data.violation.thread);
    const { holding } = data.violation, holder = holding ? rowOfLane(holding[0]) : null;
    if (row && holder) {
      pen.setLineDash([5, 3]);
      arrow(X(holding[1]), holder.y + MIDDLE, x - 9, row.y + MIDDLE, ink.alarm, true);
      pen.setLineDash([]);
    }
    if (row) {
      pen.strokeStyle = ink.alarm;
      pen.lineWidth = 2;
      pen.beginPath();
      pen.arc(x, row.y + MIDDLE, 9, 0, 7);
      pen.stroke();
      pen.fillStyle = ink.alarm;
      pen.beginPath();
      pen.arc(x, row.y + MIDDLE, 3.5, 0, 7);
      pen.fill();
    }
  }

  function drawOverview() {
    const scale = (ns) => GUTTER + ns / Math.max(data.end, 1) * (width - GUTTER - 14);
    small.fillStyle = ink.raised;
    small.fillRect(0, 0, width, 40);
    if (!drawOverview.bars || drawOverview.width !== width) {
      drawOverview.width = width;
      drawOverview.bars = activity(Math.max(1, Math.floor((width - GUTTER - 14) / 2)));
    }
    small.fillStyle = ink.step;
    small.globalAlpha = 0.55;
    drawOverview.bars.forEach((share, i) => small.fillRect(GUTTER + i * 2, 34 - share * 26, 1.4, share * 26));
    small.globalAlpha = 1;
    small.fillStyle = ink.stalled;
    data.faults.forEach(([, from, to]) => small.fillRect(scale(from), 36, Math.max(2, scale(to) - scale(from)), 2));
    const left = Math.max(scale(view.from), GUTTER - 4), right = Math.min(scale(view.to), width - 8);
    small.fillStyle = ink.accent;
    small.globalAlpha = 0.12;
    small.fillRect(left, 2, Math.max(3, right - left), 36);
    small.globalAlpha = 1;
    small.strokeStyle = ink.accent;
    small.lineWidth = 1.5;
    small.strokeRect(left, 2, Math.max(3, right - left), 36);
    if (data.violation) {
      small.fillStyle = ink.alarm;
      small.fillRect(scale(data.violation.at) - 1, 0, 2.5, 40);
    }
    small.font = font(11.5);
    small.textBaseline = "middle";
    small.fillStyle = ink.faint;
    small.fillText("whole run", 20, 20);
  }
  /** How busy all threads are, in each of `count` equal parts of the run. */
  function activity(count) {
    const bars = new Float64Array(count), each = Math.max(data.end, 1) / count;
    for (const lane of data.threads) {
      const { begin, end } = lane.tracks[0] ?? { begin: [], end: [] };
      for (let i = 0; i < begin.length; i++) {
        const first = Math.min(count - 1, Math.floor(begin[i] / each)), last = Math.min(count - 1, Math.floor(end[i] / each));
        for (let bar = first; bar <= last; bar++) {
          bars[bar] += Math.min(end[i], (bar + 1) * each) - Math.max(begin[i], bar * each);
        }
      }
    }
    return Array.from(bars, (sum) => Math.min(1, Math.sqrt(sum / each / data.threads.length)));
  }

  // ---- What is where ---------------------------------------------------------------------------

  const rowAt = (y) => rows.find((row) => y >= row.y && y < row.y + row.h);

  function inTrack(track, at, slack) {
    let i = lower(track.end, at - slack);
    let best = -1, distance = Infinity;
    for (; i < track.begin.length && track.begin[i] <= at + slack; i++) {
      const away = Math.max(track.begin[i] - at, at - track.end[i], 0);
      if (away < distance) { best = i; distance = away; }
      if (away === 0) break;
    }
    return best < 0 ? null : track.slices[best];
  }
  function near(times, at, slack) {
    let best = -1;
    for (let i = lower(times, at - slack); i < times.length && times[i] <= at + slack; i++) {
      if (best < 0 || Math.abs(times[i] - at) < Math.abs(times[best] - at)) best = i;
    }
    return best;
  }
  function itemAt(row, at, dy = 16) {
    const slack = (view.to - view.from) / plotWidth() * 4;
    if (row.type === "controller") {
      const command = near(commandTimes, at, slack), answer = near(answerTimes, at, slack);
      if (answer >= 0 && (dy > 17 || command < 0)) return { kind: "peek", id: answers[answer].peek };
      return command < 0 ? null : { kind: "command", id: command };
    }
    if (row.type === "fault") return { kind: "fault", id: row.index };
    if (row.type === "strip") return { kind: "collection", id: row.strip.id };
    if (row.type === "reads") {
      const line = Math.floor((dy - 4) / row.each);
      // The one nearest to the pointer: two that follow closely are both within reach.
      let best = null, distance = slack;
      for (const peek of row.peeks) {
        const away = Math.max(peek.asked - at, at - peek.end, 0);
        if ((dy >= 0 && peek.row !== line) || away > distance || (best && away === distance)) continue;
        best = peek;
        distance = away;
      }
      return best ? { kind: "peek", id: best.peek } : null;
    }
    if (row.type !== "lane") return null;
    for (let depth = row.lane.tracks.length - 1; depth >= 0; depth--) {
      const slice = inTrack(row.lane.tracks[depth], at, depth ? slack / 4 : 0);
      if (slice !== null) return sliceItem(row.lane, slice);
    }
    const slice = inTrack(row.lane.idle, at, 0);
    return slice === null ? null : sliceItem(row.lane, slice);
  }
  const sliceItem = (lane, slice) => ({ kind: "slice", id: `${lane.name}#${slice}`, thread: lane.number, slice });
  
  /** A title and lines about something. */
  function describe(item, at) {
    if (item.kind === "peek") {
      const peek = peekByName.get(item.id);
      return [`${peek.title} of ${peek.reads.join(", ")} at ${peek.at}`,
        `${peek.kind} after ${lasts(peek.asked, peek.end)}`,
        peek.target.startsWith("t") ? `a query, built as ${peek.target}` : ""];
    }
    if (item.kind === "command") {
      const command = data.commands[item.id];
      return [commandTitle(command), `sent at ${clock(command.sent)}`,
        command.applied.length ? `applied by ${command.applied.length} workers` : "not applied"];
    }
    if (item.kind === "fault") {
      const [label, from, to] = data.faults[item.id];
      return [label, `${clock(from)} to ${clock(to)}`];
    }
    if (item.kind === "collection") {
      const strip = data.collections.find((strip) => strip.id === item.id);
      const show = (line) => { const level = levelAt(line, at); return level === null ? "–" : Number.isFinite(level) ? level : "closed"; };
      return [`${strip.id} at ${clock(at)}`, ...strip.lines.filter((line) => line.at.length).map((line) => `${line.name} ${show(line)}`)];
    }
    const lane = data.threads[item.thread], { slice } = item;
    return [data.labels[lane.label[slice]], `${lane.name}, ${lasts(lane.from[slice], lane.to[slice])}`, `from ${clock(lane.from[slice])}`];
  }

  // ---- Selection -------------------------------------------------------------------------------

  function select(item, move = false) {
    state.selection = item;
    state.path = [];
    state.lit = [];
    if (item?.kind === "peek") pathOf(peekByName.get(item.id));
    else if (item?.kind === "command") {
      const command = data.commands[item.id];
      state.path = [{ at: command.sent, what: "sent" }, ...command.applied.map(([thread, at]) => ({ at, thread, what: "applied" }))];
    } else if (item?.kind === "slice") state.lit = [[item.thread, item.slice]];
    else if (item?.kind === "violation") lightViolation();
    if (move && item) showItem(item);
    panel();
    redraw();
    if (item) say(item.kind === "violation" ? `${data.violation.oracle} violated` : describe(item, view.from).join(", "));
  }

  /** The way of a read: command, workers, answer. */
  function pathOf(peek) {
    const points = [{ at: peek.asked, what: "asked", detail: peek.target === peek.reads[0] ? "" : peek.target }];
    for (const command of related()) {
      if (command.delivered !== null) points.push({ at: command.delivered, what: `${command.kind} delivered` });
    }
    peek.steps.forEach(([at, thread, what, detail]) => points.push({ at, thread, what, detail }));
    peek.walks.forEach(([thread, slice]) => state.lit.push([thread, slice]));
    const walked = new Map();
    peek.walks.forEach(([thread, slice]) => { if (!walked.has(thread)) walked.set(thread, slice); });
    for (const [thread, slice] of walked) {
      const slices = peek.walks.filter(([other]) => other === thread).length;
      points.push({ at: data.threads[thread].from[slice], thread, what: "walks", detail: slices > 1 ? `${slices} slices` : "" });
    }
    if (peek.canceled) points.push({ at: peek.canceled[0], what: "cancelled", detail: peek.canceled[1] ? "in time" : "too late" });
    if (peek.answered) points.push({ at: peek.answered[0], what: `answer: ${peek.answered[1]}`, detail: peek.answered[2] });
    state.path = points.sort((a, b) => a.at - b.at);
  }

  /** What the thread of the violation, and whoever it waits for, were doing. */
  function lightViolation() {
    const { thread, at } = data.violation;
    const peek = focus();
    if (peek) pathOf(peek);
    if (thread === null) return;
    const slice = deepest(thread, at), { holding } = data.violation;
    if (slice !== null) state.lit.push([thread, slice]);
    const held = holding ? deepest(holding[0], holding[1]) : null;
    if (held !== null) state.lit.push([holding[0], held]);
  }
  function deepest(thread, at) {
    const { tracks } = data.threads[thread];
    for (let depth = tracks.length - 1; depth >= 0; depth--) {
      const slice = inTrack(tracks[depth], at, 1);
      if (slice !== null) return slice;
    }
    return null;
  }

  function spanOf(item) {
    if (item.kind === "peek") { const peek = peekByName.get(item.id); return [peek.asked, peek.end]; }
    if (item.kind === "command") {
      const command = data.commands[item.id];
      return [command.sent, Math.max(command.sent, ...command.applied.map(([, at]) => at))];
    }
    if (item.kind === "slice") { const lane = data.threads[item.thread]; return [lane.from[item.slice], lane.to[item.slice]]; }
    if (item.kind === "fault") return data.faults[item.id].slice(1);
    if (item.kind === "violation") return [data.violation.at, data.violation.at];
    return [view.from, view.to];
  }
  function showItem(item) {
    const [from, to] = spanOf(item);
    if (item.kind === "collection") scrollTo(rows.find((row) => row.strip?.id === item.id));
    else if (item.kind === "violation") opening();
    else {
      const least = item.kind === "slice" ? 0 : 20_000;
      const room = Math.max((to - from) * 0.35, least);
      const length = view.to - view.from;
      if (from < view.from || to > view.to || to - from < length / 40) look(from - room, to + room);
      if (item.kind === "slice") scrollTo(rowOfLane(item.thread));
    }
  }
  function scrollTo(row) {
    if (!row) return;
    if (row.y - RULER < scroll.scrollTop) scroll.scrollTop = row.y - RULER - 8;
    else if (row.y + row.h > scroll.scrollTop + height) scroll.scrollTop = row.y + row.h - height + 16;
  }

  /** When the work began in which an oracle fired: what is before a longer pause has little to do with it. */
  function burst({ thread, at, holding }) {
    const { begin, end } = data.threads[thread].tracks[0] ?? { begin: [], end: [] };
    let i = lower(begin, at + 0.5) - 1;
    while (i > 0 && begin[i] - end[i - 1] < 20_000) i--;
    return Math.min(i < 0 ? at : begin[i], holding ? holding[1] : at);
  }

  /** Where the page opens: at the violation if there is one, with its read if it is about one. */
  function opening() {
    const mark = data.violation;
    if (!mark) return look(0, data.end);
    const peek = mark.peeks.length === 1 ? peekByName.get(mark.peeks[0]) : null;
    const whole = Math.max(data.end, 1);
    const strip = data.collections.find((strip) => mark.collections.includes(strip.id));
    const allowed = strip?.lines[2], last = allowed ? lower(allowed.at, mark.at) - 1 : -1;
    let from = mark.at - Math.max(400_000, whole * 0.03);
    if (mark.thread !== null) from = mark.at - Math.min(400_000, Math.max(30_000, mark.at - burst(mark))) * 1.2;
    if (peek && mark.at > peek.asked) from = peek.asked - (mark.at - peek.asked) * 0.15;
    else if (mark.oracle === "O3" && last >= 0) from = Math.min(from, allowed.at[last] - (mark.at - allowed.at[last]) * 0.2);
    else if (mark.oracle === "O7") from = -0.02 * whole;
    look(from, mark.at + (mark.at - Math.max(from, 0)) * (mark.oracle === "O7" ? 0.04 : 0.25));
    if (mark.thread !== null) scrollTo(rowOfLane(mark.thread));
  }

  // ---- Panel -----------------------------------------------------------------------------------

  const element = (tag, text, className) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  };
  function facts(pairs) {
    const list = element("dl");
    for (const [name, value] of pairs) if (value !== undefined && value !== "") list.append(element("dt", name), element("dd", value));
    return list;
  }
  function links(items) {
    const list = element("ul");
    for (const { text, when, more, act } of items) {
      const entry = element("li"), button = element("button");
      button.type = "button";
      button.append(element("span", text), element("span", when ?? "", "when"));
      if (more) button.append(element("span", more, "more"));
      button.addEventListener("click", act);
      entry.append(button);
      list.append(entry);
    }
    return list;
  }
  const link = (item, text, when, more) => ({ text, when, more, act: () => select(item, true) });
  const peekLink = (peek) => link({ kind: "peek", id: peek.peek }, peek.title, lasts(peek.asked, peek.end), `${peek.kind}, ${peek.reads.join(", ")} at ${peek.at}`);

  function panel() {
    const box = $("panel"), item = state.selection;
    box.replaceChildren();
    const put = (...parts) => box.append(...parts.filter(Boolean));
    if (!item) return summary(put);
    ({ peek: peekPanel, command: commandPanel, collection: collectionPanel, slice: slicePanel,
      fault: faultPanel, violation: violationPanel })[item.kind](item, put);
    box.scrollTop = 0;
  }
  function summary(put) {
    put(element("h2", "This run"), facts([["virtual time", clock(data.end)], ["decisions", data.decisions.toLocaleString("en")],
      ["reads", data.peeks.length], ["commands", data.commands.length], ["hash", data.hash]]));
    const worth = [];
    if (data.violation) worth.push(link({ kind: "violation", id: 0 }, `${data.violation.oracle} violated`, clock(data.violation.at)));
    longest(BLOCKED, 4).forEach(([lane, slice]) => worth.push(sliceLink(lane, slice)));
    longest(STALLED, 2).forEach(([lane, slice]) => worth.push(sliceLink(lane, slice)));
    data.peeks.filter((peek) => peek.kind === "refused").slice(0, 4).forEach((peek) => worth.push(peekLink(peek)));
    if (worth.length) put(element("h3", "Worth a look"), links(worth));
    const slow = data.peeks.filter((peek) => peek.answered).sort((a, b) => b.end - b.asked - (a.end - a.asked)).slice(0, 6);
    if (slow.length) put(element("h3", "Slowest reads"), links(slow.map(peekLink)));
    const open = data.peeks.filter((peek) => !peek.answered).slice(0, 6);
    if (open.length) put(element("h3", "Unanswered reads"), links(open.map(peekLink)));
    if (data.collections.length) {
      put(element("h3", "Collections"), links(data.collections.slice(0, 60).map((strip) =>
        link({ kind: "collection", id: strip.id }, strip.id, strip.source ? "source" : "index"))));
    }
    replay(put);
  }
  function replay(put) {
    if (data.planted) put(element("h3", "Planted"), element("p", data.planted));
    put(element("h3", "Replay"), element("code", data.command));
  }
  function longest(kind, count) {
    const found = [];
    for (const lane of data.threads) lane.kind.forEach((other, slice) => { if (other === kind) found.push([lane, slice]); });
    const length = ([lane, slice]) => lane.to[slice] - lane.from[slice];
    return found.sort((a, b) => length(b) - length(a)).slice(0, count);
  }
  const sliceLink = (lane, slice) => link(sliceItem(lane, slice), `${lane.name} ${data.kinds[lane.kind[slice]]}`,
    lasts(lane.from[slice], lane.to[slice]), data.labels[lane.label[slice]].split(": ")[1]);

  function violationPanel(_, put) {
    const mark = data.violation;
    put(element("h2", `${mark.oracle} violated`), element("p", mark.message, "quote"), element("p", `Promised: ${mark.promise}.`),
      facts([["at", clock(mark.at)], ["on", mark.thread === null ? "" : data.threads[mark.thread].name]]));
    const involved = [...mark.peeks.map((name) => peekLink(peekByName.get(name))),
      ...mark.collections.map((id) => link({ kind: "collection", id }, id, "collection")),
      ...state.lit.map(([thread, slice]) => sliceLink(data.threads[thread], slice))];
    if (involved.length) put(element("h3", "Involved"), links(involved));
    replay(put);
  }
  function peekPanel(item, put) {
    const peek = peekByName.get(item.id);
    put(element("h2", peek.title), facts([["reads", peek.reads.join(", ")], ["at time", peek.at],
      ["query", peek.target.startsWith("t") ? peek.target : ""], ["ended as", peek.kind], ["took", lasts(peek.asked, peek.end)]]));
    put(element("h3", "Its way"), links(state.path.map((point) => ({
      text: point.what, when: `+${lasts(peek.asked, point.at)}`,
      more: [point.thread === undefined ? "controller" : data.threads[point.thread].name, point.detail].filter(Boolean).join(" · "),
      act: () => { reveal(point.at); scrollTo(point.thread === undefined ? controllerRow() : rowOfLane(point.thread)); },
    }))));
    put(element("h3", "Over"), links(peek.reads.map((id) => link({ kind: "collection", id }, id, "collection"))));
  }
  function commandPanel(item, put) {
    const command = data.commands[item.id];
    put(element("h2", command.kind), facts([["about", command.id ?? ""], ["peek", command.peek ?? ""], ["detail", command.detail],
      ["sent", clock(command.sent)], ["delivered", command.delivered === null ? "never" : `+${lasts(command.sent, command.delivered)}`]]));
    put(element("h3", "Applied"), links(command.applied.map(([thread, at]) => ({ text: data.threads[thread].name,
      when: `+${lasts(command.sent, at)}`, act: () => { reveal(at); scrollTo(rowOfLane(thread)); } }))));
    if (command.peek !== null && peekByName.has(command.peek)) put(element("h3", "For"), links([peekLink(peekByName.get(command.peek))]));
  }
  function collectionPanel(item, put) {
    const strip = data.collections.find((strip) => strip.id === item.id);
    if (!strip) return put(element("h2", item.id), element("p", "Nothing of it was ever published."));
    put(element("h2", strip.id), element("p", strip.source ? "A source." : "An index."));
    put(facts(strip.lines.filter((line) => line.at.length).map((line) => [`${line.name} moved`, `${line.at.length} times`])));
    const peeks = data.peeks.filter((peek) => peek.reads.includes(strip.id));
    if (peeks.length) put(element("h3", `Reads of it (${peeks.length})`), links(peeks.slice(0, 40).map(peekLink)));
  }
  function slicePanel(item, put) {
    const lane = data.threads[item.thread], { slice } = item, kind = data.kinds[lane.kind[slice]];
    put(element("h2", `${lane.name}: ${kind}`), element("p", data.labels[lane.label[slice]]),
      facts([["from", clock(lane.from[slice])], ["to", clock(lane.to[slice])], ["took", lasts(lane.from[slice], lane.to[slice])]]));
    const wake = wakeBefore(item.thread, slice);
    if (wake) {
      put(element("h3", "Woken last"), links([{ text: wake[0] < 0 ? "by the network" : `by ${data.threads[wake[0]].name}`,
        when: clock(wake[1]), act: () => { reveal(wake[1]); scrollTo(wake[0] < 0 ? controllerRow() : rowOfLane(wake[0])); } }]));
    }
    if (lane.peek[slice]) put(element("h3", "For"), links([peekLink(data.peeks[lane.peek[slice] - 1])]));
  }
  function faultPanel(item, put) {
    const [label, from, to] = data.faults[item.id];
    put(element("h2", "Fault"), element("p", label), facts([["from", clock(from)], ["to", clock(to)], ["took", lasts(from, to)]]));
  }

  const say = (text) => { $("said").textContent = text; };

  // ---- Filter ----------------------------------------------------------------------------------

  function filter(text) {
    state.filter = text.trim().toLowerCase();
    state.matches = null;
    const tokens = state.filter.replace(/peeks?\s+(?=\d)/g, "peek ").match(/peek \d*|[^\s,]+/g) ?? [];
    if (tokens.length) state.matches = match(tokens);
    layout();
  }
  function match(tokens) {
    const found = { collections: null, threads: null, peeks: null, labels: null, peekOf: null };
    const some = (list, test) => { const hits = list.filter(test); return hits.length ? hits : null; };
    const names = (name) => tokens.some((token) => name === token || (token.length > 1 && name.startsWith(token)));
    const strips = some(data.collections, (strip) => tokens.includes(strip.id)) ?? some(data.collections, (strip) => names(strip.id));
    const lanes = some(data.threads, (lane) => tokens.some((token) => lane.name.includes(token) || lane.role.startsWith(token)));
    let peeks = some(data.peeks, (peek) => tokens.includes(peek.title) || tokens.includes(peek.kind) || tokens.includes(peek.target));
    if (strips) {
      found.collections = new Set(strips.map((strip) => strip.id));
      peeks ??= some(data.peeks, (peek) => peek.reads.some((id) => found.collections.has(id)));
    }
    if (lanes) found.threads = new Set(lanes.map((lane) => lane.number));
    if (peeks) {
      found.peeks = new Set(peeks);
      found.peekOf = new Set(peeks.map((peek) => data.peeks.indexOf(peek)));
      if (!strips) found.collections = new Set(peeks.flatMap((peek) => peek.reads));
    }
    if (!strips && !lanes && !peeks) { found.peeks = new Set(); found.collections = new Set(); }
    if (strips || peeks) {
      const ids = [...(strips ? found.collections : [])];
      found.labels = data.labels.map((label) => ids.some((id) => label.split(" ").includes(id)));
    }
    return found;
  }
  function firstMatch() {
    const found = state.matches;
    if (!found) return;
    const [peek] = found.peeks ?? [], [strip] = found.collections ?? [], [thread] = found.threads ?? [];
    if (state.filter.startsWith("peek") && peek) select({ kind: "peek", id: peek.peek }, true);
    else if (strip) select({ kind: "collection", id: strip }, true);
    else if (peek) select({ kind: "peek", id: peek.peek }, true);
    else if (thread !== undefined) scrollTo(rowOfLane(thread));
    else say("nothing matches");
  }

  // ---- Input -----------------------------------------------------------------------------------

  function showTip(event, item, at) {
    const tip = $("tip");
    if (!item) { tip.hidden = true; return; }
    const [title, ...lines] = describe(item, at);
    tip.replaceChildren(element("b", title), ...lines.filter(Boolean).map((line) => element("div", line)));
    tip.hidden = false;
    const stage = scroll.parentElement.getBoundingClientRect();
    const x = event.clientX - stage.left, y = event.clientY - stage.top;
    tip.style.left = `${Math.max(4, Math.min(x + 14, stage.width - tip.offsetWidth - 8))}px`;
    tip.style.top = `${y + 18 + tip.offsetHeight > stage.height ? y - tip.offsetHeight - 10 : y + 18}px`;
  }
  function locate(event) {
    const box = canvas.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top + scroll.scrollTop;
    const row = event.clientY - box.top < RULER ? null : rowAt(y), at = T(x);
    return { x, at, row, item: row && x >= GUTTER ? itemAt(row, at, y - row.y)
      : row?.strip ? { kind: "collection", id: row.strip.id } : null };
  }

  let drag = null;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    drag = { x: event.clientX, y: event.clientY, from: view.from, to: view.to, top: scroll.scrollTop, moved: false };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag) {
      const { item, at } = locate(event);
      canvas.style.cursor = item ? "pointer" : "grab";
      return showTip(event, item, at);
    }
    const dx = event.clientX - drag.x, dy = event.clientY - drag.y;
    if (!drag.moved && Math.hypot(dx, dy) < 4) return;
    drag.moved = true;
    $("tip").hidden = true;
    canvas.style.cursor = "grabbing";
    const by = -dx / plotWidth() * (drag.to - drag.from);
    scroll.scrollTop = drag.top - dy;
    look(drag.from + by, drag.to + by);
  });
  canvas.addEventListener("pointerup", (event) => {
    const was = drag;
    drag = null;
    scroll.focus({ preventScroll: true });
    if (!was || was.moved) return;
    const { item, row, at, x } = locate(event);
    const box = canvas.getBoundingClientRect();
    if (!item && data.violation && event.clientY - box.top < RULER && Math.abs(x - X(data.violation.at)) < 50) {
      return select({ kind: "violation", id: 0 });
    }
    if (row) { state.row = rows.indexOf(row); state.cursor = at; }
    select(item);
  });
  canvas.addEventListener("pointercancel", () => { drag = null; });
  canvas.addEventListener("pointerleave", () => { $("tip").hidden = true; });
  canvas.addEventListener("dblclick", (event) => zoom(0.4, locate(event).at));
  scroll.addEventListener("wheel", (event) => {
    const x = event.clientX - canvas.getBoundingClientRect().left;
    if (x < GUTTER) return;
    event.preventDefault();
    const step = event.deltaMode === 1 ? 16 : 1;
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan((event.deltaX || event.deltaY) * step / plotWidth());
    else zoom(Math.exp(Math.max(-120, Math.min(120, event.deltaY * step)) * 0.0022), T(x));
  }, { passive: false });
  scroll.addEventListener("scroll", redraw);
  scroll.addEventListener("focus", () => { if (state.row < 0) state.row = rows.findIndex((row) => row.type === "lane"); redraw(); });
  scroll.addEventListener("blur", redraw);
  const seek = (event) => {
    const box = overview.getBoundingClientRect(), length = view.to - view.from;
    const at = (event.clientX - box.left - GUTTER) / (width - GUTTER - 14) * data.end;
    look(at - length / 2, at + length / 2);
  };
  overview.addEventListener("pointerdown", (event) => { overview.setPointerCapture(event.pointerId); seek(event); });
  overview.addEventListener("pointermove", (event) => { if (event.buttons) seek(event); });

  function moveRow(by) {
    let next = state.row;
    do next += by; while (rows[next]?.type === "head");
    if (!rows[next]) return;
    state.row = next;
    state.cursor ??= (view.from + view.to) / 2;
    scrollTo(rows[next]);
    say(`${rows[next].text}${rows[next].lane ? `, ${rows[next].lane.role}, process ${rows[next].lane.process}` : ""}`);
    redraw();
  }
  /** The begins of what a row shows. */
  function beginsOf(row) {
    if (row.type === "controller") return [commandTimes, answerTimes];
    if (row.type === "reads") return [Float64Array.from(row.peeks, (peek) => peek.asked).sort()];
    if (row.type === "lane") return [...row.lane.tracks.slice(1), row.lane.idle].map((track) => track.begin);
    if (row.type === "strip") return row.strip.lines.map((line) => line.at);
    return [Float64Array.of(row.fault[1])];
  }
  function moveCursor(forward) {
    const row = rows[state.row];
    if (!row || row.type === "head") return;
    const at = state.cursor ?? (view.from + view.to) / 2;
    let best = null;
    for (const begins of beginsOf(row)) {
      const index = forward ? lower(begins, at + 0.5) : lower(begins, at - 0.5) - 1;
      const found = begins[index];
      if (found !== undefined && (best === null || (forward ? found < best : found > best))) best = found;
    }
    if (best === null) return say("nothing more here");
    state.cursor = best;
    reveal(best);
    const item = itemAt(row, best, -1);
    if (item) say(describe(item, best).join(", "));
    redraw();
  }
  function selectAtCursor() {
    const row = rows[state.row];
    if (!row || row.type === "head") return;
    state.cursor ??= (view.from + view.to) / 2;
    const item = itemAt(row, state.cursor, -1);
    if (item) select(item); else say("nothing here");
  }
  function movePeek(by) {
    if (!data.peeks.length) return;
    const at = state.selection?.kind === "peek" ? data.peeks.findIndex((peek) => peek.peek === state.selection.id)
      : by > 0 ? lower(Float64Array.from(data.peeks, (peek) => peek.asked), view.from) - 1 : data.peeks.length;
    const next = data.peeks[Math.min(data.peeks.length - 1, Math.max(0, at + by))];
    select({ kind: "peek", id: next.peek }, true);
  }
  function toggleArrows() {
    state.allArrows = !state.allArrows;
    $("arrows").setAttribute("aria-pressed", String(state.allArrows));
    redraw();
  }
  const toggleTheme = () => setTheme(theme() === "dark" ? "light" : "dark");
  const showViolation = () => { if (data.violation) select({ kind: "violation", id: 0 }, true); };
  function clearFilter() {
    $("filter").value = "";
    filter("");
  }
  const escape = () => state.selection ? select(null) : clearFilter();

  const KEYS = {
    "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6), "0": () => look(0, data.end),
    v: showViolation, a: toggleArrows, t: toggleTheme, n: () => movePeek(1), p: () => movePeek(-1),
    "/": () => $("filter").focus(), "?": () => $("keys").showModal(), Escape: escape,
  };
  const LANE_KEYS = {
    ArrowLeft: (event) => pan(event.shiftKey ? -0.9 : -0.12), ArrowRight: (event) => pan(event.shiftKey ? 0.9 : 0.12),
    ArrowUp: () => moveRow(-1), ArrowDown: () => moveRow(1), ",": () => moveCursor(false), ".": () => moveCursor(true),
    Enter: selectAtCursor, Home: () => pan(-(view.from / (view.to - view.from))), End: () => pan((data.end - view.to) / (view.to - view.from)),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || $("keys").open) return;
    const typing = event.target === $("filter");
    if (typing && event.key === "Escape") { clearFilter(); scroll.focus(); event.preventDefault(); return; }
    if (typing) { if (event.key === "Enter") firstMatch(); return; }
    const onControl = event.target.closest?.("button, dialog");
    const act = KEYS[event.key] ?? (onControl ? null : LANE_KEYS[event.key]);
    if (!act) return;
    event.preventDefault();
    state.keys = true;
    act(event);
  });
  // Only who uses keys needs to see where they lead.
  document.addEventListener("pointerdown", () => { state.keys = false; }, { capture: true });
  document.addEventListener("keyup", (event) => { if (event.key === "Tab") { state.keys = true; redraw(); } });
  $("filter").addEventListener("input", (event) => filter(event.target.value));
  $("arrows").addEventListener("click", toggleArrows);
  $("in").addEventListener("click", () => zoom(0.6));
  $("out").addEventListener("click", () => zoom(1 / 0.6));
  $("fit").addEventListener("click", () => look(0, data.end));
  $("theme").addEventListener("click", toggleTheme);
  $("help").addEventListener("click", () => $("keys").showModal());
  $("show").addEventListener("click", showViolation);

  // ---- Opening ---------------------------------------------------------------------------------

  function begin() {
    $("name").textContent = data.name;
    const slices = data.threads.reduce((sum, lane) => sum + lane.begin.length, 0);
    const number = (value) => value.toLocaleString("en");
    $("about").textContent = `${clock(data.end)} of virtual time · ${data.threads.length} threads · ${number(slices)} slices · ` +
      `${number(data.peeks.length)} reads · ${data.violation ? "failed" : "as promised"}`;
    if (data.violation) {
      $("verdict").hidden = false;
      $("oracle").textContent = `${data.violation.oracle} violated`;
      $("message").textContent = data.violation.message;
    }
    const names = [...data.collections.map((strip) => strip.id), ...data.threads.map((lane) => lane.name), ...data.peeks.slice(0, 500).map((peek) => peek.title)];
    $("names").replaceChildren(...names.map((name) => { const option = element("option"); option.value = name; return option; }));
    const dark = window.matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
    setTheme(dark.matches ? "dark" : "light");
    new ResizeObserver(resize).observe(scroll);
    resize();
    layout();
    opening();
    if (data.violation) select({ kind: "violation", id: 0 });
    else panel();
  }

  /** For tests: what the page shows, and ways to ask for more. Positions are of the window. */
  window.tandem = {
    state() {
      const box = canvas.getBoundingClientRect(), mark = data.violation;
      const x = mark ? box.left + X(mark.at) : null;
      const row = mark && mark.thread !== null ? rowOfLane(mark.thread) : null;
      const y = row ? box.top + row.y + row.h / 2 - scroll.scrollTop : null;
      const inView = mark ? X(mark.at) >= GUTTER && X(mark.at) <= width
        && (y === null || (y >= box.top + RULER && y <= box.bottom)) : false;
      return {
        view: { ...view }, selection: state.selection, path: state.path.map(({ at, thread, what }) => ({ at, thread, what })),
        lit: (state.lit ?? []).length, theme: theme(), filter: state.filter, allArrows: state.allArrows, arrows: state.arrows,
        violation: mark ? { oracle: mark.oracle, x, y, inView } : null, frames: [...state.frames], draws: state.draws,
        rows: rows.map((row) => ({ type: row.type, text: row.text })), peeks: data.peeks.map((peek) => peek.peek), end: data.end,
      };
    },
    /** Where something is, so that a test can click it. */
    place(kind, id) {
      const box = canvas.getBoundingClientRect();
      if (kind !== "peek") return null;
      const row = rows.find((row) => row.type === "reads"), peek = peekByName.get(id);
      const left = Math.max(X(peek.asked), GUTTER), right = Math.min(X(peek.end), width);
      return { x: box.left + (left + right) / 2, y: box.top + row.y + 4 + (peek.row + 0.5) * row.each - scroll.scrollTop, visible: right > left };
    },
    select(kind, id) { select(kind === null ? null : { kind, id }, true); },
    look, draw,
  };
  begin();
})();

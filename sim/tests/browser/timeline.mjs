// Opens drawn runs in a headless Chromium and does with them what a person would. `.ci/browser-test` draws the runs
// and says in TIMELINE_DIR where they are: clean.html and failing.html. Screenshots are written beside them.

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, before, test } from "node:test";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const directory = resolve(process.env.TIMELINE_DIR ?? "target/timeline");
const profile = mkdtempSync(join(tmpdir(), "timeline-"));
const EVENTS = 100_000;
let browser;

before(async () => {
  browser = await chromium.launchPersistentContext(profile, {
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    headless: true,
    viewport: { width: 1440, height: 900 },
    args: ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
      "--disable-component-update", "--disable-sync"],
  });
});

after(async () => {
  await browser?.close();
  rmSync(profile, { recursive: true, force: true });
});

/** Opens a page of the directory; `done` says what went wrong meanwhile. */
async function open(file, { scheme = "light" } = {}) {
  const page = await browser.newPage();
  const trouble = [], url = pathToFileURL(join(directory, file)).href;
  page.on("console", (message) => {
    // The page never reads its canvas; the tests do.
    const own = message.text().includes("willReadFrequently");
    if (["error", "warning"].includes(message.type()) && !own) trouble.push(message.text());
  });
  page.on("pageerror", (error) => trouble.push(String(error)));
  page.on("request", (request) => { if (request.url() !== url && !request.url().startsWith("data:")) trouble.push(request.url()); });
  await page.emulateMedia({ colorScheme: scheme });
  await page.goto(url);
  await page.waitForFunction(() => window.tandem?.state().draws > 0);
  return {
    page,
    state: () => page.evaluate(() => window.tandem.state()),
    press: async (key) => { await page.keyboard.press(key); await settled(page); },
    done: async () => { await page.close(); assert.deepEqual(trouble, []); },
  };
}

/** Two frames later, what was asked for has been drawn. */
const settled = (page) => page.evaluate(() => new Promise((done) =>
  requestAnimationFrame(() => requestAnimationFrame(() => done()))));

/** A picture of the page, and how many colours it has and how much of it the commonest one covers. */
async function shoot(page, name) {
  const path = join(directory, name);
  await page.screenshot({ path });
  const png = readFileSync(path);
  const blank = await browser.newPage();
  const figures = await blank.evaluate(async (source) => {
    const image = new Image();
    image.src = source;
    await image.decode();
    const sheet = new OffscreenCanvas(image.width, image.height), pen = sheet.getContext("2d");
    pen.drawImage(image, 0, 0);
    const pixels = new Uint32Array(pen.getImageData(0, 0, image.width, image.height).data.buffer);
    const counts = new Map();
    for (const pixel of pixels) counts.set(pixel, (counts.get(pixel) ?? 0) + 1);
    return { width: image.width, colours: counts.size, commonest: Math.max(...counts.values()) / pixels.length };
  }, `data:image/png;base64,${png.toString("base64")}`);
  await blank.close();
  assert.equal(figures.width, 1440);
  assert.ok(figures.colours > 100, `${name} has ${figures.colours} colours`);
  assert.ok(figures.commonest < 0.95, `${name} is ${figures.commonest} of one colour`);
}

/** What colour the canvas shows where the window has this position. */
const pixel = (page, x, y) => page.evaluate(([x, y]) => {
  const canvas = document.getElementById("canvas"), box = canvas.getBoundingClientRect();
  const ratio = canvas.width / box.width;
  const data = canvas.getContext("2d").getImageData(Math.round((x - box.left) * ratio), Math.round((y - box.top) * ratio), 1, 1).data;
  return [...data.slice(0, 3)];
}, [x, y]);

test("a clean run opens as a whole, without a violation", async () => {
  const { page, state, done } = await open("clean.html");
  const seen = await state();
  assert.equal(seen.violation, null);
  assert.ok(seen.view.from <= 0 && seen.view.to >= seen.end, "the whole run is in view");
  assert.ok(seen.rows.filter((row) => row.type === "lane").length >= 2, "there are lanes");
  assert.ok(seen.rows.some((row) => row.type === "strip"), "there are strips");
  assert.equal(await page.locator("#verdict").isVisible(), false);
  await shoot(page, "clean.png");
  await done();
});

test("a failing run opens with its violation in view", async () => {
  const { page, state, done } = await open("failing.html");
  const { violation, selection, lit } = await state();
  assert.equal(violation.oracle, "O10");
  assert.ok(violation.inView, JSON.stringify(violation));
  assert.equal(selection.kind, "violation");
  assert.ok(lit >= 2, "who waits and who holds the lock are lit");
  assert.ok(await page.locator("#verdict").isVisible());
  assert.match(await page.locator("#message").innerText(), /waits for the lock/);
  const [red, green, blue] = await pixel(page, violation.x, violation.y - 60);
  assert.ok(red > 120 && red > green + 60 && red > blue + 40, `the mark is drawn: ${[red, green, blue]}`);
  await shoot(page, "failing.png");
  await done();
});

test("a click on a peek highlights its way from the command to the answer", async () => {
  const { page, state, done } = await open("clean.html");
  const { peeks } = await state();
  const places = await page.evaluate((peeks) => peeks.map((id) => [id, window.tandem.place("peek", id)]), peeks);
  const box = await page.locator("#canvas").boundingBox();
  let clicked = 0;
  for (const [id, place] of places) {
    if (!place.visible || place.y > box.y + box.height - 10) continue;
    await page.mouse.click(place.x, place.y);
    await settled(page);
    const { selection, path, arrows, lit } = await state();
    assert.deepEqual(selection, { kind: "peek", id });
    if (!path.some((point) => point.what === "answer: rows")) continue;
    const words = path.map((point) => point.what);
    for (const what of ["asked", "applied", "captured", "walks", "answered"]) assert.ok(words.includes(what), `${what} is in ${words}`);
    assert.ok(path.every((point, i) => i === 0 || path[i - 1].at <= point.at), "in the order of time");
    assert.ok(new Set(path.map((point) => point.thread)).size >= 2, "over the controller and workers");
    assert.ok(arrows > 0 && lit > 0);
    assert.match(await page.locator("#panel").innerText(), new RegExp(`peek ${id}\\b`));
    if (++clicked === 3) break;
  }
  assert.ok(clicked > 0, "a read with rows was clicked");
  await shoot(page, "peek.png");
  await page.keyboard.press("Escape");
  assert.equal((await state()).selection, null);
  await done();
});

test("keys zoom, pan, walk through lanes and select", async () => {
  const { page, state, press, done } = await open("clean.html");
  await page.locator("#scroll").focus();
  const whole = (await state()).view;
  await press("+");
  await press("+");
  const close = (await state()).view;
  assert.ok(close.to - close.from < (whole.to - whole.from) * 0.5, "closer");
  await press("ArrowRight");
  assert.ok((await state()).view.from > close.from, "further right");
  await press("-");
  await press("0");
  const again = (await state()).view;
  assert.ok(again.from <= 0 && again.to >= (await state()).end);
  for (let i = 0; i < 3; i++) await press("ArrowDown");
  for (let i = 0; i < 3 && !(await state()).selection; i++) { await press("."); await press("Enter"); }
  assert.ok((await state()).selection, "something was selected with keys alone");
  assert.notEqual(await page.locator("#said").innerText(), "", "and told to screen readers");
  await press("?");
  assert.ok(await page.locator("#keys").isVisible());
  await page.keyboard.press("Escape");
  assert.equal(await page.locator("#keys").isVisible(), false);
  await press("n");
  assert.equal((await state()).selection.kind, "peek");
  await page.locator("#filter").focus();
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.id), "arrows", "tab goes on to the next tool");
  await done();
});

test("the wheel zooms about the pointer and a drag moves", async () => {
  const { page, state, done } = await open("clean.html");
  const box = await page.locator("#canvas").boundingBox(), x = box.x + box.width * 0.7, y = box.y + 200;
  const before = (await state()).view;
  await page.mouse.move(x, y);
  await page.mouse.wheel(0, -400);
  await settled(page);
  const near = (await state()).view;
  assert.ok(near.to - near.from < before.to - before.from);
  await page.mouse.down();
  await page.mouse.move(x - 200, y, { steps: 4 });
  await page.mouse.up();
  await settled(page);
  const moved = (await state()).view;
  assert.ok(moved.from > near.from && Math.abs((moved.to - moved.from) - (near.to - near.from)) < 1);
  assert.equal((await state()).selection, null, "a drag selects nothing");
  await done();
});

test("a filter leaves what it names, and enter selects it", async () => {
  const { page, state, press, done } = await open("clean.html");
  const all = (await state()).rows, strip = all.filter((row) => row.type === "strip").at(-1).text;
  await press("/");
  await page.keyboard.type(strip);
  await press("Enter");
  const found = await state();
  assert.deepEqual(found.rows.filter((row) => row.type === "strip").map((row) => row.text), [strip]);
  assert.deepEqual(found.selection, { kind: "collection", id: strip });
  await press("Escape");
  const lane = all.find((row) => row.type === "lane").text;
  await press("/");
  await page.keyboard.type(lane);
  await settled(page);
  assert.deepEqual((await state()).rows.filter((row) => row.type === "lane").map((row) => row.text), [lane]);
  await press("Escape");
  await press("Escape");
  assert.deepEqual((await state()).rows, all);
  await done();
});

test("a dark page is dark, and the button turns it light", async () => {
  const { page, state, done } = await open("failing.html", { scheme: "dark" });
  assert.equal((await state()).theme, "dark");
  const box = await page.locator("#canvas").boundingBox();
  const sum = async () => (await pixel(page, box.x + 4, box.y + box.height - 6)).reduce((a, b) => a + b);
  assert.ok(await sum() < 150);
  await shoot(page, "dark.png");
  await page.locator("#theme").click();
  await settled(page);
  assert.equal((await state()).theme, "light");
  assert.ok(await sum() > 600);
  await done();
});

test("all arrows can be shown", async () => {
  const { page, state, done } = await open("clean.html");
  await page.locator("#arrows").click();
  await settled(page);
  const { allArrows, arrows } = await state();
  assert.ok(allArrows && arrows > 20, `${arrows} arrows`);
  assert.equal(await page.locator("#arrows").getAttribute("aria-pressed"), "true");
  await done();
});

test("every control has a name, and text enough contrast", async () => {
  for (const scheme of ["light", "dark"]) {
    const { page, done } = await open("failing.html", { scheme });
    const nameless = await page.evaluate(() => [...document.querySelectorAll("button, input, canvas, [tabindex]")]
      .filter((element) => !(element.getAttribute("aria-label") || element.textContent.trim() || element.labels?.length
        || element.getAttribute("aria-hidden"))).map((element) => element.outerHTML));
    assert.deepEqual(nameless, []);
    const weak = await page.evaluate(() => {
      const style = getComputedStyle(document.documentElement);
      const light = (name) => {
        const hex = style.getPropertyValue(`--${name}`).trim();
        const [r, g, b] = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16) / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
      return [["ink", "paper"], ["soft", "paper"], ["soft", "raised"], ["ink", "alarm-paper"], ["paper", "alarm"], ["faint", "paper"]]
        .map(([a, b]) => [a, b, ratio(a, b)]).filter(([a, , contrast]) => contrast < (a === "faint" ? 3 : 4.5));
    });
    assert.deepEqual(weak, []);
    await done();
  }
});

/** A page with as many slices as wanted, spread over eight threads. */
function synthesise() {
  const page = readFileSync(join(directory, "clean.html"), "utf8");
  const [head, rest] = page.split('id="data">'), end = rest.indexOf("</script>");
  const data = JSON.parse(rest.slice(0, end));
  const each = EVENTS / 8, gap = Math.floor(data.end / (each / 4));
  data.threads = Array.from({ length: 8 }, (_, thread) => {
    const lane = { name: `p${thread >> 2}.${thread & 1 ? "m" : "i"}${thread >> 1 & 1}`, role: thread & 1 ? "maintenance" : "interactive",
      process: thread >> 2, died: null, begin: [], length: [], kind: [], depth: [], label: [], peek: [] };
    for (let i = 0; i < each; i++) {
      const inner = i % 4, length = Math.floor(gap * 0.8);
      lane.begin.push(i === 0 ? thread * 7 : inner === 0 ? gap - 3 * Math.floor(gap / 16) : Math.floor(gap / 16));
      lane.length.push(length - inner * Math.floor(gap / 5));
      lane.kind.push([0, 2, 3, 4][inner]);
      lane.depth.push(inner);
      lane.label.push(0);
      lane.peek.push(0);
    }
    return lane;
  });
  data.wakes = Array.from({ length: 5000 }, (_, i) => [i % 8, i * Math.floor(data.end / 5000), (i + 1) % 8, i * Math.floor(data.end / 5000) + 5000]);
  data.peeks.forEach((peek) => { peek.steps = []; });
  data.commands.forEach((command) => { command.applied = []; });
  writeFileSync(join(directory, "big.html"), `${head}id="data">${JSON.stringify(data)}${rest.slice(end)}`);
}

test("a page of 100,000 events stays fast", async () => {
  synthesise();
  const { page, done } = await open("big.html");
  const figures = await page.evaluate(async () => {
    const { end } = window.tandem.state(), draws = [], frames = [];
    let last = performance.now();
    for (let i = 0; i < 90; i++) {
      const length = end * 0.93 ** i, at = end * (0.3 + 0.004 * i);
      window.tandem.look(at - length / 2, at + length / 2);
      await new Promise((done) => requestAnimationFrame(done));
      const now = performance.now();
      frames.push(now - last);
      last = now;
      draws.push(window.tandem.state().frames.at(-1));
    }
    const sort = (list) => [...list].sort((a, b) => a - b);
    const part = (list, share) => sort(list)[Math.floor((list.length - 1) * share)];
    return { draw: [0.5, 0.95].map((share) => part(draws, share)), frame: [0.5, 0.95].map((share) => part(frames, share)) };
  });
  const show = ([half, most]) => `${half.toFixed(1)} ms, 95% below ${most.toFixed(1)} ms`;
  console.log(`100,000 events: drawing takes ${show(figures.draw)}; a frame ${show(figures.frame)}`);
  assert.ok(figures.draw[0] < 16 && figures.draw[1] < 50, show(figures.draw));
  assert.ok(figures.frame[0] < 50, show(figures.frame));
  await done();
});

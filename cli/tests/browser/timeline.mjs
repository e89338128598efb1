// Tries the page of `trace timeline` in Chromium. CONTRIBUTING.md says how to run it.
//
//     node cli/tests/browser/timeline.mjs [DIRECTORY FOR SCREENSHOTS [TEST...]]

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { crc32 } from 'node:zlib';
import { chromium } from 'playwright-core';

const trapline = process.env.TRAPLINE ?? 'target/release/trapline';
// What a page shows is not cut.
process.env.COLUMNS = '1000';
const dir = mkdtempSync(join(tmpdir(), 'timeline-'));
process.on('exit', () => rmSync(dir, { recursive: true }));
const shots = process.argv[2] ?? join(dir, 'screenshots');
mkdirSync(shots, { recursive: true });

const flags = '--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking';
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: [...flags.split(' '), '--disable-component-update', '--disable-sync'],
});

// ---- tools

const log = (...words) => console.log(...words);

/** Records a run, and makes its page. */
function pageOf(name, ...program) {
  return pageOfRun(name, '--virtual', '--seed', '1', ...program);
}

function pageOfRun(name, ...program) {
  const tape = join(dir, `${name}.trap`);
  const boot = ['boot', '-q', '--record', tape, ...program];
  try {
    execFileSync(trapline, boot, { stdio: 'ignore' });
  } catch (error) {
    assert.ok([1, 3, 4].includes(error.status), `${boot.join(' ')} ends with ${error.status}: ${error}`);
  }
  return pageOfTape(name, tape);
}

function pageOfTape(name, tape) {
  const html = join(dir, `${name}.html`);
  execFileSync(trapline, ['trace', 'timeline', tape, '-o', html]);
  return html;
}

const textOf = (value) => [Buffer.byteLength(value), ...Buffer.from(value)];

function varint(value) {
  const bytes = [];
  for (; value > 127; value = Math.floor(value / 128)) bytes.push((value % 128) | 128);
  return [...bytes, value];
}

/** Makes the page of a recording that is written by hand. */
function pageOfRecords(name, records, { word = name, isVirtual = true } = {}) {
  const chunk = (payload) => {
    const frame = Buffer.alloc(8);
    frame.writeUInt32LE(payload.length);
    frame.writeUInt32LE(crc32(payload), 4);
    return Buffer.concat([frame, payload]);
  };
  const header = [1, ...textOf(word), 1, ...textOf('fifo'), 1, Number(isVirtual), ...textOf('0.1.0')];
  const start = Buffer.from('\x89TRAPLN\n\x01\x00', 'latin1');
  const tape = join(dir, `${name}.trap`);
  writeFileSync(tape, Buffer.concat([start, chunk(Buffer.from(header)), chunk(Buffer.from(records))]));
  return pageOfTape(name, tape);
}

/** Opens a page, which may ask the network for nothing and complain about nothing. */
async function open(html, { scheme = 'light', width = 1280, height = 900, touch = false } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme, hasTouch: touch });
  const page = await context.newPage();
  page.on('pageerror', (error) => assert.fail(`${html}: ${error.stack}`));
  page.on('console', (message) => assert.fail(`${html}: ${message.text()}`));
  page.on('request', (request) => assert.match(request.url(), /^file:.*\.html$/, 'nothing is loaded'));
  const begin = performance.now();
  await page.goto(pathToFileURL(html).href);
  await frame(page);
  return { page, took: performance.now() - begin };
}

/** Waits until what is due has been drawn. */
const frame = (page) =>
  page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));

const shot = async (page, name) => {
  await frame(page);
  await page.screenshot({ path: join(shots, `${name}.png`) });
};

/** How many pixels of the lanes, or of one of them, have the colour of running tasks. */
const painted = (page, lane = -1) =>
  page.evaluate((lane) => {
    const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true });
    copy.drawImage(canvas, 0, 0);
    const ratio = canvas.width / view.width;
    const [top, height] = lane < 0 ? [0, view.height] : [toY(view.placeOf[lane]), LANE];
    const { data } = copy.getImageData(0, top * ratio, canvas.width, height * ratio);
    const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colors.kinds[RUNNING].ink.slice(at, at + 2), 16));
    let number = 0;
    for (let at = 0; at < data.length; at += 4) {
      number += data[at] === red && data[at + 1] === green && data[at + 2] === blue;
    }
    return number;
  }, lane);

const width = (page) => page.evaluate(() => view.end - view.begin);
const text = (page, selector) => page.locator(selector).textContent();
const shownRows = async (page) => Number((await text(page, '#shown')).match(/^[\d,]+/)[0].replaceAll(',', ''));

async function press(page, ...keys) {
  for (const key of keys) await page.keyboard.press(key);
  await frame(page);
}

// ---- what is tried

async function draws(page) {
  assert.ok((await painted(page)) > 500, 'tasks that run are seen');
  assert.equal(await page.locator('#lanes').getAttribute('role'), 'application');
  assert.equal(await page.locator('#table').getAttribute('role'), 'grid');
  assert.ok((await page.locator('#table .rows .row').count()) > 5, 'the table has rows');
}

/** A select has a colour and a pattern of its own. */
async function marksSelects() {
  const { page } = await open(pageOf('selects', 'echo'));
  const seen = await page.evaluate(() => {
    const kinds = new Map();
    for (const bar of bars.doing.keys()) {
      if (bars.doing[bar] <= RESTING) continue;
      const is = bars.on.get(bar).startsWith('the first of ') ? 'selects' : 'others';
      kinds.set(is, (kinds.get(is) ?? new Set()).add(KINDS[bars.doing[bar]]));
    }
    const looks = KINDS.map((_, kind) => colors.pixels[kind].join());
    return { selects: [...(kinds.get('selects') ?? [])], others: [...(kinds.get('others') ?? [])], looks };
  });
  assert.deepEqual(seen.selects, ['select']);
  assert.ok(!seen.others.includes('select'));
  assert.equal(new Set(seen.looks).size, seen.looks.length, 'each kind has a look of its own');
}

async function zooms(page) {
  const all = await width(page);
  const box = await page.locator('#lanes').boundingBox();
  await page.mouse.move(box.x + box.width / 2, box.y + 60);
  await page.keyboard.down('Control');
  await page.mouse.wheel(0, -200);
  await page.keyboard.up('Control');
  await frame(page);
  const wheel = await width(page);
  assert.ok(wheel < all * 0.7, 'the wheel zooms');
  const rows = await shownRows(page);
  await page.locator('#in').click();
  await frame(page);
  assert.ok((await width(page)) < wheel, 'the button zooms');
  assert.ok((await shownRows(page)) < rows, 'the table follows');
  const begin = await page.evaluate(() => view.begin);
  await page.mouse.move(box.x + box.width / 2, box.y + 60);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width / 2 - 120, box.y + 60, { steps: 4 });
  await page.mouse.up();
  await frame(page);
  assert.ok((await page.evaluate(() => view.begin)) > begin, 'dragging pans');
  await page.locator('#fit').click();
  await frame(page);
  assert.equal(await width(page), all);
  await page.mouse.move(box.x + 400, box.y + 8);
  await page.mouse.down();
  await page.mouse.move(box.x + 500, box.y + 8, { steps: 4 });
  await page.mouse.up();
  await frame(page);
  assert.equal(await width(page), all, 'a drag along the ruler selects a range');
  await page.locator('#tab-range button', { hasText: 'Zoom to it' }).click();
  await frame(page);
  assert.ok((await width(page)) < all * 0.2);
  await page.locator('#fit').click();
  await page.locator('#show-calls').click();
}

async function hovers(page) {
  const box = await page.locator('#lanes').boundingBox();
  const point = await page.evaluate(() => {
    const bar = bars.doing.findIndex((kind) => kind > RESTING);
    return { x: toX((columns().from[bar] + columns().to[bar]) / 2), y: toY(view.placeOf[bars.lane[bar]]) + 20 };
  });
  await page.mouse.move(box.x + point.x, box.y + point.y);
  await page.locator('#tip').waitFor({ state: 'visible' });
  const tip = await text(page, '#tip');
  assert.match(tip, /task \d+ .*blocked on .*\(.*\) = /, tip);
  assert.match(tip, /woken by/, tip);
}

async function searches(page) {
  await page.keyboard.press('/');
  await page.keyboard.type('SLEEP(');
  await page.waitForFunction(() => page('found').textContent.includes('match'));
  await frame(page);
  const matches = await shownRows(page);
  const all = await page.evaluate(() => rows.length);
  assert.ok(matches > 0 && matches < all, 'the table has what is found');
  const calls = await page.locator('#table .rows .row > :nth-child(4)').allTextContents();
  assert.ok(calls.every((call) => call.startsWith('sleep(')), calls.join());
  await page.keyboard.press('Enter');
  await frame(page);
  assert.match(await text(page, '#found'), /^1 of /);
  assert.match(await text(page, '#details'), /sleep\(/);
  await page.keyboard.press('Escape');
  await frame(page);
  assert.equal(await shownRows(page), all);
}

async function hasKeys(page) {
  await page.locator('#lanes').focus();
  await press(page, 'Escape', '0', 'PageUp', 'Home');
  const first = await text(page, '#details');
  assert.match(first, /^task 1 /);
  await press(page, 'ArrowRight');
  const second = await text(page, '#details');
  assert.notEqual(second, first);
  await press(page, 'ArrowDown', 'End');
  assert.match(await text(page, '#details'), /^task 2 /);
  const all = await width(page);
  await press(page, '+', '+');
  assert.ok((await width(page)) < all / 2);
  await press(page, '0');
  await page.evaluate(() => selectBar(bars.end.findIndex((end, bar) => end === WOKEN && bars.waker[bar] > 0)));
  const [waker, lane] = await page.evaluate(() => [bars.waker[view.bar], lanes.tid[view.lane]]);
  assert.notEqual(waker, lane);
  await page.locator('#lanes').focus();
  await press(page, 'w');
  assert.match(await text(page, '#details'), new RegExp(`^task ${waker} .*running`));
  await press(page, 'Enter');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'table');
  await press(page, 'Home', 'ArrowDown');
  assert.equal(await page.locator('#table').getAttribute('aria-activedescendant'), `row-1`);
  assert.equal(await page.locator('.row.selected').count(), 1);
  await press(page, 'Escape', 'Escape', 'Enter', 'End');
  const last = await page.evaluate(() => `row-${rows.length - 1}`);
  assert.equal(await page.locator('#table').getAttribute('aria-activedescendant'), last);
  await press(page, 'Home');
  assert.equal(await page.locator('#table').getAttribute('aria-activedescendant'), 'row-0');
  await press(page, '?');
  assert.ok(await page.locator('#keys').isVisible());
  await shot(page, 'keys');
  await press(page, 'Escape');
  assert.ok(!(await page.locator('#keys').isVisible()));
}

async function hasScales(page) {
  await page.locator('#scale').selectOption('time');
  await frame(page);
  assert.equal(await page.evaluate(() => view.scale), 'time');
  await page.locator('#scale').selectOption('turns');
  await page.locator('#mine').check();
  await frame(page);
  const tasks = await page.locator('#table .rows .row > :nth-child(3)').allTextContents();
  assert.equal(new Set(tasks).size, 1, 'of the selected task only');
  await page.locator('#mine').uncheck();
  await page.locator('#legend button').first().click();
  await frame(page);
  assert.ok((await painted(page)) > 500);
  await page.locator('#legend button').first().click();
}

async function hasAGrip(page) {
  const valueOf = async (name) => Number(await page.locator('#grip').getAttribute(`aria-value${name}`));
  const before = await valueOf('now');
  assert.ok(before >= (await valueOf('min')) && before <= (await valueOf('max')), `${before}`);
  await page.locator('#grip').focus();
  await press(page, 'ArrowUp', 'ArrowUp');
  assert.equal(await valueOf('now'), Math.max(before - 40, await valueOf('min')));
  await press(page, 'ArrowDown', 'ArrowDown');
}

async function hasThemes(html) {
  const paperOf = (page) => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  const { page: light } = await open(html);
  const { page: dark } = await open(html, { scheme: 'dark' });
  const [white, black] = [await paperOf(light), await paperOf(dark)];
  assert.notEqual(white, black);
  assert.ok((await painted(dark)) > 500);
  await shot(dark, 'dark');
  await light.locator('#theme').click();
  await frame(light);
  assert.equal(await paperOf(light), black);
  await dark.locator('#theme').click();
  assert.equal(await paperOf(dark), white);
}

async function hasTouch(html) {
  const { page } = await open(html, { width: 390, height: 800, touch: true });
  await shot(page, 'phone');
  assert.ok((await page.evaluate(() => ticks().length)) > 1, 'the ruler has numbers');
  const all = await width(page);
  await page.evaluate(() => {
    const box = canvas.getBoundingClientRect();
    canvas.setPointerCapture = () => {};
    const fire = (type, pointerId, x) =>
      canvas.dispatchEvent(
        new PointerEvent(type, { pointerId, pointerType: 'touch', clientX: box.left + x, clientY: box.top + 60 }),
      );
    fire('pointerdown', 1, 200);
    fire('pointerdown', 2, 260);
    fire('pointermove', 2, 330);
    fire('pointerup', 1, 200);
    fire('pointerup', 2, 330);
  });
  await frame(page);
  assert.ok((await width(page)) < all * 0.6, 'two fingers zoom');
  const box = await page.locator('#lanes').boundingBox();
  await page.touchscreen.tap(box.x + 250, box.y + 70);
  await frame(page);
  assert.match(await text(page, '#details'), /^task /, 'a finger selects');
}

async function showsDeadlocks() {
  const { page } = await open(pageOf('deadlock', 'deadlock'));
  assert.ok(await page.locator('#summary svg.graph').isVisible());
  assert.equal(await page.locator('#summary svg .wait').count(), 3, 'an arc for each that waits');
  assert.match(await text(page, '#summary'), /Cycle: 2 → 3 → 2/);
  assert.equal(await page.locator('#summary svg .ring').count(), 2, 'the tasks of the cycle are marked');
  const { width, height } = await page.locator('#summary svg.graph').boundingBox();
  assert.ok(width <= 1000 && height <= 700, `${width} x ${height}`);
  await shot(page, 'deadlock');
}

/** That the painted area of each state is its share of time, in every lane, at every width. */
async function paintsTime() {
  const clients = 'swarm --addr 127.0.0.1:45931 --clients 8 --requests 150 --think 5ms --keep-alive';
  const server = ['--max-time', '1500ms', '--with', clients, 'echo', '--addr', '127.0.0.1:45931'];
  await paintsTimeOf('server', pageOfRun('server', ...server));
  await paintsTimeOf('bursts', pageOfRecords('bursts', bursts(), { isVirtual: false }));
}

/** Records of a run on the real clock: ten tasks take turns, eight each, and sleep, again and again. They
 * end in the middle of the run, and it is idle from there on. */
function bursts() {
  const [SPAWNED, RESUMED, TRAPPED, REPLIED, BLOCKED, WOKEN, EXITED, JUMPED, END] = [0, 1, 2, 3, 4, 5, 8, 10, 12];
  const [YIELD, SLEEP, DONE, TIMER] = [1, 8, 0, 1];
  const [turn, period, times, last] = [10e3, 2e6, 100, 400e6];
  const tasks = Array.from({ length: 10 }, (_, at) => at + 2);
  const records = [];
  let now = 0;
  const record = (kind, tid, at, ...content) => {
    records.push(kind | 0xc0, ...varint(tid), ...varint(at - now), ...content);
    now = at;
  };
  const sleep = (tid, from, until) => {
    record(RESUMED, tid, from);
    record(TRAPPED, tid, from + turn, SLEEP, ...varint(until - now));
    record(BLOCKED, tid, now, TIMER, ...varint(until));
  };
  const jump = (until, ...woken) => {
    record(JUMPED, 0, until, ...varint(now));
    for (const tid of woken) record(WOKEN, tid, now, TIMER);
  };
  for (const tid of [1, ...tasks]) record(SPAWNED, tid, 0, 0, ...textOf(tid === 1 ? 'idler' : 'burst'));
  sleep(1, 0, last);
  for (let next = period; next <= times * period; next += period) {
    for (let round = 0; round < 7; round++) {
      for (const tid of tasks) {
        record(RESUMED, tid, now);
        record(TRAPPED, tid, now + turn, YIELD);
        record(REPLIED, tid, now, DONE);
      }
    }
    for (const tid of tasks) sleep(tid, now, next);
    jump(next, ...tasks);
  }
  for (const tid of tasks) record(EXITED, tid, now, 0);
  jump(last, 1);
  record(EXITED, 1, last, 0);
  return [...records, END];
}

async function paintsTimeOf(name, html) {
  for (const width of [400, 700, 1000, 1440, 2560]) {
    for (const scheme of ['light', 'dark']) {
      const { page } = await open(html, { width, height: 1200, scheme });
      await page.evaluate(() => {
        view.arrows = view.messages = false;
        show(...limits());
      });
      await frame(page);
      const checked = await page.evaluate(sharesOfLanes);
      assert.ok(checked.length >= 10, `${checked.length} lanes are dense at ${width} pixels`);
      for (const { lane, truth, area, columns, columnsPainted } of checked) {
        const where = `${name}, ${width} pixels, ${scheme}, ${lane}`;
        truth.forEach((share, state) => {
          const off = Math.abs(share - area[state]);
          const what = ['running', 'ready', 'in call', 'blocked'][state];
          const told = `${(100 * share).toFixed(2)} % is ${(100 * area[state]).toFixed(2)} % of the area`;
          assert.ok(off < 0.03, `${where}: ${what} ${told}`);
        });
        const isWhole = Math.abs(columns - columnsPainted) < 1;
        assert.ok(isWhole, `${where}: a life of ${columns} columns is painted as ${columnsPainted}`);
      }
      if (scheme === 'light') await shot(page, `${name}-${width}`);
      await page.context().close();
    }
  }
}

/** Runs in the page: for each dense lane of a task, the shares of the states in time and in painted area,
 * and how many columns of pixels both are. What is painted as idle is the background of such a lane. */
function sharesOfLanes() {
  const { data, width } = paper.getImageData(0, 0, canvas.width, canvas.height);
  const words = new Uint32Array(data.buffer);
  const { from, to } = columns();
  const checked = [];
  for (let place = 0; place < view.shown.length && toY(place) + LANE < view.height; place++) {
    const lane = view.shown[place];
    const [first, last] = [lanes.first[lane], lanes.first[lane + 1]];
    if (!isDenseLane(first, last) || isKernel(lane)) continue;
    const [time, painted] = [new Float64Array(STATES), new Float64Array(STATES)];
    for (let bar = first; bar < last; bar++) time[stateOf(bar)] += to[bar] - from[bar];
    for (let y = toY(place) + WAITING_TOP; y < toY(place) + BOTTOM; y++) {
      for (let x = Math.round(view.gutter); x < width; x++) {
        const at = (y % TILE) * TILE + (x % TILE);
        const kind = colors.pixels.findIndex((texture) => texture[at] === words[y * width + x]);
        if (kind >= 0 && kind !== RESTING) painted[Math.min(kind, RESTING)] += 1 / partOf(kind)[1];
      }
    }
    const sum = (values) => values.reduce((sum, value) => sum + value, 0);
    const share = (values) => Array.from(values, (value) => value / sum(values));
    checked.push({
      lane: task(lane),
      truth: share(time),
      area: share(painted),
      columns: sum(time) / unitsPerPixel(),
      columnsPainted: sum(painted),
    });
  }
  return checked;
}

/** That lanes side by side have one encoding, whether bars are drawn one by one or in columns: the height
 * of a state is that of its part times its share. */
async function hasOneEncoding() {
  const { page } = await open(pageOf('convoy', 'convoy'));
  await page.evaluate(() => {
    view.arrows = view.messages = false;
    setScale('time');
    show(...limits());
  });
  await frame(page);
  const [checked, dense] = await page.evaluate(() => {
    const { data, width } = paper.getImageData(0, 0, canvas.width, canvas.height);
    const words = new Uint32Array(data.buffer);
    const { from, to } = columns();
    const [checked, dense] = [[], []];
    for (let lane = 0; lane < lanes.length; lane++) {
      dense.push(isDenseLane(lanes.first[lane], lanes.first[lane + 1]));
      for (let bar = lanes.first[lane]; bar < lanes.first[lane + 1]; bar++) {
        const [left, right] = [Math.ceil(toX(from[bar])) + 3, Math.floor(toX(to[bar])) - 3];
        if (right - left < 6) continue;
        // A column of the paper's or the grid's colour has nothing.
        const x = right - 1;
        const blank = new Set([colors.paper, colors.rule, colors.idle].map(toNumber));
        const rows = [];
        for (let y = 0; y < BOTTOM; y++) if (!blank.has(words[(toY(view.placeOf[lane]) + y) * width + x])) rows.push(y);
        const [top, height] = partOf(bars.doing[bar]);
        checked.push({ lane: task(lane), kind: KINDS[bars.doing[bar]], x, rows, expected: Array.from({ length: height }, (_, at) => top + at) });
      }
    }
    return [checked, dense];
  });
  assert.ok(dense.includes(true) && dense.includes(false), `lanes of both sorts: ${dense}`);
  assert.ok(checked.length > 20, `${checked.length} bars`);
  for (const { lane, kind, x, rows, expected } of checked) {
    assert.deepEqual(rows, expected, `${lane}, ${kind} at ${x}`);
  }
  await shot(page, 'convoy');
}

/** That a run that mostly waits is seen in the overview, and that the kernel has a lane. */
async function showsTheKernel() {
  const clients = 'swarm --addr 127.0.0.1:45932 --clients 4 --requests 20 --think 20ms --keep-alive';
  const html = pageOfRun('waiting', '--max-time', '900ms', '--with', clients, 'echo', '--addr', '127.0.0.1:45932');
  const { page } = await open(html);
  assert.match(await text(page, '#summary'), /tasks [\d.<]+ %, kernel [\d.<]+ %, idle [\d.]+ % of [\d.]+m?s/);
  const [name, idle, blocked] = await page.evaluate(() => {
    const [first, last] = [lanes.first[0], lanes.first[1]];
    let idle = 0;
    for (let bar = first; bar < last; bar++) if (bars.doing[bar] === RESTING) idle += bars.to.time[bar] - bars.from.time[bar];
    const box = overview.getBoundingClientRect();
    const row = overviewPaper.getImageData(view.gutter, BLOCKED_HEIGHT - 1, box.width - view.gutter, 1).data;
    const color = colors.kinds[KINDS.indexOf('timer')].ink;
    let blocked = 0;
    for (let at = 0; at < row.length; at += 4) {
      const hex = [0, 1, 2].map((byte) => row[at + byte].toString(16).padStart(2, '0')).join('');
      blocked += `#${hex}` === color;
    }
    return [task(0), idle / (run.limits.time[1] - run.limits.time[0]), blocked / (row.length / 4)];
  });
  assert.equal(name, 'kernel');
  // Those of a task that meet at an instant count once, and those of the kernel do not count.
  const [active, tasks] = await page.evaluate(() => [summed().most, lanes.length - kernelLanes]);
  assert.ok(active > 0 && active <= tasks, `${active} of ${tasks} tasks are active`);
  assert.deepEqual(await page.evaluate(() => [50, 51, 52].map(areMany)), [false, false, true]);
  // The two ends of a real connection are paired by their order.
  const pairs = await page.evaluate(() => Array.from(messages.from, (row, at) => [row, messages.to[at]].map((row) => lanes.tid[rows.lane[row]]).sort().join()));
  assert.equal(pairs.length, 4 * 20 * 2, 'a request and a reply each');
  assert.equal(new Set(pairs).size, 4, 'of four pairs of tasks');
  assert.ok(idle > 0.5, `idle for ${idle} of the time`);
  assert.ok(blocked > 0.5, `blocked tasks in ${blocked} of the overview`);
  await shot(page, 'waiting');
}

// ---- groups, messages, faults

const NETWORK = ['--on', 'server:echo --addr 0.0.0.0:45000'].concat(
  ['--on', 'clients:swarm --addr server:45000 --clients 4 --requests 10 --think 3ms --keep-alive'],
  ['--net', 'latency=1ms..10ms', '--fault', '20ms:cut server clients', '--fault', '40ms:heal server clients'],
);

/** A run with hosts is grouped by them; groups fold by click and by key, and their lanes count tasks. */
async function groupsByHost() {
  const { page } = await open(pageOf('network', ...NETWORK));
  await page.evaluate(() => setScale('time'));
  assert.deepEqual(
    await page.evaluate(() => groups.list.map(({ name, lanes, isFolded }) => [name, lanes.length, isFolded])),
    [['on server', 5, false], ['on clients', 5, false], ['on localhost', 1, false]],
  );
  const places = () => page.evaluate(() => view.shown.length);
  assert.equal(await places(), 14, 'all lanes, and a lane for each group');
  await shot(page, 'network');
  await countsTasks(page);
  const box = await page.locator('#lanes').boundingBox();
  const clickOn = async (group) => {
    const y = await page.evaluate((group) => toY(groups.list[group].place) + 10, group);
    await page.mouse.click(box.x + 40, box.y + y);
    await frame(page);
  };
  await clickOn(0);
  assert.equal(await places(), 9, 'a click folds');
  await clickOn(0);
  assert.equal(await places(), 14, 'and unfolds');
  await page.locator('#lanes').focus();
  await press(page, 'Enter');
  assert.equal(await places(), 9, 'Enter folds the group that has the focus');
  await press(page, 'ArrowRight', 'ArrowDown');
  assert.equal(await places(), 14, 'the arrow to the right unfolds');
  assert.match(await text(page, '#details'), /task 1 echo@server/);
  await press(page, 'ArrowUp', 'ArrowLeft');
  assert.match(await text(page, '#details'), /^group on server · 5 tasks · folded/);
  await press(page, 'f');
  assert.equal(await places(), 3, 'f folds all');
  await page.evaluate(() => selectBar(lanes.first[lanes.place.get(8)]));
  await frame(page);
  assert.equal(await places(), 8, 'what is selected is shown');
  await page.locator('#groups').selectOption('parent');
  await frame(page);
  assert.deepEqual(
    await page.evaluate(() => groups.list.map(({ name, lanes }) => [name, lanes.length])),
    [['children of the host', 3], ['children of 2 swarm@clients', 4], ['children of 1 echo@server', 4]],
  );
}

/** That the painted area of each band of a group's lane is the truth of the recording. */
async function countsTasks(page) {
  const checked = await page.evaluate(() => {
    // Without the arrows and marks over it.
    paper.clearRect(0, 0, view.width, view.height);
    for (const { first, last } of parts()) drawBars(first, last, 1);
    const { data, width } = paper.getImageData(0, 0, canvas.width, canvas.height);
    const words = new Uint32Array(data.buffer);
    const { from, to } = columns();
    const [left, right] = [Math.round(view.gutter), width];
    return groups.list.flatMap((group) => {
      const y = toY(group.place);
      if (y + LANE > view.height) return [];
      const { active, waiting } = crowdOf(group);
      return BANDS.map((kind) => {
        let time = 0;
        for (const lane of group.lanes) {
          for (let bar = lanes.first[lane]; bar < lanes.first[lane + 1]; bar++) {
            if (bars.doing[bar] === kind) time += to[bar] - from[bar];
          }
        }
        const [top, height] = partOf(kind);
        const tall = height / (kind < RESTING ? active : waiting);
        const truth = (time / (view.end - view.begin)) * tall;
        const texture = colors.pixels[kind];
        let painted = 0;
        // The line below is for turns.
        for (let row = y + top; row < y + top + height; row++) {
          for (let x = left; x < right; x++) {
            painted += words[row * width + x] === texture[(row % TILE) * TILE + (x % TILE)];
          }
        }
        return { what: `${group.name}, ${KINDS[kind]}`, truth, painted: painted / (right - left) };
      });
    });
  });
  assert.ok(checked.length >= 6, `${checked.length} bands`);
  for (const { what, truth, painted } of checked) {
    assert.ok(Math.abs(truth - painted) < 0.02 * truth + 0.01, `${what}: ${painted} pixels high instead of ${truth}`);
  }
}

/** More than 50 lanes are folded at first, and the page scrolls, sorts and pins lanes. */
async function foldsMany() {
  const load = 'swarm --addr 127.0.0.1:45000 --clients 300 --requests 3 --think 2ms --keep-alive';
  const { page } = await open(pageOf('many', '--with', load, 'echo', '--addr', '127.0.0.1:45000'));
  const names = await page.evaluate(() => groups.list.map(({ name, isFolded, lanes }) => `${name} ${isFolded} ${lanes.length}`));
  assert.deepEqual(names, ['client true 600']);
  assert.equal(await page.evaluate(() => view.shown.length), 3, 'echo, swarm and a group');
  await shot(page, 'many');
  await page.evaluate(() => setScale('time'));
  await countsFolded(page);
  await page.locator('#lanes').focus();
  await press(page, 'f');
  assert.equal(await page.evaluate(() => view.shown.length), 603);
  assert.ok((await page.evaluate(() => page('stage').clientHeight)) > 250, 'the lanes take the room that they need');
  await scrollsByBar(page);
  await sortsAndPins(page);
}

async function countsFolded(page) {
  const lines = await page.evaluate(() => crowdLines(groups.list[0], (limits()[0] + limits()[1]) / 2));
  assert.match(lines[0], /^group client: 600 tasks$/);
  assert.match(lines[1], /^0 running, 0 ready, [\d.]+ blocked on average in this pixel$/);
}

async function scrollsByBar(page) {
  const scrolled = await page.evaluate(async () => {
    const bar = page('scroller');
    bar.scrollTop = bar.scrollHeight;
    await new Promise((done) => setTimeout(done, 50));
    return { top: view.top, most: view.shown.length * LANE + RULER - view.height, gap: canvas.clientWidth + bar.offsetWidth - page('stage').clientWidth };
  });
  assert.ok(Math.abs(scrolled.top - scrolled.most) < 2, JSON.stringify(scrolled));
  assert.equal(scrolled.gap, 0, 'the scrollbar is beside the lanes');
  const moved = await page.evaluate(async () => {
    scroll(-5000);
    draw();
    return [page('scroller').scrollTop, view.top];
  });
  assert.ok(Math.abs(moved[0] - moved[1]) < 2, 'the scrollbar follows');
}

async function sortsAndPins(page) {
  await page.locator('#order').selectOption('activity');
  await frame(page);
  const isSorted = await page.evaluate(() => {
    const its = [...view.shown].filter((lane) => lane >= 0 && groups.of[lane] === 0).map(activity);
    return its.every((one, at) => at === 0 || its[at - 1] >= one) && new Set(its).size > 1;
  });
  assert.ok(isSorted, 'the lanes are in the order of their activity');
  const first = await page.evaluate(() => {
    scroll(1e9);
    return view.shown[view.shown.length - 1];
  });
  await page.evaluate((lane) => (view.lane = lane), first);
  await page.locator('#lanes').focus();
  await press(page, 'p');
  assert.deepEqual(await page.evaluate(() => [view.pinned, view.shown[0], toY(0), view.top > 0]), [1, first, 26, true]);
  await shot(page, 'pinned');
  const box = await page.locator('#lanes').boundingBox();
  await page.mouse.click(box.x + 60, box.y + 26 + 12);
  await frame(page);
  assert.equal(await page.evaluate(() => view.pinned), 0, 'a click on the name releases it');
}

/** The arrows of messages lead from the send to the receipt of the same bytes. */
async function drawsMessages() {
  const html = pageOf('network', ...NETWORK);
  const { page } = await open(html);
  await page.evaluate(() => setScale('time'));
  const drawn = await page.evaluate(() =>
    Array.from(messages.from, (from, at) => {
      const end = (row) => [lanes.tid[rows.lane[row]], instant(rows.at.time[row])];
      return [...end(from), ...end(messages.to[at]), messages.bytes[at]].join(' ');
    }),
  );
  assert.deepEqual(drawn.sort(), sentAndReceived(join(dir, 'network.trap')).sort());
  assert.equal(drawn.length, 80, 'a request and a reply, 40 times');
  assert.ok((await paintedIn(page, 'message')) > 1000);
  await page.locator('#messages').uncheck();
  await frame(page);
  // A few pixels of other marks have the same colour.
  assert.ok((await paintedIn(page, 'message')) < 50);
  await page.locator('#messages').check();
  await page.evaluate(() => find('write 64'));
  await frame(page);
  const found = await page.locator('#table .rows .row > :nth-child(5)').first().textContent();
  assert.match(found, /^→ \d+ client@server, [\d.]+(ms|µs)$/, found);
}

/** The messages of a run, from the text of its log: the net gives ports in the order of connections. */
function sentAndReceived(tape) {
  const lines = execFileSync(trapline, ['trace', 'show', tape], { encoding: 'utf8' }).split('\n');
  const [ports, moved] = [new Map(), { read: new Map(), write: new Map() }];
  let port = 49152;
  for (const line of lines) {
    const connected = line.match(/ connect\(.*= device (\d+)$/);
    const accepted = line.match(/accept\(\d+\) .*= device (\d+) \(.*:(\d+)\)$/);
    const io = line.match(/^(\S+) +(\d+) .* device (\d+) (read|write) (\d+)$/);
    if (connected) ports.set(connected[1], port++);
    if (accepted) ports.set(accepted[1], Number(accepted[2]));
    if (io && io[5] !== '0') {
      const [, time, tid, device, way, bytes] = io;
      const its = moved[way];
      its.set(device, [...(its.get(device) ?? []), { time, tid, bytes }]);
    }
  }
  const found = [];
  for (const [device, sent] of moved.write) {
    const peer = [...ports].find(([other, its]) => other !== device && its === ports.get(device))[0];
    // Each message is received as a whole.
    sent.forEach((one, at) => {
      const other = moved.read.get(peer)[at];
      found.push([one.tid, one.time, other.tid, other.time, one.bytes].join(' '));
    });
  }
  return found;
}

/** The pixels of the lanes that are about of a colour of the page. */
const paintedIn = (page, color) =>
  page.evaluate((color) => {
    draw();
    const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true });
    copy.drawImage(canvas, 0, 0);
    const { data } = copy.getImageData(view.gutter, RULER, canvas.width - view.gutter, canvas.height - RULER);
    const wanted = [1, 3, 5].map((at) => parseInt(colors[color].slice(at, at + 2), 16));
    let number = 0;
    for (let at = 0; at < data.length; at += 4) {
      number += Math.hypot(...wanted.map((value, byte) => value - data[at + byte])) < 30;
    }
    return number;
  }, color);

/** Faults are marks across all lanes, failed calls are crosses, and a switch leaves nothing else. */
async function marksErrors() {
  const { page } = await open(pageOf('network', ...NETWORK, '--inject', 'recv:error=ConnectionReset:when=30'));
  await page.evaluate(() => setScale('time'));
  const words = await page.evaluate(() => Array.from(faults, (row) => rows.what.get(row)));
  assert.deepEqual(words, ['fault: cut server clients', 'fault: heal server clients']);
  const columns = await page.evaluate(() => {
    view.messages = false;
    draw();
    const red = toNumber(colors.error);
    const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true });
    copy.drawImage(canvas, 0, 0);
    return Array.from(faults, (row) => {
      const x = Math.round(toX(rows.at.time[row]));
      const words = new Uint32Array(copy.getImageData(x, RULER + 14, 1, view.height - RULER - 14).data.buffer);
      return words.reduce((sum, word) => sum + (word === red), 0) / words.length;
    });
  });
  for (const share of columns) assert.ok(share > 0.5, `a fault is drawn over ${share} of the height`);
  const all = await page.evaluate(() => rows.length);
  const tasks = await page.evaluate(() => view.shown.length);
  await page.locator('#errors').check();
  await frame(page);
  const left = await shownRows(page);
  assert.ok(left >= 3 && left < all / 10, `${left} rows of ${all}`);
  assert.ok((await page.evaluate(() => view.shown.length)) < tasks);
  const failed = await page.locator('#table .rows .row.error > :nth-child(5)').allTextContents();
  assert.ok(failed.some((result) => /reset/i.test(result)), failed.join());
  await shot(page, 'errors');
  await hasVisibleErrors(page);
  await page.emulateMedia({ colorScheme: 'dark' });
  await page.waitForFunction(() => colors.paper !== '#ffffff');
  await hasVisibleErrors(page);
}

/** That a cross is seen by its colour with any kind of colour vision, against what may be below it. */
async function hasVisibleErrors(page) {
  const cdp = await page.context().newCDPSession(page);
  const kinds = await page.evaluate(() => {
    for (const old of document.querySelectorAll('.patch')) old.remove();
    const patch = (color, at) => {
      const element = document.createElement('div');
      element.className = 'patch';
      element.style.cssText = `position: fixed; z-index: 9; top: 0; left: ${20 * at}px; width: 20px; height: 20px; background: ${color}`;
      document.body.append(element);
    };
    const all = [colors.error, colors.paper, ...colors.kinds.map(({ ink }) => ink)];
    all.forEach(patch);
    return all.length;
  });
  const blank = await page.context().newPage();
  for (const type of ['none', 'protanopia', 'deuteranopia', 'tritanopia']) {
    await cdp.send('Emulation.setEmulatedVisionDeficiency', { type });
    const png = await page.screenshot({ clip: { x: 0, y: 0, width: 20 * kinds, height: 20 } });
    // The page itself may load nothing.
    const seen = await blank.evaluate(async (data) => {
      const image = new Image();
      image.src = data;
      await image.decode();
      const copy = new OffscreenCanvas(image.width, image.height).getContext('2d');
      copy.drawImage(image, 0, 0);
      return Array.from({ length: image.width / 20 }, (_, at) => Array.from(copy.getImageData(20 * at + 10, 10, 1, 1).data.slice(0, 3)));
    }, `data:image/png;base64,${png.toString('base64')}`);
    const [error, ...others] = seen;
    const near = others.map((other) => Math.hypot(...other.map((value, byte) => value - error[byte])));
    assert.ok(Math.min(...near) > 60, `with ${type}, the colours are ${near.map(Math.round).join()} away`);
  }
}

// ---- why, and the critical path

const CASES = [['convoy'], ['slow-upstream'], ['stuck-server'], ['starved'], ['network', ...NETWORK]];

/** A click on a bar says what `trace why --at` says, and draws the chain. */
async function saysWhy() {
  let compared = 0;
  for (const [name, ...args] of CASES) {
    const html = pageOf(name, ...(args.length ? args : [name]));
    const { page } = await open(html);
    await page.evaluate(() => setScale('time'));
    const chosen = await page.evaluate(() => {
      const long = Array.from(bars.lane.keys()).filter((bar) => bars.to.time[bar] - bars.from.time[bar] > 2 && lanes.tid[bars.lane[bar]] > 0);
      const step = Math.max(1, Math.floor(long.length / 12));
      return long.filter((_, at) => at % step === 0).map((bar) => ({ bar, tid: lanes.tid[bars.lane[bar]], at: Math.floor((bars.from.time[bar] + bars.to.time[bar]) / 2) }));
    });
    for (const { bar, tid, at } of chosen) {
      await page.evaluate((bar) => selectBar(bar), bar);
      const args = ['trace', 'why', `${tid}`, '--at', `${at}ns`, join(dir, `${name}.trap`)];
      const said = execFileSync(trapline, args, { encoding: 'utf8' }).trim().replaceAll('\n', ' ');
      assert.equal(await text(page, '#why'), said, `${name}: ${args.join(' ')}`);
      compared++;
    }
  }
  assert.ok(compared > 30, `${compared} texts are compared`);
}

/** The chain of a wait that others explain is drawn from lane to lane. */
async function drawsChains() {
  const { page } = await open(pageOf('slow-upstream', 'slow-upstream'));
  await page.evaluate(() => setScale('time'));
  const point = await page.evaluate(() => {
    const bar = Array.from(bars.lane.keys()).find((bar) => lanes.name.get(bars.lane[bar]) === 'client' && bars.to.time[bar] - bars.from.time[bar] > 3e7);
    return { x: toX((columns().from[bar] + columns().to[bar]) / 2) + 40, y: toY(view.placeOf[bars.lane[bar]]) + 20 };
  });
  const before = await paintedIn(page, 'found');
  const box = await page.locator('#lanes').boundingBox();
  await page.mouse.click(box.x + point.x, box.y + point.y);
  await frame(page);
  assert.match(await text(page, '#why'), /^4 "client" waited 40\.06ms for bytes .* Meanwhile 2 "upstream" was asleep for 40ms\.$/);
  const chain = await page.evaluate(() => Array.from(reasons.of.get(view.bar).steps, (bar) => lanes.tid[bars.lane[bar]]));
  assert.deepEqual(chain, [4, 3]);
  await shot(page, 'why');
  assert.ok((await paintedIn(page, 'found')) > before + 100);
}

/** The critical path has the rows of `trace path`, and lies under the lanes without gaps. */
async function showsThePath() {
  for (const [name, ...args] of CASES) {
    const { page } = await open(pageOf(name, ...(args.length ? args : [name])));
    const told = execFileSync(trapline, ['trace', 'path', join(dir, `${name}.trap`)], { encoding: 'utf8' });
    const lines = told.split('\n').map((line) => line.trim());
    const first = lines.findIndex((line) => line.startsWith('critical path of'));
    const rows = lines.slice(first + 2, lines.indexOf('', first + 2)).filter((line) => !/^[─-]+/.test(line));
    await page.locator('#path').click();
    await frame(page);
    assert.equal(await page.locator('#tab-path p').textContent(), lines[first]);
    assert.ok(!(await page.locator('#tab-calls').isVisible()));
    const cells = await page.locator('#tab-path tr').evaluateAll((rows) => rows.map((row) => [...row.cells].map((cell) => cell.textContent)));
    assert.deepEqual(cells, rows.map((row) => row.split(/ {2,}/)), name);
    if (name !== 'convoy') continue;
    const gaps = await page.evaluate(() => Array.from(path.from.time).slice(1).map((from, at) => from - path.to.time[at]));
    assert.ok(gaps.every((gap) => gap === 0), gaps.join());
    assert.ok((await paintedIn(page, 'found')) > 500);
    await shot(page, 'path');
    await page.locator('#path').click();
    assert.equal(await paintedIn(page, 'found'), 0);
  }
}

// ---- a range, and an instant

/** The page has the number of the sources of a select, and the commands have the sources. */
const counted = (line) => line.replace(/the first of: (.*?)(,? since|(?= \d\d:))/, (_, all, end) => `the first of ${all.split('; ').length} sources${end}`);

const printed = (...args) => execFileSync(trapline, ['trace', ...args], { encoding: 'utf8' }).split('\n');
const cellsOf = (page, selector) =>
  page.locator(`${selector} tr`).evaluateAll((rows) => rows.map((row) => [...row.cells].map((cell) => cell.textContent)));

/** A range has the shares of each name and the latency of each call, and its slowest calls can be pressed. */
async function selectsRanges() {
  const { page } = await open(pageOf('network', ...NETWORK));
  await page.evaluate(() => setScale('time'));
  await page.locator('#lanes').focus();
  await press(page, 'r');
  const [, ...shares] = await cellsOf(page, '#tab-range table:nth-of-type(1)');
  const calls = await page.evaluate(() =>
    callsIn(view.range).map(({ name, took }) => [name, took.length, ...[50, 99, 100].map((percent) => quantile(took, percent))]),
  );
  sameAsTheLog(calls, join(dir, 'network.trap'));
  const blocked = new Map();
  for (const line of printed('summary', '--json', join(dir, 'network.trap')).filter(Boolean)) {
    const { summary, task, blocked: seconds } = JSON.parse(line);
    if (summary === 'task') blocked.set(task, (blocked.get(task) ?? 0) + Math.round(seconds * 1e6));
  }
  const summed = await page.evaluate(() => sharesIn(view.range).map(({ name, times }) => [name, Math.round(times[RESTING] / 1000)]));
  for (const [name, micros] of summed) assert.ok(Math.abs(micros - blocked.get(name)) < 10, `${name}: ${micros}, ${blocked.get(name)}`);
  assert.equal(summed.length, blocked.size);
  assert.deepEqual(shares.map(([name, tasks]) => [name, tasks]).sort(), [['client@clients', '4'], ['client@server', '4'], ['echo@server', '1'], ['faults', '1'], ['swarm@clients', '1']]);
  const echo = shares.find(([name]) => name === 'echo@server');
  assert.deepEqual(echo.slice(2), ['0 % 0', '0 % 0', '0 % 0', '100 % 181.976ms']);
  const bars = await page.locator('#tab-range .bars').allTextContents();
  assert.match(bars[0], /█/);
  await shot(page, 'range');
  await page.locator('#tab-range table:last-of-type tbody tr').first().click();
  await frame(page);
  const most = await page.evaluate(() => [rows.took.time[view.row], rows.took.time.reduce((most, took) => Math.max(most, took), 0)]);
  assert.equal(most[0], most[1], 'the first of the slowest calls is the longest');
  await selectsPart(page);
}

/** Where the clock never moves, the length of a call is its number of turns. */
async function measuresTurns() {
  const { page } = await open(pageOf('wait', 'wait'));
  assert.equal(await page.evaluate(() => run.limits.time[1]), 0);
  await page.locator('#lanes').focus();
  await press(page, 'r');
  const [, ...calls] = await cellsOf(page, '#tab-range table:nth-of-type(2)');
  const waits = calls.filter(([, , , , , , most]) => most !== '0 turns');
  assert.ok(waits.length > 0, JSON.stringify(calls));
  for (const [name, , , ...spans] of waits) {
    const numbers = spans.slice(0, 4).map((text) => Number(text.match(/^(\d+) turns?$/)[1]));
    assert.deepEqual(numbers, [...numbers].sort((a, b) => a - b), name);
    assert.match(spans[4], /█/);
  }
}

/** A task that the recording has only rows of: its rows select no bar of another lane. */
async function selectsRowsWithoutBars() {
  const { page } = await open(pageOf('missing', '--record-last', '4', 'countdown'));
  const selections = await page.evaluate(() => {
    const selected = () => [view.bar, view.lane, page('details').textContent];
    selectRow(Array.from(rows.lane).findIndex((lane) => lanes.first[lane] === lanes.first[lane + 1]));
    const pressed = selected();
    select(-1);
    find('spawned');
    goToMatch(1);
    return [pressed, selected()];
  });
  for (const selection of selections) assert.deepEqual(selection, [-1, 0, 'task 2 down · spawned by 1']);
}

/** The same numbers, computed from the lines of the log. */
function sameAsTheLog(calls, tape) {
  const lines = printed('export', '--format', 'csv', tape).slice(1);
  const [open, took] = [new Map(), new Map()];
  for (const line of lines) {
    const [seconds, tid, , event, call] = line.split(',');
    const nanos = Math.round(Number(seconds) * 1e9);
    if (event === 'trapped') open.set(tid, [call.split('(')[0].replace('"', ''), nanos]);
    if (event !== 'replied' || !open.has(tid)) continue;
    const [name, since] = open.get(tid);
    open.delete(tid);
    took.set(name, [...(took.get(name) ?? []), nanos - since]);
  }
  const rank = (sorted, percent) => sorted[Math.ceil((sorted.length * percent) / 100) - 1];
  const expected = Array.from(took, ([name, its]) => {
    its.sort((a, b) => a - b);
    return [name, its.length, ...[50, 99, 100].map((percent) => rank(its, percent))];
  });
  // The page says `next` of a get whose object is a group.
  const named = calls.map(([name, ...numbers]) => [name === 'next' ? 'get' : name, ...numbers]);
  assert.deepEqual(named.map(String).sort(), expected.map(String).sort());
}

/** A drag with Shift over the lanes selects that part; its shares add up. */
async function selectsPart(page) {
  const box = await page.locator('#lanes').boundingBox();
  const [x, end] = await page.evaluate(() => [toX(2e7), toX(4e7)]);
  await page.keyboard.down('Shift');
  await page.mouse.move(box.x + x, box.y + 100);
  await page.mouse.down();
  await page.mouse.move(box.x + end, box.y + 100, { steps: 4 });
  await page.mouse.up();
  await page.keyboard.up('Shift');
  await frame(page);
  const { range, sums } = await page.evaluate(() => ({
    range: view.range,
    sums: sharesIn(view.range).map(({ times, tasks }) => times.reduce((sum, time) => sum + time, 0) / tasks),
  }));
  assert.ok(Math.abs(range.begin - 2e7) < 3e5 && Math.abs(range.end - 4e7) < 3e5, JSON.stringify(range));
  const whole = sums.filter((sum) => Math.abs(sum - (range.end - range.begin)) < 1);
  assert.ok(whole.length >= 3, `tasks that lived all along: ${sums.join()}`);
}

/** An instant has the table of `trace ps`, the lines of `trace tree`, and the waits of `trace waits`. */
async function showsInstants() {
  let compared = 0;
  for (const [name, ...args] of [...CASES, ['deadlock'], ['crowd', 'sleepers', '--count', '40']]) {
    const { page } = await open(pageOf(name, ...(args.length ? args : [name])));
    await page.evaluate(() => setScale('time'));
    const last = await page.evaluate(() => limits()[1]);
    for (const share of [0, 0.1, 0.35, 0.62, 0.9]) {
      const at = Math.floor(last * share);
      await page.evaluate((at) => showInstant(at), at);
      assert.equal(await page.evaluate(() => view.at), at);
      const tape = join(dir, `${name}.trap`);
      const [titles, ...ps] = printed('ps', '--at', `${at}ns`, tape).filter(Boolean);
      const cells = (await cellsOf(page, '#ps')).map((row) => row.join(' ').replaceAll(/ +/g, ' ').trim());
      // Without a task the command prints no table.
      assert.deepEqual(titles ? cells : cells.slice(1), [titles, ...ps].filter(Boolean).map((line) => counted(line.replaceAll(/ +/g, ' ').trim())), `${name} at ${at} ns`);
      assert.equal(await text(page, '#tree'), printed('tree', '--at', `${at}ns`, tape).map(counted).join('\n').trimEnd(), `${name} at ${at} ns`);
      const waits = printed('waits', '--at', `${at}ns`, tape);
      const [, ...waiting] = await cellsOf(page, '#waits');
      const told = waits.filter((line) => /^  tid /.test(line)).map((line) => [line.match(/tid (\d+)/)[1], line.match(/held by task (\d+)/)?.[1]]);
      const holders = waiting.map(([tid, , on]) => [tid, on.match(/held by task (\d+)/)?.[1]]);
      assert.deepEqual(holders, told, `${name} at ${at} ns`);
      const cycles = await page.locator('.cycle').allTextContents();
      assert.deepEqual(cycles, waits.filter((line) => line.startsWith('  cycle')).map((line) => line.trim()));
      compared += ps.length;
    }
    await shot(page, `instant-${name}`);
  }
  assert.ok(compared > 60, `${compared} tasks are compared`);
}

/** The keys , and . step from event to event; the slider moves the instant. */
async function stepsThroughEvents() {
  const { page } = await open(pageOf('convoy', 'convoy'));
  await page.locator('#lanes').focus();
  await press(page, '0', 'i');
  await page.evaluate(() => showInstant(limits()[0]));
  const ticks = [];
  for (let step = 0; step < 5; step++) {
    await press(page, '.');
    ticks.push(await page.evaluate(() => view.at));
  }
  assert.deepEqual(ticks, [1, 2, 3, 4, 5], 'each turn');
  await press(page, ',', ',');
  assert.equal(await page.evaluate(() => view.at), 3);
  await page.locator('#instant').fill('5000');
  await frame(page);
  const [at, middle] = await page.evaluate(() => [view.at, Math.floor((limits()[0] + limits()[1]) / 2)]);
  assert.equal(at, middle);
  await page.evaluate(() => setScale('time'));
  await page.evaluate(() => showInstant(0));
  await press(page, '.');
  assert.equal(await page.evaluate(() => view.at), 5e6, 'the first sleep is over');
}

// ---- looks

/** A selection is around a bar's label, and does not cut it. */
async function keepsLabels() {
  const { page } = await open(pageOf('convoy', 'convoy'));
  const same = await page.evaluate(() => {
    view.arrows = view.messages = false;
    const ink = (bar) => {
      draw();
      const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true });
      copy.drawImage(canvas, 0, 0);
      const y = toY(view.placeOf[bars.lane[bar]]);
      return copy.getImageData(Math.ceil(toX(columns().from[bar])) + 3, y + 4, 24, 10).data.join();
    };
    const labelled = Array.from(bars.lane.keys()).filter((bar) => bars.doing[bar] > RESTING && toX(columns().to[bar]) - toX(columns().from[bar]) > 80);
    return labelled.map((bar) => {
      select(-1);
      const before = ink(bar);
      select(bar);
      return new Set(before.split(',')).size > 4 && ink(bar) === before;
    });
  });
  assert.ok(same.length > 5 && same.every(Boolean), same.join());
}

/** The lines of the source around the call of a selected span, of which that of the call is marked. */
async function showsSource() {
  const { page } = await open(pageOf('deadlock', 'deadlock'));
  assert.ok(!(await page.locator('#source').isVisible()));
  const place = await page.evaluate(() => {
    const bar = Array.from(bars.lane.keys()).findLast((bar) => bars.doing[bar] > RESTING && bars.row[bar] >= 0 && call(bars.row[bar]).startsWith('lock('));
    selectBar(bar);
    return rows.places.get(bars.row[bar]).match(/[^ ,]+\.rs:\d+/)[0];
  });
  await frame(page);
  const [file, line] = place.split(':');
  const source = readFileSync(file, 'utf8').split('\n');
  assert.equal(await text(page, '#source mark'), `${line.padStart(5)}  ${source[line - 1]}\n`);
  const lines = await page.locator('#source').evaluate((pre) => pre.textContent.split('\n'));
  assert.equal(lines.length, 11, 'the place, and four lines on each side');
  await shot(page, 'source');
  await page.evaluate(() => select(-1));
  assert.ok(!(await page.locator('#source').isVisible()));
}

/** The flame graph has the sums of what is in view, and zooms. */
async function drawsFlames() {
  const { page } = await open(pageOf('convoy', 'convoy'));
  await page.evaluate(() => setScale('time'));
  await page.locator('#show-flame').click();
  await page.locator('#tab-flame .frame').first().waitFor();
  const titles = () => page.locator('#tab-flame .frame > button').evaluateAll((all) => all.map((one) => one.title));
  // The sums of the flame graph that the command writes, in nanoseconds.
  const folded = printed('export', '--format', 'folded', join(dir, 'convoy.trap')).filter(Boolean);
  const asleep = folded.filter((line) => /^worker-\d;blocked;sleep;/.test(line)).reduce((sum, line) => sum + Number(line.split(' ').pop()), 0);
  const shown = (await titles()).find((title) => title.startsWith('all › worker-# › blocked › sleep:'));
  assert.equal(shown.split(': ')[1].split(',')[0], `${asleep / 1e6}ms`, (await titles()).join('\n'));
  const wide = await page.locator('#tab-flame .frame > button', { hasText: 'sleep' }).first().boundingBox();
  const all = await page.locator('#tab-flame .frame > button').first().boundingBox();
  const share = Number(shown.match(/([\d.]+) %/)[1]) / 100;
  assert.ok(Math.abs(wide.width / all.width - share) < 0.02, 'width is time');
  await shot(page, 'flame');
  await page.locator('#tab-flame .frame > button', { hasText: 'worker-#' }).first().click();
  assert.match((await titles())[0], /^all › worker-#: .*100\.0 %$/);
  await page.locator('#tab-flame .back').first().click();
  assert.match((await titles())[0], /^all: /);
  await page.evaluate(() => show(0, 1e6));
  await page.waitForFunction((before) => document.querySelector('#tab-flame .frame > button')?.title !== before, (await titles())[0]);
}

/** The page of a laboratory has a dark theme, and fits a narrow window with all of its numbers. */
async function fitsLaboratories() {
  const html = join(dir, 'lab.html');
  execFileSync(trapline, ['lab', '--html', html, 'jobs'], { stdio: 'ignore' });
  const colours = [];
  for (const scheme of ['light', 'dark']) {
    const { page } = await open(html, { scheme, width: 400, height: 800 });
    colours.push(await page.evaluate(() => [document.body, document.querySelector('svg text')].map((one, at) => getComputedStyle(one)[at ? 'fill' : 'backgroundColor'])));
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 400);
    const wide = await page.evaluate(() => [...document.querySelectorAll('table, td')].filter((one) => one.getBoundingClientRect().right > 400).length);
    assert.equal(wide, 0, 'no cell is outside of the window');
    const named = await page.locator('td[data-name=fairness]').first().evaluate((cell) => getComputedStyle(cell, '::before').content);
    assert.equal(named, '"fairness"');
    await shot(page, `lab-${scheme}`);
  }
  const [[paper, ink], [dark, light]] = colours;
  assert.notEqual(paper, dark);
  assert.notEqual(ink, light, 'the charts are read on both');
}

/** Speedscope opens a trace of Chrome's format and complains about nothing. */
async function opensInSpeedscope() {
  const app = join('node_modules', 'speedscope', 'dist', 'release', 'index.html');
  if (!existsSync(app)) return log('SKIPPED: speedscope is not installed');
  for (const [name, ...program] of [['network', ...NETWORK], ['convoy', 'convoy'], ['producers', 'producer-consumer']]) {
    pageOf(name, ...program);
    for (const clock of [[], ['--turns']]) {
      const json = join(dir, `${name}.json`);
      writeFileSync(json, execFileSync(trapline, ['trace', 'export', '--format', 'chrome', ...clock, join(dir, `${name}.trap`)]));
      const page = await browser.newPage();
      const told = [];
      page.on('console', (message) => ['warning', 'error'].includes(message.type()) && told.push(message.text()));
      page.on('pageerror', (error) => told.push(error.stack));
      page.on('dialog', (dialog) => (told.push(dialog.message()), dialog.dismiss()));
      await page.goto(pathToFileURL(app).href);
      await page.locator('input[type=file]').first().setInputFiles(json);
      await page.waitForFunction(() => /Time Order/.test(document.body.innerText));
      // What the browser says of a page that comes from a file.
      assert.deepEqual(told.filter((text) => !/file:|Access to|ERR_FAILED|WebGL/.test(text)), [], name);
      await page.close();
    }
  }
}

/** At 400 pixels nothing but tables is wider than the page. */
async function fitsNarrowPages() {
  const { page } = await open(pageOf('network', ...NETWORK), { width: 400, height: 800 });
  const wide = () => page.evaluate(() => document.documentElement.scrollWidth);
  assert.equal(await wide(), 400);
  for (const tab of ['range', 'instant', 'path', 'flame', 'calls']) {
    await page.locator(`#show-${tab}`).click();
    if (tab === 'range') await page.locator('#tab-range button').click();
    await frame(page);
    assert.equal(await wide(), 400, tab);
  }
  await page.locator('#lanes').scrollIntoViewIfNeeded();
  const box = await page.locator('#lanes').boundingBox();
  for (const x of [box.width - 5, box.width / 2 + 60]) {
    await page.mouse.move(box.x + x, box.y + 26 + 20);
    await frame(page);
    const tip = await page.locator('#tip').boundingBox();
    assert.ok(tip && tip.x >= 0 && tip.x + tip.width <= 400, JSON.stringify(tip));
  }
  await page.evaluate(() => page('keys').showModal());
  const cut = await page.evaluate(() => [...document.querySelectorAll('#keys, #keys *')].filter((one) => one.getBoundingClientRect().right > 400 || one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 0).map((one) => one.textContent));
  assert.deepEqual(cut, []);
  await shot(page, 'narrow');
}

/** The summary is open when a task failed, and closed when all went well. */
async function opensFailures() {
  const { page: failed } = await open(pageOf('failed', ...NETWORK, '--inject', 'recv:error=ConnectionReset:when=30'));
  assert.ok(await failed.evaluate(() => page('summary').open));
  assert.match(await text(failed, '#summary'), /\d failed/);
  const { page: well } = await open(pageOf('network', ...NETWORK));
  assert.ok(!(await well.evaluate(() => page('summary').open)));
}

/** A recording by hand, whose task has a name that would do harm. */
async function isSafe() {
  const name = '</script><script>window.harm = 1</script><img src=x onerror="window.harm = 2">\u202e&"\'\u0001';
  const records = [0x40, 1, 0, ...textOf(name), 1, 7, ...textOf(name), 2, 1, 3, 0, 12];
  const { page } = await open(pageOfRecords('hostile', records, { word: name }));
  assert.equal(await page.evaluate(() => window.harm), undefined, 'a name is no script');
  assert.equal(await page.locator('img').count(), 0);
  const cell = await page.locator('#table .rows .row > :nth-child(3)').first().textContent();
  assert.ok(cell.includes('<script>window.harm = 1</script>'), cell);
  await page.locator('#lanes').focus();
  await press(page, 'Home');
  assert.equal(await page.evaluate(() => window.harm), undefined);
}

/** A million events: how long the page takes to load, to draw, and to search. */
async function isQuick() {
  const load = ['producer-consumer', '--count', '60000', '--producers', '5', '--consumers', '3', '--capacity', '8'];
  const html = pageOf('million', '--with', 'sleepers', '--with', 'multitask --foo 20000 --bar 30000', ...load);
  const { page, took } = await open(html);
  const events = await page.evaluate(() => facts.events);
  assert.ok(events > 1e6, `${events} events`);
  log(`${events} events: ${(statSync(html).size / 1e6).toFixed(1)} MB, shown after ${took.toFixed(0)} ms`);
  await shot(page, 'million');
  for (const [share, what] of [[1, 'all'], [0.2, 'a fifth'], [0.001, 'a thousandth'], [0.0001, 'a ten-thousandth']]) {
    for (const scale of ['turns', 'time']) log(`  ${scale}, ${what} in view: ${await frames(page, scale, share)}`);
  }
  await seesInstants(page);
  for (const query of ['consumer', 'sleep(', 'message 1234']) {
    const [found, ms] = await page.evaluate((query) => {
      const begin = performance.now();
      find(query);
      return [search.found.length, performance.now() - begin];
    }, query);
    log(`  search for ${query}: ${found} found in ${ms.toFixed(0)} ms`);
    assert.ok(found > 0);
  }
  await findsNumbers(page);
  await keepsFilter(page);
  await page.evaluate(() => {
    setScale('turns');
    const [first, last] = limits();
    show(first + (last - first) * 0.5, first + (last - first) * 0.5004);
    find('get(queue 1)');
  });
  await shot(page, 'million-near');
  await page.locator('#table').evaluate((table) => (table.scrollTop = 1e9));
  await frame(page);
  const last = await page.locator('#table .rows .row').last().getAttribute('aria-rowindex');
  assert.equal(Number(last), (await shownRows(page)) + 1, 'the table can be scrolled to its end');
}

/** That a task which took no time at all is seen where the width is time. */
async function seesInstants(page) {
  const lane = await page.evaluate(() => {
    setScale('time');
    show(...limits());
    const lane = Array.from({ length: lanes.length }, (_, lane) => lane).find((lane) => lanes.name.get(lane) === 'multitask');
    revealLane(lane);
    draw();
    return lane;
  });
  await shot(page, 'million-time');
  assert.ok((await painted(page, lane)) > 0, 'multitask is seen, though all of it is at one instant');
}

/** That a search finds what its words and numbers are in, wherever in them it begins. */
async function findsNumbers(page) {
  for (const query of ['message 1234', 'sage 12', '123', '34', ') = ', 'get(queue 1', 'consumer']) {
    const [found, expected] = await page.evaluate((query) => {
      find(query);
      const texts = (row) => [task(rows.lane[row]), rows.what.get(row), rows.isAnswered[row] ? rows.result.get(row) : ''];
      const some = Array.from({ length: 20000 }, (_, at) => Math.floor((at * rows.length) / 20000));
      const expected = some.filter((row) => texts(row).some((text) => text.toLowerCase().includes(query)));
      return [some.filter((row) => search.found[lowerBound(search.found, row, 0, search.found.length)] === row), expected];
    }, query);
    assert.deepEqual(found, expected, query);
  }
}

/** That what is searched for in one lane is not searched for again each time something is drawn. */
async function keepsFilter(page) {
  const [matches, isKept] = await page.evaluate(() => {
    find('consumer');
    list.mine = true;
    choose();
    const known = list.of;
    pan(1);
    choose();
    const isKept = list.of === known;
    list.mine = false;
    find('');
    return [known.length, isKept];
  });
  assert.ok(matches > 0 && isKept);
}

/** The time to draw while panning: the middle of 60, and the third longest. */
const frames = (page, scale, share) =>
  page.evaluate(
    async ([scale, share]) => {
      setScale(scale);
      const [first, last] = limits();
      const begin = first + (last - first) * (0.45 - share * 0.45);
      show(begin, begin + (last - first) * share);
      const times = [];
      for (let at = 0; at < 60; at++) {
        pan(at < 30 ? 15 : -15);
        const start = performance.now();
        draw();
        times.push(performance.now() - start);
        await new Promise(requestAnimationFrame);
      }
      times.sort((a, b) => a - b);
      return `drawn in ${times[30].toFixed(1)} ms, at most ${times[57].toFixed(1)} ms`;
    },
    [scale, share],
  );

// ---- all of it

// With --quick, without the tests that measure long or real runs.
const SLOW = ['isQuick', 'paintsTime', 'hasOneEncoding'];
const wanted = process.argv.slice(3).filter((word) => word !== '--quick');
const isShort = process.argv.includes('--quick');
const isWanted = (test) => (wanted.length === 0 || wanted.includes(test.name)) && !(isShort && SLOW.includes(test.name));

const html = pageOf('producers', 'producer-consumer');
const onOnePage = [draws, zooms, hovers, searches, hasKeys, hasScales, hasAGrip].filter(isWanted);
if (onOnePage.length > 0) {
  const { page } = await open(html);
  for (const test of onOnePage) {
    await test(page);
    log('ok', test.name);
  }
  await shot(page, 'producers');
}
for (const test of [hasThemes, hasTouch].filter(isWanted)) {
  await test(html);
  log('ok', test.name);
}
const network = [groupsByHost, foldsMany, drawsMessages, marksErrors, marksSelects];
const causes = [saysWhy, drawsChains, showsThePath];
const parts = [selectsRanges, measuresTurns, selectsRowsWithoutBars, showsInstants, stepsThroughEvents];
const looks = [keepsLabels, fitsNarrowPages, opensFailures, showsSource, drawsFlames, fitsLaboratories, opensInSpeedscope];
for (const test of [...network, ...causes, ...parts, ...looks, hasOneEncoding, paintsTime, showsTheKernel, showsDeadlocks, isSafe, isQuick].filter(isWanted)) {
  await test();
  log('ok', test.name);
}
await browser.close();
if (process.argv[2]) log(`screenshots are in ${shots}`);

'use strict';
// The recording in the format of `pack.rs`: everything is a varint.

const KINDS = ['running', 'ready', 'call', 'rest', 'timer', 'queue', 'device', 'exit', 'select'];
const RUNNING = 0;
const READY = 1;
const CALLING = 2;
const RESTING = 3;
const NEXT = 0;
const WOKEN = 1;
const ENDED = 2;
const CALL = 0;
const FAULT = 6;
const DEADLOCKED = 7;
const SCALES = ['time', 'turns'];

/** Texts, each as the number of its template and the number to insert. */
class Texts {
  constructor(templates, length) {
    this.templates = templates;
    this.template = new Int32Array(length);
    this.number = new Float64Array(length);
  }

  get(at) {
    return fill(this.templates[this.template[at]], this.number[at]);
  }
}

/** A template, split at the place of its number: `before`, the digits, `after`. */
function split(template) {
  const at = template.indexOf('\u0001');
  if (at < 0) return { before: template, digits: 0, after: '' };
  const digits = template.charCodeAt(at + 1) - 48;
  return { before: template.slice(0, at), digits, after: template.slice(at + 2) };
}

function fill({ before, digits, after }, number) {
  return digits ? before + String(number).padStart(digits, '0') + after : before;
}

/** Columns of moments: in nanoseconds since boot, and in turns. */
function moments(length) {
  return { time: new Float64Array(length), turns: new Float64Array(length) };
}

class Unpacker {
  constructor(data, templates) {
    const raw = atob(data);
    this.bytes = new Uint8Array(raw.length);
    for (let at = 0; at < raw.length; at++) this.bytes[at] = raw.charCodeAt(at);
    this.at = 0;
    this.templates = templates;
  }

  number() {
    let byte = this.bytes[this.at++];
    let number = byte & 127;
    for (let unit = 128; byte > 127; unit *= 128) {
      byte = this.bytes[this.at++];
      number += (byte & 127) * unit;
    }
    return number;
  }

  moment(columns, at, time, turns) {
    columns.time[at] = time + this.number();
    columns.turns[at] = turns + this.number();
  }

  text(texts, at) {
    const template = this.number();
    texts.template[at] = template;
    if (this.templates[template].digits) texts.number[at] = this.number();
  }
}

function unpack(facts) {
  const templates = facts.templates.map(split);
  const input = new Unpacker(facts.data, templates);
  const limits = moments(2);
  input.moment(limits, 0, 0, 0);
  input.moment(limits, 1, limits.time[0], limits.turns[0]);
  const idle = unpackIdle(input, limits);
  const rows = unpackRows(input, limits);
  const { lanes, bars } = unpackLanes(input, limits);
  const messages = unpackMessages(input);
  const reasons = unpackReasons(input);
  const path = unpackPath(input, limits);
  const words = unpackWords(input);
  const takes = unpackTakes(input, limits);
  return { templates, limits, idle, rows, lanes, bars, messages, reasons, path, words, takes };
}

function unpackIdle(input, limits) {
  const length = input.number();
  const idle = { length, from: moments(length), to: moments(length) };
  let [time, turns] = [limits.time[0], limits.turns[0]];
  for (let at = 0; at < length; at++) {
    input.moment(idle.from, at, time, turns);
    input.moment(idle.to, at, idle.from.time[at], idle.from.turns[at]);
    time = idle.to.time[at];
    turns = idle.to.turns[at];
  }
  return idle;
}

/** The rows of the table: calls with their answers, and changes of state. */
function unpackRows(input, limits) {
  const length = input.number();
  const rows = {
    length,
    kind: new Uint8Array(length),
    lane: new Int32Array(length),
    at: moments(length),
    what: new Texts(input.templates, length),
    isAnswered: new Uint8Array(length),
    result: new Texts(input.templates, length),
    took: moments(length),
    isPlaced: new Uint8Array(length),
    isError: new Uint8Array(length),
    places: new Texts(input.templates, length),
  };
  let lane = 0;
  let [time, turns] = [limits.time[0], limits.turns[0]];
  for (let at = 0; at < length; at++) {
    const flags = input.number();
    if (!(flags & 32)) lane = input.number();
    rows.kind[at] = flags & 15;
    rows.isError[at] = (flags >> 7) & 1;
    rows.lane[at] = lane;
    input.moment(rows.at, at, time, turns);
    time = rows.at.time[at];
    turns = rows.at.turns[at];
    input.text(rows.what, at);
    if (flags & 16) {
      rows.isAnswered[at] = 1;
      input.text(rows.result, at);
      input.moment(rows.took, at, 0, 0);
    }
    if (flags & 64) {
      rows.isPlaced[at] = 1;
      input.text(rows.places, at);
    }
  }
  return rows;
}

function unpackLanes(input, limits) {
  const length = input.number();
  const total = input.number();
  const lanes = {
    length,
    tid: new Float64Array(length),
    name: new Texts(input.templates, length),
    parent: new Float64Array(length),
    traps: new Float64Array(length),
    exit: new Texts(input.templates, length),
    // The index of each lane's first bar; the last entry is the end of the last lane.
    first: new Int32Array(length + 1),
    place: new Map(),
  };
  const bars = {
    length: total,
    lane: new Int32Array(total),
    doing: new Uint8Array(total),
    end: new Uint8Array(total),
    isTimed: new Uint8Array(total),
    from: moments(total),
    to: moments(total),
    row: new Int32Array(total),
    on: new Texts(input.templates, total),
    by: new Texts(input.templates, total),
    waker: new Float64Array(total),
  };
  for (let lane = 0, bar = 0; lane < length; lane++) {
    lanes.tid[lane] = input.number();
    lanes.place.set(lanes.tid[lane], lane);
    input.text(lanes.name, lane);
    lanes.parent[lane] = input.number();
    lanes.traps[lane] = input.number();
    input.text(lanes.exit, lane);
    bar = unpackBars(input, limits, lane, bar, bars);
    lanes.first[lane + 1] = bar;
  }
  return { lanes, bars };
}

function unpackBars(input, limits, lane, bar, bars) {
  let [time, turns] = [limits.time[0], limits.turns[0]];
  let row = 0;
  for (const last = input.number() + bar; bar < last; bar++) {
    const flags = input.number();
    bars.lane[bar] = lane;
    bars.doing[bar] = (flags & 7) | ((flags >> 5) & 8);
    bars.end[bar] = (flags >> 3) & 3;
    bars.isTimed[bar] = (flags >> 7) & 1;
    if (flags & 32) {
      time += input.number();
      turns += input.number();
    }
    bars.from.time[bar] = time;
    bars.from.turns[bar] = turns;
    input.moment(bars.to, bar, time, turns);
    time = bars.to.time[bar];
    turns = bars.to.turns[bar];
    if (flags & 64) row += input.number();
    bars.row[bar] = row - 1;
    if (bars.doing[bar] > RESTING) input.text(bars.on, bar);
    if (bars.end[bar] === WOKEN) {
      input.text(bars.by, bar);
      bars.waker[bar] = input.number();
    }
  }
  return bar;
}

/** The bytes that went from the row of one transfer to that of another, in order of the first. */
function unpackMessages(input) {
  const length = input.number();
  const messages = { length, from: new Int32Array(length), to: new Int32Array(length), bytes: new Float64Array(length) };
  let from = 0;
  for (let at = 0; at < length; at++) {
    messages.from[at] = from += input.number();
    messages.to[at] = from + input.number();
    messages.bytes[at] = input.number();
  }
  return messages;
}

/** Why bars are there, by bar: where its sentences begin and end, and the bars that they are about. */
function unpackReasons(input) {
  const [length, total] = [input.number(), input.number()];
  const reasons = { of: new Map(), sentences: new Texts(input.templates, total) };
  let [bar, at] = [0, 0];
  for (let index = 0; index < length; index++) {
    bar += input.number();
    const first = at;
    for (const last = at + input.number(); at < last; at++) input.text(reasons.sentences, at);
    const steps = Int32Array.from({ length: input.number() }, () => input.number());
    reasons.of.set(bar, { first, last: at, steps });
  }
  return reasons;
}

/** The parts of the critical path, in order. */
function unpackPath(input, limits) {
  const length = input.number();
  const path = { length, lane: new Int32Array(length), from: moments(length), to: moments(length), what: new Texts(input.templates, length) };
  let [time, turns] = [limits.time[0], limits.turns[0]];
  for (let at = 0; at < length; at++) {
    path.lane[at] = input.number();
    input.moment(path.from, at, time, turns);
    [time, turns] = [path.from.time[at], path.from.turns[at]];
    input.moment(path.to, at, time, turns);
    input.text(path.what, at);
  }
  return path;
}

/** What tasks are blocked on, and the words of `trace ps` for it. */
function unpackWords(input) {
  const length = input.number();
  const texts = new Texts(input.templates, 2 * length);
  for (let at = 0; at < 2 * length; at++) input.text(texts, at);
  return Array.from({ length }, (_, at) => [texts.get(2 * at), texts.get(2 * at + 1)]);
}

/** For each queue, by its number: which task got a message from it, and when. */
function unpackTakes(input, limits) {
  const takes = new Map();
  for (let queues = input.number(); queues > 0; queues--) {
    const [queue, length] = [input.number(), input.number()];
    const its = { length, at: moments(length), tid: new Float64Array(length) };
    let [time, turns] = [limits.time[0], limits.turns[0]];
    for (let at = 0; at < length; at++) {
      input.moment(its.at, at, time, turns);
      [time, turns] = [its.at.time[at], its.at.turns[at]];
      its.tid[at] = input.number();
    }
    takes.set(queue, its);
  }
  return takes;
}

/** The first place from `low` up to `high` whose value is at least `value`; `high` if there is
 * none. */
function lowerBound(values, value, low, high) {
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (values[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The same, for a value above `value`. */
function upperBound(values, value, low, high) {
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (values[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}

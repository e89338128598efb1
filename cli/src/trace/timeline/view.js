// The state of the view: the visible part, the selection; and the texts.

const GUTTER_MOST = 220;
const RULER = 26;
const LANE = 28;
/** A height that is within the limit of every browser. */
const TALLEST = 8e6;

const page = (id) => document.getElementById(id);
const facts = JSON.parse(page('recording').textContent);
const run = unpack(facts);
const { lanes, bars, rows, idle, messages } = run;

const view = {
  scale: facts.scale,
  // The visible part of the run, in the unit of the scale.
  begin: 0,
  end: 1,
  // The scroll position of the lanes.
  top: 0,
  width: 0,
  height: 0,
  gutter: 80,
  // The visible lanes, and the place of each among them. A group is the complement of its index.
  shown: new Int32Array(0),
  placeOf: new Int32Array(lanes.length).fill(-1),
  // A bar and its row; -1 is none.
  bar: -1,
  row: -1,
  // The lane that has the keyboard focus.
  lane: 0,
  // The group that has it instead, or -1.
  group: -1,
  // The lanes that do not scroll, and how many of those are shown.
  pins: new Set(),
  pinned: 0,
  order: 'number',
  // The highlighted kind of bars, if any.
  kind: -1,
  arrows: true,
  messages: true,
  onlyErrors: false,
  // The selected part of the run, on the present scale, if any.
  range: null,
  // The instant that is looked at, on the present scale, if any.
  at: null,
  // Whether the critical path is drawn.
  path: false,
  onlyPresent: false,
};

/** For each scale, its derived data, computed once. */
const derived = {};

function limits() {
  const values = (facts.axis ?? run.limits)[view.scale];
  // A run of zero length still has a width.
  return [values[0], Math.max(values[1], values[0] + 1)];
}

/** The bars on the present scale, with prefix sums for the time in each state. */
function columns() {
  return (derived[view.scale] ??= derive(bars.from[view.scale], bars.to[view.scale]));
}

function derive(from, to) {
  const sums = Array.from({ length: STATES }, () => new Float64Array(bars.length + 1));
  for (let bar = 0; bar < bars.length; bar++) {
    for (const sum of sums) sum[bar + 1] = sum[bar];
    sums[stateOf(bar)][bar + 1] += to[bar] - from[bar];
  }
  return { from, to, sums, wakes: null, deliveries: null, overview: null };
}

/** The number of states: running, ready, in call, blocked. */
const STATES = 4;

/** The state of a bar. What it is blocked on makes no difference, and idle is the kernel's block. */
const stateOf = (bar) => Math.min(bars.doing[bar], RESTING);

/** The number of a task in its kernel is below this. Above it is the number of the kernel, if there are several. */
const OWN = 2 ** 42;
const kernelOf = (lane) => Math.floor(lanes.tid[lane] / OWN);
const isKernel = (lane) => lanes.tid[lane] % OWN === 0;
/** The number of a task in words, such as 2:17 for task 17 of kernel 2. */
const numbered = (tid) => (tid < OWN ? `${tid}` : `${Math.floor(tid / OWN)}:${tid % OWN}`);
const cellOf = (tid) => (tid < OWN ? tid : numbered(tid));

const unitsPerPixel = () => (view.end - view.begin) / Math.max(1, view.width - view.gutter);
const toX = (value) => view.gutter + (value - view.begin) / unitsPerPixel();
const toValue = (x) => view.begin + (x - view.gutter) * unitsPerPixel();
const toY = (place) => RULER + place * LANE - (place < view.pinned ? 0 : view.top);

/** Shows a part of the run, clamped to the run. */
function show(begin, end) {
  const [first, last] = limits();
  const least = view.scale === 'time' ? 20 : 4;
  const span = Math.min(Math.max(end - begin, Math.min(least, last - first)), last - first);
  const middle = (begin + end) / 2;
  view.begin = Math.min(Math.max(middle - span / 2, first), last - span);
  view.end = view.begin + span;
  if (view.onlyPresent || isSortedNow()) chooseLanes();
  changed();
}

/** Zooms; the value at `x` stays in place. */
function zoom(factor, x = (view.gutter + view.width) / 2) {
  const value = toValue(Math.max(x, view.gutter));
  show(value - (value - view.begin) * factor, value + (view.end - value) * factor);
}

function pan(pixels) {
  const units = pixels * unitsPerPixel();
  show(view.begin + units, view.end + units);
}

function scroll(pixels) {
  const most = Math.max(0, view.shown.length * LANE + RULER - view.height);
  const top = Math.min(Math.max(view.top + pixels, 0), most);
  if (top === view.top) return false;
  view.top = top;
  changed();
  return true;
}

/** The scrollbar beside the lanes. */
const scroller = page('scroller');

/** The height of what scrolls and of its part in view. A scrollbar has the limit of a table. */
function scrollRange() {
  const most = Math.max(0, view.shown.length * LANE + RULER - view.height);
  return { most, tall: Math.min(most, TALLEST) };
}

function moveScroller() {
  const { most, tall } = scrollRange();
  scroller.firstElementChild.style.height = `${scroller.clientHeight + tall}px`;
  const top = Math.round(most ? (view.top / most) * tall : 0);
  if (Math.abs(scroller.scrollTop - top) >= 1) scroller.scrollTop = top;
}

scroller.addEventListener('scroll', () => {
  const { most, tall } = scrollRange();
  const top = tall ? (scroller.scrollTop / tall) * most : 0;
  // What the script has set itself is as near as a pixel of the bar.
  if (Math.abs(top - view.top) > most / Math.max(1, tall)) scroll(top - view.top);
});

/** Scrolls a bar into view, if needed. */
function reveal(bar) {
  const { from, to } = columns();
  const [begin, end] = [from[bar], to[bar]];
  const span = view.end - view.begin;
  if (end < view.begin || begin > view.end || (end - begin < span && (begin < view.begin || end > view.end))) {
    const middle = end - begin < span ? (begin + end) / 2 : begin + span * 0.4;
    show(middle - span / 2, middle + span / 2);
  }
  revealLane(bars.lane[bar]);
}

function revealLane(lane) {
  if (view.placeOf[lane] < 0) chooseLanes(lane);
  revealPlace(view.placeOf[lane]);
}

function revealPlace(place) {
  if (place >= view.pinned) {
    const [y, edge] = [toY(place), RULER + view.pinned * LANE];
    if (y < edge) scroll(y - edge);
    else if (y + LANE > view.height) scroll(y + LANE - view.height);
  }
  changed();
}

const HINT = 'Press a span to read about it, or go to the lanes and use the arrow keys. The key ? lists all keys.';

function select(bar, row = bar < 0 ? -1 : bars.row[bar]) {
  view.bar = bar;
  view.row = row;
  view.group = -1;
  if (bar >= 0) view.lane = bars.lane[bar];
  else if (row >= 0) view.lane = rows.lane[row];
  const ofRow = () => (row < 0 ? [HINT] : [`task ${task(view.lane)}`, call(row)]);
  page('details').textContent = (bar < 0 ? ofRow() : sentences(bar)).join(' · ');
  tellWhy();
  tellSource();
  changed();
}

/** The bar of a lane at a value, or -1. */
function barAt(lane, value) {
  const { from, to } = columns();
  const [first, last] = [lanes.first[lane], lanes.first[lane + 1]];
  const bar = lowerBound(to, value, first, last);
  return bar < last && from[bar] <= value ? bar : -1;
}

/** The bar of a row: the turn that ended with it, or the state that it began; -1 if its lane has no bars,
 * since events are missing. */
function barOfRow(row) {
  const lane = rows.lane[row];
  const [first, last] = [lanes.first[lane], lanes.first[lane + 1]];
  let bar = lowerBound(bars.to.time, rows.at.time[row], first, last);
  while (bar < last && bars.to.turns[bar] < rows.at.turns[row]) bar++;
  for (let next = bar; next < last && bars.from.turns[next] <= rows.at.turns[row]; next++) {
    if (bars.row[next] === row) return next;
  }
  return first < last ? Math.min(bar, last - 1) : -1;
}

// ---- texts

/** An instant, in the format of traces. */
function instant(nanos) {
  const seconds = Math.floor(nanos / 1e9);
  const [minutes, rest] = [Math.floor(seconds / 60), seconds % 60];
  const fraction = String(Math.floor((nanos % 1e9) / 1000)).padStart(6, '0');
  return `${String(minutes).padStart(2, '0')}:${String(rest).padStart(2, '0')}.${fraction}`;
}

const UNITS = [[1e9, 's'], [1e6, 'ms'], [1e3, 'µs'], [1, 'ns']];

/** A span of time, to a thousandth of its unit, as the commands show it. */
function span(nanos) {
  const step = nanos < 1e6 ? 1 : nanos < 1e9 ? 1e3 : 1e6;
  const rounded = Math.round(nanos / step) * step;
  if (rounded === 0) return '0';
  const [size, unit] = UNITS.find(([size]) => rounded >= size);
  return Number((rounded / size).toFixed(3)) + unit;
}

/** A span of time with so many digits: neighbours on an axis may differ in the last. */
function tickOf(nanos, digits) {
  const [size, unit] = UNITS.find(([size]) => nanos >= size) ?? UNITS[3];
  return Number((nanos / size).toPrecision(digits)) + unit;
}

const count = (number, what) => `${number.toLocaleString('en')} ${what}${number === 1 ? '' : 's'}`;

const task = (lane) => (isKernel(lane) ? lanes.name.get(lane) : `${numbered(lanes.tid[lane])} ${lanes.name.get(lane)}`);

function doing(bar) {
  const kind = bars.doing[bar];
  if (kind > RESTING) return `blocked on ${bars.on.get(bar)}`;
  if (isKernel(bars.lane[bar])) return kind === RESTING ? 'idle: no task is ready' : 'working';
  return kind === CALLING ? 'in call' : KINDS[kind];
}

/** The description of a bar. */
function sentences(bar) {
  const [from, to] = [bars.from.time[bar], bars.to.time[bar]];
  const turns = bars.to.turns[bar] - bars.from.turns[bar];
  const long = [];
  if (to > from) long.push(span(to - from));
  if (bars.doing[bar] !== RUNNING && turns > 0) long.push(count(turns, 'turn'));
  const lane = bars.lane[bar];
  const words = [`${isKernel(lane) ? 'the' : 'task'} ${task(lane)}`, doing(bar) + (long.length ? ` for ${long.join(', ')}` : '')];
  words.push(to > from ? `${instant(from)} to ${instant(to)}` : instant(from));
  const row = bars.row[bar];
  if (row >= 0) words.push(call(row));
  if (row >= 0 && rows.isPlaced[row]) words.push(rows.places.get(row));
  if (bars.end[bar] === WOKEN) {
    const waker = lanes.place.get(bars.waker[bar]);
    const waking = waker === undefined ? (bars.waker[bar] ? `task ${bars.waker[bar]}, ` : '') : `task ${task(waker)}, `;
    words.push(`woken by ${waking}${bars.by.get(bar)}`);
  }
  if (bars.end[bar] > ENDED) words.push('not over when the recording ended');
  return words;
}

function call(row) {
  const what = rows.what.get(row);
  if (rows.kind[row] !== CALL) return what;
  return rows.isAnswered[row] ? `${what} = ${rows.result.get(row)}` : `${what} …`;
}

// ---- redrawing

let isDue = false;

/** Redraws when something has changed. */
function changed() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    draw();
    tellTwin();
    flameSoon();
  });
}

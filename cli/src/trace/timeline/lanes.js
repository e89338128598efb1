// Draws the lanes. All lanes have one encoding: a lower part for tasks that run, are in a call or are
// ready, and a strip above it for tasks that are blocked. Wide bars are drawn one by one, as high as their
// part. Where a lane has too many for that, each column of pixels shows the shares of the states, so that
// area is time. The lane of a group shows in the same way how many of its tasks are in each state.

const canvas = page('lanes');
const paper = canvas.getContext('2d');
const dense = document.createElement('canvas');
const densePaper = dense.getContext('2d');
let pixels = null;
let colors = {};

/** The parts of a lane, in pixels from its top. */
const BOTTOM = LANE - 4;
const ACTIVE_HEIGHT = 12;
const ACTIVE_TOP = BOTTOM - ACTIVE_HEIGHT;
const WAITING_HEIGHT = 7;
const WAITING_BOTTOM = ACTIVE_TOP - 2;
const WAITING_TOP = WAITING_BOTTOM - WAITING_HEIGHT;
/** The kinds of bars in the lower part, from below, and those in the strip. */
const ACTIVE = [RUNNING, CALLING, READY];
const WAITING = [...KINDS.keys()].filter((kind) => kind > RESTING);
/** The number of bars of a lane that are drawn one by one. */
const MOST_BARS = 400;
/** How much of a lane's width may be painted as running only so that short turns are seen. */
const MOST_WIDENED = 0.02;
/** The width and height of a pattern's tile. */
const TILE = 6;
const FONT = '11px system-ui, "Segoe UI", "DejaVu Sans", sans-serif';
const SMALL = '10px system-ui, "Segoe UI", "DejaVu Sans", sans-serif';

/** Reads the colours of the page's style. */
function readColors() {
  const style = getComputedStyle(document.documentElement);
  const get = (name) => style.getPropertyValue(`--${name}`).trim();
  colors = Object.fromEntries(
    ['paper', 'ink', 'dim', 'rule', 'idle', 'on', 'found', 'focus', 'error', 'message', 'wait'].map((name) => [name, get(name)]),
  );
  colors.kinds = KINDS.map((kind) => ({ paper: get(`${kind}-paper`), ink: get(kind) }));
  const tiles = KINDS.map(tile);
  colors.fills = tiles.map((tile) => paper.createPattern(tile, 'repeat'));
  colors.pixels = tiles.map(pixelsOf);
  colors.faded = new Uint32Array(TILE * TILE).fill(toNumber(colors.rule));
}

/** The part of a lane in which bars of a kind are drawn: its top and its height. */
function partOf(kind) {
  return kind < RESTING ? [ACTIVE_TOP, ACTIVE_HEIGHT] : [WAITING_TOP, WAITING_HEIGHT];
}

/** A pattern that is distinguishable without its colour. */
function tile(kind, at) {
  const { paper: below, ink } = colors.kinds[at];
  const tile = document.createElement('canvas');
  tile.width = tile.height = TILE;
  const brush = tile.getContext('2d');
  brush.fillStyle = below;
  brush.fillRect(0, 0, TILE, TILE);
  brush.fillStyle = brush.strokeStyle = ink;
  brush.lineWidth = 1.6;
  brush.beginPath();
  if (kind === 'ready') {
    for (const shift of [-TILE, 0, TILE]) {
      brush.moveTo(shift - 1, TILE + 1);
      brush.lineTo(shift + TILE + 1, -1);
    }
    brush.stroke();
  } else if (kind === 'queue') {
    brush.arc(3, 3, 1.5, 0, 7);
    brush.fill();
  } else if (kind === 'call') {
    brush.fillRect(0, 0, 3, 3);
    brush.fillRect(3, 3, 3, 3);
  } else if (kind === 'device') {
    brush.fillRect(0, 0, 2, TILE);
  } else if (kind === 'exit') {
    brush.fillRect(0, 0, TILE, 2);
  } else if (kind === 'select') {
    brush.fillRect(0, 0, 2, TILE);
    brush.fillRect(0, 0, TILE, 2);
  }
  return tile;
}

function pixelsOf(tile) {
  return new Uint32Array(tile.getContext('2d').getImageData(0, 0, TILE, TILE).data.buffer);
}

/** A colour as a pixel of an image; alpha is the last byte in memory. */
function toNumber(color) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

/** Fits the canvas to its place on the page. */
function measure() {
  const ratio = window.devicePixelRatio || 1;
  const box = canvas.getBoundingClientRect();
  [view.width, view.height] = [box.width, box.height];
  for (const target of [canvas, dense]) {
    target.width = Math.max(1, Math.round(box.width * ratio));
    target.height = Math.max(1, Math.round(box.height * ratio));
  }
  pixels = null;
  view.gutter = Math.max(gutter(), twin.gutter);
}

function gutter() {
  paper.font = FONT;
  let widest = 40;
  for (let lane = 0; lane < Math.min(lanes.length, 2000); lane++) {
    widest = Math.max(widest, paper.measureText(task(lane)).width);
  }
  return Math.round(Math.min(widest + 70, GUTTER_MOST, view.width / 3));
}

function draw() {
  const ratio = canvas.width / view.width;
  paper.setTransform(ratio, 0, 0, ratio, 0, 0);
  paper.fillStyle = colors.paper;
  paper.fillRect(0, 0, view.width + 1, view.height + 1);
  paper.textBaseline = 'middle';
  drawIdle();
  drawGrid();
  for (const part of parts()) {
    within(part.top, part.bottom, () => {
      drawBars(part.first, part.last, ratio);
      drawFound(part.first, part.last);
      drawErrors(part.first, part.last);
    });
  }
  within(RULER, view.height, () => {
    drawFaults();
    drawDeadlocks();
    drawArrows();
    drawPath();
    drawSelection();
    drawChain();
  });
  drawRange();
  drawInstant();
  paper.fillStyle = colors.paper;
  paper.fillRect(0, 0, view.gutter, view.height);
  for (const part of parts()) within(part.top, part.bottom, () => drawGutter(part.first, part.last));
  drawEdges();
  drawRuler();
  drawOverview();
  moveScroller();
  fillTable();
}

/** The lanes that are pinned, and those that scroll below them: the places in view, and the part of the
 * canvas. */
function parts() {
  const edge = RULER + view.pinned * LANE;
  const first = view.pinned + Math.max(0, Math.floor(view.top / LANE));
  const last = Math.min(view.shown.length, view.pinned + Math.ceil((view.top + view.height - edge) / LANE));
  return [
    { first, last, top: edge, bottom: Math.max(view.height, edge) },
    { first: 0, last: view.pinned, top: RULER, bottom: edge },
  ];
}

/** Draws in a part of the canvas only. */
function within(top, bottom, draw) {
  paper.save();
  paper.beginPath();
  paper.rect(0, top, view.width, bottom - top);
  paper.clip();
  draw();
  paper.restore();
}

/** Bands where no task was ready. */
function drawIdle() {
  // On a virtual clock only waiting takes time, so the bands would cover everything.
  if (view.scale === 'time' && facts.isVirtual) return;
  const [from, to] = [idle.from[view.scale], idle.to[view.scale]];
  const first = lowerBound(to, view.begin, 0, idle.length);
  const last = upperBound(from, view.end, 0, idle.length);
  paper.fillStyle = colors.idle;
  // Bands that share a pixel are drawn as one, since there may be many thousands.
  let [left, right] = [view.gutter, view.gutter];
  for (let at = first; at < last; at++) {
    const [x, end] = [Math.max(toX(from[at]), view.gutter), toX(to[at])];
    if (x > right + 1) {
      paper.fillRect(left, RULER, right - left, view.height);
      left = x;
    }
    right = Math.max(end, x + 0.5);
  }
  paper.fillRect(left, RULER, right - left, view.height);
}

function drawBars(first, last, ratio) {
  const { from, to } = columns();
  let isDense = false;
  for (let place = first; place < last; place++) {
    const lane = view.shown[place];
    if (lane < 0) {
      if (!isDense) beginDense();
      isDense = true;
      drawCrowd(groups.list[~lane], Math.round((toY(place) + BOTTOM) * ratio), ratio);
      continue;
    }
    const [low, high] = [lanes.first[lane], lanes.first[lane + 1]];
    const begin = lowerBound(to, view.begin, low, high);
    const end = upperBound(from, view.end, begin, high);
    if (!isDenseLane(begin, end)) {
      for (let bar = begin; bar < end; bar++) drawBar(bar, toY(place));
      continue;
    }
    if (!isDense) beginDense();
    isDense = true;
    drawDense(begin, end, Math.round((toY(place) + BOTTOM) * ratio), ratio);
  }
  if (!isDense) return;
  densePaper.putImageData(pixels.image, 0, 0);
  // Pixel for pixel: the box may have a fraction of a pixel more.
  paper.save();
  paper.setTransform(1, 0, 0, 1, 0, 0);
  paper.drawImage(dense, 0, 0);
  paper.restore();
}

/** Whether bars drawn one by one would paint more than their share of time. */
function isDenseLane(begin, end) {
  if (end - begin > MOST_BARS) return true;
  const { from, to } = columns();
  const unit = unitsPerPixel();
  let widened = 0;
  for (let bar = begin; bar < end; bar++) {
    if (bars.doing[bar] === RUNNING) widened += Math.max(0, 1 - (to[bar] - from[bar]) / unit);
  }
  const alive = Math.min(to[end - 1], view.end) - Math.max(from[begin], view.begin);
  return widened > Math.max(1, (alive / unit) * MOST_WIDENED);
}

function drawBar(bar, y) {
  const kind = bars.doing[bar];
  const { from, to } = columns();
  let [x, right] = [toX(from[bar]), toX(to[bar])];
  // A turn of zero length is still drawn.
  const least = kind === RUNNING ? 1 : 0;
  if (right - x < least) right = x + least;
  x = Math.max(x, view.gutter);
  right = Math.min(right, view.width);
  if (right <= x) return;
  // Consecutive turns are drawn apart.
  if (right - x > 4) right -= 0.7;
  const [top, height] = partOf(kind);
  const width = right - x;
  paper.globalAlpha = view.kind < 0 || view.kind === kind ? 1 : 0.2;
  paper.fillStyle = width < 4 ? colors.kinds[kind].ink : colors.fills[kind];
  paper.fillRect(x, y + top, width, height);
  if (width >= 4 && kind !== RUNNING) {
    paper.strokeStyle = colors.kinds[kind].ink;
    paper.lineWidth = 0.6;
    paper.strokeRect(x + 0.3, y + top + 0.3, width - 0.6, height - 0.6);
  }
  if (width > 30) label(bar, kind, x, y, width);
  paper.globalAlpha = 1;
}

/** Writes a bar's label into the lower part of the lane, as far as it fits. */
function label(bar, kind, x, y, width) {
  if (kind === READY || kind === RESTING || bars.row[bar] < 0) return;
  const call = rows.what.get(bars.row[bar]);
  paper.font = SMALL;
  paper.textAlign = 'left';
  const fits = (text) => paper.measureText(text).width <= width - 8;
  const text = [call, call.split(/[(:]/)[0]].find(fits);
  if (!text) return;
  paper.fillStyle = kind === RUNNING ? colors.on : colors.ink;
  paper.fillText(text, x + 4, y + ACTIVE_TOP + ACTIVE_HEIGHT / 2 + 0.5);
}

/** The part of a text that fits. */
function shortened(text, room) {
  if (paper.measureText(text).width <= room) return text;
  let length = Math.max(0, Math.floor((room / paper.measureText(text).width) * text.length) - 1);
  while (length > 0 && paper.measureText(text.slice(0, length) + '…').width > room) length--;
  return length > 1 ? text.slice(0, length) + '…' : '';
}

function beginDense() {
  if (!pixels) {
    const image = densePaper.createImageData(dense.width, dense.height);
    pixels = { image, words: new Uint32Array(image.data.buffer) };
  }
  pixels.words.fill(0);
}

/** Paints a lane in columns of pixels, each with the shares of the states in its time. What rounding
 * adds to a column is taken from the next, so that the whole lane is as true as a column. A line of
 * one pixel below shows where the task had turns. */
function drawDense(begin, end, bottom, ratio) {
  const { from, to, sums } = columns();
  const unit = unitsPerPixel() / ratio;
  const left = Math.round(view.gutter * ratio);
  const { tall, short, split } = heights(bottom, ratio);
  const shares = new Float64Array(STATES);
  const errors = new Float64Array(STATES);
  let kind = RESTING;
  let bar = begin;
  for (let x = left; x < dense.width; x++) {
    const low = view.begin + (x - left) * unit;
    const isLast = x + 1 === dense.width;
    const high = isLast ? view.end : low + unit;
    // A bar of zero length belongs to the column that ends with it; an edge has only one column.
    if (x > left) bar = after(to, low, bar, end);
    if (bar >= end) return;
    if (isLast ? from[bar] > high : from[bar] >= high) continue;
    // The last bar of the column, which may extend into the next one.
    const last = Math.min(after(to, high, bar, end), end - 1);
    for (let state = 0; state < STATES; state++) shares[state] = sums[state][last + 1] - sums[state][bar];
    shares[stateOf(bar)] -= Math.max(0, low - from[bar]);
    shares[stateOf(last)] -= Math.min(Math.max(0, to[last] - high), to[last] - from[last]);
    const hasTurn = last - bar > 3 || bars.doing[bar] === RUNNING || bars.doing[last] === RUNNING;
    kind = blockedKind(bar, last, kind);
    const length = high - low;
    paintColumn(x, bottom, tall, ACTIVE, (state) => shares[state] / length, errors);
    paintColumn(x, split, short, [kind], () => shares[RESTING] / length, errors);
    if (hasTurn && bottom >= 0 && bottom < dense.height) {
      pixels.words[bottom * dense.width + x] = colors.pixels[RUNNING][0];
    }
  }
}

/** What a task is blocked on first among these bars, however many come before. Without such a bar it is
 * the kind before: rounding may move a pixel from one column to a later one. */
function blockedKind(bar, last, before) {
  const rested = columns().sums[RESTING];
  const at = upperBound(rested, rested[bar], bar + 1, last + 2) - 1;
  return at <= last ? bars.doing[at] : before;
}

/** The heights of the two parts of a lane in pixels of the screen, and the bottom of the upper one. */
function heights(bottom, ratio) {
  const [tall, short] = [ACTIVE_HEIGHT, WAITING_HEIGHT].map((height) => Math.round(height * ratio));
  return { tall, short, split: bottom - Math.round((BOTTOM - WAITING_BOTTOM) * ratio) };
}

/** Paints a column of one part: kinds above one another, each with its share of the height. The errors
 * are those of the columns before. */
function paintColumn(x, bottom, height, kinds, shareOf, errors) {
  let [level, painted] = [0, 0];
  for (const kind of kinds) {
    level += Math.max(0, shareOf(kind));
    const place = Math.min(kind, errors.length - 1);
    const exact = level * height + errors[place];
    const edge = Math.min(Math.max(Math.round(exact), painted), height);
    errors[place] = Math.min(Math.max(exact - edge, -1), 1);
    const texture = view.kind < 0 || view.kind === kind ? colors.pixels[kind] : colors.faded;
    for (; painted < edge; painted++) {
      const y = bottom - 1 - painted;
      if (y < 0 || y >= dense.height) continue;
      pixels.words[y * dense.width + x] = texture[(y % TILE) * TILE + (x % TILE)];
    }
  }
}

/** The first bar from `bar` on that ends after `value`. */
function after(to, value, bar, end) {
  let step = 1;
  while (bar + step < end && to[bar + step] <= value) step *= 2;
  return upperBound(to, value, bar, Math.min(bar + step + 1, end));
}

/** Marks the calls that the search has found. */
function drawFound(first, last) {
  if (!search.found) return;
  const at = rows.at[view.scale];
  const inView = search.found;
  let index = lowerBoundBy(inView, (row) => at[row] >= view.begin);
  paper.fillStyle = colors.found;
  const done = new Float64Array(last - first).fill(-9);
  for (; index < inView.length && at[inView[index]] <= view.end; index++) {
    const place = view.placeOf[rows.lane[inView[index]]];
    if (place < first || place >= last) continue;
    const x = toX(at[inView[index]]);
    if (x - done[place - first] < 1) continue;
    done[place - first] = x;
    paper.fillRect(x - 1, toY(place) + 1, 2.5, LANE - 3);
  }
}

/** The first index of a list at which the condition holds; it holds from there on. */
function lowerBoundBy(list, holds) {
  let [low, high] = [0, list.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (holds(list[middle])) high = middle;
    else low = middle + 1;
  }
  return low;
}

function drawSelection() {
  const place = focusedPlace();
  if (document.activeElement === canvas && place >= 0) {
    paper.strokeStyle = colors.focus;
    paper.lineWidth = 1;
    paper.setLineDash([2, 2]);
    paper.strokeRect(view.gutter + 0.5, toY(place) + 0.5, view.width - view.gutter - 1, LANE - 1);
    paper.setLineDash([]);
  }
  if (view.bar < 0) return;
  const its = view.placeOf[bars.lane[view.bar]];
  if (its < 0) return;
  const { from, to } = columns();
  const x = Math.max(toX(from[view.bar]), view.gutter);
  const right = Math.min(Math.max(toX(to[view.bar]), x + 2), view.width);
  if (right < view.gutter || x > view.width) return;
  // Around the label too, which is below the strip of what is blocked.
  const [top] = partOf(bars.doing[view.bar]);
  paper.strokeStyle = colors.focus;
  paper.lineWidth = 2.5;
  paper.strokeRect(x - 1, toY(its) + top - 1.5, right - x + 2, BOTTOM - top + 3);
  if (bars.end[view.bar] === WOKEN && lanes.place.has(bars.waker[view.bar])) {
    paper.lineWidth = 2;
    paper.beginPath();
    wakeUp(view.bar);
    paper.stroke();
  }
}

/** Draws the names of the tasks, and their exits. */
function drawGutter(first, last) {
  paper.strokeStyle = colors.rule;
  paper.lineWidth = 1;
  paper.beginPath();
  for (let place = first; place < last; place++) {
    const lane = view.shown[place];
    const y = toY(place);
    const [name, end, isBad] = lane < 0 ? groupLabel(groups.list[~lane]) : [task(lane), fate(lane), hasFailed(lane)];
    paper.font = SMALL;
    paper.textAlign = 'right';
    paper.fillStyle = isBad ? colors.error : colors.dim;
    paper.fillText(end, view.gutter - 6, y + 15);
    const indent = lane < 0 ? 8 : indentOf(lane);
    const room = view.gutter - 14 - indent - paper.measureText(end).width;
    paper.font = isFocused(place) || lane < 0 ? `bold ${FONT}` : FONT;
    paper.textAlign = 'left';
    paper.fillStyle = colors.ink;
    paper.fillText(shortened(name, room), indent, y + 15);
    if (view.pins.has(lane)) drawPin(y);
    paper.moveTo(0, y + LANE - 0.5);
    paper.lineTo(view.width, y + LANE - 0.5);
  }
  paper.stroke();
}

/** A mark before the name of a pinned lane. */
function drawPin(y) {
  paper.fillStyle = colors.dim;
  paper.fillRect(1, y + 8, 3, 11);
}

/** The edges of the gutter, and of the pinned lanes. */
function drawEdges() {
  paper.strokeStyle = colors.rule;
  paper.lineWidth = 1;
  paper.beginPath();
  paper.moveTo(view.gutter - 0.5, 0);
  paper.lineTo(view.gutter - 0.5, view.height);
  paper.stroke();
  if (!view.pinned) return;
  paper.strokeStyle = colors.dim;
  paper.beginPath();
  paper.moveTo(0, RULER + view.pinned * LANE - 0.5);
  paper.lineTo(view.width, RULER + view.pinned * LANE - 0.5);
  paper.stroke();
}

/** The exit of a task, in a word. */
function fate(lane) {
  return lanes.exit.get(lane).split(':')[0] || (isKernel(lane) ? '' : 'alive');
}

const hasFailed = (lane) => /^(failed|faulted)/.test(lanes.exit.get(lane));

/** Draws guide lines below the ticks. */
function drawGrid() {
  paper.strokeStyle = colors.rule;
  paper.lineWidth = 1;
  paper.beginPath();
  for (const { x } of ticks()) {
    paper.moveTo(x, RULER - 6);
    paper.lineTo(x, view.height);
  }
  paper.stroke();
}

function drawRuler() {
  paper.fillStyle = colors.paper;
  paper.fillRect(0, 0, view.width, RULER);
  paper.strokeStyle = colors.rule;
  paper.lineWidth = 1;
  paper.beginPath();
  paper.moveTo(0, RULER - 0.5);
  paper.lineTo(view.width, RULER - 0.5);
  for (const { x } of ticks()) {
    paper.moveTo(x, RULER - 6);
    paper.lineTo(x, RULER);
  }
  paper.stroke();
  paper.font = SMALL;
  paper.fillStyle = colors.dim;
  paper.textAlign = 'center';
  for (const { x, text } of ticks()) paper.fillText(text, x, 11);
  paper.textAlign = 'left';
  paper.fillText(view.scale === 'time' ? 'time' : 'turn', 8, 12);
}

function ticks() {
  const wanted = (view.width - view.gutter) / 110;
  const list = ticksAt(tickStep(wanted));
  // With few items the rounding may leave none.
  return list.length > 1 ? list : ticksAt(tickStep(wanted * 2));
}

function ticksAt(step) {
  const list = [];
  const first = Math.ceil(view.begin / step);
  const last = Math.floor(view.end / step);
  for (let at = 0; at <= Math.min(last - first, 200); at++) {
    const value = (first + at) * step;
    const x = Math.round(toX(value)) + 0.5;
    if (x > view.gutter + 20 && x < view.width - 24) list.push({ x, text: tick(value, step) });
  }
  return list;
}

/** The round step that gives about so many ticks. */
function tickStep(wanted) {
  const rough = (view.end - view.begin) / Math.max(1, wanted);
  const power = Math.max(1, 10 ** Math.floor(Math.log10(rough)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough) ?? power;
}

/** A place on the ruler, with as many digits as distinguish it from the next. */
function tick(value, step) {
  if (view.scale !== 'time') return value.toLocaleString('en');
  if (value === 0) return '0';
  return tickOf(value, Math.max(1, Math.ceil(Math.log10(value / step) + 1)));
}

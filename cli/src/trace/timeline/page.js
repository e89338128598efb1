// The page around the lanes: tools, the overview, the theme, and the start.

// ---- overview

const overview = page('overview');
const overviewPaper = overview.getContext('2d');
const BINS = 600;

/** For each part of the run: the average numbers of tasks that run, are ready and are blocked, and
 * the largest number of those that run or are ready at one instant. */
function summed() {
  const known = columns();
  if (known.overview) return known.overview;
  const [first, last] = limits();
  const unit = (last - first) / BINS;
  const sums = Array.from({ length: 3 }, () => ({ parts: new Float64Array(BINS + 1), steps: new Float64Array(BINS + 2) }));
  const [begins, ends] = [[], []];
  let active = -1;
  for (let bar = 0; bar < bars.length; bar++) {
    if (isKernel(bars.lane[bar])) continue;
    const kind = bars.doing[bar];
    if (kind < RESTING) {
      // Bars of a task that meet at an instant are one task then.
      if (bars.lane[bar] === active && known.from[bar] <= ends.at(-1)) ends[ends.length - 1] = known.to[bar];
      else {
        begins.push(known.from[bar]);
        ends.push(known.to[bar]);
      }
      active = bars.lane[bar];
    }
    const [from, to] = [(known.from[bar] - first) / unit, (known.to[bar] - first) / unit];
    const [low, high] = [Math.floor(from), Math.floor(to)];
    const { parts, steps } = sums[kind > RESTING ? 2 : kind === READY ? 1 : 0];
    if (low === high) parts[low] += to - from;
    else {
      parts[low] += low + 1 - from;
      parts[high] += to - high;
      steps[low + 1] += 1;
      steps[high] -= 1;
    }
  }
  for (const { parts, steps } of sums) {
    for (let bin = 0, level = 0; bin < BINS; bin++) parts[bin] += level += steps[bin];
  }
  const [running, ready, blocked] = sums.map(({ parts }) => parts);
  const peaks = peaksOf(Float64Array.from(begins).sort(), Float64Array.from(ends).sort(), first, unit);
  return (known.overview = { running, ready, blocked, peaks, most: mostOf(peaks), mostBlocked: mostOf(blocked) });
}

const mostOf = (values) => values.reduce((most, value) => Math.max(most, value), 0);

/** The largest number of spans at one instant, in each part of the run. */
function peaksOf(begins, ends, first, unit) {
  const peaks = new Float64Array(BINS);
  let [begun, ended] = [0, 0];
  for (let bin = 0; bin < BINS; bin++) {
    const high = bin + 1 < BINS ? first + (bin + 1) * unit : Infinity;
    peaks[bin] = begun - ended;
    for (; begun < begins.length && begins[begun] < high; begun++) {
      while (ends[ended] < begins[begun]) ended++;
      peaks[bin] = Math.max(peaks[bin], begun + 1 - ended);
    }
    while (ended < begun && ends[ended] < high) ended++;
  }
  return peaks;
}

/** The height of the part of the overview that shows blocked tasks. */
const BLOCKED_HEIGHT = 14;

function drawOverview() {
  const box = overview.getBoundingClientRect();
  const ratio = window.devicePixelRatio || 1;
  if (overview.width !== Math.round(box.width * ratio)) overview.width = Math.round(box.width * ratio);
  if (overview.height !== Math.round(box.height * ratio)) overview.height = Math.round(box.height * ratio);
  const brush = overviewPaper;
  brush.setTransform(ratio, 0, 0, ratio, 0, 0);
  brush.fillStyle = colors.paper;
  brush.fillRect(0, 0, box.width, box.height);
  const { running, ready, blocked, peaks, most, mostBlocked } = summed();
  const [left, width] = [view.gutter, box.width - view.gutter];
  const hill = (color, level, bottom, height) => {
    brush.fillStyle = color;
    brush.beginPath();
    brush.moveTo(left, bottom);
    for (let bin = 0; bin < BINS; bin++) {
      const y = bottom - level(bin) * height;
      brush.lineTo(left + (bin / BINS) * width, y);
      brush.lineTo(left + ((bin + 1) / BINS) * width, y);
    }
    brush.lineTo(left + width, bottom);
    brush.fill();
  };
  // Many more tasks are blocked than run, so that they have a scale of their own.
  const top = BLOCKED_HEIGHT + 1;
  if (mostBlocked > 0) hill(colors.kinds[KINDS.indexOf('timer')].ink, (bin) => blocked[bin] / mostBlocked, top - 1, top - 3);
  const height = box.height - top - 1;
  const { paper: pale } = colors.kinds[READY];
  if (most > 0) {
    hill(pale, (bin) => peaks[bin] / most, box.height, height);
    hill(colors.kinds[READY].ink, (bin) => (running[bin] + ready[bin]) / most, box.height, height);
    hill(colors.kinds[RUNNING].ink, (bin) => running[bin] / most, box.height, height);
  }
  drawRowsOverview(brush, errors, colors.error, left, width, box.height - 6);
  if (search.found) drawRowsOverview(brush, search.found, colors.found, left, width, 0);
  const [first, last] = limits();
  const toOverview = (value) => left + ((value - first) / (last - first)) * width;
  const [x, right] = [toOverview(view.begin), toOverview(view.end)];
  brush.globalAlpha = 0.7;
  brush.fillStyle = colors.paper;
  brush.fillRect(left, 0, x - left, box.height);
  brush.fillRect(right, 0, box.width - right, box.height);
  brush.globalAlpha = 1;
  brush.strokeStyle = colors.focus;
  brush.lineWidth = 1.5;
  brush.strokeRect(x + 0.75, 0.75, Math.max(right - x - 1.5, 1), box.height - 1.5);
  brush.font = SMALL;
  brush.fillStyle = colors.dim;
  brush.textBaseline = 'middle';
  brush.fillText(shortened(`blocked: ${Math.ceil(Math.max(0, mostBlocked - 1e-6)).toLocaleString('en')} at most`, left - 10), 8, top / 2);
  brush.fillText(shortened(`active: ${most.toLocaleString('en')} at most`, left - 10), 8, (top + box.height) / 2);
}

/** Marks rows in the overview: what was found, and failures. */
function drawRowsOverview(brush, marked, color, left, width, y) {
  const [first, last] = limits();
  const at = rows.at[view.scale];
  brush.fillStyle = color;
  let done = -1;
  for (const row of marked) {
    const x = left + ((at[row] - first) / (last - first)) * width;
    if (x - done < 1) continue;
    done = x;
    brush.fillRect(x - 0.5, y, 1.5, 6);
  }
}

let isOnOverview = false;
function moveOverview(event) {
  const box = overview.getBoundingClientRect();
  const [first, last] = limits();
  const share = (event.clientX - box.left - view.gutter) / (box.width - view.gutter);
  const middle = first + share * (last - first);
  const half = (view.end - view.begin) / 2;
  show(middle - half, middle + half);
}
overview.addEventListener('pointerdown', (event) => {
  overview.setPointerCapture(event.pointerId);
  isOnOverview = true;
  moveOverview(event);
});
overview.addEventListener('pointermove', (event) => isOnOverview && moveOverview(event));
for (const name of ['pointerup', 'pointercancel']) overview.addEventListener(name, () => (isOnOverview = false));

// ---- tools

function setScale(scale) {
  if (scale === view.scale) return;
  // Keeps the view in place, as far as both scales have it.
  const [old, bounds] = [view.scale, [view.begin, view.end]];
  const isAll = bounds[0] <= limits()[0] && bounds[1] >= limits()[1];
  const [from, to] = [rows.at[old], rows.at[scale]];
  const first = lowerBound(from, bounds[0], 0, rows.length);
  const last = upperBound(from, bounds[1], first, rows.length) - 1;
  view.scale = scale;
  page('scale').value = scale;
  clearRange();
  view.at = null;
  if (isAll || last <= first) show(...limits());
  else show(to[first], Math.max(to[last], to[first] + 1));
  chooseLanes();
  if (view.bar >= 0) reveal(view.bar);
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
}

function toggleTheme() {
  document.documentElement.dataset.theme = isDark() ? 'light' : 'dark';
  repaint();
}

function repaint() {
  readColors();
  for (const button of document.querySelectorAll('#legend button')) drawSwatch(button);
  changed();
}

function drawSwatch(button) {
  const kind = KINDS.indexOf(button.dataset.kind);
  const brush = button.firstElementChild.getContext('2d');
  brush.fillStyle = colors.fills[kind];
  const [, height] = partOf(kind);
  brush.clearRect(0, 0, 22, 14);
  brush.fillRect(0, (14 - height) / 2, 22, height);
}

function onClick(id, action) {
  page(id).addEventListener('click', action);
}

onClick('in', () => zoom(1 / 1.5, focusX()));
onClick('out', () => zoom(1.5, focusX()));
onClick('fit', () => show(...limits()));
onClick('previous', () => goToMatch(-1));
onClick('next', () => goToMatch(1));
onClick('theme', toggleTheme);
onClick('path', () => showPath());
onClick('help', () => page('keys').showModal());

page('scale').addEventListener('change', (event) => setScale(event.target.value));
for (const id of ['arrows', 'messages']) {
  page(id).addEventListener('change', (event) => {
    view[id] = event.target.checked;
    changed();
  });
}
for (const [id, what] of [['present', 'onlyPresent'], ['errors', 'onlyErrors']]) {
  page(id).addEventListener('change', (event) => {
    view[what] = event.target.checked;
    chooseLanes();
    changed();
  });
}
page('groups').addEventListener('change', (event) => groupBy(event.target.value));
page('order').addEventListener('change', (event) => {
  view.order = event.target.value;
  chooseLanes();
  changed();
});
for (const id of ['follow', 'mine']) {
  page(id).addEventListener('change', (event) => {
    list[id] = event.target.checked;
    table.scrollTop = 0;
    changed();
  });
}

let due = 0;
page('search').addEventListener('input', (event) => {
  clearTimeout(due);
  due = setTimeout(() => find(event.target.value), 120);
});
page('search').addEventListener('keydown', (event) => {
  if (event.key === 'Enter') {
    clearTimeout(due);
    if (search.text !== event.target.value.trim().toLowerCase()) find(event.target.value);
    goToMatch(event.shiftKey ? -1 : 1);
  } else if (event.key === 'Escape') {
    event.target.value = '';
    find('');
    canvas.focus();
  } else return;
  event.preventDefault();
});

for (const button of document.querySelectorAll('#legend button')) {
  button.addEventListener('click', () => {
    const kind = KINDS.indexOf(button.dataset.kind);
    view.kind = view.kind === kind ? -1 : kind;
    for (const other of document.querySelectorAll('#legend button')) {
      other.setAttribute('aria-pressed', KINDS.indexOf(other.dataset.kind) === view.kind);
    }
    changed();
  });
}

// ---- the height of the lanes

const grip = page('grip');
const leastHeight = Number(grip.getAttribute('aria-valuemin'));
const mostHeight = () => Math.max(120, window.innerHeight - 160);
function setHeight(pixels) {
  page('stage').style.flex = `0 0 ${Math.min(Math.max(pixels, leastHeight), mostHeight())}px`;
}

/** Whether the grip was moved. */
let isGripped = false;

/** Gives the lanes their share of the page, and at most their height. */
function fitHeight() {
  if (isGripped) return;
  page('stage').style.flex = '';
  const needed = RULER + Math.max(3, view.shown.length) * LANE + 12;
  if (needed < page('stage').clientHeight) setHeight(needed);
}

function grips(pixels) {
  isGripped = true;
  setHeight(pixels);
}
new ResizeObserver(() => {
  grip.setAttribute('aria-valuemax', mostHeight());
  grip.setAttribute('aria-valuenow', Math.min(page('stage').clientHeight, mostHeight()));
}).observe(page('stage'));
grip.addEventListener('pointerdown', (event) => grip.setPointerCapture(event.pointerId));
grip.addEventListener('pointermove', (event) => {
  if (!grip.hasPointerCapture(event.pointerId)) return;
  const box = page('stage').getBoundingClientRect();
  grips(event.clientY - box.top - (grip.getBoundingClientRect().top - box.bottom));
});
grip.addEventListener('keydown', (event) => {
  const by = { ArrowUp: -20, ArrowDown: 20 }[event.key];
  if (!by) return;
  event.preventDefault();
  grips(page('stage').clientHeight + by);
});

// ---- start

function start() {
  page('main').hidden = false;
  fillPath();
  fillRange();
  page('scale').value = view.scale;
  // Too many lanes to show all at first.
  view.onlyPresent = lanes.length > 300;
  page('present').checked = view.onlyPresent;
  [view.begin, view.end] = limits();
  readColors();
  chooseGroups();
  page('groups').value = groups.by;
  page('groups').querySelector('[value=host]').disabled = !hasHosts;
  repaint();
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', repaint);
  new ResizeObserver(() => {
    measure();
    scroll(0);
    changed();
  }).observe(page('stage'));
  new ResizeObserver(changed).observe(table);
  fitHeight();
  measure();
  select(-1);
}

start();

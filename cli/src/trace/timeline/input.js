// The effects of the mouse, fingers and keys.

const tip = page('tip');

// ---- pointers

/** The pointers that are down, by number. */
const down = new Map();
const drag = { x: 0, y: 0, moved: 0, range: 0 };

canvas.addEventListener('pointerdown', (event) => {
  canvas.setPointerCapture(event.pointerId);
  const point = at(event);
  down.set(event.pointerId, point);
  [drag.x, drag.y, drag.moved] = [point.x, point.y, 0];
  // Along the ruler, or with Shift: where the range begins.
  const isRange = down.size === 1 && point.x > view.gutter && (point.y < RULER || event.shiftKey);
  drag.range = isRange ? point.x : 0;
  hideTip();
});

canvas.addEventListener('pointermove', (event) => {
  const point = at(event);
  const before = down.get(event.pointerId);
  if (!before) return showTip(point);
  down.set(event.pointerId, point);
  drag.moved += Math.abs(point.x - before.x) + Math.abs(point.y - before.y);
  if (down.size > 1) pinch(event.pointerId, before, point);
  else if (drag.range) {
    drag.x = point.x;
    changed();
  } else {
    pan(before.x - point.x);
    scroll(before.y - point.y);
  }
});

canvas.addEventListener('pointerup', (event) => {
  const point = at(event);
  if (drag.range && Math.abs(point.x - drag.range) > 5) {
    selectRange(toValue(drag.range), toValue(point.x));
  } else if (drag.moved < 6 && down.size === 1) {
    click(point);
  }
  release(event);
});

function click(point) {
  const group = groupAt(point.y);
  if (group) return toggle(group);
  const [bar, lane] = [barUnder(point), laneAt(point.y)];
  if (lane >= 0) view.lane = lane;
  if (bar >= 0) selectBar(bar);
  else select(-1);
  if (lane >= 0 && point.x < view.gutter) togglePin(lane);
}

canvas.addEventListener('pointercancel', release);
canvas.addEventListener('pointerleave', hideTip);

function release(event) {
  down.delete(event.pointerId);
  drag.range = 0;
  if (isSortedNow()) chooseLanes();
  changed();
}

canvas.addEventListener('dblclick', (event) => {
  const bar = barUnder(at(event));
  if (bar >= 0) zoomTo(bar);
});

canvas.addEventListener(
  'wheel',
  (event) => {
    const pixels = event.deltaMode === 1 ? 20 : 1;
    const [right, below] = [event.deltaX * pixels, event.deltaY * pixels];
    if (event.ctrlKey || event.metaKey || event.altKey) zoom(Math.exp(below * 0.004), at(event).x);
    else if (event.shiftKey) pan(right || below);
    else if (right) pan(right);
    // A gesture that does not scroll the lanes scrolls the page.
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey || right) event.preventDefault();
    else if (scroll(below)) event.preventDefault();
    hideTip();
  },
  { passive: false },
);

function at(event) {
  const box = canvas.getBoundingClientRect();
  return { x: event.clientX - box.left, y: event.clientY - box.top };
}

/** Two fingers: the value below each stays below it. */
function pinch(moving, before, point) {
  const other = [...down].find(([number]) => number !== moving)[1];
  const [low, high] = [Math.abs(before.x - other.x), Math.abs(point.x - other.x)];
  if (low > 10 && high > 10) zoom(low / high, other.x);
  else pan(before.x - point.x);
}

/** The place at a height, or -1. */
function placeAt(y) {
  const isPinned = y < RULER + view.pinned * LANE;
  const place = Math.floor((y - RULER + (isPinned ? 0 : view.top)) / LANE);
  return y < RULER || place < 0 || place >= view.shown.length ? -1 : place;
}

/** The lane at a height; -1 for none, and for a group. */
const laneAt = (y) => Math.max(-1, view.shown[placeAt(y)] ?? -1);

function groupAt(y) {
  const entry = view.shown[placeAt(y)] ?? 0;
  return entry < 0 ? groups.list[~entry] : undefined;
}

/** The bar at a point. A turn of zero length has a margin around it. */
function barUnder({ x, y }) {
  const lane = laneAt(y);
  if (lane < 0 || x < view.gutter) return -1;
  const { from, to } = columns();
  const near = 3 * unitsPerPixel();
  const [first, last] = [lanes.first[lane], lanes.first[lane + 1]];
  const value = toValue(x);
  const begin = lowerBound(to, value - near, first, last);
  for (let bar = begin, seen = 0; bar < last && from[bar] <= value + near && seen < 64; bar++, seen++) {
    if (bars.doing[bar] === RUNNING && to[bar] - from[bar] < near) return bar;
  }
  return barAt(lane, value);
}

function showTip(point) {
  const bar = barUnder(point);
  const group = point.x > view.gutter ? groupAt(point.y) : undefined;
  if (bar < 0 && !group) return hideTip();
  const lines = group ? crowdLines(group, toValue(point.x)) : tipLines(bar, point);
  tip.replaceChildren(...lines.map((line) => Object.assign(document.createElement('div'), { textContent: line })));
  tip.hidden = false;
  const [width, height] = [tip.offsetWidth, tip.offsetHeight];
  const x = point.x + 14 + width > view.width ? Math.max(0, point.x - width - 10) : point.x + 14;
  const y = point.y + 18 + height > view.height ? Math.max(0, point.y - height - 10) : point.y + 18;
  tip.style.transform = `translate(${x}px, ${y}px)`;
}

/** The description of what is under the pointer: a bar, or the shares of many bars. */
function tipLines(bar, point) {
  const { from, to } = columns();
  const lane = bars.lane[bar];
  const [first, last] = [lanes.first[lane], lanes.first[lane + 1]];
  const value = toValue(point.x);
  const near = unitsPerPixel();
  const begin = lowerBound(to, value - near, first, last);
  const end = upperBound(from, value + near, begin, last);
  if (end - begin < 8) return sentences(bar);
  return [`task ${task(lane)}`, `${count(end - begin, 'span')} within two pixels: zoom in to see them`];
}

function hideTip() {
  tip.hidden = true;
}

// ---- keys

function zoomTo(bar) {
  const { from, to } = columns();
  const room = Math.max(to[bar] - from[bar], 1) * 0.3;
  selectBar(bar);
  show(from[bar] - room, to[bar] + room);
}

/** The bar with the keyboard focus: the selected one, or the middle one of its lane. */
function current() {
  if (view.bar >= 0) return view.bar;
  const middle = barAt(view.lane, (view.begin + view.end) / 2);
  return middle >= 0 ? middle : lanes.first[view.lane];
}

function move(by) {
  const lane = view.lane;
  if (view.group >= 0) {
    const group = groups.list[view.group];
    return toggle(group, by < 0);
  }
  const next = view.bar < 0 ? current() : view.bar + by;
  if (next >= lanes.first[lane] && next < lanes.first[lane + 1]) selectBar(next);
}

/** Moves to the lane above or below, at the same instant. */
function moveLane(by) {
  const here = view.group >= 0 ? focusedPlace() : placeShown(view.lane);
  const place = Math.min(Math.max(here + by, 0), view.shown.length - 1);
  const lane = view.shown[place];
  if (lane === undefined) return;
  if (lane < 0) return focusGroup(groups.list[~lane]);
  const { from, to } = columns();
  const old = current();
  const value = old >= 0 && old < bars.length ? Math.min(Math.max((from[old] + to[old]) / 2, view.begin), view.end) : view.begin;
  view.lane = lane;
  const bar = barAt(lane, value);
  if (bar >= 0) select(bar);
  else {
    select(-1);
    page('details').textContent = `task ${task(lane)} · not there at this time`;
  }
  view.lane = lane;
  revealLane(lane);
}

/** Goes to the task that woke the selected one, or whose turn made it ready. */
function toWaker() {
  let bar = view.bar;
  // A ready task was woken at the end of its previous bar.
  if (bar > lanes.first[view.lane] && bars.doing[bar] <= READY && bars.end[bar] !== WOKEN) {
    while (bar > lanes.first[view.lane] && bars.end[bar] !== WOKEN) bar--;
  }
  const waker = bar >= 0 && bars.end[bar] === WOKEN ? lanes.place.get(bars.waker[bar]) : undefined;
  if (waker === undefined) {
    page('details').textContent = 'no task woke this one';
    return;
  }
  const [first, last] = [lanes.first[waker], lanes.first[waker + 1]];
  let its = lowerBound(bars.to.turns, bars.to.turns[bar], first, last);
  while (its > first && (its >= last || bars.doing[its] !== RUNNING)) its--;
  if (its < last) selectBar(its);
}

const KEYS = {
  ArrowLeft: () => move(-1),
  ArrowRight: () => move(1),
  ArrowUp: () => moveLane(-1),
  ArrowDown: () => moveLane(1),
  PageUp: () => moveLane(-10),
  PageDown: () => moveLane(10),
  Home: () => lanes.first[view.lane] < lanes.first[view.lane + 1] && selectBar(lanes.first[view.lane]),
  End: () => lanes.first[view.lane] < lanes.first[view.lane + 1] && selectBar(lanes.first[view.lane + 1] - 1),
  a: () => pan(-(view.width - view.gutter) / 4),
  d: () => pan((view.width - view.gutter) / 4),
  z: () => (view.bar >= 0 ? zoomTo(view.bar) : view.range && show(view.range.begin, view.range.end)),
  w: toWaker,
  p: () => view.group < 0 && togglePin(view.lane),
  Enter: () => (view.group >= 0 ? toggle(groups.list[view.group]) : page('table').focus()),
  Escape: () => select(-1),
};

/** Keys that work wherever no text is typed. */
const EVERYWHERE = {
  '+': () => zoom(1 / 1.5, focusX()),
  '=': () => zoom(1 / 1.5, focusX()),
  '-': () => zoom(1.5, focusX()),
  0: () => show(...limits()),
  '/': () => page('search').focus(),
  n: () => goToMatch(1),
  N: () => goToMatch(-1),
  s: () => setScale(view.scale === 'time' ? 'turns' : 'time'),
  t: () => toggleTheme(),
  c: () => showPath(),
  r: () => selectRange(view.begin, view.end),
  i: () => showInstant(),
  ',': () => stepInstant(-1),
  '.': () => stepInstant(1),
  f: foldAll,
  e: () => page('errors').click(),
  '?': () => page('keys').showModal(),
};

/** The centre of a zoom by keys: the selected bar, if it is visible. */
function focusX() {
  if (view.bar < 0) return undefined;
  const { from, to } = columns();
  const x = toX(Math.max(from[view.bar], Math.min((from[view.bar] + to[view.bar]) / 2, view.end)));
  return x >= view.gutter && x <= view.width ? x : undefined;
}

function press(keys, event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const name = event.key.length === 1 && !keys[event.key] ? event.key.toLowerCase() : event.key;
  if (!Object.hasOwn(keys, name)) return;
  event.preventDefault();
  keys[name]();
}

canvas.addEventListener('keydown', (event) => {
  if (event.shiftKey && event.key.startsWith('Arrow')) {
    event.preventDefault();
    if (event.key === 'ArrowLeft') KEYS.a();
    if (event.key === 'ArrowRight') KEYS.d();
    return;
  }
  press(KEYS, event);
});

document.addEventListener('keydown', (event) => {
  const isWritten = event.target.matches?.('input[type=search], select');
  if (event.defaultPrevented || isWritten || page('keys').open) return;
  press(EVERYWHERE, event);
});

for (const name of ['focus', 'blur']) canvas.addEventListener(name, changed);

page('table').addEventListener('keydown', (event) => {
  const rowsInView = Math.max(1, Math.floor(page('table').clientHeight / ROW) - 2);
  press(
    {
      ArrowUp: () => moveInTable(-1),
      ArrowDown: () => moveInTable(1),
      PageUp: () => moveInTable(-rowsInView),
      PageDown: () => moveInTable(rowsInView),
      Home: () => moveInTable(-list.length),
      End: () => moveInTable(list.length),
      Enter: () => canvas.focus(),
      Escape: () => canvas.focus(),
    },
    event,
  );
});

page('table').addEventListener('click', (event) => {
  const row = event.target.closest('.row')?.dataset.row;
  if (row !== undefined) selectRow(Number(row));
});

page('table').addEventListener('dblclick', (event) => {
  const row = event.target.closest('.row')?.dataset.row;
  const bar = row === undefined ? -1 : barOfRow(Number(row));
  if (bar >= 0) zoomTo(bar);
});

page('table').addEventListener('scroll', changed);

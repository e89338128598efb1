// Arrows between lanes: wake-ups, and messages from the task that sends to the task that receives. And
// marks: failures on a lane, faults of the network across all lanes.

const MOST_ARROWS = 2000;

/** The bars that end with a wake-up by a task, in order. */
function wakes() {
  const known = columns();
  if (known.wakes) return known.wakes;
  const woken = [];
  for (let bar = 0; bar < bars.length; bar++) {
    if (bars.end[bar] === WOKEN && lanes.place.has(bars.waker[bar])) woken.push(bar);
  }
  const order = Int32Array.from(woken).sort((a, b) => known.to[a] - known.to[b]);
  known.wakes = { bars: order, at: Float64Array.from(order, (bar) => known.to[bar]) };
  return known.wakes;
}

/** When the messages were sent, and up to each of them the latest receipt. */
function deliveries() {
  const known = columns();
  if (known.deliveries) return known.deliveries;
  const at = rows.at[view.scale];
  const sent = Float64Array.from(messages.from, (row) => at[row]);
  let latest = -Infinity;
  const received = Float64Array.from(messages.to, (row) => (latest = Math.max(latest, at[row])));
  return (known.deliveries = { sent, received });
}

function drawArrows() {
  const notes = [];
  if (view.arrows) notes.push(drawWakes());
  if (view.messages) notes.push(drawMessages());
  page('shown').dataset.arrows = notes.filter(Boolean).join(', ');
}

/** Draws the wake-ups in view; returns a note if they are too many. */
function drawWakes() {
  const { bars: woken, at } = wakes();
  const first = lowerBound(at, view.begin, 0, at.length);
  const last = upperBound(at, view.end, first, at.length);
  if (last - first > MOST_ARROWS) return `${count(last - first, 'wake-up')}: zoom in to see them`;
  paper.strokeStyle = colors.ink;
  paper.lineWidth = 0.8;
  paper.beginPath();
  for (let index = first; index < last; index++) wakeUp(woken[index]);
  paper.stroke();
  return '';
}

/** Draws the messages in view; returns a note if they are too many. */
function drawMessages() {
  const { sent, received } = deliveries();
  const first = lowerBound(received, view.begin, 0, messages.length);
  const last = upperBound(sent, view.end, first, messages.length);
  if (last - first > MOST_ARROWS) return `${count(last - first, 'message')}: zoom in to see them`;
  const at = rows.at[view.scale];
  paper.strokeStyle = colors.message;
  paper.lineWidth = 1.2;
  paper.beginPath();
  for (let message = first; message < last; message++) {
    const [from, to] = [messages.from[message], messages.to[message]];
    arrow(toX(at[from]), rows.lane[from], toX(at[to]), rows.lane[to]);
  }
  paper.stroke();
  return '';
}

/** Adds the arrow from the task that woke another to the end of that one's wait. */
function wakeUp(bar) {
  const waker = lanes.place.get(bars.waker[bar]);
  const x = toX(columns().to[bar]);
  arrow(x, waker, x, bars.lane[bar]);
}

/** Adds an arrow from one lane to another, each at its instant. */
function arrow(x, from, end, to) {
  const [above, below] = [placeShown(from), placeShown(to)];
  if (above < 0 || below < 0 || above === below) return;
  const [y, tip] = [edgeY(above), edgeY(below)];
  if (Math.max(y, tip) < 0 || Math.min(y, tip) > view.height) return;
  const [start, stop] = above < below ? [y + BOTTOM, tip + ACTIVE_TOP - 1] : [y + ACTIVE_TOP, tip + BOTTOM];
  paper.moveTo(x, start);
  paper.lineTo(end, stop);
  // The head, turned as the line is.
  const angle = Math.atan2(stop - start, end - x);
  for (const side of [-0.5, 0.5]) {
    paper.moveTo(end, stop);
    paper.lineTo(end - 5 * Math.cos(angle + side), stop - 5 * Math.sin(angle + side));
  }
}

/** The top of a lane; of one that has scrolled below the pinned ones, their edge. */
function edgeY(place) {
  return place < view.pinned ? toY(place) : Math.max(toY(place), RULER + (view.pinned - 1) * LANE);
}

/** For each row, the last message that it sent, and the last that it received; -1 is none. */
const messageOf = { sent: new Int32Array(rows.length).fill(-1), received: new Int32Array(rows.length).fill(-1) };
for (let message = 0; message < messages.length; message++) {
  messageOf.sent[messages.from[message]] = message;
  messageOf.received[messages.to[message]] = message;
}

/** Where the bytes of a row went to or came from, or nothing. */
function route(row) {
  const [sent, received] = [messageOf.sent[row], messageOf.received[row]];
  if (sent < 0 && received < 0) return '';
  const message = Math.max(sent, received);
  const took = rows.at.time[messages.to[message]] - rows.at.time[messages.from[message]];
  const [arrow, other] = sent >= 0 ? ['→', messages.to[sent]] : ['←', messages.from[received]];
  return `${arrow} ${task(rows.lane[other])}, ${span(took)}`;
}

// ---- marks

/** The rows that are failures or faults, in order; those of one kind. */
const errors = new Int32Array(rows.isError.reduce((sum, is) => sum + is, 0));
for (let row = 0, at = 0; row < rows.length; row++) if (rows.isError[row]) errors[at++] = row;
/** Whether a row is marked across lanes instead of on its own. */
const isAcross = (row) => rows.kind[row] === FAULT || rows.kind[row] === DEADLOCKED;
/** The cycles of waits that closed: the row of each, and its tasks, which its text names. */
const deadlocks = Array.from(errors.filter((row) => rows.kind[row] === DEADLOCKED), (row) => ({
  row,
  tids: rows.what.get(row).match(/(\d+:)?\d+/g).map((text) => text.split(':').reduce((kernel, own) => kernel * OWN + Number(own), 0)),
}));
const faults = errors.filter((row) => rows.kind[row] === FAULT);
const isErring = new Uint8Array(lanes.length);
for (const row of errors) isErring[rows.lane[row]] = 1;
for (let lane = 0; lane < lanes.length; lane++) if (hasFailed(lane)) isErring[lane] = 1;

/** The failures as crosses: legible without their colour. */
function drawErrors(first, last) {
  const at = rows.at[view.scale];
  const done = new Map();
  paper.beginPath();
  for (let index = lowerBoundBy(errors, (row) => at[row] >= view.begin); index < errors.length; index++) {
    const row = errors[index];
    if (at[row] > view.end) break;
    const place = placeShown(rows.lane[row]);
    const x = toX(at[row]);
    if (place < first || place >= last || isAcross(row) || x - done.get(place) < 3) continue;
    done.set(place, x);
    const y = toY(place) + ACTIVE_TOP + ACTIVE_HEIGHT / 2;
    paper.moveTo(x - 3.5, y - 3.5);
    paper.lineTo(x + 3.5, y + 3.5);
    paper.moveTo(x - 3.5, y + 3.5);
    paper.lineTo(x + 3.5, y - 3.5);
  }
  // The edge is legible on any colour.
  for (const [color, width] of [[colors.paper, 4.5], [colors.error, 2]]) {
    paper.strokeStyle = color;
    paper.lineWidth = width;
    paper.stroke();
  }
}

/** A line between the lanes of tasks that wait for one another, where that began. */
function drawDeadlocks() {
  const at = rows.at[view.scale];
  paper.strokeStyle = paper.fillStyle = colors.wait;
  paper.lineWidth = 2;
  paper.font = SMALL;
  paper.textAlign = 'left';
  for (const { row, tids } of deadlocks) {
    if (at[row] < view.begin || at[row] > view.end) continue;
    const places = tids.map((tid) => lanes.place.get(tid)).filter((lane) => lane !== undefined).map(placeShown);
    const middles = places.filter((place) => place >= 0).map((place) => edgeY(place) + ACTIVE_TOP + ACTIVE_HEIGHT / 2);
    if (!middles.length) continue;
    const x = toX(at[row]);
    const [top, bottom] = [Math.min(...middles), Math.max(...middles)];
    paper.beginPath();
    paper.moveTo(x, top);
    paper.lineTo(x, bottom);
    for (const y of middles) {
      paper.moveTo(x - 4, y);
      paper.lineTo(x + 4, y);
    }
    paper.stroke();
    paper.fillText('deadlock', x + 6, (top + bottom) / 2);
  }
}

/** The faults of the network, across all lanes, with their words. */
function drawFaults() {
  const at = rows.at[view.scale];
  paper.strokeStyle = paper.fillStyle = colors.error;
  paper.lineWidth = 1.4;
  paper.font = SMALL;
  paper.textAlign = 'left';
  let free = -Infinity;
  for (let index = lowerBoundBy(faults, (row) => at[row] >= view.begin); index < faults.length; index++) {
    const row = faults[index];
    if (at[row] > view.end) break;
    const x = Math.round(toX(at[row])) + 0.5;
    paper.setLineDash([5, 3]);
    paper.beginPath();
    paper.moveTo(x, RULER);
    paper.lineTo(x, view.height);
    paper.stroke();
    const words = rows.what.get(row).replace(/^fault: /, '');
    const width = paper.measureText(words).width + 8;
    // Of faults side by side, the first has words.
    if (x < free) continue;
    const left = Math.min(x, view.width - width);
    free = left + width;
    paper.fillRect(left, RULER, width, 13);
    paper.fillStyle = colors.paper;
    paper.fillText(words, left + 4, RULER + 7);
    paper.fillStyle = colors.error;
  }
  paper.setLineDash([]);
}

// The flame graph of what is in view: the tasks of a name, their states, the calls in which they were, and what
// they were blocked on. Width is time, or turns.

/** A part of less than this share has no frame. */
const THINNEST = 0.002;

/** The frames from the root to the zoomed one, by their names. */
let zoomed = [];

const newFrame = (name, kind) => ({ name, kind, sum: 0, of: new Map() });

/** The frames of a bar: names with the kinds of their colours. */
function framesOf(bar) {
  const kind = bars.doing[bar];
  const name = GROUPINGS.name(bars.lane[bar]) ?? task(bars.lane[bar]);
  const state = kind > RESTING ? 'blocked' : kind === CALLING ? 'in call' : KINDS[kind];
  const frames = [[name, kind], [state, kind]];
  const row = bars.row[bar];
  if (row >= 0 && rows.kind[row] === CALL && kind !== RUNNING) frames.push([rows.what.get(row).split('(')[0], kind]);
  if (kind > RESTING) frames.push([bars.on.get(bar).replace(/\d+/g, '#'), kind]);
  return frames;
}

/** The sums of all bars in view. */
function flame() {
  const root = newFrame('all', -1);
  const { from, to } = columns();
  for (let lane = 0; lane < lanes.length; lane++) {
    if (isKernel(lane)) continue;
    const last = lanes.first[lane + 1];
    for (let bar = lowerBound(to, view.begin, lanes.first[lane], last); bar < last && from[bar] < view.end; bar++) {
      const sum = Math.min(to[bar], view.end) - Math.max(from[bar], view.begin);
      if (sum <= 0) continue;
      let frame = root;
      frame.sum += sum;
      for (const [name, kind] of framesOf(bar)) {
        if (!frame.of.has(name)) frame.of.set(name, newFrame(name, kind));
        frame = frame.of.get(name);
        frame.sum += sum;
      }
    }
  }
  return root;
}

function frameBox(frame, way, all) {
  const box = document.createElement('div');
  box.className = 'frame';
  box.style.flexGrow = frame.sum;
  const head = document.createElement('button');
  const share = `${amount(frame.sum)}, ${((100 * frame.sum) / all).toFixed(1)} %`;
  head.textContent = frame.name;
  head.title = `${[...way, frame.name].join(' › ')}: ${share}`;
  if (frame.kind >= 0) {
    head.style.borderLeftColor = colors.kinds[frame.kind].ink;
    head.style.background = colors.kinds[frame.kind].paper;
    if (frame.kind === RUNNING) head.style.color = colors.on;
  }
  head.addEventListener('click', () => {
    zoomed = frame.name === 'all' && !way.length ? [] : [...way, frame.name].slice(1);
    fillFlame();
  });
  const below = document.createElement('div');
  below.className = 'frames';
  const parts = [...frame.of.values()].filter(({ sum }) => sum >= all * THINNEST).sort((a, b) => b.sum - a.sum);
  below.append(...parts.map((part) => frameBox(part, [...way, frame.name], all)));
  // What is alone in a frame, or left out, keeps its width.
  const rest = frame.sum - parts.reduce((sum, part) => sum + part.sum, 0);
  if (rest > frame.sum * 1e-9) below.append(Object.assign(document.createElement('div'), { className: 'rest' }));
  if (below.lastChild?.className === 'rest') below.lastChild.style.flexGrow = rest;
  box.append(head, below);
  return box;
}

function fillFlame() {
  const panel = page('tab-flame');
  const root = flame();
  let frame = root;
  const way = [];
  for (const name of zoomed) {
    if (!frame.of.has(name)) break;
    way.push(frame.name);
    frame = frame.of.get(name);
  }
  if (root.sum === 0) return void (panel.textContent = 'No task is in view.');
  panel.replaceChildren(...way.map((name, at) => {
    const back = Object.assign(document.createElement('button'), { className: 'back', textContent: `↑ ${name}` });
    back.addEventListener('click', () => {
      zoomed = zoomed.slice(0, at);
      fillFlame();
    });
    return back;
  }), frameBox(frame, way, frame.sum));
}

let flameTimer = 0;

/** Draws it again soon, if it is shown: what is in view changes with each step of a drag. */
function flameSoon() {
  if (page('tab-flame').hidden) return;
  clearTimeout(flameTimer);
  flameTimer = setTimeout(fillFlame, 80);
}

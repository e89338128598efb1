// An instant of the run: the tasks, their tree and their waits, as `trace ps`, `trace tree` and
// `trace waits` list them.

const SLIDER = 10000;
/** The number of tasks that are listed. */
const MOST_STANDING = 500;

/** Looks at an instant; by default that of the selected bar, or the middle of the view. */
function showInstant(value = view.bar >= 0 ? columns().from[view.bar] : (view.begin + view.end) / 2) {
  const [first, last] = limits();
  view.at = Math.min(Math.max(view.scale === 'time' ? Math.round(value) : Math.floor(value), first), last);
  if (view.at < view.begin || view.at > view.end) {
    const half = (view.end - view.begin) / 2;
    show(view.at - half, view.at + half);
  }
  page('instant').value = Math.round(((view.at - first) / (last - first)) * SLIDER);
  showTab('instant');
  fillInstant();
  changed();
}

/** Goes to the next or the previous instant at which anything happened. */
function stepInstant(by) {
  if (view.at === null) return showInstant();
  const { from, to } = columns();
  let next = by > 0 ? Infinity : -Infinity;
  const nearest = (values, low, high) => {
    const at = by > 0 ? upperBound(values, view.at, low, high) : lowerBound(values, view.at, low, high) - 1;
    if (at < low || at >= high) return;
    next = by > 0 ? Math.min(next, values[at]) : Math.max(next, values[at]);
  };
  for (let lane = 0; lane < lanes.length; lane++) {
    nearest(from, lanes.first[lane], lanes.first[lane + 1]);
    nearest(to, lanes.first[lane], lanes.first[lane + 1]);
  }
  nearest(rows.at[view.scale], 0, rows.length);
  if (Number.isFinite(next)) showInstant(next);
}

/** The state of a lane after all that happened up to an instant: a bar, or -1 if the task is not alive. */
function barAfter(lane, value) {
  const { from, to } = columns();
  const bar = upperBound(from, value, lanes.first[lane], lanes.first[lane + 1]) - 1;
  if (bar < lanes.first[lane]) return -1;
  return to[bar] > value || bars.end[bar] > ENDED ? bar : -1;
}

/** The tasks that are alive at an instant, by number. */
function standingAt(value) {
  const tasks = [];
  for (let lane = 0; lane < lanes.length; lane++) {
    const bar = isKernel(lane) ? -1 : barAfter(lane, value);
    if (bar >= 0) tasks.push({ lane, bar, tid: lanes.tid[lane], name: lanes.name.get(lane), parent: lanes.parent[lane], state: stateWords(bar) });
  }
  return tasks;
}

const wordsOf = new Map();

/** The state of a task in a bar, in the words of `trace ps`. */
function stateWords(bar) {
  const kind = bars.doing[bar];
  if (kind < RESTING) return ['running', 'ready', 'in calls'][kind];
  if (KINDS[kind] === 'timer') return 'asleep';
  if (!wordsOf.size) for (const [on, words] of run.words) wordsOf.set(on, words);
  return wordsOf.get(bars.on.get(bar)) ?? `blocked on ${bars.on.get(bar)}`;
}

/** The call that a task is in, or was in before it became ready. */
function callOf(bar) {
  const row = bars.row[bar];
  return bars.doing[bar] === RUNNING || row < 0 || rows.kind[row] !== CALL ? '' : rows.what.get(row);
}

/** The tasks below their parents, as lines. Siblings of one name and state without children are one. */
function treeLines(tasks) {
  const alive = new Set(tasks.map(({ tid }) => tid));
  const children = new Map();
  for (const task of tasks) {
    const parent = alive.has(task.parent) ? task.parent : 0;
    if (!children.has(parent)) children.set(parent, []);
    children.get(parent).push(task);
  }
  const groupsBelow = (parent, depth) => {
    const groups = new Map();
    for (const task of children.get(parent) ?? []) {
      const key = children.has(task.tid) ? task.tid : `${task.name}\n${task.state}`;
      if (groups.has(key)) groups.get(key).number++;
      else groups.set(key, { task, depth, number: 1 });
    }
    return [...groups.values()].reverse();
  };
  const lines = [];
  const ahead = groupsBelow(0, 0);
  while (ahead.length) {
    const { task, depth, number } = ahead.pop();
    const what = number > 1 ? `${task.name} x ${number}` : `${task.tid} ${task.name}`;
    lines.push(`${'  '.repeat(Math.min(depth, 40))}${what}: ${task.state}`);
    ahead.push(...groupsBelow(task.tid, depth + 1));
  }
  return lines;
}

/** The live task that a bar waits for: one whose end it waits for, or that got the queue's last message. */
function targetOf({ tid, bar }, value, alive) {
  const kind = KINDS[bars.doing[bar]];
  let target;
  if (kind === 'exit') target = bars.on.number[bar];
  if (kind === 'queue') {
    const takes = run.takes.get(bars.on.number[bar]);
    const at = takes ? upperBound(takes.at[view.scale], value, 0, takes.length) - 1 : -1;
    if (at >= 0) target = takes.tid[at];
  }
  return target !== tid && alive.has(target) ? target : undefined;
}

/** Each cycle of tasks that wait for one another, from its lowest number on. */
function cyclesOf(targets) {
  const seen = new Set();
  const cycles = [];
  for (const start of targets.keys()) {
    const walk = [];
    let at = start;
    for (; targets.has(at) && !seen.has(at); at = targets.get(at)) {
      seen.add(at);
      walk.push(at);
    }
    const met = walk.indexOf(at);
    if (met < 0) continue;
    const ring = walk.slice(met);
    const lowest = ring.indexOf(Math.min(...ring));
    cycles.push([...ring.slice(lowest), ...ring.slice(0, lowest)]);
  }
  return cycles.sort((a, b) => a[0] - b[0]);
}

function fillInstant() {
  const text = (name, textContent) => Object.assign(document.createElement(name), { textContent });
  page('instant-text').textContent = view.scale === 'time' ? instantExact(view.at) : where(view.at);
  const tasks = standingAt(view.at);
  const few = tasks.slice(0, MOST_STANDING);
  const lines = few.map(({ tid, name, parent, bar, state }) => [tid, name, parent, state, instant(bars.from.time[bar]), callOf(bar)]);
  const press = (cells) => selectBar(tasks.find(({ tid }) => tid === cells[0]).bar);
  const ps = listOf(['tid', 'task', 'parent', 'is', 'since', 'call'], lines, press);
  ps.id = 'ps';
  const tree = text('pre', treeLines(tasks).slice(0, MOST_STANDING).join('\n'));
  tree.id = 'tree';
  const more = tasks.length > few.length ? [text('p', `And ${count(tasks.length - few.length, 'task')} more.`)] : [];
  const titled = (title, ...parts) => {
    const part = document.createElement('div');
    part.append(text('h2', title), ...parts);
    return part;
  };
  const waits = waitsOf(tasks);
  page('standing').replaceChildren(titled(count(tasks.length, 'task'), ps, ...more), titled('Tree', tree), titled('Waits', ...waits));
}

/** The tasks that wait, and for which others; and the cycles of those. */
function waitsOf(tasks) {
  const alive = new Set(tasks.map(({ tid }) => tid));
  const waiting = tasks.filter(({ bar }) => bars.doing[bar] > RESTING);
  const targets = new Map();
  for (const one of waiting) {
    const target = targetOf(one, view.at, alive);
    if (target !== undefined) targets.set(one.tid, target);
  }
  const lines = waiting.slice(0, MOST_STANDING).map(({ tid, name, bar }) => {
    const target = targets.get(tid);
    return [tid, name, bars.on.get(bar), target === undefined ? '' : task(lanes.place.get(target))];
  });
  const list = listOf(['tid', 'task', 'waits for', 'held by'], lines, (cells) => selectBar(waiting.find(({ tid }) => tid === cells[0]).bar));
  list.id = 'waits';
  const cycles = cyclesOf(targets).map((ring) => Object.assign(document.createElement('p'), { className: 'cycle', textContent: `cycle: ${[...ring, ring[0]].join(' -> ')}` }));
  return [list, ...cycles];
}

/** An instant to the nanosecond, as `--at` takes it. */
function instantExact(nanos) {
  return instant(nanos) + String(Math.floor(nanos % 1000)).padStart(3, '0');
}

/** Draws a line at the instant. */
function drawInstant() {
  if (view.at === null) return;
  const x = Math.round(toX(view.at)) + 0.5;
  if (x < view.gutter || x > view.width) return;
  paper.strokeStyle = paper.fillStyle = colors.focus;
  paper.lineWidth = 1.5;
  paper.beginPath();
  paper.moveTo(x, 6);
  paper.lineTo(x, view.height);
  paper.stroke();
  paper.beginPath();
  paper.arc(x, 6, 4, 0, 7);
  paper.fill();
}

page('instant').max = SLIDER;
page('instant').addEventListener('input', (event) => {
  const [first, last] = limits();
  showInstant(first + (event.target.value / SLIDER) * (last - first));
});
page('before').addEventListener('click', () => stepInstant(-1));
page('after').addEventListener('click', () => stepInstant(1));
page('show-instant').addEventListener('click', () => view.at === null && showInstant());

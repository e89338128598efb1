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
  page('instant').value = last > first ? Math.round(((view.at - first) / (last - first)) * SLIDER) : 0;
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
  const at = rows.at[view.scale];
  const traps = new Int32Array(lanes.length);
  for (let row = 0; row < rows.length && at[row] <= value; row++) traps[rows.lane[row]] += rows.kind[row] === CALL;
  for (let lane = 0; lane < lanes.length; lane++) {
    const bar = isKernel(lane) ? -1 : barAfter(lane, value);
    if (bar < 0) continue;
    const since = instant(bars.from.time[bar]).slice(0, -3);
    tasks.push({ lane, bar, tid: lanes.tid[lane], name: lanes.name.get(lane), parent: lanes.parent[lane], since, traps: traps[lane], ...stateAt(bar, value) });
  }
  // A task whose parent has ended is an orphan.
  const alive = new Set(tasks.map(({ tid }) => tid));
  return tasks.map((task) => ({ ...task, parent: alive.has(task.parent) ? task.parent : 0 }));
}

const wordsOf = new Map(run.words);

/** The task that holds the lock for which a bar waits, or took the last permit; 0 if there is none. */
function holderAt(bar, value) {
  const takes = KINDS[bars.doing[bar]] === 'queue' ? run.takes.get(bars.on.number[bar]) : undefined;
  const at = takes ? upperBound(takes.at[view.scale], value, 0, takes.length) - 1 : -1;
  return at < 0 ? 0 : takes.tid[at];
}

/** The state of a task in a bar, and what it is blocked on, in the words of `trace ps`. */
function stateAt(bar, value) {
  const kind = bars.doing[bar];
  if (kind === CALLING) return { state: 'in call', on: callOf(bar), sort: 'in call' };
  if (kind < RESTING) return { state: KINDS[kind], on: '', sort: KINDS[kind] };
  const text = bars.on.get(bar);
  const thing = wordsOf.get(text) ?? text;
  const holder = holderAt(bar, value);
  const on = holder ? `${thing}, ${thing.startsWith('mutex') ? 'held' : 'last taken'} by task ${holder}` : thing;
  const sorts = { timer: 'timer', device: 'device', exit: 'task', select: 'task', queue: on.split(' ')[0] };
  return { state: 'blocked', on, sort: sorts[KINDS[kind]] };
}

/** The call that a task is in. */
function callOf(bar) {
  const row = bars.row[bar];
  return row < 0 || rows.kind[row] !== CALL ? '' : rows.what.get(row);
}

/** More siblings of a name than these are one line, as in `trace tree`. */
const MOST_SIBLINGS = 10;

/** The tasks below their parents, as lines. */
function treeLines(tasks) {
  const alive = new Set(tasks.map(({ tid }) => tid));
  const children = new Map();
  for (const task of tasks) {
    const parent = alive.has(task.parent) ? task.parent : 0;
    if (!children.has(parent)) children.set(parent, []);
    children.get(parent).push(task);
  }
  const lines = [];
  const ahead = crowdsAmong(children.get(0) ?? [], children).map((crowd) => ({ crowd, branch: '', below: '' })).reverse();
  while (ahead.length) {
    const { crowd, branch, below } = ahead.pop();
    lines.push(branch + treeLine(crowd));
    const its = crowd.length > 1 ? [] : crowdsAmong(children.get(crowd[0].tid) ?? [], children);
    const next = its.map((crowd, at) => {
      const isLast = at === its.length - 1;
      return { crowd, branch: below + (isLast ? '└─ ' : '├─ '), below: below + (isLast ? '   ' : '│  ') };
    });
    ahead.push(...next.reverse());
  }
  return lines;
}

/** Siblings one by one, except for many of a name without children, which are together. */
function crowdsAmong(siblings, children) {
  const leaves = new Map();
  for (const task of siblings) {
    if (children.has(task.tid)) continue;
    if (!leaves.has(task.name)) leaves.set(task.name, []);
    leaves.get(task.name).push(task);
  }
  return siblings.flatMap((task) => {
    const crowd = children.has(task.tid) ? [] : leaves.get(task.name);
    if (crowd.length <= MOST_SIBLINGS) return [[task]];
    return crowd[0] === task ? [crowd] : [];
  });
}

function treeLine(crowd) {
  const [{ tid, name, state, on, since }] = crowd;
  if (crowd.length > 1) {
    const sorts = new Map();
    for (const { sort } of crowd) sorts.set(sort, (sorts.get(sort) ?? 0) + 1);
    const parts = [...sorts].sort((a, b) => b[1] - a[1]).map(([sort, number]) => `${number.toLocaleString('en')} ${sort}`);
    return `${name} x${crowd.length}: ${parts.join(', ')}`;
  }
  const doing = { blocked: `waits for ${on}, since ${since}`, 'in call': `in ${on}` }[state] ?? state;
  return `${numbered(tid)} ${name}: ${doing}`;
}

/**
 * The live task that alone can end the wait of a bar: one whose end it is for, or that holds the mutex.
 * None if a timeout can end it too.
 */
function targetOf({ bar, sort }, value, alive) {
  if (bars.isTimed[bar]) return undefined;
  // A select of two sources is for no task 2.
  const end = bars.on.get(bar).startsWith('the end of ') ? bars.on.number[bar] : undefined;
  const target = { task: end, mutex: holderAt(bar, value) }[sort];
  return alive.has(target) ? target : undefined;
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
  const lines = few.map(({ tid, name, parent, state, on, since, traps }) => [cellOf(tid), name, cellOf(parent), state, on, since, traps]);
  const press = (cells) => selectBar(tasks.find(({ tid }) => cellOf(tid) === cells[0]).bar);
  const ps = listOf(['tid', 'task', 'parent', 'state', 'blocked on', 'since', 'traps'], lines, press);
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
  const lines = waiting.slice(0, MOST_STANDING).map(({ tid, name, on }) => [cellOf(tid), name, on]);
  const list = listOf(['tid', 'task', 'waits for'], lines, (cells) => selectBar(waiting.find(({ tid }) => cellOf(tid) === cells[0]).bar));
  list.id = 'waits';
  const cycles = cyclesOf(targets).map((ring) => Object.assign(document.createElement('p'), { className: 'cycle', textContent: `cycle: ${[...ring, ring[0]].map(numbered).join(' -> ')}` }));
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

// A selected range: how its tasks used it, how long its calls took, and the slowest of them.

/** The number of names and of slow calls that are listed. */
const MOST_LISTED = 40;

/** What the length of a call is measured in: turns, where a virtual clock never moves. */
const UNIT = run.limits.time[1] > run.limits.time[0] ? 'time' : 'turns';
const tookOf = (row) => rows.took[UNIT][row];
const long = (value) => (UNIT === 'time' ? span(value) : count(Math.round(value), 'turn'));

/** Selects a part of the run, on the present scale. */
function selectRange(begin, end) {
  const [first, last] = limits();
  const [low, high] = [begin, end].sort((a, b) => a - b);
  view.range = { begin: Math.max(low, first), end: Math.min(high, last) };
  fillRange();
  showTab('range');
}

function clearRange() {
  view.range = null;
  fillRange();
  changed();
}

/** The time of a lane in each state, within a part of the run. */
function timeIn(lane, low, high) {
  const { from, to, sums } = columns();
  const begin = lowerBound(to, low, lanes.first[lane], lanes.first[lane + 1]);
  const end = upperBound(from, high, begin, lanes.first[lane + 1]);
  const times = sums.map((sum) => sum[end] - sum[begin]);
  if (begin === end) return times;
  times[stateOf(begin)] -= Math.max(0, low - from[begin]);
  times[stateOf(end - 1)] -= Math.max(0, to[end - 1] - high);
  return times;
}

/** The shares of each name in a range: its tasks there, and their time in each state. */
function sharesIn({ begin, end }) {
  const found = new Map();
  for (let lane = 0; lane < lanes.length; lane++) {
    const times = timeIn(lane, begin, end);
    const total = times.reduce((sum, time) => sum + time, 0);
    const name = isKernel(lane) ? undefined : GROUPINGS.name(lane);
    if (name === undefined || total <= 0) continue;
    if (!found.has(name)) found.set(name, { name, tasks: 0, times: [0, 0, 0, 0] });
    const its = found.get(name);
    its.tasks++;
    times.forEach((time, state) => (its.times[state] += time));
  }
  const active = ({ times }) => times[RUNNING] + times[CALLING];
  return [...found.values()].sort((a, b) => active(b) - active(a));
}

/** The answered calls that began in a range, by name, each with its rows; the longest in all first. */
function callsIn({ begin, end }) {
  const at = rows.at[view.scale];
  const names = new Map();
  const first = lowerBound(at, begin, 0, rows.length);
  const last = upperBound(at, end, first, rows.length);
  const nameOf = run.templates.map(({ before, after }) => (before + after).split('(')[0]);
  for (let row = first; row < last; row++) {
    if (rows.kind[row] !== CALL || !rows.isAnswered[row]) continue;
    const name = nameOf[rows.what.template[row]];
    if (!names.has(name)) names.set(name, []);
    names.get(name).push(row);
  }
  const calls = Array.from(names, ([name, its]) => {
    const took = Float64Array.from(its, tookOf).sort();
    return { name, rows: its, took, total: took.reduce((sum, one) => sum + one, 0) };
  });
  return calls.sort((a, b) => b.total - a.total || b.took.length - a.took.length);
}

/** The value at a rank in percent, as `trace summary` counts. */
const quantile = (sorted, percent) => sorted[Math.ceil((sorted.length * percent) / 100) - 1];

/** The numbers of calls in steps of a factor of two or more, as bars; and what they mean. */
function histogram(took) {
  const positive = took.filter((one) => one > 0);
  if (!positive.length) return { bars: '', words: '' };
  const [low, high] = [Math.log2(positive[0]), Math.log2(positive[positive.length - 1])];
  const [steps, width] = [12, Math.max(1, (high - low) / 12)];
  const counts = new Array(steps).fill(0);
  for (const one of positive) counts[Math.min(steps - 1, Math.floor((Math.log2(one) - low) / width))]++;
  const most = Math.max(...counts);
  while (counts[counts.length - 1] === 0) counts.pop();
  const levels = counts.map((count) => (count ? Math.ceil((count / most) * 8) : 0));
  const words = counts.map((count, at) => `${count} from ${long(2 ** (low + at * width))}`).filter((_, at) => counts[at]);
  return { bars: levels.map((level) => ' ▁▂▃▄▅▆▇█'[level]).join(''), words: words.join(', ') };
}

/** An amount of the present scale. */
const amount = (value) => (view.scale === 'time' ? span(value) : count(Math.round(value * 100) / 100, 'turn'));
const where = (value) => (view.scale === 'time' ? instant(value) : `turn ${Math.round(value).toLocaleString('en')}`);

function fillRange() {
  const panel = page('tab-range');
  const say = (text) => Object.assign(document.createElement('p'), { textContent: text });
  const press = (text, action) => {
    const button = Object.assign(document.createElement('button'), { textContent: text });
    button.addEventListener('click', action);
    return button;
  };
  const inView = press('What is in view', () => selectRange(view.begin, view.end));
  if (!view.range) {
    panel.replaceChildren(say('Drag along the ruler, or over the lanes with Shift, to select a part of the run. Or press R for'), inView);
    return;
  }
  const { begin, end } = view.range;
  const title = say(`${where(begin)} to ${where(end)}: ${amount(end - begin)} `);
  title.append(press('Zoom to it', () => show(begin, end)), ' ', inView, ' ', press('Select nothing', clearRange));
  panel.replaceChildren(title, shareTable(sharesIn(view.range)), ...callTables(callsIn(view.range)));
}

function shareTable(shares) {
  const lines = shares.slice(0, MOST_LISTED).map(({ name, tasks, times }) => {
    const total = times.reduce((sum, time) => sum + time, 0);
    const cell = (state) => `${Number(((100 * times[state]) / total).toPrecision(3))} % ${amount(times[state])}`;
    return [name, tasks.toLocaleString('en'), ...[RUNNING, CALLING, READY, RESTING].map(cell)];
  });
  return listOf(['task', 'tasks', 'running', 'in call', 'ready', 'blocked'], lines);
}

function callTables(calls) {
  const lines = calls.slice(0, MOST_LISTED).map(({ name, took, rows: its }) => {
    const failed = its.reduce((sum, row) => sum + rows.isError[row], 0);
    return [name, took.length.toLocaleString('en'), failed || '', ...[50, 90, 99, 100].map((percent) => long(quantile(took, percent))), histogram(took).bars];
  });
  const table = listOf(['call', 'count', 'errors', 'p50', 'p90', 'p99', 'most', 'how many took how long'], lines);
  [...table.tBodies[0].rows].forEach((row, at) => {
    Object.assign(row.lastElementChild, { className: 'bars', title: histogram(calls[at].took).words });
  });
  const slowest = calls.flatMap(({ rows: its }) => its).sort((a, b) => tookOf(b) - tookOf(a)).slice(0, MOST_LISTED / 2);
  const title = Object.assign(document.createElement('p'), { textContent: 'The slowest calls: press one to see it.' });
  const at = (row) => (UNIT === 'time' ? instant(rows.at.time[row]) : `turn ${rows.at.turns[row].toLocaleString('en')}`);
  const texts = slowest.map((row) => [long(tookOf(row)), at(row), task(rows.lane[row]), call(row)]);
  const list = listOf(['took', 'at', 'task', 'call'], texts, (cells) => selectRow(slowest[texts.indexOf(cells)]));
  return [table, title, list];
}

/** Draws the range, and what is about to be one. */
function drawRange() {
  const range = drag.range ? { begin: toValue(drag.range), end: toValue(drag.x) } : view.range;
  if (!range) return;
  const [x, right] = [range.begin, range.end].map((value) => clampX(toX(value))).sort((a, b) => a - b);
  paper.globalAlpha = 0.12;
  paper.fillStyle = colors.focus;
  paper.fillRect(x, RULER, right - x, view.height);
  paper.globalAlpha = 1;
  paper.fillRect(x, 0, right - x, 3);
}

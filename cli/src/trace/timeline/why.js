// Why a bar is there, and the critical path: the words of `trace why` and `trace path`, and both drawn.

const { reasons, path } = run;

/** The sentences about a bar, or what to do for them. */
function whyOf(bar) {
  const reason = reasons.of.get(bar);
  if (reason) return Array.from({ length: reason.last - reason.first }, (_, at) => reasons.sentences.get(reason.first + at));
  const isNone = bar < 0 || isKernel(bars.lane[bar]);
  const [from, to] = [bars.from.time[bar], bars.to.time[bar]];
  if (isNone || to <= from) return [];
  const at = `${Math.floor((from + to) / 2)}ns`;
  const command = `trapline trace why ${numbered(lanes.tid[bars.lane[bar]])} --at ${at} ${facts.file}`;
  return [`The page explains ${count(reasons.of.size, 'wait')}, and not this one. Its explanation: ${command}`];
}

function tellWhy() {
  page('why').textContent = whyOf(view.bar).join(' ');
}

/** Draws the chain of the selected bar: a frame around each wait of it, and lines from each to the next,
 * which explains it. */
function drawChain() {
  const steps = reasons.of.get(view.bar)?.steps ?? [];
  if (steps.length < 2) return;
  const { from, to } = columns();
  const boxes = Array.from(steps, (bar) => {
    const place = placeShown(bars.lane[bar]);
    const [left, right] = [toX(from[bar]), Math.max(toX(to[bar]), toX(from[bar]) + 2)];
    return place < 0 ? null : { left: clampX(left), right: clampX(right), y: edgeY(place) };
  });
  paper.strokeStyle = paper.fillStyle = colors.found;
  paper.lineWidth = 2;
  paper.font = SMALL;
  paper.textAlign = 'center';
  boxes.forEach((box, at) => {
    if (!box) return;
    if (at > 0) paper.strokeRect(box.left, box.y + 2, Math.max(box.right - box.left, 2), BOTTOM);
    const next = boxes[at + 1];
    if (!next) return;
    // Where both are: what comes next held the wait up then.
    const x = (Math.max(box.left, next.left) + Math.min(box.right, next.right)) / 2;
    const [y, end] = box.y < next.y ? [box.y + BOTTOM + 2, next.y + 2] : [box.y + 2, next.y + BOTTOM + 2];
    paper.beginPath();
    paper.moveTo(clampX(x), y);
    paper.lineTo(clampX(x), end);
    paper.stroke();
    const middle = (y + end) / 2;
    paper.beginPath();
    paper.arc(clampX(x), middle, 7, 0, 7);
    paper.fill();
    paper.fillStyle = colors.paper;
    paper.fillText(at + 1, clampX(x), middle + 0.5);
    paper.fillStyle = colors.found;
  });
}

const clampX = (x) => Math.min(Math.max(x, view.gutter), view.width);

// ---- the critical path

function showPath(isShown = !view.path) {
  view.path = isShown && path.length > 0;
  page('path').setAttribute('aria-pressed', view.path);
  if (view.path) showTab('path');
  changed();
}

/** Draws the critical path: a line below each of its parts, and from each to the next. */
function drawPath() {
  if (!view.path) return;
  const [from, to] = [path.from[view.scale], path.to[view.scale]];
  paper.strokeStyle = colors.found;
  paper.lineWidth = 3;
  paper.beginPath();
  let before = -1;
  for (let part = lowerBound(to, view.begin, 0, path.length); part < path.length && from[part] <= view.end; part++) {
    const place = placeShown(path.lane[part]);
    if (place < 0) continue;
    const y = edgeY(place) + BOTTOM + 1;
    const x = clampX(toX(from[part]));
    if (before >= 0 && before !== y) {
      paper.moveTo(x, before);
      paper.lineTo(x, y);
    } else paper.moveTo(x, y);
    paper.lineTo(Math.max(clampX(toX(to[part])), x + 1), y);
    before = y;
  }
  paper.stroke();
}

/** The table of the critical path; a click on a name goes to its longest part. */
function fillPath() {
  const panel = page('tab-path');
  if (!facts.path) {
    panel.textContent = hasKernels
      ? 'It does not lead from kernel to kernel: draw the file of one.'
      : `The recording is too long for it. Use: trapline trace path ${facts.file}`;
    return;
  }
  const title = document.createElement('p');
  title.textContent = facts.path.title;
  panel.replaceChildren(title, listOf(facts.path.columns, facts.path.rows, ([, , name, what]) => toLongest(name, what)));
}

function toLongest(name, what) {
  let longest = -1;
  const length = (part) => path.to[view.scale][part] - path.from[view.scale][part];
  for (let part = 0; part < path.length; part++) {
    const isOne = lanes.name.get(path.lane[part]) === name && path.what.get(part) === what;
    if (isOne && (longest < 0 || length(part) > length(longest))) longest = part;
  }
  if (longest < 0) return;
  const value = (path.from[view.scale][longest] + path.to[view.scale][longest]) / 2;
  const bar = barAt(path.lane[longest], value);
  if (bar >= 0) selectBar(bar);
}

// ---- tabs

/** Shows one of the parts below the lanes. */
function showTab(name) {
  for (const tab of document.querySelectorAll('[role=tab]')) {
    const isShown = tab.dataset.tab === name;
    tab.setAttribute('aria-selected', isShown);
    tab.tabIndex = isShown ? 0 : -1;
    page(`tab-${tab.dataset.tab}`).hidden = !isShown;
  }
  changed();
}

for (const tab of document.querySelectorAll('[role=tab]')) tab.addEventListener('click', () => showTab(tab.dataset.tab));
page('tabs').addEventListener('keydown', (event) => {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!by) return;
  const tabs = [...document.querySelectorAll('[role=tab]')];
  const next = tabs[(tabs.indexOf(event.target) + by + tabs.length) % tabs.length];
  showTab(next.dataset.tab);
  next.focus();
  event.preventDefault();
});

/** A table of texts, whose rows can be pressed. */
function listOf(columns, rows, press) {
  const table = document.createElement('table');
  const line = (cells, name) => {
    const row = document.createElement('tr');
    row.append(...cells.map((text) => Object.assign(document.createElement(name), { textContent: text })));
    return row;
  };
  table.createTHead().append(line(columns, 'th'));
  const body = table.createTBody();
  for (const cells of rows) {
    const row = line(cells, 'td');
    if (press) {
      row.tabIndex = 0;
      row.addEventListener('click', () => press(cells));
      row.addEventListener('keydown', (event) => event.key === 'Enter' && press(cells));
    }
    body.append(row);
  }
  return table;
}

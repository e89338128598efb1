// The table of calls, which holds only the rows in view; and the search.

const table = page('table');
const ROW = 24;

const search = {
  text: '',
  // The matching rows, in order; null without a search.
  found: null,
};

const list = {
  // The list's source: a range of rows, or an array of rows.
  of: null,
  first: 0,
  length: 0,
  // The place of the row that has the keyboard focus.
  at: -1,
  follow: true,
  mine: false,
};

const inner = document.createElement('div');
inner.className = 'rows';
inner.setAttribute('role', 'rowgroup');
const titles = document.createElement('div');
titles.className = 'row titles';
titles.setAttribute('role', 'row');
for (const title of ['time', 'turn', 'task', 'call', 'result', 'took']) titles.append(cell(title, 'columnheader'));
table.append(titles, inner);

function cell(text, role = 'gridcell') {
  const element = document.createElement('span');
  element.setAttribute('role', role);
  element.textContent = text;
  return element;
}

/** The row at a place of the list. */
const rowAt = (place) => (list.of ? list.of[list.first + place] : list.first + place);

/** The place of a row in the list, or -1. */
function placeOf(row) {
  const place = list.of
    ? lowerBound(list.of, row, list.first, list.first + list.length) - list.first
    : row - list.first;
  return place >= 0 && place < list.length && rowAt(place) === row ? place : -1;
}

let rowsOf = { lane: -1, rows: null };

/** The rows of a lane. */
function rowsOfLane(lane) {
  if (rowsOf.lane !== lane) {
    const mine = [];
    for (let row = 0; row < rows.length; row++) if (rows.lane[row] === lane) mine.push(row);
    rowsOf = { lane, rows: Int32Array.from(mine) };
  }
  return rowsOf.rows;
}

let listedOf = { found: null, rows: null };

/** The rows that the search and the switch for errors leave, in order; null for all. */
function listed() {
  if (!view.onlyErrors) return search.found;
  if (!search.found) return errors;
  if (listedOf.found !== search.found) {
    listedOf = { found: search.found, rows: search.found.filter((row) => rows.isError[row]) };
  }
  return listedOf.rows;
}

let foundOf = { lane: -1, found: null, rows: null };

/** Those of a lane. Each drawing calls this. */
function foundOfLane(lane) {
  const found = listed();
  if (foundOf.lane !== lane || foundOf.found !== found) {
    foundOf = { lane, found, rows: found.filter((row) => rows.lane[row] === lane) };
  }
  return foundOf.rows;
}

/** Decides which rows the list has. */
function choose() {
  list.of = listed();
  if (list.mine) list.of = list.of ? foundOfLane(view.lane) : rowsOfLane(view.lane);
  [list.first, list.length] = [0, list.of ? list.of.length : rows.length];
  if (!list.follow) return;
  const at = rows.at[view.scale];
  const rowOf = (place) => (list.of ? list.of[place] : place);
  const bound = (holds) => {
    let [low, high] = [0, list.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (holds(at[rowOf(middle)])) high = middle;
      else low = middle + 1;
    }
    return low;
  };
  const first = bound((value) => value >= view.begin);
  list.length = bound((value) => value > view.end) - first;
  list.first = first;
}

/** Builds the rows in view. */
function fillTable() {
  choose();
  const height = list.length * ROW;
  inner.style.height = `${Math.min(height, TALLEST)}px`;
  const room = table.clientHeight - ROW;
  const visible = Math.ceil(room / ROW) + 1;
  const first = firstRow(room);
  table.setAttribute('aria-rowcount', list.length + 1);
  const made = [];
  for (let place = first; place < Math.min(first + visible, list.length); place++) {
    made.push(tableRow(rowAt(place), place));
  }
  const shift = height <= TALLEST ? first * ROW : Math.min(table.scrollTop, TALLEST - made.length * ROW);
  inner.style.paddingTop = `${Math.max(0, shift)}px`;
  inner.replaceChildren(...made);
  const selected = placeOf(view.row);
  if (selected >= first && selected < first + visible) table.setAttribute('aria-activedescendant', `row-${view.row}`);
  else table.removeAttribute('aria-activedescendant');
  const what = search.found ? 'match' : 'row';
  const more = search.found && list.length !== 1 ? 'es' : '';
  const arrows = page('shown').dataset.arrows;
  page('shown').textContent = count(list.length, what).replace(/matchs$/, `match${more}`) + (arrows ? ` · ${arrows}` : '');
}

function firstRow(room) {
  const height = list.length * ROW;
  if (height <= TALLEST) return Math.max(0, Math.min(Math.floor(table.scrollTop / ROW), list.length - 1));
  const share = table.scrollTop / Math.max(1, TALLEST + ROW - table.clientHeight);
  return Math.floor(Math.min(1, share) * (list.length - Math.floor(room / ROW)));
}

function tableRow(row, place) {
  const element = document.createElement('div');
  element.className = `row${row === view.row ? ' selected' : ''}${rows.isError[row] ? ' error' : ''}`;
  element.id = `row-${row}`;
  element.dataset.row = row;
  element.setAttribute('role', 'row');
  element.setAttribute('aria-rowindex', place + 2);
  element.setAttribute('aria-selected', row === view.row);
  const isCall = rows.kind[row] === CALL;
  const answered = rows.isAnswered[row];
  element.append(
    cell(instant(rows.at.time[row])),
    cell(rows.at.turns[row].toLocaleString('en')),
    cell(task(rows.lane[row])),
    cell(rows.what.get(row)),
    cell(answered ? rows.result.get(row) : isCall ? '…' : route(row)),
    cell(answered && tookOf(row) > 0 ? long(tookOf(row)) : ''),
  );
  return element;
}

/** Scrolls the table to a place of the list. */
function scrollTo(place) {
  const height = list.length * ROW;
  const room = table.clientHeight - ROW;
  if (height > TALLEST) {
    const first = firstRow(room);
    if (place >= first && place < first + Math.floor(room / ROW)) return;
    table.scrollTop = (place / (list.length - Math.floor(room / ROW))) * (TALLEST + ROW - table.clientHeight);
  } else if (place * ROW < table.scrollTop) table.scrollTop = place * ROW;
  else if ((place + 1) * ROW > table.scrollTop + room) table.scrollTop = (place + 1) * ROW - room;
}

/** Selects a row and its bar. */
function selectRow(row) {
  const bar = barOfRow(row);
  select(bar, row);
  revealLane(rows.lane[row]);
  scrollTo(placeOf(row));
}

/** Selects a bar, and shows its row if the table has it. */
function selectBar(bar) {
  select(bar);
  reveal(bar);
  choose();
  const place = placeOf(view.row);
  if (place >= 0) scrollTo(place);
}

function moveInTable(by) {
  if (!list.length) return;
  const place = placeOf(view.row);
  // Home and End need no selected row.
  const isToEnd = Math.abs(by) >= list.length;
  const next = place < 0 && !isToEnd ? firstRow(table.clientHeight - ROW) : place + by;
  selectRow(rowAt(Math.min(Math.max(next, 0), list.length - 1)));
}

// ---- search

/** Finds the rows whose task, call or result contains the text. */
function find(text) {
  search.text = text.trim().toLowerCase();
  search.found = search.text ? matches(search.text) : null;
  page('found').textContent = search.found ? count(search.found.length, 'match').replace(/matchs/, 'matches') : '';
  table.scrollTop = 0;
  changed();
}

function matches(text) {
  const found = [];
  const byTask = Array.from({ length: lanes.length }, (_, lane) => task(lane).toLowerCase().includes(text));
  // Templates are few: only those are filled whose number a match can touch. Its part before the
  // number is then the end of the template's.
  const starts = Array.from(text, (_, at) => at).filter((at) => /[0-9]/.test(text[at]));
  const parts = run.templates.map(({ before, after }) => [before.toLowerCase(), after.toLowerCase()]);
  const known = parts.map(([before, after]) => before.includes(text) || after.includes(text));
  const touched = parts.map(([before]) => starts.some((at) => before.endsWith(text.slice(0, at))));
  const has = (texts, row) =>
    known[texts.template[row]] || (touched[texts.template[row]] && texts.get(row).toLowerCase().includes(text));
  for (let row = 0; row < rows.length; row++) {
    if (byTask[rows.lane[row]] || has(rows.what, row) || (rows.isAnswered[row] && has(rows.result, row))) found.push(row);
  }
  return Int32Array.from(found);
}

/** Goes to the next match, or to the previous one. */
function goToMatch(direction) {
  const found = search.found;
  if (!found?.length) return;
  const from = view.row >= 0 ? view.row : rowInView();
  let place = direction > 0 ? upperBound(found, from, 0, found.length) : lowerBound(found, from, 0, found.length) - 1;
  place = (place + found.length) % found.length;
  const bar = barOfRow(found[place]);
  select(bar, found[place]);
  if (bar >= 0) reveal(bar);
  else revealLane(view.lane);
  choose();
  scrollTo(placeOf(found[place]));
  page('found').textContent = `${(place + 1).toLocaleString('en')} of ${found.length.toLocaleString('en')}`;
}

/** The last row before the view. */
const rowInView = () => lowerBound(rows.at[view.scale], view.begin, 0, rows.length) - 1;

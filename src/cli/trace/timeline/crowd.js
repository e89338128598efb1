// The lane of a group: how many of its tasks run, are ready and are blocked at each pixel. Area is time.

/** The bands of such a lane: the states, the space in pixels from the bottom, and what they share. */
const BANDS = [
  { name: 'running', kind: RUNNING, has: (kind) => kind === RUNNING || kind === CALLING },
  { name: 'ready', kind: READY, has: (kind) => kind === READY },
  { name: 'blocked', kind: KINDS.indexOf('timer'), has: (kind) => kind > RESTING },
];
/** The height of the part for tasks that run or are ready; blocked ones, of which there are many more,
 * have a scale and a part of their own above. */
const ACTIVE_HEIGHT = 12;
const WAITING_HEIGHT = 7;

/** When tasks of a group enter and leave each band, in order, and the most at once in each part. */
function crowdOf(group) {
  return (group.crowds[view.scale] ??= makeCrowd(group));
}

function makeCrowd(group) {
  const { from, to } = columns();
  const bandOf = KINDS.map((_, kind) => BANDS.findIndex(({ has }) => has(kind)));
  const lengths = new Array(BANDS.length).fill(0);
  const each = (take) => {
    for (const lane of group.lanes) {
      for (let bar = lanes.first[lane]; bar < lanes.first[lane + 1]; bar++) {
        if (bandOf[bars.doing[bar]] >= 0) take(bandOf[bars.doing[bar]], bar);
      }
    }
  };
  each((band) => lengths[band]++);
  const bands = lengths.map((length) => ({ begins: new Float64Array(length), ends: new Float64Array(length) }));
  lengths.fill(0);
  each((band, bar) => {
    const at = lengths[band]++;
    [bands[band].begins[at], bands[band].ends[at]] = [from[bar], to[bar]];
  });
  for (const { begins, ends } of bands) {
    begins.sort();
    ends.sort();
  }
  return { bands, active: Math.max(1, mostAtOnce(bands.slice(0, 2))), waiting: Math.max(1, mostAtOnce(bands.slice(2))) };
}

/** The largest number at one time, summed over bands; those of no length count for nothing. */
function mostAtOnce(bands) {
  const next = { begins: bands.map(() => 0), ends: bands.map(() => 0) };
  let [most, now] = [0, 0];
  for (;;) {
    let at = Infinity;
    bands.forEach(({ begins }, band) => (at = Math.min(at, begins[next.begins[band]] ?? Infinity)));
    if (at === Infinity) return most;
    bands.forEach((band, index) => {
      for (; band.begins[next.begins[index]] === at; next.begins[index]++) now++;
      for (; band.ends[next.ends[index]] <= at; next.ends[index]++) now--;
    });
    most = Math.max(most, now);
  }
}

/** Walks over parts of the run in order, and tells how many there are on average in each. */
class Walk {
  constructor({ begins, ends }, at) {
    [this.begins, this.ends] = [begins, ends];
    this.begun = upperBound(begins, at, 0, begins.length);
    this.ended = upperBound(ends, at, 0, ends.length);
  }

  average(low, high) {
    let area = (this.begun - this.ended) * (high - low);
    for (; this.begins[this.begun] < high; this.begun++) area += high - this.begins[this.begun];
    for (; this.ends[this.ended] < high; this.ended++) area -= high - this.ends[this.ended];
    return area / (high - low);
  }

  /** Whether any has begun at `low` or later. */
  hasBegun(low) {
    return this.begins[this.begun - 1] >= low;
  }
}

/** How many tasks of a group run, are ready and are blocked on average in a part of the run. */
function crowdIn(group, low, high) {
  return crowdOf(group).bands.map((band) => Math.max(0, new Walk(band, low).average(low, high)));
}

/** Paints the lane of a group. What rounding takes from a column is added to the next. A line of one
 * pixel below shows where a task had turns. */
function drawCrowd(group, bottom, ratio) {
  const { bands, active, waiting } = crowdOf(group);
  const unit = unitsPerPixel() / ratio;
  const left = Math.round(view.gutter * ratio);
  const walks = bands.map((band) => new Walk(band, view.begin));
  const [tall, short] = [ACTIVE_HEIGHT * ratio, WAITING_HEIGHT * ratio];
  const carries = [0, 0, 0];
  const inks = BANDS.map(({ kind }) => toNumber(colors.kinds[kind].ink));
  const split = bottom - Math.round(tall + 2 * ratio);
  for (let x = left; x < dense.width; x++) {
    const low = view.begin + (x - left) * unit;
    const heights = walks.map((walk, band) => {
      const share = walk.average(low, low + unit) / (band < 2 ? active : waiting);
      const exact = share * (band < 2 ? tall : short) + carries[band];
      const height = Math.max(0, Math.round(exact));
      carries[band] = exact - height;
      return height;
    });
    const [running, ready, blocked] = heights;
    fillColumn(x, bottom, running, inks[0]);
    fillColumn(x, bottom - running, ready, inks[1]);
    fillColumn(x, split, blocked, inks[2]);
    if (walks[0].hasBegun(low)) fillColumn(x, bottom + 1, 1, inks[0]);
  }
}

/** Paints so many pixels upwards. */
function fillColumn(x, bottom, height, ink) {
  for (let y = bottom - 1; y >= bottom - height; y--) {
    if (y >= 0 && y < dense.height) pixels.words[y * dense.width + x] = ink;
  }
}

function crowdLines(group, value) {
  const half = unitsPerPixel() / 2;
  const number = (value) => Number(value.toPrecision(3)).toLocaleString('en', { maximumFractionDigits: 6 });
  const [running, ready, blocked] = crowdIn(group, value - half, value + half).map(number);
  return [`group ${group.name}: ${count(group.lanes.length, 'task')}`, `${running} running, ${ready} ready, ${blocked} blocked on average in this pixel`];
}

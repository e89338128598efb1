// The lane of a group: how many of its tasks are in each state at each pixel. Area is time.

/** The bands of such a lane, a kind of bars each: those of the lower part, and then those of the strip. */
const BANDS = [...ACTIVE, ...WAITING];

/** When tasks of a group enter and leave each band, in order, and the most at once in each part. */
function crowdOf(group) {
  return (group.crowds[view.scale] ??= makeCrowd(group));
}

function makeCrowd(group) {
  const { from, to } = columns();
  const bandOf = KINDS.map((_, kind) => BANDS.indexOf(kind));
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
  return { bands, active: Math.max(1, mostAtOnce(bands.slice(0, ACTIVE.length))), waiting: Math.max(1, mostAtOnce(bands.slice(ACTIVE.length))) };
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
  const numbers = crowdOf(group).bands.map((band) => Math.max(0, new Walk(band, low).average(low, high)));
  const sum = (is) => numbers.reduce((sum, number, band) => sum + (is(BANDS[band]) ? number : 0), 0);
  return [(kind) => kind === RUNNING || kind === CALLING, (kind) => kind === READY, (kind) => kind > RESTING].map(sum);
}

/** Paints the lane of a group. A line of one pixel below shows where a task had turns. */
function drawCrowd(group, bottom, ratio) {
  const { bands, active, waiting } = crowdOf(group);
  const unit = unitsPerPixel() / ratio;
  const left = Math.round(view.gutter * ratio);
  const walks = bands.map((band) => new Walk(band, view.begin));
  const { tall, short, split } = heights(bottom, ratio);
  const errors = new Float64Array(KINDS.length);
  for (let x = left; x < dense.width; x++) {
    const low = view.begin + (x - left) * unit;
    const numbers = walks.map((walk) => walk.average(low, low + unit));
    paintColumn(x, bottom, tall, ACTIVE, (kind) => numbers[BANDS.indexOf(kind)] / active, errors);
    paintColumn(x, split, short, WAITING, (kind) => numbers[BANDS.indexOf(kind)] / waiting, errors);
    if (walks[0].hasBegun(low) && bottom >= 0 && bottom < dense.height) {
      pixels.words[bottom * dense.width + x] = colors.pixels[RUNNING][0];
    }
  }
}

function crowdLines(group, value) {
  const half = unitsPerPixel() / 2;
  const number = (value) => Number(value.toPrecision(3)).toLocaleString('en', { maximumFractionDigits: 6 });
  const [running, ready, blocked] = crowdIn(group, value - half, value + half).map(number);
  return [`group ${group.name}: ${count(group.lanes.length, 'task')}`, `${running} running, ${ready} ready, ${blocked} blocked on average in this pixel`];
}

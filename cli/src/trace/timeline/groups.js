// Which lanes are shown, in which order: groups that fold, pinned lanes, those with failures.

/** The lanes of more tasks than these are folded at first. */
const MOST_UNFOLDED = 50;

const kernelLanes = lanes.tid.filter((_, lane) => isKernel(lane)).length;

/** Whether so many lanes are folded at first. The kernel's does not count. */
const areMany = (count) => count - kernelLanes > MOST_UNFOLDED;

const hostOf = (lane) => lanes.name.get(lane).match(/@([^@]+)$/)?.[1];
/** Whether the recording is of several kernels. */
const hasKernels = lanes.length > 0 && kernelOf(lanes.length - 1) > 0;
if (hasKernels) document.getElementById('groups').add(new Option('by kernel', 'kernel'), 1);
const ofKernel = (lane) => (hasKernels ? `${kernelOf(lane)}: ` : '');

const hasHosts = facts.isVirtual && Array.from(lanes.tid.keys()).some(hostOf);

/** The name of a lane's group, by kind of group; none leaves the lane outside of all groups. */
const GROUPINGS = {
  none: () => undefined,
  kernel: (lane) => `kernel ${kernelOf(lane)}`,
  host: (lane) => (isKernel(lane) ? undefined : `on ${hostOf(lane) ?? 'localhost'}`),
  // The names of workers differ in their numbers.
  name: (lane) => {
    if (isKernel(lane)) return undefined;
    const { before, digits, after } = run.templates[lanes.name.template[lane]];
    return ofKernel(lane) + before + (digits ? '#' : '') + after;
  },
  parent: (lane) => {
    if (isKernel(lane)) return undefined;
    const parent = lanes.place.get(lanes.parent[lane]);
    if (lanes.parent[lane] === 0) return `${ofKernel(lane)}children of the host`;
    return `children of ${parent === undefined ? numbered(lanes.parent[lane]) : task(parent)}`;
  },
};

const groups = {
  by: 'none',
  list: [],
  // The group of each lane; -1 is none.
  of: new Int32Array(lanes.length).fill(-1),
};

/** Groups the lanes. A lane alone needs no group, except on its host. */
function groupBy(by) {
  const found = new Map();
  for (let lane = 0; lane < lanes.length; lane++) {
    const name = GROUPINGS[by](lane);
    if (name === undefined) continue;
    if (!found.has(name)) found.set(name, []);
    found.get(name).push(lane);
  }
  groups.by = by;
  groups.of.fill(-1);
  const isFolded = areMany(lanes.length);
  const kept = [...found].filter(([, its]) => its.length > 1 || by === 'host' || by === 'kernel');
  groups.list = kept.map(([name, its], index) => {
    for (const lane of its) groups.of[lane] = index;
    return { name, index, lanes: its, isFolded, place: -1, failed: its.filter(hasFailed).length, crowds: {} };
  });
  view.group = -1;
  chooseLanes();
  fitHeight();
  changed();
}

/** The groups to begin with: kernels; hosts; of many lanes, names or else parents; otherwise none. */
function chooseGroups() {
  if (hasKernels && !areMany(lanes.length)) return groupBy('kernel');
  if (hasHosts) return groupBy('host');
  if (!areMany(lanes.length)) return groupBy('none');
  groupBy('name');
  const places = view.shown.length;
  if (!areMany(places)) return;
  groupBy('parent');
  if (view.shown.length >= places) groupBy('name');
}

/** Folds a group, or unfolds it; by default whichever it is not. */
function fold(group, isFolded = !group.isFolded) {
  if (group.isFolded === isFolded) return;
  group.isFolded = isFolded;
  chooseLanes();
  fitHeight();
  changed();
}

/** The same, and the group gets the keyboard focus. */
function toggle(group, isFolded) {
  fold(group, isFolded);
  focusGroup(group);
}

function foldAll() {
  const isFolded = groups.list.some((group) => !group.isFolded);
  for (const group of groups.list) group.isFolded = isFolded;
  chooseLanes();
  fitHeight();
  changed();
}

/** Decides which lanes are shown, and where. `wanted` is shown in any case. */
function chooseLanes(wanted = -1) {
  const { from, to } = columns();
  if (wanted >= 0 && groups.of[wanted] >= 0) groups.list[groups.of[wanted]].isFolded = false;
  const isShown = (lane) => {
    if (lane === wanted) return true;
    if (view.onlyErrors && !isErring[lane]) return false;
    const [first, last] = [lanes.first[lane], lanes.first[lane + 1] - 1];
    return !view.onlyPresent || (first <= last && from[first] <= view.end && to[last] >= view.begin);
  };
  const shown = [...view.pins];
  view.pinned = shown.length;
  for (const group of groups.list) group.place = -1;
  const entries = [];
  for (let lane = 0; lane < lanes.length; lane++) {
    const group = groups.list[groups.of[lane]];
    if (group && group.lanes[0] === lane) entries.push(group);
    else if (!group) entries.push(lane);
  }
  const inOrder = (entry) => (typeof entry === 'number' ? [entry] : sorted(entry.lanes));
  for (const entry of sorted(entries)) {
    const its = inOrder(entry).filter((lane) => isShown(lane) && !view.pins.has(lane));
    if (typeof entry !== 'number' && its.length) {
      entry.place = shown.length;
      shown.push(~entry.index);
      if (entry.isFolded) continue;
    }
    for (const lane of its) shown.push(lane);
  }
  view.placeOf.fill(-1);
  shown.forEach((lane, place) => lane >= 0 && (view.placeOf[lane] = place));
  view.shown = Int32Array.from(shown);
  scroll(0);
}

/** Whether lanes are sorted anew when the view moves: not below a pointer that moves it. */
const isSortedNow = () => view.order === 'activity' && down.size === 0;

/** Lanes and groups in the chosen order. The kernel comes first. */
function sorted(entries) {
  if (view.order !== 'activity') return entries;
  const isFirst = (entry) => (typeof entry === 'number' && isKernel(entry) ? 1 : 0);
  const keyed = entries.map((entry) => ({ entry, first: isFirst(entry), activity: activity(entry) }));
  keyed.sort((a, b) => b.first - a.first || b.activity - a.activity);
  return keyed.map(({ entry }) => entry);
}

/** How long a lane ran or was in calls within the view; of a group, all of its lanes. Where that is no
 * time at all, as on a virtual clock, the number of its bars in view. */
function activity(entry) {
  if (typeof entry !== 'number') return entry.lanes.reduce((sum, lane) => sum + activity(lane), 0);
  const times = timeIn(entry, view.begin, view.end);
  const { from, to } = columns();
  const begin = lowerBound(to, view.begin, lanes.first[entry], lanes.first[entry + 1]);
  const end = upperBound(from, view.end, begin, lanes.first[entry + 1]);
  return times[RUNNING] + times[CALLING] + (end - begin) * 1e-6;
}

/** The place of a lane, or of the folded group that holds it; -1 if neither is shown. */
function placeShown(lane) {
  if (view.placeOf[lane] >= 0) return view.placeOf[lane];
  return groups.list[groups.of[lane]]?.place ?? -1;
}

/** The place that has the keyboard focus. */
const focusedPlace = () => (view.group >= 0 ? groups.list[view.group].place : view.placeOf[view.lane]);

const isFocused = (place) => place === focusedPlace();

const indentOf = (lane) => (groups.of[lane] >= 0 && !view.pins.has(lane) ? 20 : 8);

/** The name of a group, the number of its tasks, and whether one has failed. */
function groupLabel({ name, isFolded, lanes: its, failed }) {
  const more = failed ? `${failed} failed of ${its.length}` : `× ${its.length.toLocaleString('en')}`;
  return [`${isFolded ? '▸' : '▾'} ${name}`, more, failed > 0];
}

function focusGroup(group) {
  select(-1);
  view.group = group.index;
  page('details').textContent = `group ${group.name} · ${count(group.lanes.length, 'task')} · ${group.isFolded ? 'folded' : 'unfolded'}: Enter changes that`;
  revealPlace(group.place);
}

function togglePin(lane) {
  if (!view.pins.delete(lane)) view.pins.add(lane);
  chooseLanes();
  changed();
}

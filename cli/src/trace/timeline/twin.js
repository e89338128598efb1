// The other run, where two runs are above each other: both show the same part of one axis.

const twin = {
  // The width that the other run needs for its names.
  gutter: 0,
  // What both know.
  told: '',
};

/** Tells the other run what this one shows. */
function tellTwin() {
  if (!facts.axis) return;
  const { scale, begin, end, gutter } = view;
  const shown = { scale, begin, end, gutter };
  const text = JSON.stringify(shown);
  if (text === twin.told) return;
  twin.told = text;
  parent.postMessage(shown, '*');
}

addEventListener('message', ({ source, data }) => {
  if (!facts.axis || source !== parent) return;
  twin.told = JSON.stringify(data);
  if (data.gutter !== view.gutter) {
    twin.gutter = data.gutter;
    measure();
  }
  setScale(data.scale);
  // Not by way of `show`: rounded again and again, the view would wander.
  [view.begin, view.end] = [data.begin, data.end];
  if (view.onlyPresent || view.order === 'activity') chooseLanes();
  changed();
});

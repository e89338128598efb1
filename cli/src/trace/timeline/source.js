// The lines of the source around the call of the selected span, as far as the page has them.

function tellSource() {
  const { row } = view;
  const places = row >= 0 && rows.isPlaced[row] ? rows.places.get(row) : '';
  const place = places.match(/[^\s,()]+\.rs:\d+/)?.[0];
  const lines = place && facts.sources[place];
  page('source').hidden = !lines;
  if (!lines) return;
  const [first, ...texts] = lines;
  const at = Number(place.slice(place.lastIndexOf(':') + 1));
  page('source').replaceChildren(
    Object.assign(document.createElement('b'), { textContent: `${place}\n` }),
    ...texts.map((text, index) => {
      const line = document.createElement(first + index === at ? 'mark' : 'span');
      line.textContent = `${String(first + index).padStart(5)}  ${text}\n`;
      return line;
    }),
  );
}

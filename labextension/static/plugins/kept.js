/* Add a button to the cards of kept answers that asks again. The cell runs in its place, and keeps its other answers.
 *
 * The metadata of a card contain the path of its request. The kernel sends the kept answers of each cell's last run
 * (`prose_kernel/notebook/lab_extension.py`); other cards, and those from before a restart, have only the text. */

const WORDS = 'kept; %ask again asks again'; // KEPT of prose_kernel/views/bundle.py
const STYLE = `
.prose-kept { display: flex; flex-wrap: wrap; align-items: center; gap: 8px; margin: 4px 0; color: var(--jp-ui-font-color2);
  font-family: var(--jp-ui-font-family); font-size: var(--jp-ui-font-size1); }
.prose-kept button { padding: 2px 10px; border: 1px solid var(--jp-border-color1); border-radius: 2px;
  background: var(--jp-layout-color2); color: var(--jp-ui-font-color0); font: inherit; cursor: pointer; }
.prose-kept button:disabled { cursor: default; opacity: 0.6; }
.prose-kept button:focus-visible { outline: 2px solid var(--jp-brand-color1); outline-offset: 1px; }
`;

/* Return the time of an answer, with the date unless it is today's. */
export const timeOf = (answered, now = new Date()) => {
  const then = new Date(answered);
  if (Number.isNaN(then.getTime())) return '';
  const time = then.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', hour12: false });
  return then.toDateString() === now.toDateString() ? time : `${then.toLocaleDateString()} ${time}`;
};

/* Return the kept answers that an output shows: its own, those of names in a table, or decisions of conditions. */
export const keptIn = (metadata, offered) => {
  const facts = (metadata && metadata.prose) || {};
  const { decisions, ...others } = facts;
  const named = Object.entries(others).map(([name, fact]) => ({ name, fact }));
  const decided = (Array.isArray(decisions) ? decisions : []).map((fact) => ({ name: 'decision', fact }));
  return [{ name: '', fact: facts }, ...named, ...decided]
    .filter(({ fact }) => fact && typeof fact === 'object' && fact.kept && offered.has(fact.at))
    .map(({ name, fact: { at, answered } }) => ({ name, at, answered: timeOf(answered) }));
};

const row = (kept, ask) => {
  const made = document.createElement('div');
  made.className = 'prose-kept';
  for (const { name, at, answered } of kept) {
    const words = document.createElement('span');
    words.textContent = `${name ? `${name} ` : ''}kept${answered ? ` from ${answered}` : ''}`;
    const button = document.createElement('button');
    Object.assign(button, { type: 'button', textContent: 'Ask again' });
    button.title = 'Run the cell; only this is asked again, and what depends on it';
    if (name) button.setAttribute('aria-label', `Ask ${name} again`);
    button.addEventListener('click', () => {
      made.querySelectorAll('button').forEach((one) => (one.disabled = true));
      ask(at);
    });
    made.append(words, button);
  }
  return made;
};

/* Return the lines of a card that tell what to type. */
const wordsIn = (node) => [...node.querySelectorAll('div')].filter((one) => !one.children.length && one.textContent === WORDS);

/* Add buttons to the outputs of a cell, and remove those that no longer apply. */
const refresh = (link, cell) => {
  const { outputArea } = cell;
  if (!outputArea || !outputArea.model) return;
  const offered = link.kept.get(cell.model.id) || new Set();
  outputArea.widgets.forEach((widget, number) => {
    const output = outputArea.model.get(number);
    const node = widget.node.querySelector('.jp-OutputArea-output');
    if (!output || !node) return;
    const kept = keptIn(output.metadata, offered);
    const place = () => {
      if (!node.querySelector(':scope > .prose-kept')) node.append(row(kept, (at) => link.run(cell, { again: [at] })));
      wordsIn(node).forEach((line) => (line.hidden = true));
    };
    if (node.proseKept) node.proseKept.disconnect();
    node.querySelectorAll(':scope > .prose-kept').forEach((one) => one.remove());
    wordsIn(node).forEach((line) => (line.hidden = false));
    if (!kept.length) return;
    place();
    node.proseKept = new MutationObserver(place); // Markdown is rendered late, and again with another theme
    node.proseKept.observe(node, { childList: true });
  });
};

export default async ({ NAME, shared, load }) => {
  const [notebook, cells, links, style] = await Promise.all([
    ...['@jupyterlab/notebook', '@jupyterlab/cells'].map(shared),
    ...['parts/links.js', 'parts/style.js'].map(load),
  ]);
  return [
    {
      id: `${NAME}:kept`,
      description: 'A button on cards of kept answers that asks again.',
      autoStart: true,
      requires: [notebook.INotebookTracker],
      activate: (app, tracker) => {
        style('kept', STYLE);
        links.watch(tracker, notebook, cells);
        links.each((link) => {
          const all = () => links.codeCells(link.panel).forEach((cell) => refresh(link, cell));
          link.listen(({ kind }) => /^(?:kept|lost)$/.test(kind) && all());
          const { cellInViewportChanged: seen } = link.panel.content; // outputs of a cell are made when it is scrolled to
          if (seen) seen.connect((_, cell) => link.kept.has(cell.model.id) && cell.model.type === 'code' && refresh(link, cell));
        });
      },
    },
  ];
};

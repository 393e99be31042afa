/* Show a dot next to the number of each stale cell, with the reason, and add a command that runs the stale cells. */

const STYLE = `
.prose-stale { position: absolute; left: 20px; top: 10px; width: 8px; height: 8px; border-radius: 50%; z-index: 1;
  border: 1.5px solid var(--jp-warn-color0, #b45309); background: var(--jp-warn-color1, #d97706); box-sizing: border-box; }
.prose-stale[data-maybe] { background: transparent; }
`;

const mark = (cell, stale) => {
  let dot = cell.node.querySelector(':scope > .prose-stale');
  if (!stale) {
    if (dot) dot.remove();
    return;
  }
  if (!dot) {
    dot = document.createElement('span');
    dot.className = 'prose-stale';
    dot.setAttribute('role', 'img');
    cell.node.appendChild(dot);
  }
  const words = `${stale.maybe ? 'May be stale' : 'Stale'}: ${stale.why.join('; ')}`;
  dot.title = words;
  dot.setAttribute('aria-label', words);
  dot.toggleAttribute('data-maybe', stale.maybe);
};

export default async ({ NAME, shared, load }) => {
  const [notebook, cells, apputils, links, style] = await Promise.all([
    ...['@jupyterlab/notebook', '@jupyterlab/cells', '@jupyterlab/apputils'].map(shared),
    ...['parts/links.js', 'parts/style.js'].map(load),
  ]);
  return [
    {
      id: `${NAME}:freshness`,
      description: 'Marks on cells whose inputs have changed since they ran.',
      autoStart: true,
      requires: [notebook.INotebookTracker],
      optional: [apputils.ICommandPalette],
      activate: (app, tracker, palette) => {
        style('freshness', STYLE);
        links.watch(tracker, notebook, cells);
        links.each((link) => {
          const show = () => {
            const stale = new Map(link.stale.map((one) => [one.cell, one]));
            links.codeCells(link.panel).forEach((cell) => mark(cell, stale.get(cell.model.id)));
          };
          link.listen(({ kind }) => /^(?:stale|lost|edited)$/.test(kind) && show());
          show();
        });
        const current = () => tracker.currentWidget && links.of(tracker.currentWidget);
        const command = `${NAME}:run-stale-cells`;
        app.commands.addCommand(command, {
          label: 'Run Stale Cells',
          caption: 'Run the cells whose inputs have changed since they ran, in order',
          isEnabled: () => Boolean(current() && current().next.length),
          execute: () => current() && current().rerun(),
        });
        if (palette) palette.addItem({ command, category: 'Prose' });
      },
    },
  ];
};

/* A chip in the toolbar of a notebook with the provider of its sessions, the cost of the run so far, and whether answers
 * were replayed from a recording. It is shown after the first session, and never saved. */

const STYLE = `
.prose-chip { align-self: center; margin: 0 6px; padding: 0 8px; border: 1px solid var(--jp-border-color1); border-radius: 10px;
  color: var(--jp-ui-font-color1); font-size: var(--jp-ui-font-size1); line-height: 20px; max-width: 28em; overflow: hidden;
  text-overflow: ellipsis; white-space: nowrap; }
.prose-chip[hidden] { display: none; }
`;

const saidOf = ({ provider, models, cost, asked, replayed }) => {
  const source = !replayed ? 'live' : replayed >= asked ? 'replayed' : `${replayed} of ${asked} replayed`;
  return [provider, [...new Set(models)].join(', '), cost, source].filter(Boolean).join(' · ');
};

export default async ({ NAME, shared, load }) => {
  const [notebook, cells, widgets, links, style] = await Promise.all([
    ...['@jupyterlab/notebook', '@jupyterlab/cells', '@lumino/widgets'].map(shared),
    ...['parts/links.js', 'parts/style.js'].map(load),
  ]);
  return [
    {
      id: `${NAME}:chip`,
      description: 'Provider, model and cost of the run in the toolbar of its notebook.',
      autoStart: true,
      requires: [notebook.INotebookTracker],
      activate: (app, tracker) => {
        style('chip', STYLE);
        links.watch(tracker, notebook, cells);
        links.each((link) => {
          const chip = new widgets.Widget();
          chip.addClass('prose-chip');
          chip.node.hidden = true;
          chip.node.setAttribute('role', 'status');
          link.panel.toolbar.addItem('prose-chip', chip);
          link.listen((news) => {
            if (news.kind === 'lost') chip.node.hidden = true;
            if (news.kind !== 'who') return;
            chip.node.hidden = !news.asked;
            chip.node.textContent = saidOf(news);
            chip.node.title = `${saidOf(news)}. %usage shows more`;
          });
        });
      },
    },
  ];
};

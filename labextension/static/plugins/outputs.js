/* Restore the outputs of running cells after a reload, and limit the height of outputs to less than two screens. */

const STYLE = `
@media screen { .prose-notebook .jp-Cell-outputArea { max-height: 180vh; overflow-y: auto; } }
`;

export default async ({ NAME, shared, load }) => {
  const [notebooks, services, outputs, style] = await Promise.all([
    ...['@jupyterlab/notebook', '@jupyterlab/services'].map(shared),
    ...['parts/outputs.js', 'parts/style.js'].map(load),
  ]);
  return [
    {
      id: `${NAME}:outputs`,
      description: 'Shows the outputs of running cells again after a reload.',
      autoStart: true,
      requires: [notebooks.INotebookTracker],
      activate: (app, tracker) => {
        style('outputs', STYLE);
        tracker.widgetAdded.connect((_, panel) => {
          const { sessionContext, context } = panel;
          const mark = async () => {
            const kernel = sessionContext.session && sessionContext.session.kernel;
            panel.toggleClass('prose-notebook', Boolean(kernel && (await outputs.isOurs(panel, kernel))));
          };
          sessionContext.kernelChanged.connect(() => mark().catch(console.warn));
          const begin = () => Promise.all([mark(), outputs.reattach(services, panel)]);
          Promise.all([sessionContext.ready, context.ready]).then(begin).catch(console.warn);
        });
        window.addEventListener('pagehide', () => tracker.forEach(outputs.keep));
      },
    },
  ];
};

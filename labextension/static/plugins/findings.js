/* What the compiler finds in a cell while it is typed: underlined, with the message and its hint as a tooltip. The kernel
 * checks the cell (`prose_kernel/notebook/live_checks.py`), 300 ms after the last key; while a cell runs nothing is asked. */

const WAIT = 300;
const STYLE = `
.prose-finding { text-decoration: underline wavy var(--jp-error-color1, #d32f2f); text-underline-offset: 3px;
  text-decoration-skip-ink: none; }
.prose-finding[data-severity="warning"] { text-decoration-color: var(--jp-warn-color1, #d97706); }
`;

export default async ({ NAME, shared, load }) => {
  const [lab, state, view, notebook, cells, links, style] = await Promise.all([
    ...['@jupyterlab/codemirror', '@codemirror/state', '@codemirror/view', '@jupyterlab/notebook', '@jupyterlab/cells'].map(shared),
    ...['parts/links.js', 'parts/style.js'].map(load),
  ]);
  const replace = state.StateEffect.define();
  const mark = ({ severity, message }) =>
    view.Decoration.mark({ class: 'prose-finding', attributes: { title: message, 'data-severity': severity } });
  const marks = state.StateField.define({
    create: () => view.Decoration.none,
    update: (found, transaction) => {
      for (const effect of transaction.effects) {
        if (effect.is(replace)) return view.Decoration.set(effect.value.map((one) => mark(one).range(one.from, one.to)), true);
      }
      return found.map(transaction.changes);
    },
    provide: (field) => view.EditorView.decorations.from(field),
  });

  /* Where an editor is: the link of its notebook, and its place among the code cells. */
  const whereIs = (editor) => {
    for (const link of links.all()) {
      const all = links.codeCells(link.panel);
      const at = all.findIndex((cell) => cell.editor && cell.editor.editor === editor);
      if (at >= 0) return { link, all, at };
    }
    return null;
  };
  const asked = new Map(); // what was sent for a cell: its editor, and the text as it was

  const check = (editor) => {
    const where = whereIs(editor);
    if (!where || !where.link.ours) return;
    const texts = where.all.slice(0, where.at + 1).map(({ model }) => model.sharedModel.getSource());
    const id = where.all[where.at].model.id;
    asked.set(id, { editor, doc: editor.state.doc });
    where.link.say({ do: 'check', cell: id, text: texts.pop(), above: texts });
  };
  const show = ({ cell, findings }) => {
    const { editor, doc } = asked.get(cell) || {};
    asked.delete(cell);
    if (!editor || editor.state.doc !== doc) return; // typed on: the next answer is about that
    if (findings.length || editor.state.field(marks).size) editor.dispatch({ effects: replace.of(findings) });
  };
  const again = () => [...asked.values()].forEach(({ editor }) => check(editor)); // a cell ran when these were asked

  const typing = view.ViewPlugin.define((editor) => {
    let waiting = null;
    return {
      update: ({ docChanged }) => {
        if (!docChanged) return;
        clearTimeout(waiting);
        waiting = setTimeout(() => check(editor), WAIT);
      },
      destroy: () => clearTimeout(waiting),
    };
  });
  return [
    {
      id: `${NAME}:findings`,
      description: 'Errors and warnings in cells of Prose and VVM, as you type.',
      autoStart: true,
      requires: [notebook.INotebookTracker, lab.IEditorExtensionRegistry],
      activate: (app, tracker, extensions) => {
        style('findings', STYLE);
        links.watch(tracker, notebook, cells);
        links.each((link) => link.listen((news) => {
          if (news.kind === 'findings') show(news);
          else if (news.kind === 'stale') again();
        }));
        extensions.addExtension({
          name: `${NAME}:findings`,
          factory: () => lab.EditorExtensionRegistry.createImmutableExtension([marks, typing]),
        });
      },
    },
  ];
};

/* Underline the compiler's findings in a cell while it is typed, with message and hint as a tooltip. The kernel checks the
 * cell (`prose_kernel/notebook/lab_extension.py`) 300 ms after the last key, but not while a cell is running. */

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

  /* Return the link of an editor's notebook, and the editor's index among the code cells. */
  const whereIs = (editor) => {
    for (const link of links.all()) {
      const all = links.codeCells(link.panel);
      const at = all.findIndex((cell) => cell.editor && cell.editor.editor === editor);
      if (at >= 0) return { link, all, at };
    }
    return null;
  };
  const asked = new Map(); // pending checks by cell: the editor, and the checked document

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
    if (!editor || editor.state.doc !== doc) return; // the text has changed since: the next answer is about the new text
    if (findings.length || editor.state.field(marks).size) editor.dispatch({ effects: replace.of(findings) });
  };
  const again = () => [...asked.values()].forEach(({ editor }) => check(editor)); // repeat checks that were sent while a cell was running

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

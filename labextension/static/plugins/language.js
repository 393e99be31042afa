/* OpenProse and VVM in editors: in their notebooks, in `%%prose` and `%%vvm` cells of other notebooks, in `.prose` and
 * `.vvm` files, in ```prose and ```vvm fences. */

/* Return the extension for `%%prose` and `%%vvm` cells: a compartment with higher precedence than the cell's language. It
 * only reacts to transactions, so it does not matter when JupyterLab loads that language. */
const cellMagics = (state, view, supports) => {
  const slot = new state.Compartment();
  const wanted = (doc) => {
    for (let number = 1; number <= doc.lines; number++) {
      const line = doc.line(number).text;
      if (!line.trim()) continue;
      const magic = /^\s*%%(\w+)(?![\w-])/.exec(line);
      return (magic && supports.get(magic[1])) || none;
    }
    return none;
  };
  const none = [];
  const current = (editor) => slot.get(editor) || none;
  return [
    state.Prec.highest(slot.of(none)),
    state.EditorState.transactionExtender.of((transaction) => {
      const support = wanted(transaction.newDoc);
      return support === current(transaction.startState) ? null : { effects: slot.reconfigure(support) };
    }),
    view.ViewPlugin.define((editor) => {
      // the initial text had no transaction, so dispatch an empty one
      Promise.resolve().then(() => {
        if (wanted(editor.state.doc) !== current(editor.state)) editor.dispatch({});
      });
      return {};
    }),
  ];
};

export default async ({ NAME, shared, load }) => {
  const [lab, language, state, view, common, openprose, vvm] = await Promise.all([
    ...['@jupyterlab/codemirror', '@codemirror/language', '@codemirror/state', '@codemirror/view'].map(shared),
    ...['parsers/common.js', 'parsers/openprose.js', 'parsers/vvm.js'].map(load),
  ]);
  const languages = [
    { parser: openprose(common), displayName: 'Prose', alias: ['openprose'], mime: 'text/x-prose' },
    { parser: vvm(common), displayName: 'VVM', alias: [], mime: 'text/x-vvm' },
  ];
  const supports = new Map(
    languages.map(({ parser }) => [
      parser.name,
      new language.LanguageSupport(language.StreamLanguage.define(parser)),
    ]),
  );
  return [
    {
      id: `${NAME}:language`,
      description: 'OpenProse and VVM in editors and code fences.',
      autoStart: true,
      requires: [lab.IEditorLanguageRegistry],
      activate: (app, registry) => {
        for (const { parser, ...names } of languages) {
          const { name } = parser;
          registry.addLanguage({ name, ...names, extensions: [name], support: supports.get(name) });
        }
      },
    },
    {
      id: `${NAME}:magics`,
      description: 'OpenProse in `%%prose` cells, VVM in `%%vvm` cells.',
      autoStart: true,
      requires: [lab.IEditorExtensionRegistry],
      activate: (app, extensions) =>
        extensions.addExtension({
          name: `${NAME}:magics`,
          factory: () => lab.EditorExtensionRegistry.createImmutableExtension(cellMagics(state, view, supports)),
        }),
    },
  ];
};

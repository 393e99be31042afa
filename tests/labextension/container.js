/* Loads the container as JupyterLab would, with stubs of what JupyterLab shares, and answers questions about it.
 *
 * node container.js SCRIPT
 * Each line of standard input is a list of questions; its answers are a line of standard output. A question is {"do": "tokens", "text": ...}, {"do": "indent", "text": ..., "after": ..., "typed": ...},
 * {"do": "plugins"}, {"do": "warnings"}, {"do": "said", ...}, {"do": "left", "seconds": ...} or {"do": "cell", "texts": [...]}; `language` is that of the text, "prose" if nothing else is said.
 */
'use strict';
const fs = require('fs');
const readline = require('readline');
const vm = require('vm');
const { pathToFileURL, fileURLToPath } = require('url');

class Stream {
  constructor(string) {
    Object.assign(this, { string, pos: 0 });
  }
  sol() { return this.pos === 0; }
  eol() { return this.pos >= this.string.length; }
  next() { return this.string[this.pos++]; }
  current() { return this.string.slice(this.start, this.pos); }
  indentation() { return /^\s*/.exec(this.string)[0].length; }
  eatSpace() {
    const before = this.pos;
    this.pos += /^\s*/.exec(this.string.slice(before))[0].length;
    return this.pos > before;
  }
  match(pattern, consume = true) {
    const rest = this.string.slice(this.pos);
    const found = typeof pattern === 'string' ? rest.startsWith(pattern) && [pattern] : pattern.exec(rest);
    if (!found || found.index > 0) return null;
    if (consume) this.pos += found[0].length;
    return typeof pattern === 'string' ? true : found;
  }
}

const parsers = {};
const warnings = [];
let links;
const former = { safe: true, createRenderer: () => ({ renderModel: (model) => model.data }) };
const registered = {
  languages: {},
  factories: { 'text/markdown': former, 'image/svg+xml': { ...former, safe: false }, 'text/plain': former },
};
const stubs = {
  '@jupyterlab/codemirror': {
    IEditorLanguageRegistry: 'languages',
    IEditorExtensionRegistry: 'extensions',
    EditorExtensionRegistry: { createImmutableExtension: (extension) => extension },
  },
  '@jupyterlab/rendermime': { IRenderMimeRegistry: 'rendermime' },
  '@codemirror/language': {
    LanguageSupport: class { constructor(language) { this.language = language; } },
    StreamLanguage: { define: (defined) => (parsers[defined.name] = defined) },
  },
  '@codemirror/state': {
    Compartment: class {
      of(content) { this.content = content; return this; }
      get() { return this.content; }
      reconfigure(content) { return { slot: this, content }; }
    },
    EditorState: { transactionExtender: { of: (extend) => ({ extend }) } },
    Prec: { highest: (extension) => extension },
    StateEffect: { define: () => ({}) },
    StateField: { define: (field) => field },
  },
  '@jupyterlab/apputils': { ICommandPalette: 'palette' },
  '@jupyterlab/mainmenu': { IMainMenu: 'menu' },
  '@jupyterlab/outputarea': { OutputArea: class { onInputRequest() {} } },
  '@jupyterlab/notebook': { INotebookTracker: 'notebooks' },
  '@jupyterlab/services': {},
  '@jupyterlab/settingregistry': { ISettingRegistry: 'settings' },
  '@jupyterlab/cells': {},
  '@jupyterlab/ui-components': { LabIcon: class {} },
  '@lumino/widgets': { Widget: class {} },
  '@codemirror/view': { ViewPlugin: { define: () => ({}) }, Decoration: {}, EditorView: {} },
};

const stale = { get: async () => { throw new Error('a copy that is not loaded was asked for'); } };
const share = (module) => ({ '99.0.0': stale, '1.2.0': { loaded: true, get: async () => () => module } });

// All tokens as [line, text, style], and the state behind the last one. Each line starts from a copy, as in CodeMirror.
const run = ({ text, language = 'prose' }, unit = 4) => {
  const parser = parsers[language];
  let state = parser.startState(unit);
  const tokens = [];
  text.split('\n').forEach((line, number) => {
    state = parser.copyState(state);
    const stream = new Stream(line);
    while (!stream.eol()) {
      const start = (stream.start = stream.pos);
      const style = parser.token(stream, state);
      if (stream.pos <= start) throw new Error(`no progress in ${JSON.stringify(line)} at ${start}`);
      const last = tokens[tokens.length - 1];
      const piece = line.slice(start, stream.pos);
      if (last && last[0] === number && last[2] === style) last[1] += piece;
      else tokens.push([number, piece, style]);
    }
  });
  return { tokens, state };
};

let people;
/* A notebook with a kernel, as far as the channel between them needs one. What the extension does is noted. */
const notebookWith = ({ implementation, language, cells }) => {
  const noted = [];
  const signal = () => {
    const slots = [];
    return { connect: (slot) => slots.push(slot), emit: (...values) => slots.forEach((slot) => slot(...values)) };
  };
  const comms = [];
  const kernel = {
    info: Promise.resolve({ implementation, language_info: { name: language } }),
    handleComms: true,
    createComm: (target) => {
      const comm = { isDisposed: false, open: () => noted.push(`open ${target}`), send: (data) => noted.push(data.do) };
      comms.push(comm);
      return comm;
    },
  };
  const widgets = cells.map((text, number) => ({
    model: { type: 'code', id: `${number}`, executionCount: 1, sharedModel: { getSource: () => text } },
  }));
  const signals = Object.fromEntries(
    ['kernelChanged', 'connectionStatusChanged', 'statusChanged', 'modelContentChanged', 'disposed'].map((name) => [name, signal()]),
  );
  const content = { widgets, modelContentChanged: signals.modelContentChanged };
  const panel = { content, disposed: signals.disposed, sessionContext: { session: { kernel }, ...signals } };
  return { panel, noted, comms, signals };
};

const answers = {
  // What a link does: which channels it opens, and which cells it runs when the kernel answers each with what is next.
  link: async ({ next, failing = '', restart = false, ...given }) => {
    const { panel, noted, comms, signals } = notebookWith(given);
    const executed = { connect: () => {} };
    const tell = (data) => comms[comms.length - 1].onMsg({ content: { data: { kind: 'stale', stale: [], ...data } } });
    const CodeCell = {
      execute: async ({ model: { id } }) => {
        noted.push(`run ${id}`);
        if (id === failing) return { content: { status: 'error' } };
        tell({ next: next[id] || [], after: id });
        return { content: { status: 'ok' } };
      },
    };
    links.watch.begun = false;
    links.watch(
      { forEach: (add) => add(panel), widgetAdded: { connect: () => {} } },
      { NotebookActions: { executed } },
      { CodeCell },
    );
    await new Promise(setImmediate);
    if (restart) {
      signals.statusChanged.emit(null, 'restarting');
      signals.statusChanged.emit(null, 'idle');
      await new Promise(setImmediate);
    }
    if (next) {
      tell({ next: next.first, after: null });
      await links.of(panel).rerun();
    }
    return noted;
  },
  // What the form of a question answers, and how it says how much time is left.
  said: ({ question, button, text }) => people.answerOf(question, button, text),
  left: ({ seconds }) => people.left(seconds),
  tokens: (question) => run(question).tokens,
  // `typed`: the arm's line as it stands now; without it a new line is being made.
  indent: (question) => {
    const { after, typed, language = 'prose' } = question;
    const context = typed === undefined ? { simulatedBreak: 1, pos: 1 } : { pos: 1, lineAt: () => ({ text: typed }) };
    return parsers[language].indent(run(question).state, after || '', { unit: 4, ...context });
  },
  warnings: () => warnings,
  plugins: () => ({ ...registered, languageData: Object.values(parsers).map((one) => one.languageData.commentTokens) }),
  reindents: ({ line, language = 'prose' }) => parsers[language].languageData.indentOnInput.test(line),
  // What a renderer of JupyterLab's is given to show instead of an output.
  shown: ({ mime, data, metadata }) => {
    const factory = registered.factories[mime];
    return { data: factory.createRenderer().renderModel({ data, metadata }), rank: factory.rank, safe: factory.safe };
  },
  // The language that a cell's magic gives it with each of its texts, one after the other.
  cell: ({ texts }) => {
    const [slot, { extend }] = registered.magics.factory();
    return texts.map((text) => {
      const lines = text.split('\n');
      const newDoc = { lines: lines.length, line: (number) => ({ text: lines[number - 1] }) };
      const change = extend({ newDoc, startState: {} });
      if (change) slot.content = change.effects.content;
      if (extend({ newDoc, startState: {} })) throw new Error('the same text changes the slot again');
      const found = Object.values(registered.languages).find((language) => language.support === slot.content);
      return found ? found.name : null;
    });
  },
};

(async () => {
  const window = {};
  links = (await import(new URL('parts/links.js', pathToFileURL(process.argv[2])))).default;
  people = await import(new URL('plugins/people.js', pathToFileURL(process.argv[2])));
  globalThis.document = { head: { append() {} }, querySelector: () => null, createElement: () => ({ append() {} }) };
  const document = { currentScript: { src: pathToFileURL(process.argv[2]).href } };
  const fetch = async (url) => ({ json: async () => JSON.parse(fs.readFileSync(fileURLToPath(url), 'utf8')) });
  const quiet = { warn: (...words) => warnings.push(words.map((word) => String(word)).join(' ')) };
  vm.runInNewContext(
    fs.readFileSync(process.argv[2], 'utf8'),
    { window, document, fetch, URL, Promise, console: quiet },
    { importModuleDynamically: vm.constants.USE_MAIN_CONTEXT_DEFAULT_LOADER },
  );
  const container = window._JUPYTERLAB['prose-kernel'];
  container.init(Object.fromEntries(Object.entries(stubs).map(([name, module]) => [name, share(module)])));
  const { default: plugins } = (await container.get('./extension'))();
  for (const plugin of plugins) {
    registered[plugin.id] = plugin.requires;
    if (plugin.requires.includes('notebooks')) continue; // it needs a page
    const app = { docRegistry: { addFileType() {} }, commands: { addCommand() {} } };
    plugin.activate(app, {
      addLanguage: (language) => {
        registered[plugin.id] = plugin.requires;
        registered.languages[language.name] = language;
      },
      getFactory: (mime) => registered.factories[mime],
      getRank: () => 60,
      addFactory: (factory, rank) => {
        registered[plugin.id] = plugin.requires;
        registered.factories[factory.mimeTypes[0]] = { ...factory, rank };
      },
      addItem() {},
      addExtension: (magics) => Object.assign(registered, { [plugin.id]: plugin.requires, magics }),
    });
  }
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const found = await Promise.all(JSON.parse(line).map((question) => answers[question.do](question)));
    process.stdout.write(`${JSON.stringify(found)}\n`);
  }
})();

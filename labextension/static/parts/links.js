/* The channel between a notebook and the run in its kernel (`prose_kernel/notebook/lab_extension.py`). It carries stale cells,
 * findings in a cell while it is typed, and for the panel names, agents and running activities. There is one link for each
 * open notebook, which all plugins share. */

const TARGET = 'prose_kernel:panel';
const RERUN = 'prose_rerun'; // in the metadata of an execute request
const MAGIC = /^\s*%%?(?:prose|vvm)(?![\w-])/m;

const codeCells = (panel) => (panel.content.widgets || []).filter((cell) => cell.model && cell.model.type === 'code');

class Link {
  constructor(panel, execute) {
    Object.assign(this, { panel, execute, comm: null, ours: false, used: false, shown: false, heard: new Set() });
    this.forget();
    const context = panel.sessionContext;
    context.kernelChanged.connect(() => this.lost());
    context.connectionStatusChanged.connect(() => this.connect());
    context.statusChanged.connect((_, status) => {
      if (/restarting|dead|terminating/.test(status)) this.lost();
      else if (status === 'idle') this.connect();
    });
    panel.content.modelContentChanged.connect(() => this.changed());
    this.connect();
  }

  forget() {
    Object.assign(this, { stale: [], next: [], names: new Map(), agents: [], running: null, kept: new Map() });
  }

  /* Call `listener(news)` after each change. Returns a function that removes the listener. */
  listen(listener) {
    this.heard.add(listener);
    return () => this.heard.delete(listener);
  }

  tell(what) {
    for (const listener of [...this.heard]) listener(what);
  }

  lost() {
    this.comm = null;
    this.forget();
    this.tell({ kind: 'lost' });
  }

  /* Open the channel to a kernel of Prose or VVM, or to Python if a cell has used the magics of Prose. */
  async connect() {
    const session = this.panel.sessionContext.session;
    const kernel = session && session.kernel;
    if (!kernel || this.panel.isDisposed || (this.comm && !this.comm.isDisposed)) return;
    const info = await kernel.info;
    if (!this.looked) this.used = this.used || this.hasUsed(); // the page was reloaded
    this.looked = true;
    this.ours = info.implementation === 'prose_kernel';
    const wanted = this.ours || (info.language_info.name === 'python' && this.used);
    if (!wanted || (this.comm && !this.comm.isDisposed) || kernel.isDisposed || !kernel.handleComms) return;
    const comm = (this.comm = kernel.createComm(TARGET));
    comm.onMsg = (message) => this.comm === comm && this.hear(message.content.data);
    comm.onClose = () => {
      if (this.comm !== comm) return;
      this.used = false;
      this.lost();
    };
    comm.open({});
    this.told = '';
    this.tellCells();
    if (this.shown) this.say({ do: 'show', on: true });
  }

  hasUsed() {
    return codeCells(this.panel).some(({ model }) => model.executionCount && MAGIC.test(model.sharedModel.getSource()));
  }

  say(data) {
    if (this.comm && !this.comm.isDisposed) this.comm.send(data);
  }

  show(on) {
    if (this.shown === on) return;
    this.shown = on;
    this.say({ do: 'show', on });
  }

  /* Send the cells if their order has changed, and report an edit, at most five times a second. */
  changed() {
    if (this.waiting) return;
    this.waiting = setTimeout(() => {
      this.waiting = null;
      this.tellCells();
      this.tell({ kind: 'edited' });
    }, 200);
  }

  tellCells() {
    if (!this.comm || this.panel.isDisposed) return;
    const cells = codeCells(this.panel).map(({ model }) => model);
    const told = cells.map(({ id }) => id).join(' ');
    if (told === this.told) return;
    this.told = told;
    this.say({ do: 'cells', cells: cells.map((model) => [model.id, model.sharedModel.getSource()]) });
  }

  hear(data) {
    if (data.kind === 'stale') Object.assign(this, { stale: data.stale, next: data.next });
    else if (data.kind === 'names') {
      if (data.all) this.names = new Map();
      data.gone.forEach((name) => this.names.delete(name));
      data.changed.forEach((binding) => this.names.set(binding.name, binding));
      this.agents = data.agents;
    } else if (data.kind === 'running') this.running = data;
    else if (data.kind === 'kept') Object.entries(data.cells).forEach(([id, paths]) => this.kept.set(id, new Set(paths)));
    else if (data.kind === 'run') this.rerun();
    this.tell(data);
  }

  cell(id) {
    return codeCells(this.panel).find(({ model }) => model.id === id);
  }

  /* Return the cells that were edited after they had run. */
  edited() {
    return codeCells(this.panel).filter(({ model }) => model.isDirty && model.executionCount);
  }

  reveal(id) {
    const { content } = this.panel;
    const index = content.widgets.findIndex(({ model }) => model.id === id);
    if (index < 0) return;
    content.activeCellIndex = index;
    content.deselectAll();
    content.scrollToCell(content.widgets[index]);
  }

  /* Run a cell in its place. `how` is `{ keep: true }` to keep unchanged answers, or `{ again: [paths] }` to keep all
   * kept answers but these. */
  run(cell, how) {
    return this.execute(cell, this.panel.sessionContext, how);
  }

  /* Run the stale cells of the notebook in order, each at most once. After each cell, the stale ones are determined again.
   * An error ends the loop. */
  async rerun() {
    if (this.again) return;
    this.again = true;
    try {
      await this.runNext();
    } finally {
      this.again = false;
    }
  }

  async runNext() {
    const done = new Set();
    for (;;) {
      const id = this.next.find((one) => !done.has(one) && this.cell(one));
      if (!id) return;
      done.add(id);
      const news = new Promise((resolve) => {
        const end = this.listen(({ kind, after }) => ((kind === 'stale' && after === id) || kind === 'lost') && (end(), resolve()));
      });
      const reply = await this.run(this.cell(id), { keep: true });
      if (!reply || reply.content.status !== 'ok') return;
      await Promise.race([news, new Promise((resolve) => setTimeout(resolve, 3000))]);
    }
  }
}

const links = new Map();
const listeners = new Set();

/* Return the link of a notebook; null if it has none. */
const of = (panel) => links.get(panel) || null;

const all = () => links.values();

/* Call `listener(link)` for each notebook that is open or opened later. */
const each = (listener) => {
  listeners.add(listener);
  links.forEach(listener);
};

const watch = (tracker, notebook, cells) => {
  if (watch.begun) return;
  watch.begun = true;
  const execute = (cell, context, how) => cells.CodeCell.execute(cell, context, { recordTiming: false, [RERUN]: how });
  const add = (panel) => {
    const link = new Link(panel, execute);
    links.set(panel, link);
    panel.disposed.connect(() => links.delete(panel));
    listeners.forEach((listener) => listener(link));
  };
  tracker.forEach(add);
  tracker.widgetAdded.connect((_, panel) => add(panel));
  notebook.NotebookActions.executed.connect((_, { notebook: content, cell }) => {
    const link = [...links.values()].find(({ panel }) => panel.content === content);
    if (!link || link.used || !MAGIC.test(cell.model.sharedModel.getSource())) return;
    link.used = true;
    link.connect();
  });
};

export default { watch, of, all, each, codeCells };

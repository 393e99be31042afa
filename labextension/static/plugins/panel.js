/* A panel in the right sidebar that follows the run of the current notebook: stale cells, running activities, open gates,
 * names with their values, agents. The kernel sends news only while the panel is visible. */

const STYLE = `
.prose-panel { overflow: auto; padding: 8px 10px 24px; background: var(--jp-layout-color1); color: var(--jp-ui-font-color1);
  font-size: var(--jp-ui-font-size1); line-height: 1.45; min-width: 220px; }
.prose-panel h2 { font-size: var(--jp-ui-font-size1); font-weight: 600; margin: 14px 0 4px; display: flex; gap: 8px;
  align-items: baseline; }
.prose-panel h2 span { color: var(--jp-ui-font-color2); font-weight: 400; }
.prose-panel ul { list-style: none; margin: 0; padding: 0; }
.prose-panel li { padding: 2px 0; overflow-wrap: anywhere; content-visibility: auto; contain-intrinsic-size: auto 24px; }
.prose-panel code, .prose-panel pre { font-family: var(--jp-code-font-family); font-size: var(--jp-code-font-size); }
.prose-panel pre { white-space: pre-wrap; margin: 4px 0; padding: 4px 6px; background: var(--jp-layout-color2); max-height: 320px;
  overflow: auto; color: var(--jp-content-font-color1); }
.prose-panel .prose-value { color: var(--jp-ui-font-color1); background: none; margin: 0 4px; }
.prose-panel summary > code:first-child { font-weight: 600; }
.prose-panel .prose-dim { color: var(--jp-ui-font-color2); }
.prose-panel summary { cursor: pointer; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
.prose-panel button { font: inherit; color: var(--jp-content-link-color, var(--jp-brand-color1)); background: none; border: 0;
  padding: 0; cursor: pointer; text-align: left; }
.prose-panel button:hover { text-decoration: underline; }
.prose-panel button.prose-act { border: 1px solid var(--jp-border-color1); border-radius: 3px; padding: 1px 8px; margin-left: auto;
  color: var(--jp-ui-font-color1); }
.prose-panel :focus-visible { outline: 2px solid var(--jp-brand-color1); outline-offset: 1px; }
.prose-panel input { width: 100%; box-sizing: border-box; margin: 2px 0 4px; padding: 3px 6px; font: inherit;
  color: var(--jp-ui-font-color1); background: var(--jp-layout-color0); border: 1px solid var(--jp-border-color1); }
`;
const ICON =
  '<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24"><g class="jp-icon3" fill="#616161">' +
  '<path d="M4 4h16v2H4zM4 9h10v2H4zM4 14h16v2H4zM4 19h7v2H4z"/><circle cx="18" cy="10" r="2.4"/></g></svg>';

/* Make an element with children. Strings become text nodes, so values of the run are never parsed as HTML. */
const make = (tag, attributes, ...children) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
};
const dim = (text) => make('span', { class: 'prose-dim' }, text);
const fill = (node, children) => node.replaceChildren(...children);

class View {
  constructor(node, run) {
    this.link = null;
    this.rows = new Map();
    const section = (title, extra) => {
      const count = make('span', {});
      const list = make('ul', { 'aria-label': title });
      const box = make('section', {}, make('h2', {}, title, count, extra || null), list);
      node.append(box);
      return { box, count, list };
    };
    node.classList.add('prose-panel');
    this.nothing = make('p', { class: 'prose-dim' }, 'The notebook in front has no run of Prose.');
    node.append(this.nothing);
    const act = make('button', { class: 'prose-act', type: 'button', onclick: run }, 'Run');
    act.title = 'Run the stale cells, in order';
    this.parts = {
      waiting: section('Waiting for a person'),
      running: section('Running'),
      stale: section('Stale cells', act),
      edited: section('Edited, not run'),
      names: section('Names'),
      agents: section('Agents and blocks'),
    };
    this.parts.waiting.box.setAttribute('aria-live', 'polite');
    const filter = make('input', { type: 'search', placeholder: 'Filter names', 'aria-label': 'Filter names' });
    filter.addEventListener('input', () => this.filter(filter.value));
    this.parts.names.box.insertBefore(filter, this.parts.names.list);
    this.search = filter;
    this.all();
  }

  attach(link) {
    if (this.link === link) return;
    if (this.end) this.end();
    this.link = link;
    this.end = link ? link.listen((what) => this.heard(what)) : null;
    this.all();
  }

  heard(what) {
    if (what.kind === 'names') {
      if (what.all) return this.all();
      what.gone.forEach((name) => this.drop(name));
      what.changed.forEach((binding) => this.put(binding));
      this.count();
      this.agents();
    } else if (what.kind === 'running') this.running();
    else if (what.kind === 'stale') this.stale();
    else if (what.kind === 'edited') this.edited();
    else if (what.kind === 'value') this.value(what);
    else if (what.kind === 'lost') this.all();
    return undefined;
  }

  all() {
    const on = Boolean(this.link && this.link.comm);
    this.nothing.hidden = on;
    Object.values(this.parts).forEach(({ box }) => (box.hidden = !on));
    if (!on) return;
    this.rows.clear();
    this.parts.names.list.replaceChildren();
    this.link.names.forEach((binding) => this.put(binding));
    this.count();
    this.agents();
    this.running();
    this.stale();
    this.edited();
  }

  section(name, items) {
    const { box, count, list } = this.parts[name];
    box.hidden = items.length === 0;
    count.textContent = items.length || '';
    fill(list, items);
  }

  toCell(id, text) {
    return id ? make('button', { type: 'button', onclick: () => this.link.reveal(id), title: 'Go to the cell' }, text) : text;
  }

  stale() {
    this.section(
      'stale',
      this.link.stale.map((one) => make('li', {}, this.toCell(one.cell, one.label), ' ', dim(one.why.join('; ')))),
    );
  }

  edited() {
    this.section(
      'edited',
      this.link.edited().map(({ model }) => {
        const first = model.sharedModel.getSource().trim().split('\n')[0].slice(0, 80);
        return make('li', {}, this.toCell(model.id, `[${model.executionCount}]`), ' ', make('code', {}, first));
      }),
    );
  }

  running() {
    const { under_way: found = [], more = 0, cell = null } = this.link.running || {};
    const row = (one) =>
      make('li', {}, this.toCell(cell, `line ${one.line}`), one.branch ? ` ${one.branch}: ` : ' ', make('code', {}, one.label));
    const rest = more ? [make('li', {}, dim(`… and ${more} more`))] : [];
    this.section('waiting', found.filter(({ kind }) => kind === 'gate').map(row));
    this.section('running', [...found.filter(({ kind }) => kind !== 'gate').map(row), ...rest]);
  }

  agents() {
    this.section(
      'agents',
      this.link.agents.map((one) =>
        make('li', {}, this.toCell(one.cell, one.name), ' ', dim([one.kind, one.said].filter(Boolean).join(', '))),
      ),
    );
  }

  // ---- names

  put(binding) {
    const { name } = binding;
    const former = this.rows.get(name);
    const open = Boolean(former && former.querySelector('details').open);
    const body = make('div', {});
    const details = make(
      'details',
      {},
      make('summary', {}, make('code', {}, name), ' ', make('code', { class: 'prose-value' }, binding.preview), ' ', dim(binding.kind)),
      body,
    );
    details.addEventListener('toggle', () => details.open && !body.childNodes.length && this.unfold(body, binding));
    const row = make('li', { 'data-name': name }, details);
    row.hidden = !this.fits(name);
    if (former) former.replaceWith(row);
    else this.parts.names.list.append(row);
    this.rows.set(name, row);
    details.open = open;
  }

  drop(name) {
    const row = this.rows.get(name);
    if (row) row.remove();
    this.rows.delete(name);
  }

  unfold(body, binding) {
    const from = binding.from.length ? ` from ${binding.from.join(', ')}` : '';
    body.append(
      make('div', {}, dim('made by '), this.toCell(binding.cell, binding.by || 'the run'), dim(from)),
      make('pre', { tabindex: '0', 'aria-label': `Value of ${binding.name}` }, '…'),
    );
    this.link.say({ do: 'value', name: binding.name });
  }

  value({ name, text, rest }) {
    const row = this.rows.get(name);
    const shown = row && row.querySelector('pre');
    if (shown) shown.textContent = rest ? `${text}\n${rest}` : text;
  }

  count() {
    const { box, count } = this.parts.names;
    const size = this.rows.size;
    box.hidden = size === 0;
    count.textContent = size || '';
    this.search.hidden = size < 12 && !this.search.value;
  }

  fits(name) {
    return name.toLowerCase().includes(this.search.value.trim().toLowerCase());
  }

  filter() {
    this.rows.forEach((row, name) => (row.hidden = !this.fits(name)));
  }
}

export default async ({ NAME, shared, load }) => {
  const [notebook, cells, apputils, components, widgets, links, style] = await Promise.all([
    ...['@jupyterlab/notebook', '@jupyterlab/cells', '@jupyterlab/apputils', '@jupyterlab/ui-components', '@lumino/widgets'].map(
      shared,
    ),
    ...['parts/links.js', 'parts/style.js'].map(load),
  ]);

  class Panel extends widgets.Widget {
    constructor(tracker) {
      super();
      this.tracker = tracker;
      this.id = 'prose-panel';
      this.title.icon = new components.LabIcon({ name: `${NAME}:panel`, svgstr: ICON });
      this.title.caption = 'Prose: the run of this notebook';
      this.node.setAttribute('aria-label', 'The run of this notebook');
      this.node.setAttribute('role', 'region');
      this.view = new View(this.node, () => this.link() && this.link().rerun());
      tracker.currentChanged.connect(() => this.follow());
      links.each((link) => {
        link.listen(({ kind }) => kind === 'stale' && this.link() === link && !this.view.link && this.follow());
        this.follow();
      });
    }

    link() {
      return this.tracker.currentWidget ? links.of(this.tracker.currentWidget) : null;
    }

    /* Listen only to the current notebook, and only while the panel is visible. */
    follow() {
      const link = this.isVisible ? this.link() : null;
      if (this.view.link && this.view.link !== link) this.view.link.show(false);
      this.view.attach(link);
      if (link) link.show(true);
    }

    onAfterShow() {
      this.follow();
    }

    onAfterHide() {
      this.follow();
    }
  }

  return [
    {
      id: `${NAME}:panel`,
      description: 'A panel that follows the run: names, agents, running work, stale cells.',
      autoStart: true,
      requires: [notebook.INotebookTracker],
      optional: [apputils.ICommandPalette],
      activate: (app, tracker, palette) => {
        style('panel', STYLE);
        links.watch(tracker, notebook, cells);
        const panel = new Panel(tracker);
        app.shell.add(panel, 'right', { rank: 900, type: 'Prose' });
        const command = `${NAME}:show-panel`;
        app.commands.addCommand(command, {
          label: 'Show the Run of This Notebook',
          caption: 'Names, agents, running work, stale cells',
          execute: () => app.shell.activateById(panel.id),
        });
        if (palette) palette.addItem({ command, category: 'Prose' });
      },
    },
  ];
};

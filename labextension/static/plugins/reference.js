/* Make error codes links: a click on `[E004]` in the output of a cell opens its section of the language reference in a tab
 * next to the notebook (in Notebook 7, in the sidebar). The Help menu opens whole pages. The saved output is unchanged. */
const MIMES = ['application/vnd.jupyter.error', 'application/vnd.jupyter.stderr']; // the types in which errors are shown
const MORE = /more: %(?:prose )?explain (?:([\w-]+) )?([EVWR]\d{3})/;
const CODE = /[EVWR]\d{3}/;

/* Turn the codes in an error of a program into links that call `open` with the page, if it is named, and the code. */
const link = (node, open) => {
  const more = MORE.exec(node.textContent);
  if (!more) return;
  const walker = document.createTreeWalker(node, NodeFilter.SHOW_TEXT, (text) =>
    !text.parentElement.closest('a') && (MORE.test(text.data) || text.data.includes(`[${more[2]}]`))
      ? NodeFilter.FILTER_ACCEPT
      : NodeFilter.FILTER_REJECT,
  );
  const texts = [];
  while (walker.nextNode()) texts.push(walker.currentNode);
  for (const text of texts) {
    const at = text.data.lastIndexOf(more[2]);
    const code = text.splitText(at);
    code.splitText(more[2].length);
    const anchor = document.createElement('a');
    anchor.href = '#';
    anchor.title = 'Open the reference';
    anchor.addEventListener('click', (event) => {
      event.preventDefault();
      open(more[1], more[2]);
    });
    code.replaceWith(anchor);
    anchor.append(code);
  }
};

const linked = (registry, mime, open) => {
  const former = registry.getFactory(mime);
  if (!former) return;
  const createRenderer = (options) => {
    const renderer = former.createRenderer(options);
    const observer = new MutationObserver(() => link(renderer.node, open)); // long outputs are rendered in pieces
    observer.observe(renderer.node, { childList: true, subtree: true });
    renderer.disposed.connect(() => observer.disconnect());
    return renderer;
  };
  registry.addFactory({ safe: former.safe, mimeTypes: [mime], createRenderer }, registry.getRank(mime));
};

/* Remove the words after the language of an example, which are only for its test. */
const plainFences = (text) => text.replace(/^(```\w+) .*$/gm, '$1');

/* Return the section of a code in a page: from its heading to the next one of the same or a higher level. */
const section = (text, code) => {
  const lines = text.split('\n');
  const begin = lines.findIndex((line) => /^#+ /.test(line) && `${line}: `.includes(` ${code}: `));
  if (begin < 0) return null;
  const level = lines[begin].indexOf(' ');
  const end = lines.findIndex((line, at) => at > begin && /^#+ /.test(line) && line.indexOf(' ') <= level);
  const found = lines.slice(begin, end < 0 ? undefined : end).join('\n');
  const plain = plainFences(found);
  return plain.replace(/\[([^\]\n]+)\]\((?!https?:)[^)\n]*\)/g, '$1'); // links between pages do not work here
};

/* Return a page of the reference, or a part of one (`openprose/errors.md`); "" if it is missing. */
const read = async (file) => {
  const answer = await fetch(new URL(`../reference/${file}`, import.meta.url), { cache: 'no-cache' });
  return answer.ok ? answer.text() : '';
};

/* Return the section of a code: in a part to which the page links, or in the page. */
const entry = async (name, code) => {
  const page = await read(`${name}.md`);
  const parts = [...page.matchAll(/\]\(([\w-]+\/[\w-]+\.md)\)/g)].map((match) => match[1]);
  for (const part of parts.filter((one) => one.startsWith(`${name}/`))) {
    const found = section(await read(part), code);
    if (found) return found;
  }
  return section(page, code);
};

/* Return an example of a code: the program with the mistake, and its correction; "" if there is none. */
const correction = async (name, code) => {
  const found = section(await read(`corrections/${name === 'vvm' ? 'vvm' : 'openprose'}.md`), code);
  return found ? found.slice(found.indexOf('\n')) : '';
};

const PAGES = [
  { page: 'openprose.md', label: 'OpenProse Reference' },
  { page: 'vvm.md', label: 'VVM Reference' },
  { page: 'jupyter.md', label: 'Prose Notebooks Reference' },
];

export default async ({ NAME, shared }) => {
  const [rendering, apputils, mainmenu] = await Promise.all(
    ['@jupyterlab/rendermime', '@jupyterlab/apputils', '@jupyterlab/mainmenu'].map(shared),
  );
  return [
    {
      id: `${NAME}:reference`,
      description: 'Error codes that lead to the language reference, and the reference in the Help menu.',
      autoStart: true,
      requires: [rendering.IRenderMimeRegistry],
      optional: [mainmenu.IMainMenu],
      activate: (app, registry, menu) => {
        let tab = null;
        const show = async (label, text, file) => {
          if (tab) tab.dispose();
          const content = registry.createRenderer('text/markdown');
          content.node.style.cssText = 'overflow: auto; padding: 0.5em 2em;';
          await content.renderModel(registry.createModel({ data: { 'text/markdown': text }, trusted: false }));
          content.node.addEventListener('click', (event) => follow(event, file), true);
          tab = new apputils.MainAreaWidget({ content });
          tab.id = `${NAME}-reference`;
          tab.title.label = label;
          tab.title.closable = true;
          tab.disposed.connect(() => (tab = null));
          // Notebook 7 shows one document; other widgets go into the sidebar
          if ('mode' in app.shell) app.shell.add(tab, 'main', { mode: 'split-right' });
          else app.shell.add(tab, 'right');
          app.shell.activateById(tab.id);
        };
        const openPage = async (file) => {
          const text = await read(file);
          if (text) await show(/^# (.*)/.exec(text)?.[1] || file, plainFences(text), file);
        };
        /* Open the target of a link between pages in the same tab. */
        const follow = (event, file) => {
          const anchor = event.target.closest && event.target.closest('a[href]');
          const target = anchor && /^(?!\w+:|\/)([^#]*\.md)(?:#.*)?$/.exec(anchor.getAttribute('href'));
          if (!target || !file) return;
          event.preventDefault();
          event.stopPropagation();
          openPage(new URL(target[1], `http://reference/${file}`).pathname.slice(1));
        };
        const open = async (page, code) => {
          const scripts = /^([EW]3|E23)/.test(code) ? 'prose-md' : 'openprose';
          const name = page || (/^[VR]/.test(code) ? 'vvm' : scripts); // as in runs/reference_pages.py
          const found = await entry(name, code);
          const text = found && `${found}\n${await correction(name, code)}`;
          await show(code, text || `\`%explain ${page ? `${page} ` : ''}${code}\` prints what the reference says.`);
        };
        MIMES.forEach((mime) => linked(registry, mime, open));
        if (!menu) return;
        const command = `${NAME}:open-reference`;
        app.commands.addCommand(command, {
          label: ({ label }) => label || PAGES[0].label,
          execute: ({ page }) => openPage(page || PAGES[0].page),
        });
        menu.helpMenu.addGroup(PAGES.map((args) => ({ command, args })), 0.5);
      },
    },
  ];
};

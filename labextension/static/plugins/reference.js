/* Error codes as links: a click on `[E004]` in the output of a cell opens its section of the language reference, which
 * lies beside this file, in a tab next to the notebook. The output itself is not touched. */
const MIMES = ['application/vnd.jupyter.error', 'application/vnd.jupyter.stderr']; // errors are one or the other
const MORE = /more: %(?:prose )?explain (?:([\w-]+) )?([EVWR]\d{3})/;
const CODE = /[EVWR]\d{3}/;

/* The codes in an error of ours become links; `open` is called with the page, if it is named, and the code. */
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

/* A section of a page: from the heading of the code to the next one of its level or above. */
const section = (text, code) => {
  const lines = text.split('\n');
  const begin = lines.findIndex((line) => /^#+ /.test(line) && line.includes(` ${code}: `));
  if (begin < 0) return null;
  const level = lines[begin].indexOf(' ');
  const end = lines.findIndex((line, at) => at > begin && /^#+ /.test(line) && line.indexOf(' ') <= level);
  const found = lines.slice(begin, end < 0 ? undefined : end).join('\n');
  const plain = found.replace(/^(```\w+) .*$/gm, '$1'); // behind the language stands what an example is for
  return plain.replace(/\[([^\]\n]+)\]\((?!https?:)[^)\n]*\)/g, '$1'); // links from page to page lead nowhere here
};

/* The section of a code: in the page, or in one of the parts to which the page links (`openprose/errors.md`). */
const entry = async (name, code) => {
  const read = async (file) => {
    const answer = await fetch(new URL(`../reference/${file}`, import.meta.url), { cache: 'no-cache' });
    return answer.ok ? answer.text() : '';
  };
  const page = await read(`${name}.md`);
  const parts = [...page.matchAll(/\]\(([\w-]+\/[\w-]+\.md)\)/g)].map((match) => match[1]);
  for (const part of parts.filter((one) => one.startsWith(`${name}/`))) {
    const found = section(await read(part), code);
    if (found) return found;
  }
  return section(page, code);
};

export default async ({ NAME, shared }) => {
  const [rendering, apputils] = await Promise.all(['@jupyterlab/rendermime', '@jupyterlab/apputils'].map(shared));
  return [
    {
      id: `${NAME}:reference`,
      description: 'Error codes that lead to the language reference.',
      autoStart: true,
      requires: [rendering.IRenderMimeRegistry],
      activate: (app, registry) => {
        let tab = null;
        const open = async (page, code) => {
          const scripts = /^([EW]3|E23)/.test(code) ? 'prose-md' : 'openprose';
          const name = page || (/^[VR]/.test(code) ? 'vvm' : scripts); // as reference.py has it
          const found = await entry(name, code);
          const text = found || `\`%explain ${page ? `${page} ` : ''}${code}\` prints what the reference says.`;
          if (tab) tab.dispose();
          const content = registry.createRenderer('text/markdown');
          content.node.style.cssText = 'overflow: auto; padding: 0.5em 2em;';
          await content.renderModel(registry.createModel({ data: { 'text/markdown': text }, trusted: false }));
          tab = new apputils.MainAreaWidget({ content });
          tab.id = `${NAME}-reference`;
          tab.title.label = code;
          tab.title.closable = true;
          tab.disposed.connect(() => (tab = null));
          app.shell.add(tab, 'main', { mode: 'split-right' });
          app.shell.activateById(tab.id);
        };
        MIMES.forEach((mime) => linked(registry, mime, open));
      },
    },
  ];
};

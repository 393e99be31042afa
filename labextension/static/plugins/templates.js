/* Add templates to the launcher: new notebooks and contract files with content that can be run. */

const ICON = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 64 64"><rect x="4" y="4" width="56" height="56" rx="12"
 fill="#2b3a67"/><path d="M18 20 H46 M18 32 H46 M18 44 H34" fill="none" stroke="#f7f4ea" stroke-width="5"
 stroke-linecap="round"/></svg>`;

/* Return the first of `NAME`, `NAME 1`, `NAME 2` … that the directory does not contain. */
export const freeName = (name, taken) => {
  const [, stem, suffix] = /^([^.]*)(.*)$/.exec(name);
  for (let number = 0; ; number += 1) {
    const one = number ? `${stem} ${number}${suffix}` : name;
    if (!taken.includes(one)) return one;
  }
};

const notebookOf = ({ cells }) => ({
  cells: cells.map((cell, number) => ({
    ...cell,
    id: `template-${number}`,
    metadata: {},
    ...(cell.cell_type === 'code' ? { execution_count: null, outputs: [] } : {}),
  })),
  metadata: { kernelspec: { name: 'prose', display_name: 'Prose', language: 'prose' } },
  nbformat: 4,
  nbformat_minor: 5,
});

const modelOf = (template) =>
  template.text
    ? { type: 'file', format: 'text', content: template.text }
    : { type: 'notebook', format: 'json', content: notebookOf(template) };

/* Write a template into a directory and open it; a contract file as a notebook, if the server supports that. */
const begin = async (app, template, directory) => {
  const { contents } = app.serviceManager;
  const listed = await contents.get(directory || '');
  const name = freeName(template.name, listed.content.map((one) => one.name));
  const path = directory ? `${directory}/${name}` : name;
  await contents.save(path, modelOf(template));
  const asNotebook = template.text && (await contents.get(path, { type: 'notebook' }).then(() => true, () => false));
  return app.commands.execute('docmanager:open', { path, ...(asNotebook ? { factory: 'Notebook' } : {}) });
};

export default async ({ NAME, shared, load }) => {
  const [templates, apputils, ui, launchers, browsers] = await Promise.all([
    load('parts/templates.js'),
    ...['@jupyterlab/apputils', '@jupyterlab/ui-components'].map(shared),
    shared('@jupyterlab/launcher').catch(() => ({})), // Notebook 7 may have none
    shared('@jupyterlab/filebrowser').catch(() => ({})),
  ]);
  const optional = [apputils.ICommandPalette, launchers.ILauncher, browsers.IDefaultFileBrowser].map((one) => one || null);
  return [
    {
      id: `${NAME}:templates`,
      description: 'New notebooks and contract files that already hold something to run.',
      autoStart: true,
      requires: [],
      optional: optional.filter(Boolean),
      activate: (app, ...given) => {
        const services = optional.map((one) => (one ? given.shift() : null));
        const [palette, launcher, browser] = services;
        const icon = new ui.LabIcon({ name: `${NAME}:template`, svgstr: ICON });
        templates.forEach((template, rank) => {
          const command = `${NAME}:new-${template.id}`;
          app.commands.addCommand(command, {
            label: ({ isPalette }) => (isPalette ? `New ${template.label}` : template.label),
            caption: template.caption,
            icon: ({ isPalette }) => (isPalette ? undefined : icon),
            execute: ({ cwd }) => begin(app, template, cwd ?? (browser ? browser.model.path : '')),
          });
          if (launcher) launcher.add({ command, category: 'Prose', rank });
          if (palette) palette.addItem({ command, category: 'Prose', args: { isPalette: true } });
        });
      },
    },
  ];
};

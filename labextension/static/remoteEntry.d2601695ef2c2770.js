/* OpenProse and VVM in JupyterLab: the loader.
 *
 * This file is a module federation container written by hand, so that no bundler is needed: JupyterLab calls `init` with
 * the modules that it shares, then `get('./extension')` for the plugins. Those are in `plugins/`, one file for each thing
 * that people see; a file's default export is given `{ NAME, shared, load }` and returns JupyterLab plugins. One that
 * fails is left out, and the others work.
 *
 * The server lets browsers keep all files for a year. So the name of this one holds a hash of its content, and
 * `modules.json`, which is read anew each time, holds those of the others. After an edit run
 * `python scripts/labextension.py`, which writes both.
 */
(() => {
  'use strict';

  const NAME = 'prose-kernel';
  const here = document.currentScript.src;
  let scope = null;
  let hashes = null;

  const numbers = (version) => version.split(/[.+-]/).slice(0, 3).map((part) => parseInt(part, 10) || 0);
  const compare = (one, other) => {
    const [a, b] = [numbers(one), numbers(other)];
    return a[0] - b[0] || a[1] - b[1] || a[2] - b[2];
  };

  /* JupyterLab's own copy of a module: one that is loaded already, else the newest. CodeMirror rejects extensions made
   * with another copy. */
  const shared = async (module) => {
    const versions = scope && scope[module];
    if (!versions) throw new Error(`${NAME}: JupyterLab does not share ${module}`);
    const all = Object.keys(versions);
    const loaded = all.filter((version) => versions[version].loaded);
    const factory = await versions[(loaded.length ? loaded : all).sort(compare).pop()].get();
    return factory();
  };

  /* The default export of a file beside this one. Files get what they need of each other through this, not by `import`
   * statements: those would find what the browser has kept. */
  const load = async (path) => (await import(`${new URL(path, here)}?v=${hashes[path]}`)).default;

  const plugins = async () => {
    const answer = await fetch(new URL('modules.json', here), { cache: 'no-store' });
    hashes = await answer.json();
    const files = Object.keys(hashes).filter((path) => path.startsWith('plugins/'));
    const made = await Promise.allSettled(files.map(async (path) => (await load(path))({ NAME, shared, load })));
    made.forEach(({ reason }, number) => reason && console.warn(`${NAME}: ${files[number]} cannot be used:`, reason));
    return made.flatMap(({ value }) => value || []);
  };

  const container = {
    init(shareScope) {
      scope = shareScope;
    },
    async get(module) {
      if (module === './style') return () => ({});
      if (module !== './extension' && module !== './index') throw new Error(`${NAME}: there is no module ${module}`);
      const extension = { __esModule: true, default: await plugins() };
      return () => extension;
    },
  };
  window._JUPYTERLAB = window._JUPYTERLAB || {};
  window._JUPYTERLAB[NAME] = container;
})();

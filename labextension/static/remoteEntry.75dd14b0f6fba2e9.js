/* OpenProse and VVM in JupyterLab: the loader.
 *
 * This file is a hand-written module federation container, so that no bundler is needed: JupyterLab calls `init` with the
 * modules that it shares, then `get('./extension')` for the plugins. Each file in `plugins/` has one visible feature; its
 * default export takes `{ NAME, shared, load }` and returns JupyterLab plugins. If a file fails, the others still work.
 *
 * Browsers cache all files for a year. So the name of this file contains a hash of its content, and `modules.json`, which
 * is never cached, contains the hashes of the others. After an edit, run `python scripts/labextension.py`, which writes
 * both.
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

  /* Return JupyterLab's copy of a module: the loaded one, else the newest. CodeMirror rejects extensions that were made
   * with another copy. */
  const shared = async (module) => {
    const versions = scope && scope[module];
    if (!versions) throw new Error(`${NAME}: JupyterLab does not share ${module}`);
    const all = Object.keys(versions);
    const loaded = all.filter((version) => versions[version].loaded);
    const factory = await versions[(loaded.length ? loaded : all).sort(compare).pop()].get();
    return factory();
  };

  /* Return the default export of a file next to this one. Files use this instead of `import` statements, which would get
   * outdated files from the browser's cache. */
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

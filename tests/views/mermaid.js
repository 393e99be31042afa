/* Mermaid as JupyterLab ships it, in Node: its own parser, without a browser.
 *
 * node mermaid.js STATIC < texts.json > answers.json
 * STATIC is the directory of JupyterLab's scripts. An answer is {"nodes": {id: label}, "edges": [[from, to, label]],
 * "groups": {id: title}} for a diagram, {"error": ...} for a text that Mermaid refuses.
 */
'use strict';
const fs = require('fs');
const path = require('path');

const directory = path.resolve(process.argv[2]);
const files = fs.readdirSync(directory).filter((name) => name.endsWith('.js'));

// ---------------------------------------------------------------- a bundler's runtime: modules by number, from chunks

const factories = {};
const loaded = new Set();
const chunks = [];
chunks.push = (chunk) => Object.assign(factories, chunk[1]);
globalThis.self = globalThis;
for (const name of ['rspackChunk_jupyterlab_application_top', 'webpackChunk_jupyterlab_application_top']) {
  globalThis[name] = chunks;
}

// What JupyterLab shares is a module of another chunk: `88060:{…fallback:()=>….e(2272).then(()=>()=>…(96451))`.
const main = fs.readFileSync(path.join(directory, files.find((name) => name.startsWith('main.'))), 'utf8');
function shared(id) {
  const found = new RegExp(`[{,]${id}:\\{[^{}]*fallback:\\(\\)=>([^{}]*?)\\((\\d+)\\)\\),`).exec(main);
  for (const [, chunk] of found[1].matchAll(/\.e\("?(\d+)"?\)/g)) load.e(chunk);
  return load(found[2]);
}

const cache = {};
function load(id) {
  if (cache[id]) return cache[id].exports;
  if (!factories[id]) return shared(id);
  const module = (cache[id] = { id, exports: {}, loaded: false });
  factories[id].call(module.exports, module, module.exports, load);
  module.loaded = true;
  return module.exports;
}
Object.assign(load, {
  m: factories,
  o: (object, name) => Object.prototype.hasOwnProperty.call(object, name),
  d: (exports, getters) => {
    for (const name of Object.keys(getters)) {
      if (!load.o(exports, name)) Object.defineProperty(exports, name, { enumerable: true, get: getters[name] });
    }
  },
  r: (exports) => Object.defineProperty(exports, '__esModule', { value: true }),
  n: (module) => {
    const getter = module && module.__esModule ? () => module.default : () => module;
    load.d(getter, { a: getter });
    return getter;
  },
  t: (value) => load(value),
  hmd: (module) => module,
  nmd: (module) => module,
  g: globalThis,
  e: (id) => {
    const name = files.find((file) => file.startsWith(`${id}.`));
    if (name && !loaded.has(name)) {
      loaded.add(name);
      require(path.join(directory, name));
    }
    return Promise.resolve();
  },
});

function mermaid() {
  const core = fs.readFileSync(path.join(directory, files.find((name) => name.startsWith('jlab_core'))), 'utf8');
  const call = /Promise\.all\(\[((?:\w+\.e\(\d+\),?)+)\]\)\.then\(\w+\.bind\(\w+,(\d+)\)\)\)\.default/;
  const found = call.exec(core.slice(core.indexOf('securityLevel:"strict"')));
  for (const [, id] of found[1].matchAll(/\.e\((\d+)\)/g)) load.e(id);
  const made = load(found[2]).default;
  for (const module of Object.values(cache)) {  // the sanitiser needs a browser's document; a parser does not need it
    const exported = module.exports && (module.exports.default || module.exports.A || module.exports.Z);
    if (typeof exported === 'function' && exported.isSupported === false) {
      Object.assign(exported, { sanitize: (text) => text, addHook: () => undefined });
    }
  }
  made.initialize({ securityLevel: 'strict', maxTextSize: 50000, maxEdges: 500, startOnLoad: false });
  return made;
}

(async () => {
  const { mermaidAPI } = mermaid();
  const answers = [];
  for (const text of JSON.parse(fs.readFileSync(0, 'utf8'))) {
    try {
      const { db } = await mermaidAPI.getDiagramFromText(text);
      const nodes = {};
      for (const [id, node] of db.getVertices()) nodes[id] = node.text ?? id;
      const groups = {};
      for (const group of db.getSubGraphs()) groups[group.id] = group.title;
      answers.push({ nodes, groups, edges: db.getEdges().map((edge) => [edge.start, edge.end, edge.text]) });
    } catch (problem) {
      answers.push({ error: String(problem && problem.message) });
    }
  }
  fs.writeFileSync(1, JSON.stringify(answers));
})();

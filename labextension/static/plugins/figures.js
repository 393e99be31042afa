/* Show facts that differ from run to run, such as times and costs. They are in the metadata of an output, so that saved
 * data can be compared. The renderers of these types show `metadata.prose.person` instead of the data, sanitized in the
 * same way. */
const personal = (registry, mime) => {
  const former = registry.getFactory(mime);
  if (!former) return;
  const seen = (model) => {
    const { prose } = model.metadata || {};
    const bundle = prose && prose.person;
    if (!bundle || typeof bundle[mime] !== 'string') return model;
    return Object.create(model, { data: { value: { ...model.data, [mime]: bundle[mime] } } });
  };
  const createRenderer = (options) => {
    const renderer = former.createRenderer(options);
    const render = renderer.renderModel;
    renderer.renderModel = (model) => render.call(renderer, seen(model));
    return renderer;
  };
  registry.addFactory({ safe: former.safe, mimeTypes: [mime], createRenderer }, registry.getRank(mime));
};

export default async ({ NAME, shared }) => {
  const rendering = await shared('@jupyterlab/rendermime');
  return [
    {
      id: `${NAME}:figures`,
      description: 'Times and cost in diagrams, timelines and profiles.',
      autoStart: true,
      requires: [rendering.IRenderMimeRegistry],
      activate: (app, registry) =>
        ['text/html', 'text/markdown', 'image/svg+xml', 'text/plain'].forEach((mime) => personal(registry, mime)),
    },
  ];
};

/* Restore the outputs of running cells after their page was reloaded, and show their further outputs.
 *
 * JupyterLab drops outputs of requests that the page has not sent. The kernel keeps the outputs of its cells
 * (`prose_kernel/notebook/messages.py`). This module passes them, and later messages, to the output areas as if the
 * page had sent the requests. */

const KEPT = 'prose-kernel:running:'; // key in the session storage: the cells that ran when the page was left
const OUTPUTS = /^(?:stream|display_data|update_display_data|execute_result|error|clear_output)$/;

const attached = new WeakMap();
const codeCells = (panel) => (panel.content.widgets || []).filter((cell) => cell.model && cell.model.type === 'code');
const kernelOf = (panel) => panel.sessionContext.session && panel.sessionContext.session.kernel;

const runs = (cell) => {
  const prompt = cell.node.querySelector('.jp-InputPrompt');
  return cell.model.executionState === 'running' || Boolean(prompt && prompt.textContent.includes('*'));
};

/* Store which cells of the notebook are running or waiting. */
export const keep = (panel) => {
  const kernel = kernelOf(panel);
  if (!kernel) return;
  const { expected = new Set() } = attached.get(panel) || {};
  const cells = codeCells(panel).filter((cell) => runs(cell) || expected.has(cell.model.id)).map(({ model }) => model.id);
  try {
    if (cells.length) window.sessionStorage.setItem(KEPT + kernel.id, JSON.stringify(cells));
    else window.sessionStorage.removeItem(KEPT + kernel.id);
  } catch (error) {
    // the storage is full or disabled: after a reload, only the running cell is shown
  }
};

const kept = (kernel) => {
  try {
    return JSON.parse(window.sessionStorage.getItem(KEPT + kernel.id)) || [];
  } catch (error) {
    return [];
  }
};

/* A future for JupyterLab's output areas that shows an execution which this page has not requested. */
class Follower {
  constructor(cell, request, count) {
    Object.assign(this, { cell, count, number: 0, isDisposed: false });
    this.msg = { header: { msg_id: request, msg_type: 'execute_request' }, metadata: { cellId: cell.model.id } };
    this.done = new Promise((resolve) => (this.over = resolve));
    this.onIOPub = this.onReply = this.onStdin = () => null;
    const { model } = cell;
    cell.outputArea.future = this; // this clears the output area
    model.trusted = true;
    model.executionCount = null;
    model.executionState = 'running';
    cell.setPrompt('*');
  }

  registerMessageHook() {}

  removeMessageHook() {}

  sendInputReply() {}

  dispose() {
    this.isDisposed = true; // the cell was run again
    this.over();
  }

  take(message, number) {
    if (this.isDisposed || (number && number <= this.number)) return;
    this.number = number || this.number;
    this.onIOPub(message);
  }

  replay({ outputs, number }) {
    outputs.forEach(({ kind, content }) => this.take({ header: { msg_type: kind }, content }));
    this.number = number;
  }

  finish() {
    if (this.isDisposed) return;
    const { cell, count } = this;
    cell.model.executionState = 'idle';
    cell.model.executionCount = count;
    cell.setPrompt(`${count}`);
    this.over();
  }
}

/* Return whether a kernel is one of Prose or VVM. The kernelspec is checked first, because a busy kernel does not answer
 * `info` requests. */
export const isOurs = async (panel, kernel) => {
  const { specsManager } = panel.sessionContext;
  await specsManager.ready;
  const spec = specsManager.specs && specsManager.specs.kernelspecs[kernel.name];
  if (spec && !/^(?:prose|vvm)$/.test(spec.language)) return false;
  return (await kernel.info).implementation === 'prose_kernel';
};

const attach = async (services, panel, kernel, expected) => {
  if (!(await isOurs(panel, kernel)) || panel.isDisposed || kernel.isDisposed) return false;
  const wanted = kept(kernel);
  wanted.forEach((id) => expected.add(id)); // a waiting cell has not begun yet
  const followed = new Map();
  const cellOf = (id) => codeCells(panel).find(({ model }) => model.id === id);
  const hear = (message) => {
    const { prose } = message.metadata || {};
    const { msg_id: request } = message.parent_header;
    const kind = message.header.msg_type;
    if (kind === 'execute_input' && prose && wanted.includes(prose.cell) && cellOf(prose.cell)) {
      const former = followed.get(request);
      if (!former) followed.set(request, new Follower(cellOf(prose.cell), request, message.content.execution_count));
    }
    const follower = followed.get(request);
    if (!follower) return;
    if (kind === 'status' && message.content.execution_state === 'idle') {
      expected.delete(follower.cell.model.id);
      follower.finish();
      followed.delete(request);
    } else if (OUTPUTS.test(kind)) {
      if (kind === 'error') expected.clear(); // the kernel runs none of the cells that waited
      follower.take(message, prose && prose.number);
    }
  };
  let early = [];
  kernel.iopubMessage.connect((_, message) => {
    const { session, msg_type: asked } = message.parent_header || {};
    if (asked !== 'execute_request' || session === kernel.clientId || panel.isDisposed) return;
    if (early) early.push(message);
    else hear(message);
  });
  const options = { msgType: 'prose_outputs_request', channel: 'control', session: kernel.clientId };
  const request = services.KernelMessage.createMessage({ ...options, username: kernel.username, content: { cells: wanted } });
  const future = kernel.sendControlMessage(request, true, true);
  const { content } = await future.done;
  for (const entry of content.cells || []) {
    const cell = cellOf(entry.cell);
    if (!cell) continue;
    await cell.ready;
    const follower = new Follower(cell, entry.request, entry.count);
    follower.replay(entry);
    if (entry.done) follower.finish();
    else followed.set(entry.request, follower);
  }
  const waiting = early;
  early = null;
  waiting.forEach(hear);
  return true;
};

/* Show the outputs so far of a notebook's kernel, once for each kernel. Resolves when they are shown, to true for a kernel
 * of Prose or VVM. */
export const reattach = (services, panel) => {
  const kernel = kernelOf(panel);
  if (!kernel) return Promise.resolve();
  const known = attached.get(panel);
  if (known && known.kernel === kernel) return known.done;
  const expected = new Set();
  const done = attach(services, panel, kernel, expected).catch((error) => console.warn('prose-kernel: outputs are not restored:', error));
  attached.set(panel, { kernel, done, expected });
  return done;
};

export default { isOurs, keep, reattach };

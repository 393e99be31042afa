/* Two commands that JupyterLab's debugger lacks: run to a line, and go back to the state before the last statement. They
 * send requests to the kernel's debugger (docs/how-to/debugging.md). */
export default async ({ NAME, shared }) => {
  const notebooks = await shared('@jupyterlab/notebook');
  const debuggers = await shared('@jupyterlab/debugger');
  const apputils = await shared('@jupyterlab/apputils');

  const activate = (app, tracker, service, palette) => {
    const panel = () => tracker.currentWidget;
    const kernel = () => panel()?.sessionContext.session?.kernel;
    const ours = () => ['prose', 'vvm'].includes(panel()?.content.model?.getMetadata('language_info')?.name);
    let seq = 1_000_000;

    const ask = async (command, given) => {
      seq += 1;
      const future = kernel().requestDebug({ type: 'request', seq, command, arguments: given });
      const { content } = await future.done;
      if (!content.success) apputils.Notification.warning(content.message, { autoClose: 8000 });
      return content.success ? content.body : null;
    };

    /* Return the line on which the context menu was opened, else the line of the cursor. */
    const lineOf = (editor, clicked) => {
      const node = clicked && app.contextMenuHitTest((one) => one.classList.contains('cm-line'));
      if (!node || !editor.host.contains(node)) return editor.getCursorPosition().line + 1;
      return editor.editor.state.doc.lineAt(editor.editor.posAtDOM(node)).number;
    };

    const runToLine = async ({ clicked }) => {
      const cell = tracker.activeCell;
      const named = await ask('dumpCell', { code: cell.model.sharedModel.getSource() });
      if (!named) return;
      const line = lineOf(cell.editor, clicked);
      const found = await ask('runTo', { source: { path: named.sourcePath }, line });
      if (found && !found.allThreadsContinued) await app.commands.execute('notebook:run-cell');
    };

    const commands = [
      ['run-to-line', 'Debugger: Run to This Line', () => service.isStarted && !!tracker.activeCell?.editor, runToLine],
      ['go-back', 'Debugger: Go Back One Statement', () => service.hasStoppedThreads(), () => ask('stepBack', {})],
    ];
    commands.forEach(([id, label, isEnabled, execute], rank) => {
      const command = `${NAME}:${id}`;
      app.commands.addCommand(command, { label, isEnabled, isVisible: ours, execute });
      app.contextMenu.addItem({ command, args: { clicked: true }, selector: '.jp-Notebook .jp-CodeCell', rank: 20 + rank });
      palette?.addItem({ command, category: 'Debugger' });
    });
  };

  return [
    {
      id: `${NAME}:debugger`,
      description: 'Run to a line, and go back.',
      autoStart: true,
      requires: [notebooks.INotebookTracker, debuggers.IDebugger],
      optional: [apputils.ICommandPalette],
      activate,
    },
  ];
};

/* The templates in the launcher (`plugins/templates.js`). */

const words = (...lines) => ({ cell_type: 'markdown', source: lines.join('\n') });
const code = (...lines) => ({ cell_type: 'code', source: lines.join('\n') });

const workflow = {
  id: 'workflow',
  label: 'First Workflow',
  caption: 'A Prose notebook with a session, a condition in words and a gate',
  name: 'First workflow.ipynb',
  cells: [
    words(
      '# First workflow',
      '',
      'Run the cells with Shift+Enter. `%provider` shows what answers sessions; without a model you answer them yourself.',
    ),
    code('let changes = """', '- fix: round discounts to whole cents', '- new: dark mode is remembered', '"""'),
    code('let note = session "Write one sentence of release notes about: {changes}"'),
    words('A condition in words: rules decide this one, the judge decides others.'),
    code(
      'if **note has more than 20 words**:',
      '  note = session "Shorten it to one sentence of at most 20 words"',
      '    context: note',
    ),
    words('A gate waits until you approve.'),
    code('gate publish:', '  prompt: "Publish this note?\\n{note}"', 'output release_note = note'),
  ],
};

const commands = {
  id: 'commands',
  label: 'Commands',
  caption: 'A Prose notebook that runs commands: values, branches, failures',
  name: 'Commands.ipynb',
  cells: [
    words('# Commands', '', '`exec` runs a shell command, and `let` keeps its output. Run the cells with Shift+Enter.'),
    code('let files = exec "ls -1"', '  format: "lines"'),
    words('Branches of `parallel` run at the same time.'),
    code('parallel:', '  day = exec "date +%A"', '  user = exec "id -un"'),
    words('A command that fails ends the cell, unless `on-fail` says otherwise. Its result decides a condition.'),
    code(
      'let found = exec "test -d src"',
      '  on-fail: continue',
      'if **found failed**:',
      '  exec "echo There is no directory src."',
    ),
  ],
};

const contract = {
  id: 'contract',
  label: 'Contract File',
  caption: 'A function with parameters and returns, NAME.prose.md',
  name: 'brief.prose.md',
  text: [
    '---',
    'name: brief',
    'kind: function',
    '---',
    '',
    '# Brief',
    '',
    '### Parameters',
    '',
    '- `topic`: what the brief is about',
    '',
    '### Returns',
    '',
    '- `brief`: three sentences',
    '',
    '### Execution',
    '',
    '```prose',
    'let brief = session "Write three sentences about {topic}."',
    'return brief',
    '```',
    '',
  ].join('\n'),
};

export default [workflow, commands, contract];

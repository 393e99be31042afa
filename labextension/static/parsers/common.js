/* Functions that the parsers of both languages share. */

/* Copy the state of a parser. CodeMirror keeps a copy for each line. */
const copyState = (state) => ({ ...state, arms: state.arms.slice(), brackets: state.brackets.slice() });

const words = (text) => new Set(text.split(' '));

// The style of each sign; all others are operators.
const SIGNS = {
  '(': 'paren', ')': 'paren', '[': 'squareBracket', ']': 'squareBracket', '{': 'brace', '}': 'brace',
  ',': 'separator', '.': 'derefOperator', ':': 'punctuation',
};

/* Return the function that indents a new line. `arm` matches words that continue a statement above (such as `else`);
 * `columns` returns the possible columns of such a word, the innermost last. If the user has moved the line further out,
 * it gets the column of the statement there. */
const indentation = (arm, columns) => (state, after, context) => {
  const unit = state.unit || 2; // both languages are written with two spaces, whatever the settings say for Python
  if (state.inside) return null; // a line of text keeps the indentation of the previous line
  if (state.brackets.length) {
    const column = state.brackets[state.brackets.length - 1];
    return /^[)\]}]/.test(after) ? column : column + unit;
  }
  const found = arm.exec(after);
  if (!found) return state.indent + (state.before === ':' ? unit : 0);
  const typed = context.simulatedBreak == null && context.pos != null;
  const most = typed ? /^[ \t]*/.exec(context.lineAt(context.pos).text)[0].length : Infinity;
  const fitting = columns(found[1], state, unit).filter((column) => column <= most);
  return fitting.length ? fitting[fitting.length - 1] : null;
};

/* Return the function that updates the state at the start of a line. `statement` matches text that only begins a
 * statement: it ends brackets that were not closed. `goesOn` matches a line that continues the previous statement. */
const lineStart = (statement, goesOn) => (stream, state) => {
  const column = stream.indentation();
  state.column = column;
  if (state.brackets.length) {
    const deeper = column - state.brackets[state.brackets.length - 1];
    if (deeper > 0 && '([{'.includes(state.before)) state.unit = deeper;
    if (column > state.brackets[0] || !stream.match(statement, false)) return;
    state.brackets = [];
  }
  state.naming = null;
  if (column > state.indent) state.unit = column - state.indent;
  state.indent = column;
  if (goesOn && stream.match(goesOn, false)) return;
  state.before = 'line';
  while (state.arms.length && state.arms[state.arms.length - 1][0] >= column) state.arms.pop();
};

export default { words, SIGNS, copyState, indentation, lineStart };

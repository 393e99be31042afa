/* OpenProse for CodeMirror's `StreamLanguage`: colours, indentation, comments. */

export default ({ words, SIGNS, copyState, indentation, lineStart }) => {
  // ---------------------------------------------------------------- words

  const IDENT = '[A-Za-z_][A-Za-z0-9_]*(?:-[A-Za-z0-9_]+)*';
  const PATH = `${IDENT}(?:\\.${IDENT}|\\[(?:[0-9]+|${IDENT})\\])*`;
  const WORD = new RegExp(`^${IDENT}`);
  const INTERPOLATION = new RegExp(`^\\{${PATH}\\}(?!\\})`);
  const PROPERTY = new RegExp(
    '^[ \\t]*(?:prompt|model|context|skills|permissions|persist|retry|backoff|timeout|on[-_]fail|on[-_]reject|cwd|allow)' +
      '[ \\t]*:',
  );
  const END = '[ \\t]*(?:#.*)?$';
  const ENDS = new RegExp(`^${END}`);

  // All keywords are soft: a word is one only if this pattern matches the rest of the line.
  const KEYWORDS = new Map(
    Object.entries({
      use: '[ \\t]*"',
      import: '[ \\t]*"',
      option: '[ \\t]*"',
      exec: '[ \\t]*"',
      input: '[ \\t]*[A-Za-z_:"]',
      agent: '[ \\t]*[A-Za-z_]',
      gate: '[ \\t]*[A-Za-z_]',
      block: '[ \\t]*[A-Za-z_:(]',
      resume: '[ \\t]*:',
      parallel: `[ \\t]*[:(]|[ \\t]*for(?![\\w-])|${END}`,
      for: '[ \\t]*[A-Za-z_]',
      repeat: '[ \\t]*[A-Za-z_0-9:"+]|[ \\t]*-(?!>)',
      loop: '[ \\t]*[:(]|[ \\t]*(?:until|while|as)(?![\\w-])',
      try: '[ \\t]*:',
      finally: '[ \\t]*:',
      else: '[ \\t]*:|[ \\t]*if(?![\\w-])',
      catch: '[ \\t]*:|[ \\t]*as(?![\\w-])',
      do: `[ \\t]*[A-Za-z_:]|${END}`,
      call: '[ \\t]+[A-Za-z_"]',
      throw: `[ \\t]*[A-Za-z_"]|${END}`,
      break: END,
      continue: END,
      output: '(?![ \\t]*[.:])',
      let: '(?![ \\t]*[.(|])',
      const: '(?![ \\t]*[.(|])',
      session: '(?![ \\t]*(?:[.,|]|=(?!=)))',
      if: '(?![ \\t]*=(?!=))',
      elif: '(?![ \\t]*=(?!=))',
      choice: '(?![ \\t]*=(?!=))',
      return: '(?![ \\t]*=(?!=))',
      assert: '(?![ \\t]*=(?!=))',
    }).map(([word, rest]) => [word, new RegExp(`^(?:${rest})`)]),
  );
  // The keywords of statements that can begin elsewhere than at the start of a line.
  const SPAWNS = words('session resume exec');
  const VALUES = words('session resume exec call do parallel for repeat loop try choice if');
  const AFTER_COLON = words('session resume exec call do throw continue');
  const AFTER_RETURN = words('session resume exec call do parallel try choice');
  const CONSTANTS = words('true false null');
  const OPERATORS = words('and or not is');
  const DEFINES = words('let const input output agent block gate');
  const ARMS = { elif: 'if elif', else: 'if elif', catch: 'try', finally: 'try catch' };
  const ARM = /^(elif|else|catch|finally)(?![\w-])/;
  // Words that control commands in a shell, and the text that must precede them.
  const SHELL = words('if then elif else fi for while until do done case esac');
  const SHELL_BEGINS = /(?:^|[;&|("`]|\b(?:then|do|else))[ \t]*$/;
  const SHELL_FOR = /\bfor[ \t]+\w+[ \t]+$/;
  // A line that must be a statement: it ends brackets that were not closed.
  const STATEMENT = new RegExp(
    '^[ \\t]*(?:(?:session|exec|use|option|throw)[ \\t]+"' +
      '|(?:let|const|agent|block|gate|for|input|output)[ \\t]+[A-Za-z_{]' +
      '|(?:session|resume|try|do|parallel|finally|else|catch)[ \\t]*:|(?:if|elif|choice|loop)[ \\t]+\\*\\*)',
  );
  const SAMPLE_OPENS = /(?:[:=][ \t]*|\b(?:session|exec|throw)[ \t]+)"""$/;
  const MARKER_OPENS = /^(?:[^*]|\*(?!\*))*?[ \t]\*\*[A-Za-z0-9{'(]/;

  // ---------------------------------------------------------------- state

  /* inside    the open literal at the start of the line: null, '"', '"""', '**' or '***'
   * shell     whether the literal is the command of an `exec`
   * nested    the number of open samples in a `"""` string, null if it cannot contain any
   * before    the previous token: 'line' at the start of a statement, a sign, a keyword, or 'value'
   * column    the column of the line
   * indent    the column of the statement
   * unit      the indentation of the text's blocks, 0 if unknown
   * arms      [column, keyword] of each if, try ... that can still be continued
   * brackets  for each open bracket, the column of its line
   * naming    the names that are definitions: null, 'one', 'parameters' (after `(`), 'all' (until the closing bracket),
   *           'in' (until `in`)
   */
  const startState = () => ({
    inside: null,
    shell: false,
    nested: null,
    before: 'line',
    column: 0,
    indent: 0,
    unit: 0,
    arms: [],
    brackets: [],
    naming: null,
  });

  // ---------------------------------------------------------------- literals

  /* Prompts may quote programs. In a string whose opening quotes end their line, further quotes that open a string at the
   * end of a line begin a sample, and a line with only quotes ends it. */
  const isSample = (quotes, stream, state) => {
    if (state.nested === null) return false;
    if (quotes.length === 3 && stream.eol() && SAMPLE_OPENS.test(stream.string)) {
      state.nested += 1;
      return true;
    }
    if (!state.nested) return false;
    if (stream.string.trim() === '"""') state.nested -= 1;
    return true;
  };

  const string = (stream, state) => {
    const triple = state.inside === '"""';
    const quotes = triple && stream.match(/^"{3,}/);
    if (quotes) {
      // of more than three quotes, the last three close the string; the others are text, in the same style
      if (!isSample(quotes[0], stream, state)) state.inside = null;
      return 'string';
    }
    if (!triple && stream.match('"')) {
      state.inside = null;
      return 'string';
    }
    if (stream.match(/^\\./)) return 'string.special';
    if (state.shell && !stream.match(/^["{]/, false)) return shell(stream);
    return text(stream, /^(?:[^"\\{]+|"{1,2}(?!"))/, 'string');
  };

  /* Read a part of a command: a variable, a sign between commands, a word that begins or controls a command. */
  const shell = (stream) => {
    if (stream.match(/^\$(?:[A-Za-z_]\w*|[0-9?@#!*])/)) return 'variableName.special';
    if (stream.match(/^(?:\|\|?|&&|;;?|[0-9]?>>?(?:&[0-9])?|<)/)) return 'controlOperator';
    const before = stream.string.slice(Math.max(0, stream.pos - 30), stream.pos);
    if (stream.match(/^[\w./:@%+~=,-]+/)) {
      const word = stream.current();
      if (SHELL.has(word) && SHELL_BEGINS.test(before)) return 'controlKeyword';
      return word === 'in' && SHELL_FOR.test(before) ? 'controlKeyword' : 'string';
    }
    if (!stream.match(/^[^\w./:@%+~=,"\\{$|&;<>-]+/)) stream.next();
    return 'string';
  };

  const marker = (stream, state) => {
    if (stream.match(state.inside)) {
      state.inside = null;
      return 'string.special emphasis';
    }
    return text(stream, /^[^*{]+/, 'string.special emphasis');
  };

  // Read plain text or one interpolation. Doubled braces are text.
  const text = (stream, plain, style) => {
    if (stream.match(INTERPOLATION)) return 'variableName.special';
    if (!stream.match(/^\{+/) && !stream.match(plain)) stream.next();
    return style;
  };

  const literal = (stream, state) => {
    const style = state.inside[0] === '"' ? string(stream, state) : marker(stream, state);
    if (state.inside === null) Object.assign(state, { before: 'value', shell: false });
    return style;
  };

  /* Return whether a literal continues on a new line. An unfinished literal must not swallow the rest of the cell while
   * the user is typing. */
  const goesOn = (stream, state) => {
    if (state.inside === '"') return stream.indentation() > state.indent && !stream.match(PROPERTY, false);
    return state.inside !== '**' || !stream.match(MARKER_OPENS, false);
  };

  // ---------------------------------------------------------------- lines

  const startLine = lineStart(STATEMENT, /^[ \t]*(?:\||->)/);

  const isKeyword = (word, stream, state) => {
    const { before } = state;
    const rest = KEYWORDS.get(word);
    if (!rest || !stream.match(rest, false)) return false;
    if (before === 'line') return true;
    if (before === '=') return VALUES.has(word);
    if (before === '->' || before === '|') return SPAWNS.has(word);
    if (before === 'output' || before === 'return') return AFTER_RETURN.has(word);
    if (before === ':' && !state.brackets.length) {
      return AFTER_COLON.has(word) && !(word === 'session' && stream.match(ENDS, false));
    }
    return (before === 'parallel' && word === 'for') || (before === 'else' && word === 'if');
  };

  // Words that are keywords only after certain tokens and before certain text.
  const isContextual = (word, stream, state) => {
    const { before } = state;
    if (word === 'as') return stream.match(/^[ \t]+[A-Za-z_]/, false) && /^(?:value|catch|loop)$/.test(before);
    if (word === 'in') return state.naming === 'in';
    if (word === 'until' || word === 'while') return before === 'loop';
    if (word === 'from') return before === 'value' && stream.match(/^[ \t]*"/, false);
    if (word === 'retry') return before === ':' && !state.brackets.length && stream.match(ENDS, false);
    if (word === 'reduce') return before === '|' && stream.match(/^[ \t]*\(/, false);
    return /^(?:map|pmap|filter)$/.test(word) && before === '|' && stream.match(/^[ \t]*:/, false);
  };

  const keyword = (word, state) => {
    state.before = word;
    if (DEFINES.has(word)) state.naming = 'one';
    else if (word === 'for') state.naming = 'in';
    else if (word === 'as') state.naming = 'one';
    else state.naming = null;
    if (/^(?:if|elif|try|catch)$/.test(word)) state.arms.push([state.indent, word]);
    return 'keyword';
  };

  const name = (word, stream, state) => {
    const { before, naming } = state;
    state.before = 'value';
    if (before !== '.' && stream.match(/^[ \t]*:/, false) && (state.brackets.length || (before === 'line' && state.indent)))
      return 'propertyName';
    if (!naming || naming === 'parameters') return 'variableName';
    if (naming === 'one') {
      state.naming = before === 'block' ? 'parameters' : null;
      if (before === 'output' && !stream.match(/^[ \t]*=(?!=)/, false)) return 'variableName';
    }
    return 'variableName.definition';
  };

  const wordToken = (word, stream, state) => {
    if (state.before !== '.') {
      if (isKeyword(word, stream, state) || isContextual(word, stream, state)) return keyword(word, state);
      const key = state.brackets.length > 0 && stream.match(/^[ \t]*:/, false);
      if (CONSTANTS.has(word) && !key) {
        state.before = 'value';
        return word === 'null' ? 'null' : 'bool';
      }
      if (OPERATORS.has(word) && !key && state.naming !== 'one') {
        state.before = 'operator';
        return 'operatorKeyword';
      }
    }
    return name(word, stream, state);
  };

  const sign = (sign, state) => {
    state.before = sign;
    if ('([{'.includes(sign)) {
      state.brackets.push(state.column);
      const opens = (state.naming === 'one' && sign === '{') || (state.naming === 'parameters' && sign === '(');
      state.naming = opens ? 'all' : null;
    } else if (')]}'.includes(sign)) {
      state.brackets.pop();
      state.before = 'value';
      state.naming = null;
    } else if (sign !== ',') {
      state.naming = null;
    }
    return SIGNS[sign] || 'operator';
  };

  const code = (stream, state) => {
    if (stream.eatSpace()) return null;
    let found = stream.match(/^(?:"""|"|\*\*\*?)/);
    if (found) {
      state.naming = null;
      if (found[0] === '***' && stream.match(/^\*(?!\*)(?!.*\*\*\*)/)) {
        state.before = 'value'; // an empty `**` marker
        return 'string.special emphasis';
      }
      state.inside = found[0];
      state.shell = state.before === 'exec';
      state.nested = found[0] === '"""' && stream.eol() ? 0 : null;
      return found[0][0] === '"' ? 'string' : 'string.special emphasis';
    }
    found = stream.match(WORD);
    if (found) return wordToken(found[0], stream, state);
    if (stream.match(/^\d+(?:\.\d+)?(?:(?:ms|[smhd])(?:\d+(?:ms|[smhd]))*(?![A-Za-z0-9_]))?/)) {
      state.before = 'value';
      return 'number';
    }
    found = stream.match(/^(?:->|[=!<>]=|[|=<>+(){}[\]:,.-])/);
    if (found) return sign(found[0], state);
    stream.next(); // not a token of the language
    state.before = 'value';
    return null;
  };

  const token = (stream, state) => {
    if (stream.sol()) {
      if (state.inside && !goesOn(stream, state)) state.inside = null;
      if (!state.inside && stream.match(/^%.*/)) {
        Object.assign(state, startState(), { unit: state.unit });
        return 'meta';
      }
      if (!state.inside && !stream.match(/^[ \t]*(?:#|$)/, false)) startLine(stream, state);
    }
    if (!state.inside && stream.match(/^[ \t]*#.*/)) return 'comment';
    const style = state.inside ? literal(stream, state) : code(stream, state);
    // A string that ends its line with a colon is a header whose closing quote is missing.
    if (state.inside === '"' && stream.eol() && /:$/.test(stream.string)) state.inside = null;
    return style;
  };

  const owned = (word, state) =>
    state.arms.filter(([, owner]) => ARMS[word].split(' ').includes(owner)).map(([column]) => column);

  return {
    name: 'prose',
    startState,
    copyState,
    token,
    indent: indentation(ARM, owned),
    languageData: {
      commentTokens: { line: '#' },
      closeBrackets: { brackets: ['(', '[', '{', '"', '"""'] },
      indentOnInput: /^\s*(?:elif\b.*:|else\s*:|catch\b.*:|finally\s*:|[)\]}])$/,
      wordChars: '-',
    },
  };
};

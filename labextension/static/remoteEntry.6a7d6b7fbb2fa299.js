/* OpenProse and VVM in JupyterLab: colours, indentation and comments, in their notebooks, in `%%prose` and `%%vvm` cells
 * of other notebooks, in `.prose` and `.vvm` files, in ```prose and ```vvm fences.
 *
 * This file is a module federation container written by hand, so that no bundler is needed: JupyterLab calls
 * `init` with the modules that it shares, then `get('./extension')` for the plugins.
 *
 * The server lets browsers keep it for a year. So its name holds a hash of its content: after an edit run
 * `python scripts/labextension.py`, which renames it and tells package.json.
 */
(() => {
  'use strict';

  const NAME = 'prose-kernel';

  const words = (text) => new Set(text.split(' '));

  // ---------------------------------------------------------------- OpenProse: its words

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

  // All keywords are soft. What the rest of the line must look like for a word to be one:
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
      throw: `[ \\t]*[A-Za-z_"]|${END}`,
      break: END,
      continue: END,
      output: '(?![ \\t]*\\.)',
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
  // Where a statement can begin besides the start of a line, and which ones.
  const SPAWNS = words('session resume exec');
  const VALUES = words('session resume exec do parallel for repeat loop try choice if');
  const AFTER_COLON = words('session resume exec do throw continue');
  const AFTER_RETURN = words('session resume exec do parallel try choice');
  const CONSTANTS = words('true false null');
  const OPERATORS = words('and or not is');
  const DEFINES = words('let const input output agent block gate');
  const ARMS = { elif: 'if elif', else: 'if elif', catch: 'try', finally: 'try catch' };
  const ARM = /^(elif|else|catch|finally)(?![\w-])/;
  // A line that must be a statement: it ends brackets that somebody forgot to close.
  const STATEMENT = new RegExp(
    '^[ \\t]*(?:(?:session|exec|use|option|throw)[ \\t]+"' +
      '|(?:let|const|agent|block|gate|for|input|output)[ \\t]+[A-Za-z_{]' +
      '|(?:session|resume|try|do|parallel|finally|else|catch)[ \\t]*:|(?:if|elif|choice|loop)[ \\t]+\\*\\*)',
  );
  const SAMPLE_OPENS = /(?:[:=][ \t]*|\b(?:session|exec|throw)[ \t]+)"""$/;
  const MARKER_OPENS = /^(?:[^*]|\*(?!\*))*?[ \t]\*\*[A-Za-z0-9{'(]/;

  // ---------------------------------------------------------------- OpenProse: state

  /* inside    what the line begins in: null, '"', '"""', '**' or '***'
   * nested    how many samples with quotes of their own a `"""` string is in; null where it cannot hold any
   * before    the token before: 'line' at the start of a statement, a sign, a keyword, or 'value'
   * column    of the line; indent: of the statement; unit: how much deeper the text's own blocks are, 0 where none was seen
   * arms      [column, keyword] of each if, try ... that can still get an arm
   * brackets  the column of the line of each open bracket
   * naming    which names are definitions: null, 'one', 'parameters' (after `(`), 'all' (until the closing bracket),
   *           'in' (until `in`)
   */
  const startState = () => ({
    inside: null,
    nested: null,
    before: 'line',
    column: 0,
    indent: 0,
    unit: 0,
    arms: [],
    brackets: [],
    naming: null,
  });
  const copyState = (state) => ({ ...state, arms: state.arms.slice(), brackets: state.brackets.slice() });

  // ---------------------------------------------------------------- OpenProse: literals

  /* Prompts quote programs. In a string whose opener ends its line, quotes that open a string there and end their line
   * begin a sample, and quotes alone on a line end it. */
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
      // Of a longer run the last three close, the others are text: all look alike.
      if (!isSample(quotes[0], stream, state)) state.inside = null;
      return 'string';
    }
    if (!triple && stream.match('"')) {
      state.inside = null;
      return 'string';
    }
    return stream.match(/^\\./) ? 'string.special' : text(stream, /^(?:[^"\\{]+|"{1,2}(?!"))/, 'string');
  };

  const marker = (stream, state) => {
    if (stream.match(state.inside)) {
      state.inside = null;
      return 'string.special emphasis';
    }
    return text(stream, /^[^*{]+/, 'string.special emphasis');
  };

  // Plain text or one interpolation. Braces next to braces are text.
  const text = (stream, plain, style) => {
    if (stream.match(INTERPOLATION)) return 'variableName.special';
    if (!stream.match(/^\{+/) && !stream.match(plain)) stream.next();
    return style;
  };

  const literal = (stream, state) => {
    const style = state.inside[0] === '"' ? string(stream, state) : marker(stream, state);
    if (state.inside === null) state.before = 'value';
    return style;
  };

  /* A new line inside a literal: whether the literal goes on. One that somebody is still typing must not swallow the
   * rest of the cell. */
  const goesOn = (stream, state) => {
    if (state.inside === '"') return stream.indentation() > state.indent && !stream.match(PROPERTY, false);
    return state.inside !== '**' || !stream.match(MARKER_OPENS, false);
  };

  // ---------------------------------------------------------------- OpenProse: lines

  const startLine = (stream, state) => {
    const column = stream.indentation();
    state.column = column;
    if (state.brackets.length) {
      const deeper = column - state.brackets[state.brackets.length - 1];
      if (deeper > 0 && '([{'.includes(state.before)) state.unit = deeper;
      if (column > state.brackets[0] || !stream.match(STATEMENT, false)) return;
      state.brackets = [];
    }
    state.naming = null;
    if (column > state.indent) state.unit = column - state.indent;
    state.indent = column;
    if (stream.match(/^[ \t]*(?:\||->)/, false)) return; // goes on with the statement before
    state.before = 'line';
    while (state.arms.length && state.arms[state.arms.length - 1][0] >= column) state.arms.pop();
  };

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

  // Words that are keywords in one place only: what stands before, and what must follow.
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

  const SIGNS = {
    '(': 'paren', ')': 'paren', '[': 'squareBracket', ']': 'squareBracket', '{': 'brace', '}': 'brace',
    ',': 'separator', '.': 'derefOperator', ':': 'punctuation',
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
    stream.next(); // nothing of ours
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
    // A string that ends with a colon is a header whose quote was forgotten.
    if (state.inside === '"' && stream.eol() && /:$/.test(stream.string)) state.inside = null;
    return style;
  };

  // ---------------------------------------------------------------- indentation

  /* How deep a new line is. `arm` matches the words that go on with a statement above; `columns` are the columns that
   * such a word may have, the innermost last. A line that is further out already (somebody has moved it there) takes
   * that of the statement it has been moved to. */
  const indentation = (arm, columns) => (state, after, context) => {
    const unit = state.unit || 2; // both languages are written with two spaces, whatever the settings say for Python
    if (state.inside) return null; // text keeps the indentation of the line before
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

  const owned = (word, state) =>
    state.arms.filter(([, owner]) => ARMS[word].split(' ').includes(owner)).map(([column]) => column);

  const prose = {
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

  // ---------------------------------------------------------------- VVM

  const vvm = (() => {
    const IDENT = /^[A-Za-z_][A-Za-z0-9_]*/;
    const RESERVED = words(
      'import from as export agent def return match case choose by option constrain require with input if elif else ' +
        'while for in try except finally raise pass break continue error',
    );
    const LIBRARY = words('len range perm pack map pmap filter reduce refine');
    const OPENERS = words('if elif try except match case choose option');
    const OWNERS = { elif: 'if elif', else: 'if elif', except: 'try', finally: 'try except', case: 'match', option: 'choose' };
    const ARM = /^(elif|else|except|finally|case|option)(?![\w])/;
    const PLACEHOLDER = /^\{(?:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)?\}/;
    const KEY = /^[ \t]*(?:=(?!=)|:)/; // behind the name of an argument or the key of an object
    // A line that must be a statement: it ends brackets that somebody forgot to close.
    const STATEMENT =
      /^[ \t]*(?:(?:agent|def|for|match|choose|constrain|while|if|elif|import|from|export)[ \t]+[\w"@?]|(?:else|try|finally)[ \t]*:[ \t]*(?:#.*)?$)/;

    /* As for OpenProse; `before` is the token before: 'line' at the start of a statement, a sign, a reserved word, or
     * 'value'. `naming`: whether the names of a bracket are a function's parameters. */
    const start = () => ({ inside: null, before: 'line', column: 0, indent: 0, unit: 0, arms: [], brackets: [], naming: false });

    const literal = (stream, state) => {
      const { inside } = state;
      if (stream.match(inside)) {
        state.inside = null;
        state.before = 'value';
        return inside === '`' ? 'string.special' : 'string';
      }
      if (inside === '`') {
        if (stream.match(/^(?:\\`|\{\{|\}\})/)) return 'string';
        if (stream.match(PLACEHOLDER)) return 'variableName.special';
        if (!stream.match(/^[^`\\{}]+/)) stream.next();
        return 'string.special';
      }
      if (stream.match(/^\\(?:u[0-9A-Fa-f]{4}|.)/)) return 'string.special';
      if (!stream.match(/^[^"\\]+/)) stream.next();
      return 'string';
    };

    const startLine = (stream, state) => {
      const column = stream.indentation();
      state.column = column;
      if (state.brackets.length) {
        const deeper = column - state.brackets[state.brackets.length - 1];
        if (deeper > 0 && '([{'.includes(state.before)) state.unit = deeper;
        if (column > state.brackets[0] || !stream.match(STATEMENT, false)) return;
        state.brackets = [];
      }
      state.naming = false;
      if (column > state.indent) state.unit = column - state.indent;
      state.indent = column;
      state.before = 'line';
      while (state.arms.length && state.arms[state.arms.length - 1][0] >= column) state.arms.pop();
    };

    const word = (text, stream, state) => {
      const { before } = state;
      state.before = 'value';
      if (before === '@') return 'attributeName';
      if (before === '.') return 'variableName';
      if (state.brackets.length && stream.match(KEY, false)) return 'propertyName';
      if (text === 'true' || text === 'false') return 'bool';
      if (text === 'it') return 'self';
      if (text === 'and' || text === 'or' || text === 'not') {
        state.before = text;
        return 'operatorKeyword';
      }
      if (RESERVED.has(text)) {
        state.before = text;
        if (OPENERS.has(text)) state.arms.push([state.indent, text]);
        return 'keyword';
      }
      if (before === 'def') state.naming = true;
      if (state.naming || before === 'agent' || before === 'for' || before === 'as') return 'variableName.definition';
      return LIBRARY.has(text) ? 'variableName.standard' : 'variableName';
    };

    const bracket = (sign, state) => {
      state.before = sign;
      if ('([{'.includes(sign)) state.brackets.push(state.column);
      else if (')]}'.includes(sign)) {
        state.brackets.pop();
        state.before = 'value';
        state.naming = false;
      }
      return SIGNS[sign] || 'operator';
    };

    const code = (stream, state) => {
      if (stream.eatSpace()) return null;
      let found = stream.match(/^(?:"""|"|`)/);
      if (found) {
        state.inside = found[0];
        return found[0] === '`' ? 'string.special' : 'string';
      }
      found = stream.match(IDENT);
      if (found) return word(found[0], stream, state);
      if (stream.match(/^\d+(?:\.\d+)?/)) {
        state.before = 'value';
        return 'number';
      }
      if (stream.match('@')) {
        state.before = '@';
        return 'attributeName';
      }
      found = stream.match(/^(?:[=!<>]=|[=<>+(){}[\]:,.?-])/);
      if (found) return bracket(found[0], state);
      stream.next(); // nothing of ours
      state.before = 'value';
      return null;
    };

    const token = (stream, state) => {
      if (stream.sol()) {
        if (state.inside === '"') state.inside = null;
        if (!state.inside && stream.match(/^%.*/)) {
          Object.assign(state, start(), { unit: state.unit });
          return 'meta';
        }
        if (!state.inside && !stream.match(/^[ \t]*(?:#|$)/, false)) startLine(stream, state);
      }
      if (state.inside) return literal(stream, state);
      return stream.match(/^[ \t]*#.*/) ? 'comment' : code(stream, state);
    };

    const columns = (word, state, unit) => {
      const owners = OWNERS[word].split(' ');
      const inner = word === 'case' || word === 'option' ? unit : 0;
      return state.arms.filter(([, owner]) => owners.includes(owner)).map(([column]) => column + inner);
    };

    return {
      name: 'vvm',
      startState: start,
      copyState,
      token,
      indent: indentation(ARM, columns),
      languageData: {
        commentTokens: { line: '#' },
        closeBrackets: { brackets: ['(', '[', '{', '"', '"""', '`'] },
        indentOnInput: /^\s*(?:(?:elif|except|case|option)\b.*:|else\s*:|finally\s*:|[)\]}])$/,
      },
    };
  })();

  // ---------------------------------------------------------------- JupyterLab

  let scope = null;

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

  /* `%%prose` and `%%vvm` cells: a compartment that outranks the cell's own language. It follows the text by
   * transactions alone, so it does not matter when JupyterLab loads that language. */
  const cellMagics = (state, view, supports) => {
    const slot = new state.Compartment();
    const wanted = (doc) => {
      for (let number = 1; number <= doc.lines; number++) {
        const line = doc.line(number).text;
        if (!line.trim()) continue;
        const magic = /^\s*%%(\w+)(?![\w-])/.exec(line);
        return (magic && supports.get(magic[1])) || none;
      }
      return none;
    };
    const none = [];
    const current = (editor) => slot.get(editor) || none;
    return [
      state.Prec.highest(slot.of(none)),
      state.EditorState.transactionExtender.of((transaction) => {
        const support = wanted(transaction.newDoc);
        return support === current(transaction.startState) ? null : { effects: slot.reconfigure(support) };
      }),
      view.ViewPlugin.define((editor) => {
        // Text that was there from the start had no transaction: send an empty one.
        Promise.resolve().then(() => {
          if (wanted(editor.state.doc) !== current(editor.state)) editor.dispatch({});
        });
        return {};
      }),
    ];
  };

  /* What differs from run to run is in the metadata of an output, so that what is saved can be compared: here a person
   * sees it. The renderers of these types show `metadata.prose.person` instead of the data, made safe in the same way. */
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

  const LANGUAGES = [
    { parser: prose, displayName: 'Prose', alias: ['openprose'], mime: 'text/x-prose' },
    { parser: vvm, displayName: 'VVM', alias: [], mime: 'text/x-vvm' },
  ];

  const plugins = async () => {
    const [lab, rendering, language, state, view] = await Promise.all(
      ['@jupyterlab/codemirror', '@jupyterlab/rendermime', '@codemirror/language', '@codemirror/state', '@codemirror/view'].map(
        shared,
      ),
    );
    const supports = new Map(
      LANGUAGES.map(({ parser }) => [
        parser.name,
        new language.LanguageSupport(language.StreamLanguage.define(parser)),
      ]),
    );
    return [
      {
        id: `${NAME}:language`,
        description: 'OpenProse and VVM in editors and code fences.',
        autoStart: true,
        requires: [lab.IEditorLanguageRegistry],
        activate: (app, languages) => {
          for (const { parser, ...names } of LANGUAGES) {
            const { name } = parser;
            languages.addLanguage({ name, ...names, extensions: [name], support: supports.get(name) });
          }
        },
      },
      {
        id: `${NAME}:magics`,
        description: 'OpenProse in `%%prose` cells, VVM in `%%vvm` cells.',
        autoStart: true,
        requires: [lab.IEditorExtensionRegistry],
        activate: (app, extensions) =>
          extensions.addExtension({
            name: `${NAME}:magics`,
            factory: () => lab.EditorExtensionRegistry.createImmutableExtension(cellMagics(state, view, supports)),
          }),
      },
      {
        id: `${NAME}:figures`,
        description: 'Times and cost in diagrams, timelines and profiles.',
        autoStart: true,
        requires: [rendering.IRenderMimeRegistry],
        activate: (app, registry) =>
          ['text/markdown', 'image/svg+xml', 'text/plain'].forEach((mime) => personal(registry, mime)),
      },
    ];
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

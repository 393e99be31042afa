/* VVM for CodeMirror's `StreamLanguage`: colours, indentation, comments. */

export default ({ words, SIGNS, copyState, indentation, lineStart }) => {
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
  const KEY = /^[ \t]*(?:=(?!=)|:)/; // after the name of an argument or the key of an object
  // A line that must be a statement: it ends brackets that were not closed.
  const STATEMENT =
    /^[ \t]*(?:(?:agent|def|for|match|choose|constrain|while|if|elif|import|from|export)[ \t]+[\w"@?]|(?:else|try|finally)[ \t]*:[ \t]*(?:#.*)?$)/;

  /* The state is like that of OpenProse. `before` is the previous token: 'line' at the start of a statement, a sign, a
   * reserved word, or 'value'. `naming`: the names in a bracket are a function's parameters. */
  const start = () => ({ inside: null, before: 'line', column: 0, indent: 0, unit: 0, arms: [], brackets: [], naming: null });

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

  const startLine = lineStart(STATEMENT);

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
      state.naming = null;
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
    stream.next(); // not a token of the language
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
};

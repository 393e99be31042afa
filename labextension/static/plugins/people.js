/* Ask the person with buttons, fields and text areas instead of the input box, and signal when a cell waits.
 *
 * A question is an ordinary `input_request`, whose metadata describe its form (`notebook/stdin.py`). The form replaces the
 * input box and answers with the same `input_reply`. So the saved notebook is the same as with the input box, and only the
 * page that was asked can answer. */

const STYLE = `
.prose-question { flex: 1 1 auto; margin: 2px 0 6px; padding: 8px 12px; border: 1px solid var(--jp-border-color1);
  border-left: 4px solid var(--jp-brand-color1); border-radius: 3px; background: var(--jp-layout-color1);
  color: var(--jp-content-font-color1); font-family: var(--jp-ui-font-family); font-size: var(--jp-ui-font-size1); }
.prose-question-title { font-weight: 600; }
.prose-question-text { margin: 6px 0; overflow-wrap: anywhere; max-height: 24em; overflow: auto; }
.prose-question-text.prose-plain { white-space: pre-wrap; }
.prose-question-text.prose-unseen { position: absolute; width: 1px; height: 1px; margin: 0; overflow: hidden;
  clip-path: inset(50%); }
.prose-question-text .jp-RenderedMarkdown { padding: 0; }
.prose-question-note { color: var(--jp-ui-font-color1); }
.prose-question label { display: block; margin-top: 6px; }
.prose-question-field { display: block; box-sizing: border-box; width: 100%; margin-top: 4px; padding: 4px 6px;
  border: 1px solid var(--jp-border-color1); border-radius: 2px; background: var(--jp-input-background);
  color: var(--jp-content-font-color0); font-family: var(--jp-code-font-family); font-size: var(--jp-code-font-size); }
.prose-question label > span { color: var(--jp-ui-font-color2); }
.prose-question-choice { display: flex; flex-wrap: wrap; gap: 6px; margin-top: 4px; }
.prose-question-choice label { margin: 0; padding: 3px 12px; border: 1px solid var(--jp-border-color1); border-radius: 2px;
  background: var(--jp-layout-color2); cursor: pointer; }
.prose-question-choice label:has(:checked) { border-color: var(--jp-brand-color1); background: var(--jp-layout-color1);
  box-shadow: inset 0 0 0 1px var(--jp-brand-color1); }
.prose-question-choice label:has(:focus-visible) { outline: 2px solid var(--jp-brand-color1); outline-offset: 1px; }
.prose-question-choice input { margin: 0 6px 0 0; }
textarea.prose-question-field { min-height: 6em; resize: vertical; }
textarea.prose-question-field[rows="2"] { min-height: 3em; }
.prose-question-buttons { display: flex; flex-wrap: wrap; gap: 6px; margin-top: 8px; align-items: center; }
.prose-question-buttons button { padding: 4px 14px; border: 1px solid var(--jp-border-color1); border-radius: 2px;
  background: var(--jp-layout-color2); color: var(--jp-ui-font-color0); font: inherit; cursor: pointer; }
.prose-question-buttons button:disabled { cursor: default; opacity: 0.6; }
.prose-question-buttons button.prose-main { background: var(--jp-brand-color1); border-color: var(--jp-brand-color1);
  color: var(--jp-ui-inverse-font-color0, white); }
.prose-question-buttons button.prose-quiet { margin-left: auto; border-color: transparent; background: none; }
.prose-question :is(button, input, textarea):focus-visible { outline: 2px solid var(--jp-brand-color1); outline-offset: 1px; }
.prose-question-said { color: var(--jp-error-color1); }
.prose-question-said:empty { display: none; }
.jp-OutputArea-stdin-hiding:has(.prose-question) { display: none; } /* its answer is shown already */
.jp-Cell.prose-waits .jp-InputPrompt { color: var(--jp-warn-color0, #b26a00); font-weight: 700; }
.jp-Cell.prose-waits .jp-InputPrompt::before { content: '● '; }
`;
const MARK = '● ';
const GRACE = 400; // milliseconds in which a click may have been meant for the previous content
const KEPT = 'prose-kernel:question:'; // key in the session storage, which survives a reload and belongs to one tab

const element = (tag, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
};

let count = 0;

/* Return whether a key saves the notebook. All other shortcuts of the notebook are suppressed in a form. */
const saves = (event) => (event.ctrlKey || event.metaKey) && event.key === 's';

/* Return the answer as the line that the person would have typed. */
export const answerOf = (question, button, text) => {
  const { field } = question;
  if (question.parts && question.parts.length) return button.answer || text;
  if (!field || button.joins === null) return button.answer;
  if (button.answer) {
    const line = text.trim().replace(/\s*\n\s*/g, ' ');
    return line ? button.answer + button.joins + line : button.answer;
  }
  const command = field.verbatim && text.split('\n').some((line) => /^\s*(?::|\.\.?\s*$)/.test(line));
  return (command ? `${field.verbatim}\n` : '') + text + field.end;
};

/* Return the answer in the fields of a form as JSON, in which all values are texts or lists of texts. */
export const objectOf = (parts) =>
  JSON.stringify(
    Object.fromEntries(
      parts.map(({ part, get }) => {
        const value = get();
        return [part.name, part.kind === 'list' ? value.split('\n').filter((line) => line.trim()) : value];
      }),
    ),
  );

/* Return the remaining time in a few words. */
export const left = (seconds) => {
  const whole = Math.max(0, Math.ceil(seconds));
  if (whole >= 172800) return `${Math.floor(whole / 86400)} days left`;
  if (whole >= 7200) return `${Math.floor(whole / 3600)} hours left`;
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, '0')} left`;
};

/* Make the signs of waiting cells: in the title of the page, in their prompts, and, if the person has allowed it and is in
 * another window, as a notification. */
const makeSigns = (NAME) => {
  const waiting = new Map();
  const mark = () => {
    const plain = document.title.startsWith(MARK) ? document.title.slice(MARK.length) : document.title;
    const wanted = waiting.size ? MARK + plain : plain;
    if (document.title !== wanted) document.title = wanted;
  };
  const title = document.querySelector('title');
  if (title) new MutationObserver(mark).observe(title, { childList: true });
  const signs = {
    wanted: true,
    get askable() {
      return signs.wanted && 'Notification' in window && Notification.permission === 'default';
    },
    begin(form, name) {
      if (waiting.has(form)) return;
      const cell = form.node.closest('.jp-Cell');
      if (cell) cell.classList.add('prose-waits');
      let shown = null;
      if (signs.wanted && 'Notification' in window && Notification.permission === 'granted' && !document.hasFocus()) {
        try {
          shown = new Notification(`${name} waits for you`, { body: document.title, tag: `${NAME}:${name}` });
          shown.onclick = () => {
            window.focus();
            form.node.scrollIntoView({ block: 'center' });
            form.focus();
          };
        } catch (error) {
          // some browsers show notifications only from service workers: then the title is the only sign
        }
      }
      waiting.set(form, { cell, shown });
      mark();
    },
    end(form) {
      const found = waiting.get(form);
      if (!found) return;
      waiting.delete(form);
      if (found.shown) found.shown.close();
      if (found.cell && ![...waiting.values()].some(({ cell }) => cell === found.cell)) {
        found.cell.classList.remove('prose-waits');
      }
      mark();
    },
  };
  return signs;
};

/* The keys of open questions in the session storage. With its key, a reloaded page can be asked again. */
const keys = {
  keep(kernel, entry) {
    try {
      window.sessionStorage.setItem(KEPT + kernel, JSON.stringify(entry));
    } catch (error) {
      // the storage is full or disabled: a reloaded page is not asked again
    }
  },
  get(kernel) {
    try {
      return JSON.parse(window.sessionStorage.getItem(KEPT + kernel)) || null;
    } catch (error) {
      return null;
    }
  },
  drop(kernel, key) {
    const kept = keys.get(kernel);
    if (kept && kept.key === key) window.sessionStorage.removeItem(KEPT + kernel);
  },
};

/* Return the class of the widget that replaces the input box. JupyterLab requires `value`, which is saved in the output,
 * and an `input` element. */
const formClass = (Widget, signs, rendermime) =>
  class QuestionForm extends Widget {
    constructor(question, request, future) {
      super();
      Object.assign(this, { question, request, future, over: false, timer: null });
      this.kernel = future._kernel;
      this.end = performance.now() + question.seconds * 1000;
      this.suppress = (event) => this.node.toggleAttribute('data-lm-suppress-shortcuts', !saves(event));
      this.value = new Promise((resolve) => (this.resolve = resolve));
      this.addClass('prose-question');
      this.build(`prose-question-${(count += 1)}`);
    }

    build(id) {
      const { node, question } = this;
      node.setAttribute('role', 'group');
      node.setAttribute('aria-labelledby', `${id}-title`);
      node.setAttribute('aria-describedby', `${id}-text ${id}-note`);
      node.append(element('div', { className: 'prose-question-title', id: `${id}-title`, textContent: question.title }));
      this.text = element('div', { className: 'prose-question-text', id: `${id}-text` });
      if (question.text) node.append(this.text);
      this.text.classList.toggle('prose-unseen', question.above); // an output above already shows the text
      this.render();
      this.note = element('div', { className: 'prose-question-note', id: `${id}-note`, textContent: question.note });
      this.clock = element('span');
      this.clock.setAttribute('role', 'timer');
      if (question.seconds !== null) this.note.append(question.note ? ' · ' : '', this.clock);
      if (this.note.childNodes.length) node.append(this.note);
      if (question.parts && question.parts.length) this.addParts(id);
      else if (question.field) this.addField(id);
      else node.append(element('input', { type: 'hidden' }));
      this.buttons = element('div', { className: 'prose-question-buttons' });
      this.buttons.append(...question.buttons.map((button) => this.button(button)));
      if (signs.askable) this.addBell();
      this.said = element('div', { className: 'prose-question-said' });
      this.said.setAttribute('role', 'status');
      node.append(this.buttons, this.said);
    }

    render() {
      const { question, text } = this;
      if (!question.markdown || !rendermime) {
        text.classList.add('prose-plain');
        text.textContent = question.text;
        return;
      }
      const renderer = rendermime.createRenderer('text/markdown');
      renderer.renderModel(rendermime.createModel({ data: { 'text/markdown': question.text }, trusted: false }));
      text.append(renderer.node);
    }

    addField(id) {
      this.node.addEventListener('input', () => (this.said.textContent = ''));
      const { label, several, required } = this.question.field;
      const made = several ? element('textarea', { rows: 5, placeholder: 'Ctrl+Enter submits' }) : element('input', { type: 'text', autocomplete: 'off' });
      this.field = Object.assign(made, { className: 'prose-question-field', id: `${id}-field`, required });
      this.node.append(element('label', { htmlFor: made.id, textContent: label }), made);
      if (several) this.node.append(element('input', { type: 'hidden' }));
    }

    /* Add an input for each field of the answer; radio buttons if it has few possible values. */
    addParts(id) {
      this.node.addEventListener('input', () => (this.said.textContent = ''));
      this.parts = this.question.parts.map((part, number) => {
        const name = `${id}-part-${number}`;
        const label = element('label', { htmlFor: name }, part.name, element('span', { textContent: ` ${part.about}` }));
        this.node.append(label);
        if (part.kind === 'choice') return this.addChoice(part, name);
        const line = part.kind === 'line';
        const made = line ? element('input', { type: 'text', autocomplete: 'off' }) : element('textarea', { rows: 2 });
        Object.assign(made, { className: 'prose-question-field', id: name, value: part.value });
        if (part.kind === 'list') made.placeholder = 'one a line';
        this.node.append(made);
        return { part, node: made, get: () => made.value };
      });
      this.node.append(element('input', { type: 'hidden' }));
      this.field = this.parts[0].node;
    }

    addChoice(part, name) {
      const group = element('div', { className: 'prose-question-choice', id: name });
      group.setAttribute('role', 'radiogroup');
      group.setAttribute('aria-label', part.name);
      const choices = part.options.map((option) => {
        const radio = element('input', { type: 'radio', name, value: option, checked: option === part.value });
        group.append(element('label', {}, radio, option));
        return radio;
      });
      this.node.append(group);
      return { part, node: choices[0], get: () => (choices.find((radio) => radio.checked) || { value: '' }).value };
    }

    button(button) {
      const made = element('button', { type: 'button', textContent: button.label, disabled: true });
      if (button.main) {
        made.classList.add('prose-main');
        if (this.field && this.field.tagName === 'TEXTAREA') made.title = 'Ctrl+Enter';
      }
      made.addEventListener('click', () => this.answer(button));
      return made;
    }

    addBell() {
      const bell = element('button', { type: 'button', className: 'prose-quiet', textContent: 'Notify me' });
      bell.title = 'Show a notification when a cell waits for you and you are in another window';
      bell.addEventListener('click', () => Promise.resolve(Notification.requestPermission()).then(() => bell.remove()));
      this.buttons.append(bell);
    }

    onAfterAttach(message) {
      super.onAfterAttach(message);
      this.node.addEventListener('keydown', this);
      window.addEventListener('keydown', this.suppress, true); // before JupyterLab handles the key
      const { activeElement: active } = document;
      const editor = active && active.closest('.cm-content, input, textarea, select');
      const writes = editor && (editor.value || [...editor.querySelectorAll('.cm-line')].some((line) => line.textContent));
      const here = (this.node.closest('.jp-Cell') || this.node).contains(active);
      if (here || !writes) this.focus(); // do not take the focus from a person who is typing elsewhere
      if (this.over) return;
      if (this.question.seconds !== null) this.count();
      signs.begin(this, this.question.title);
      window.setTimeout(() => this.enable(!this.over), GRACE);
    }

    /* JupyterLab also detaches a cell that is scrolled out of sight, so the question stays open. */
    onBeforeDetach(message) {
      this.node.removeEventListener('keydown', this);
      window.removeEventListener('keydown', this.suppress, true);
      window.clearInterval(this.timer);
      super.onBeforeDetach(message);
    }

    dispose() {
      if (!this.isDisposed) this.rest();
      super.dispose();
    }

    focus() {
      this.node.tabIndex = -1;
      (this.field || this.node).focus(); // never a button: a key that was meant for something else must not decide
    }

    count() {
      const tick = () => {
        const seconds = (this.end - performance.now()) / 1000;
        this.clock.textContent = left(seconds);
        if (seconds <= 0) this.close('The time is over.');
      };
      tick();
      if (!this.over) this.timer = window.setInterval(tick, 1000);
    }

    handleEvent(event) {
      if (!saves(event)) event.stopPropagation();
      if (event.key !== 'Enter' || event.isComposing || !this.ownField(event.target)) return;
      const several = event.target.tagName === 'TEXTAREA';
      if (several ? !(event.ctrlKey || event.metaKey) : event.shiftKey) return;
      event.preventDefault();
      const main = this.question.buttons.find((button) => button.main);
      if (main) this.answer(main);
    }

    ownField(node) {
      return this.parts ? this.node.contains(node) && node.matches('input, textarea') : node === this.field;
    }

    enable(on) {
      this.node.querySelectorAll('button').forEach((button) => (button.disabled = !on));
    }

    /* Send the answer, once. */
    answer(button) {
      if (this.over) return;
      const text = this.parts ? objectOf(this.parts) : this.field ? this.field.value : '';
      const missing = button.main && this.parts && this.parts.find(({ part, get }) => part.required && !get().trim());
      if (missing) {
        this.said.textContent = `${missing.part.name} is missing.`;
        missing.node.focus();
        return;
      }
      if (this.field && this.field.required && button.main && !text.trim()) {
        this.said.textContent = 'Write an answer first.';
        this.field.focus();
        return;
      }
      this.close('');
      const value = answerOf(this.question, button, text);
      this.future.sendInputReply({ status: 'ok', value }, this.request.header);
      this.resolve(`${this.request.content.prompt} ${value}`);
    }

    /* Close the form: no answer is needed any more. */
    close(why) {
      if (this.over) return;
      this.over = true;
      this.rest();
      const notebook = this.node.contains(document.activeElement) && this.node.closest('.jp-Notebook');
      this.enable(false);
      this.node.querySelectorAll('input, textarea').forEach((field) => (field.disabled = true));
      if (notebook) notebook.focus(); // enable the notebook's shortcuts again
      this.said.textContent = why;
    }

    rest() {
      window.clearInterval(this.timer);
      signs.end(this);
    }

    withdraw() {
      this.close('');
      const { kernel } = this;
      if (kernel && kernel.hasPendingInput) kernel.hasPendingInput = false; // otherwise JupyterLab runs no further cell
      const item = this.parent || this;
      if (!item.isDisposed) item.dispose();
    }
  };

/* Make output areas show a form for requests whose metadata describe one. */
const install = (OutputArea, QuestionForm) => {
  const former = OutputArea.prototype.onInputRequest;
  OutputArea.prototype.onInputRequest = function (request, future) {
    const question = request.metadata && request.metadata.prose;
    if (!question || !Array.isArray(question.buttons)) return former.call(this, request, future);
    const form = new QuestionForm(question, request, future);
    const factory = this.contentFactory;
    this.contentFactory = Object.create(factory, { createStdin: { value: () => form } });
    try {
      former.call(this, request, future);
    } finally {
      this.contentFactory = factory;
    }
    const end = () => {
      this._pendingInput = false;
      if (!form.over) form.withdraw();
    };
    const cell = (future.msg.metadata || {}).cellId || question.cell;
    if (form.kernel && cell) keys.keep(form.kernel.id, { key: question.key, cell });
    future.registerMessageHook(({ metadata }) => {
      if (metadata && metadata.prose && metadata.prose.withdrawn === request.header.msg_id) end();
      return true;
    });
    if (future.msg.header.msg_type === 'execute_request') {
      const over = () => {
        end();
        if (form.kernel) keys.drop(form.kernel.id, question.key); // the cell has ended
      };
      future.done.then(over, over);
    }
  };
};

/* After a reload, request the open question of a kernel again, with its stored key. */
const resume = async (services, panel, kernel, restored) => {
  const kept = kernel && keys.get(kernel.id);
  if (!kept) return;
  const content = { key: kept.key };
  const options = { msgType: 'prose_question_request', channel: 'control', session: kernel.clientId, content };
  const request = services.KernelMessage.createMessage({ ...options, username: kernel.username });
  const future = kernel.sendControlMessage(request, true, false);
  future.onStdin = async (message) => {
    if (!services.KernelMessage.isInputRequestMsg(message)) return;
    const cells = panel.content.widgets;
    const cell = cells.find(({ model }) => model.id === kept.cell) || cells.find(({ outputArea }) => outputArea);
    if (!cell) return;
    await cell.ready;
    message.metadata.prose.cell = kept.cell;
    message.metadata.prose.above = message.metadata.prose.above && restored; // otherwise the page no longer shows it
    cell.outputArea.onInputRequest(message, future);
  };
  future.onReply = ({ content: { known } }) => known || keys.drop(kernel.id, kept.key);
};

export default async ({ NAME, shared, load }) => {
  const restored = await load('parts/outputs.js').catch(() => ({ reattach: () => Promise.resolve() }));
  const [outputs, { Widget }, rendering, notebooks, services, settings] = await Promise.all(
    [
      '@jupyterlab/outputarea',
      '@lumino/widgets',
      '@jupyterlab/rendermime',
      '@jupyterlab/notebook',
      '@jupyterlab/services',
      '@jupyterlab/settingregistry',
    ].map(shared),
  );
  return [
    {
      id: `${NAME}:people`,
      description: 'Buttons and text areas for questions, and a notification when a cell waits.',
      autoStart: true,
      requires: [rendering.IRenderMimeRegistry],
      optional: [notebooks.INotebookTracker, settings.ISettingRegistry],
      activate: (app, rendermime, tracker, registry) => {
        const signs = makeSigns(NAME);
        document.head.append(element('style', { textContent: STYLE }));
        install(outputs.OutputArea, formClass(Widget, signs, rendermime));
        if (tracker) {
          tracker.widgetAdded.connect((_, panel) => {
            const again = async () => {
              await panel.context.ready;
              const kernel = panel.sessionContext.session?.kernel;
              const there = await restored.reattach(services, panel); // this clears the outputs, including a form
              await resume(services, panel, kernel, Boolean(there));
            };
            panel.sessionContext.ready.then(again).catch(console.warn);
          });
        }
        if (registry) {
          const read = (found) => (signs.wanted = found.composite.notify !== false);
          registry.load(`${NAME}:people`).then(
            (found) => {
              read(found);
              found.changed.connect(read);
            },
            () => {}, // without settings, the default applies
          );
        }
      },
    },
  ];
};

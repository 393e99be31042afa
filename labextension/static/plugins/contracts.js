/* Open contract files, `NAME.prose.md`, as notebooks with "Open With > Notebook". The server converts a file to a notebook,
 * and back to Markdown when it is saved (prose_kernel/notebook/server_extension.py). A double click opens the text. */

export default async ({ NAME }) => [
  {
    id: `${NAME}:contracts`,
    description: 'Contract files as notebooks.',
    autoStart: true,
    requires: [],
    activate: (app) =>
      app.docRegistry.addFileType(
        {
          name: 'prose-contract',
          displayName: 'Contract file',
          extensions: ['.prose.md'],
          mimeTypes: ['text/markdown'],
          contentType: 'file',
          fileFormat: 'text',
        },
        ['Editor', 'Notebook'], // the first one opens with a double click
      ),
  },
];

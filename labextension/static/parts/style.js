/* Styles of our own, once for each name; colours are those of JupyterLab's themes. */
export default (name, text) => {
  const id = `prose-style-${name}`;
  if (document.getElementById(id)) return;
  const style = document.createElement('style');
  style.id = id;
  style.textContent = text;
  document.head.appendChild(style);
};

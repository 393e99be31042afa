/* Add a style sheet, once for each name. Colours come from JupyterLab's themes. */
export default (name, text) => {
  const id = `prose-style-${name}`;
  if (document.getElementById(id)) return;
  const style = document.createElement('style');
  style.id = id;
  style.textContent = text;
  document.head.appendChild(style);
};

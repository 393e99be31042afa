// Every piece of text in parts of the open notebook (its outputs: '.jp-OutputArea-output'), with the contrast between it and
// what is behind it.
(parts) => {
  const channels = (css) => {
    const found = css.match(/[\d.]+/g).map(Number);
    return [...found.slice(0, 3), found.length > 3 ? found[3] : 1];
  };
  const over = (top, bottom) => [0, 1, 2].map((i) => top[i] * top[3] + bottom[i] * (1 - top[3]));
  const luminance = (rgb) => {
    const [r, g, b] = rgb.map((value) => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  // The colour that an element paints on: its ancestors' backgrounds, the farthest first.
  const behind = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.unshift(channels(getComputedStyle(at).backgroundColor));
    return layers.reduce((below, layer) => over(layer, below), [255, 255, 255]);
  };
  const opacity = (element) => {
    let product = 1;
    for (let at = element; at; at = at.parentElement) product *= Number(getComputedStyle(at).opacity);
    return product;
  };
  const all = [];
  for (const output of document.querySelectorAll(`.jp-NotebookPanel:not(.lm-mod-hidden) ${parts}`)) {
    const walker = document.createTreeWalker(output, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const text = walker.currentNode.data.trim();
      const element = walker.currentNode.parentElement;
      if (!text || element.closest('[class*=ansi-]') || element.getClientRects().length === 0) continue;
      const back = behind(element);
      const colour = channels(getComputedStyle(element).color);
      const front = over([...colour.slice(0, 3), colour[3] * opacity(element)], back);
      const [dark, light] = [luminance(front), luminance(back)].sort((a, b) => a - b);
      all.push({ text: text.slice(0, 40), contrast: Math.round(((light + 0.05) / (dark + 0.05)) * 100) / 100 });
    }
  }
  return all;
}

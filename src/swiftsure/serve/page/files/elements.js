// Elements from text, never from markup: what a model writes stays text.

export function el(name, className = "", children = []) {
  const element = document.createElement(name);
  if (className) element.className = className;
  element.append(...(Array.isArray(children) ? children : [children]));
  return element;
}

export const byId = (id) => document.getElementById(id);

// Makes and updates elements. Texts are set as text, never as markup: names come from guests' operators.

const SVG = "http://www.w3.org/2000/svg";

// Returns an HTML element. Attributes with the value null or false are left out; a function is a
// listener of the event of its name.
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

// Returns an SVG element.
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else set(node, name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

// Sets, changes or removes an attribute; does not touch an equal one.
export function set(node, name, value) {
  if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value === true ? "" : value);
}

// Sets the text of a node if it differs.
export function text(node, value) {
  if (node.textContent !== value) node.textContent = value;
}

const canvas = document.createElement("canvas").getContext("2d");

// Returns the width of a text in pixels, in the font of the page with this weight and size.
export function measure(value, weight, size) {
  canvas.font = `${weight} ${size}px ${getComputedStyle(document.body).fontFamily}`;
  return canvas.measureText(value).width;
}

// Returns a text of at most this width: a longer one loses characters at its end, or before its last
// `tail` characters, by which names of many objects differ.
export function fit(value, width, weight, size, tail = 0) {
  if (measure(value, weight, size) <= width) return value;
  const all = [...value], end = tail ? all.slice(-tail).join("") : "";
  const shown = (count) => `${all.slice(0, count).join("").trimEnd()}…${end}`;
  let [low, high] = [1, all.length];
  while (low + 1 < high) {
    const middle = Math.floor((low + high) / 2);
    if (measure(shown(middle), weight, size) <= width) low = middle;
    else high = middle;
  }
  return shown(low);
}

// Children of a parent by key, which keep their elements, and thereby focus and listeners, from one
// update to the next.
export class Keyed {
  constructor(parent) {
    this.parent = parent;
    this.known = new Map();
  }

  // Makes the children those of `items`: `key` names an item, `make` makes its element once, and
  // `update` changes it each time.
  show(items, key, make, update) {
    const next = new Map();
    let place = this.parent.firstChild;
    for (const item of items) {
      const name = key(item);
      const node = this.known.get(name) ?? make(item);
      next.set(name, node);
      if (node === place) place = place.nextSibling;
      else this.parent.insertBefore(node, place);
      update(node, item);
    }
    for (const [name, node] of this.known) if (!next.has(name)) node.remove();
    this.known = next;
  }
}

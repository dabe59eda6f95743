// Texts for values.

const UNITS = ["", "k", "M", "G", "T", "P"];

// Returns a number with three digits and a decimal prefix: 1.24 G.
function scaled(value) {
  let unit = 0;
  while (Math.abs(value) >= 999.5 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  const digits = unit === 0 && Number.isInteger(value) || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return [value.toFixed(digits), UNITS[unit]];
}

// Returns a rate of bytes as bits a second; a dash if it is unknown.
export function bitRate(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  if (bytes === 0) return "0";
  const [number, unit] = scaled(bytes * 8);
  return `${number} ${unit}bit/s`;
}

// Returns a rate of bytes in a short form, for boxes and tables.
export function shortRate(bytes) {
  return bitRate(bytes).replace("bit/s", "b/s");
}

// Returns a rate of events.
export function rate(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  if (value < 0.1) return "< 0.1";
  const [number, unit] = scaled(value < 10 ? Math.round(value * 10) / 10 : Math.round(value));
  return unit ? `${number} ${unit}` : String(Number(number));
}

// Returns a count.
export function count(value) {
  return value.toLocaleString("en-US").replaceAll(",", "\u202f");
}

// Returns a size in bytes with a binary prefix.
export function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) {
    bytes /= 1024;
    unit += 1;
  }
  return `${bytes >= 10 || unit === 0 ? Math.round(bytes) : bytes.toFixed(1)} ${units[unit]}`;
}

// Returns a duration in its two largest units.
export function duration(seconds) {
  const parts = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const at = parts.findIndex(([, length]) => seconds >= length);
  if (at < 0) return "0 s";
  const [unit, length] = parts[at];
  const first = `${Math.floor(seconds / length)} ${unit}`;
  const next = parts[at + 1];
  const rest = next ? Math.floor((seconds % length) / next[1]) : 0;
  return rest ? `${first} ${rest} ${next[0]}` : first;
}

// Returns a time in microseconds.
export function microseconds(value) {
  return value < 1000 ? `${value < 10 ? value.toFixed(1) : Math.round(value)} µs` : `${(value / 1000).toFixed(1)} ms`;
}

// Returns the reason of a counter of drops as words: `drop_no_buffer` is `no buffer`.
export function reason(name) {
  const rejected = name.startsWith("reject_");
  const words = name.replace(/^(drop|reject)_/, "").replaceAll("_", " ");
  return rejected ? `rejected: ${words}` : words;
}

// Returns the name of a member of a group.
export function endName(end) {
  return end.type === "host" ? "this host" : end.name;
}

// Returns a number with its noun: 1 port, 2 ports.
export function many(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

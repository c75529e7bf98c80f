/** Numbers and times for people. Times are UTC, as the commands print them. */

/** Whole numbers that JavaScript would round come as text. */
export const number = (value: number | string | null | undefined): string => (value === null || value === undefined ? "–" : typeof value === "string" ? value.replace(/\B(?=(\d{3})+$)/g, ",") : value.toLocaleString("en-US"));
export const signed = (value: number | null): string => (value === null || value === 0 ? "" : `${value >= 0 ? "+" : "−"}${number(Math.abs(value))}`);
export const plural = (count: number, what: string, many = `${what}s`): string => `${number(count)} ${count === 1 ? what : many}`;

/** A word as a shell reads it: names of tables and tags may hold blanks, quotes and dollar signs. */
export const quoted = (word: string): string => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`);

/** A command line of ours. */
export const command = (...words: string[]): string => ["anabranch", ...words].map(quoted).join(" ");

/** Bytes, with a space that does not break. */
export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  const units = ["bytes", "KB", "MB", "GB", "TB", "PB"];
  let size = value, unit = 0;
  while (size >= 1024 && unit < units.length - 1) { size /= 1024; unit++; }
  return `${unit === 0 || size >= 100 ? Math.round(size).toLocaleString("en-US") : size.toFixed(1)}\u00a0${units[unit]}`;
}

export const short = (value: number): string =>
  value >= 1e9 ? `${(value / 1e9).toFixed(1)}B` : value >= 1e6 ? `${(value / 1e6).toFixed(1)}M` : value >= 1e4 ? `${(value / 1e3).toFixed(0)}k` : number(value);

/** The year 9999: beyond it, and before the epoch, is what no clock of a writer says. */
const LAST = 253_402_300_799_999;

/** Whether a time can be one at which somebody committed. What is not is shown as the number that it is, and drawn elsewhere. */
export const likely = (millis: number): boolean => millis >= 0 && millis <= LAST;

/** Where to draw times, which are given newest first: what no clock says stands where its neighbour does. */
export function places(times: number[]): number[] {
  const found: (number | null)[] = times.map(one => (likely(one) ? Number(one) : null));
  for (let i = 1; i < found.length; i++) found[i] ??= found[i - 1]!;
  for (let i = found.length - 2; i >= 0; i--) found[i] ??= found[i + 1]!;
  return found.map((one, i) => one ?? found.length - i);
}

/** Times of events may lie before the epoch, and be of any size; numbers beyond JavaScript's come as text. */
const dated = (millis: number): boolean => Math.abs(millis) <= LAST && -62_135_596_800_000 <= millis;

export function time(millis: number | null | undefined): string {
  if (millis === null || millis === undefined) return "–";
  return dated(millis) ? new Date(millis).toISOString().replace("T", " ").replace(/\.000Z$/, "Z") : `${number(millis)} ms`;
}

/** A time to the second, for lists. */
export const clock = (millis: number): string => (dated(millis) ? time(millis).slice(0, 19) : time(millis));

const STEPS: [number, string][] = [[365 * 86_400_000, "year"], [30 * 86_400_000, "month"], [86_400_000, "day"], [3_600_000, "hour"], [60_000, "minute"], [1000, "second"]];

export function span(millis: number): string {
  const size = Math.abs(millis);
  for (const [step, name] of STEPS) if (size >= step) return plural(Math.floor(size / step), name);
  return "a moment";
}

export const ago = (millis: number, now: number): string => (millis > now + 1000 ? `in ${span(millis - now)}` : `${span(now - millis)} ago`);

export const ranges = (found: [number, number][]): string => found.map(([a, b]) => (a === b ? `${a}` : `${a}–${b}`)).join(", ");

/** Ids with their word: "snapshot 2", "snapshots 2–4". */
export const snapshots = (found: [number, number][]): string => `${found.length === 1 && found[0]![0] === found[0]![1] ? "snapshot" : "snapshots"} ${ranges(found)}`;

/** A sentence with its first letter large, unless it begins with a name, which is written as it is. */
export const capital = (text: string): string => (/^[a-z]+[ ,:]/.test(text) ? text.charAt(0).toUpperCase() + text.slice(1) : text);

/** A version of code, short: a hash without its method, as git shows commits. */
export const release = (code: string): string => code.replace(/^sha\d+:/, "").slice(0, 8);

/** Asks the server, or, in a report, the data that the file itself holds. */
import { useEffect, useRef, useState } from "preact/hooks";
import type { History, Line } from "./types";

export type Arguments = Record<string, string | number | boolean | null | undefined | string[]>;

export class Failure extends Error {
  constructor(message: string, readonly hint: string | null, readonly status: number) { super(message); }
}

interface Report { start: string; title: string; made: number; sides: [string, string] | null; data: Record<string, unknown> }
const stored = document.getElementById("report");
export const report: Report | null = stored ? (JSON.parse(stored.textContent ?? "null") as Report) : null;

export const query = (given: Arguments): string => new URLSearchParams(pairs(given)).toString();

function pairs(given: Arguments): [string, string][] {
  const pairs: [string, string][] = [];
  for (const name of Object.keys(given).sort()) {
    const value = given[name];
    if (Array.isArray(value)) for (const one of value) pairs.push([name, one]);
    else if (value !== null && value !== undefined && value !== "" && value !== false)
      pairs.push([name, value === true ? "1" : String(value)]);
  }
  return pairs;
}

/** What a report holds in place of the server. */
function held<T>(what: string, given: Arguments): T {
  const data = report!.data;
  const found = what === "facts" ? data.facts : data[[what, ...pairs(given).map(([name, value]) => `${name}=${value}`)].join("\n")];
  if (found === undefined) throw new Failure("This report does not hold that.", "Look at the lake itself with `anabranch ui`.", 404);
  const { problem, hint } = (found ?? {}) as { problem?: string; hint?: string | null };
  if (what !== "facts" && problem) throw new Failure(problem, hint ?? null, 404);
  return found as T;
}

export async function ask<T>(what: string, given: Arguments = {}, signal?: AbortSignal): Promise<T> {
  if (report) return held<T>(what, given);
  const text = query(given);
  let answer: Response;
  try {
    answer = await fetch(`/api/${what}?${text}`, { signal });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Failure("The server does not answer.", "Start it again: anabranch ui", 0);
  }
  if (answer.headers.get("content-type")?.startsWith("application/json")) {
    const value = (await answer.json()) as { message?: string; hint?: string | null };
    if (answer.ok) return value as T;
    throw new Failure(value.message ?? "It failed.", value.hint ?? null, answer.status);
  }
  throw new Failure(await answer.text(), null, answer.status);
}

export async function act<T>(what: string, body: unknown): Promise<T> {
  const answer = await fetch(`/api/${what}`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  const value = (await answer.json()) as { message?: string; hint?: string | null };
  if (!answer.ok) throw new Failure(value.message ?? "It failed.", value.hint ?? null, answer.status);
  return value as T;
}

export interface Asked<T> { value: T | null; failure: Failure | null; busy: boolean }

/** An answer for as long as a part of the page is shown; asked for anew when its arguments or `version` change. */
export function useAsk<T>(what: string | null, given: Arguments = {}, version = 0): Asked<T> {
  const [state, set] = useState<Asked<T> & { key: string }>({ value: null, failure: null, busy: true, key: "" });
  const key = what === null ? "" : `${what}?${query(given)}`;
  useEffect(() => {
    if (what === null) { set({ value: null, failure: null, busy: false, key }); return; }
    const stop = new AbortController();
    set(old => ({ value: old.key === key ? old.value : null, failure: null, busy: true, key }));
    ask<T>(what, given, stop.signal).then(
      value => { if (!stop.signal.aborted) set({ value, failure: null, busy: false, key }); },
      (failure: Failure) => { if (!stop.signal.aborted) set({ value: null, failure, busy: false, key }); },
    );
    return () => stop.abort();
  }, [key, version]);
  return state.key === key ? state : { value: null, failure: null, busy: true };
}

/** As `useAsk`; an answer that says it is behind is shown, and asked for again until it is not. */
export function useCaughtUp<T extends { behind: boolean }>(what: string, version = 0): Asked<T> {
  const [turn, next] = useState(0);
  const asked = useAsk<T>(what, {}, version + turn);
  useEffect(() => {
    if (!asked.value?.behind) return;
    const timer = setTimeout(() => next(n => n + 1), 1000);
    return () => clearTimeout(timer);
  }, [asked.value]);
  return asked;
}

/** Whether somebody looks at the page, which else need not be live: browsers allow few connections to one server. */
export function useLooked(): boolean {
  const [looked, set] = useState(!document.hidden);
  useEffect(() => {
    const changed = (): void => set(!document.hidden);
    document.addEventListener("visibilitychange", changed);
    return () => document.removeEventListener("visibilitychange", changed);
  }, []);
  return looked;
}

const FIRST = 400, AT_ONCE = 1500, MOST = 100_000;

/** All snapshots of a branch, newest first, as they come in portions. */
export function useHistory(table: string, branch: string | null, version: number): { lines: Line[]; whole: boolean; prefix: string; failure: Failure | null } {
  const [lines, setLines] = useState<Line[]>([]);
  const [whole, setWhole] = useState(false);
  const [prefix, setPrefix] = useState("snapshot.");
  const [failure, setFailure] = useState<Failure | null>(null);
  useEffect(() => {
    const stop = new AbortController();
    (async () => {
      const found: Line[] = [];
      let before: number | null = null, shown = 0;
      for (;;) {
        const page: History = await ask<History>("history", { table, branch, before, limit: report ? null : before === null ? FIRST : AT_ONCE }, stop.signal);
        for (const row of page.rows)
          found.push(Object.fromEntries(page.columns.map((name, i) => [name, row[i]])) as unknown as Line);
        const last: Line | undefined = found[found.length - 1];
        const done: boolean = !page.more || !last || found.length >= MOST || report !== null;
        if (stop.signal.aborted) return;
        if (done || found.length >= 2 * shown) { shown = found.length; setLines(found.slice()); setWhole(done); setPrefix(page.prefix); }  // drawing all of it takes longer than reading more
        if (done || !last) return;
        before = last.id;
      }
    })().catch((error: Failure) => { if (!stop.signal.aborted) setFailure(error); });
    return () => stop.abort();
  }, [table, branch, version]);
  return { lines, whole, prefix, failure };
}

/** Whether changes are told, and why not, where the server says so. */
export interface Live { on: boolean; why: string | null }
const REFUSED = 10_000;

/** A number that grows when one of the tables changes; which tables they are may change often: each waits for the next. */
export function useChanges(tables: string[], wait = 0): { version: number; live: Live; changed: string[] } {
  const [version, setVersion] = useState(0);
  const [live, setLive] = useState<Live>({ on: false, why: null });
  const [changed, setChanged] = useState<string[]>([]);
  const last = useRef(""), left = useRef(false);
  const looked = useLooked();
  const key = tables.join("\n");
  useEffect(() => {
    if (report || !tables.length || !looked) return;
    let source: EventSource | null = null, isFirst = true, timer = 0, gone = false;
    const isSame = last.current === key && left.current;  // somebody looks again: what changed meanwhile is not told
    last.current = key; left.current = false;
    const listen = (): void => {
      const address = `/api/events?${query({ table: tables })}`, own = (source = new EventSource(address));
      own.onopen = () => setLive({ on: true, why: null });
      own.onerror = () => {
        setLive({ on: false, why: null });
        if (own.readyState !== EventSource.CLOSED) return;  // it tries again by itself
        // It was refused, which the browser does not tell more of: asked plainly, the server says why.
        const stop = new AbortController();
        fetch(address, { signal: stop.signal }).then(async answer => {
          const why = answer.ok ? null : ((await answer.json()) as { message?: string }).message ?? null;
          stop.abort();
          if (!gone) setLive({ on: false, why });
        }).catch(() => undefined);
        if (!gone) timer = window.setTimeout(listen, REFUSED);
      };
      source.onmessage = event => {
        const told = JSON.parse(event.data as string) as { changed: string[] };
        if (isFirst) { isFirst = false; if (!isSame) return; }
        setChanged(told.changed); setVersion(n => n + 1);
      };
    };
    timer = window.setTimeout(listen, wait);
    return () => { gone = true; clearTimeout(timer); source?.close(); left.current = document.hidden; };
  }, [key, looked]);
  return { version, live, changed };
}

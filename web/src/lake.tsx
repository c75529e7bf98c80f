/** The lake: its tables, jobs, and the last corrections. */
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ask, report, useAsk, useCaughtUp, useChanges, useLooked } from "./api";
import { ago, bytes, clock, number, plural, release, short, span, time } from "./format";
import { Badge, Card, Damaged, Health, LiveMark, Many, Problem, Waiting } from "./parts";
import { to } from "./route";
import type { Facts, Job, JobsFound, Lake, Lag, RunningJob } from "./types";

const PORTION = 40, LIST_EVERY = 30_000, SETTLED = 400, PAUSE = 250, FEW = 200, LATER = 1500;
type Order = "name" | "health" | "size" | "rows" | "fresh";
const ORDERS: [Order, string][] = [["name", "Name"], ["health", "Worst health"], ["size", "Largest"], ["rows", "Most rows"], ["fresh", "Last written"]];

const weight: Record<Exclude<Order, "name">, (facts: Facts) => number> = {
  health: f => f.score ?? -1, size: f => -(f.bytes ?? 0), rows: f => -(f.rows ?? 0), fresh: f => -(f.head?.millis ?? 0),
};

/** Facts of tables, asked for in portions: first those on the screen, then the others, with pauses if nobody waits for them. */
function useFacts(names: string[], wanted: string[], version: number, changed: string[], isUrgent: boolean): Map<string, Facts> {
  const [facts, set] = useState(() => new Map<string, Facts>());
  const busy = useRef(false), gone = useRef(false), next = useRef(wanted), every = useRef(names), known = useRef(facts), urgent = useRef(isUrgent), seen = useRef(true);
  const looked = useLooked();
  next.current = wanted;
  every.current = names;
  urgent.current = isUrgent;
  seen.current = looked;
  useEffect(() => () => { gone.current = true; }, []);
  useEffect(() => {
    for (const name of changed) known.current.delete(name);
    const missing = (): string[] => {
      const found = new Set<string>();
      for (const list of [next.current, every.current]) {
        for (const name of list) { if (found.size >= PORTION) break; if (!known.current.has(name)) found.add(name); }
        if (found.size) break;
      }
      return [...found];
    };
    const work = async (): Promise<void> => {
      if (busy.current) return;  // who works already sees what is wanted now
      busy.current = true;
      try {
        for (let names = missing(); names.length && !gone.current && seen.current; names = missing()) {
          const found = await ask<Record<string, Facts>>("facts", { name: names });
          for (const name of names) known.current.set(name, found[name] ?? ({ problem: "not known" } as Facts));
          if (!gone.current) set(new Map(known.current));
          // In short steps: what comes onto the screen meanwhile comes first.
          for (let waited = 0; waited < PAUSE && !urgent.current && next.current.every(name => known.current.has(name)); waited += 50) await new Promise(go => setTimeout(go, 50));
        }
      } catch { /* the list stands without them */ } finally { busy.current = false; }
    };
    void work();
  }, [names, wanted, version, looked]);
  return facts;
}

export function LakeView({ now }: { now: number }) {
  const [seen, setSeen] = useState<string[]>([]);
  const { version, live, changed } = useChanges(seen, SETTLED);
  const lake = useAsk<Lake>("lake", {}, Math.floor(now / LIST_EVERY));
  const [search, setSearch] = useState("");
  const [order, setOrder] = useState<Order>("name");
  const names = useMemo(() => lake.value?.tables ?? [], [lake.value]);
  const facts = useFacts(names, seen, version, changed, report !== null || order !== "name");
  const shown = useMemo(() => {
    const wanted = search.trim().toLowerCase();
    const found = wanted ? names.filter(name => name.toLowerCase().includes(wanted)) : names;
    if (order === "name") return found;
    const weigh = weight[order];
    return [...found].sort((a, b) => (facts.get(a) ? weigh(facts.get(a)!) : Infinity) - (facts.get(b) ? weigh(facts.get(b)!) : Infinity));
  }, [names, search, order, order === "name" ? null : facts]);
  const look = useCallback((first: number, last: number) => {
    const found = shown.slice(first, Math.min(last, first + PORTION));
    setSeen(old => (old.join() === found.join() ? old : found));
  }, [shown]);
  // In a large lake the server looks at every table to know the jobs: not while the first screen is read.
  const [isCalm, setCalm] = useState(report !== null);
  const hasFacts = facts.size > 0;
  useEffect(() => {
    if (isCalm || !lake.value || (names.length && !hasFacts)) return;
    if (names.length <= FEW) { setCalm(true); return; }
    const timer = setTimeout(() => setCalm(true), LATER);
    return () => clearTimeout(timer);
  }, [lake.value, hasFacts, isCalm]);
  const sums = useMemo(() => {
    const read = [...facts.values()], all = read.filter(one => !one.problem);
    return { known: all.length, rows: all.reduce((n, f) => n + f.rows, 0), bytes: all.reduce((n, f) => n + f.bytes, 0), files: all.reduce((n, f) => n + f.files, 0), weak: read.filter(f => f.problem || f.score < 90).length };
  }, [facts]);
  if (lake.failure) return <Problem failure={lake.failure} />;
  if (!lake.value) return <Waiting />;
  return (
    <>
      <h1 class="unseen">Tables</h1>
      <Damaged found={lake.value.damaged} />
      <dl class="facts">
        <div class="fact"><dt>tables</dt><dd>{number(names.length)}</dd></div>
        <div class="fact"><dt>rows</dt><dd title={number(sums.rows)}>{short(sums.rows)}</dd></div>
        <div class="fact"><dt>size</dt><dd>{bytes(sums.bytes)}</dd></div>
        <div class="fact"><dt>files</dt><dd>{short(sums.files)}</dd></div>
        <div class={`fact ${sums.weak ? "fair" : "good"}`}><dt>need care</dt><dd>{number(sums.weak)}</dd></div>
        {sums.known < names.length && !report && <div class="fact"><dt>read so far</dt><dd aria-live="polite">{Math.round((100 * facts.size) / Math.max(1, names.length))} %</dd></div>}
      </dl>
      <Card title="Tables" aside={<LiveMark live={live} />}>
        <div class="tools">
          <input type="search" id="search" placeholder="Search tables (press /)" aria-label="Search tables" value={search} onInput={event => setSearch(event.currentTarget.value)} />
          <label>Order <select value={order} onChange={event => setOrder(event.currentTarget.value as Order)}>{ORDERS.map(([key, name]) => <option key={key} value={key}>{name}</option>)}</select></label>
        </div>
        {shown.length ? (
          <Many count={shown.length} height={64} label="Tables" onSeen={look}>
            {i => <TableRow key={shown[i]} name={shown[i]!} facts={facts.get(shown[i]!)} now={now} />}
          </Many>
        ) : <p class="empty">{names.length ? `No table is called like “${search}”.` : <>There is no table yet. <code>anabranch create-table db.t "id BIGINT"</code> makes one.</>}</p>}
      </Card>
      {(facts.size > 0 || !names.length) && isCalm && <Jobs now={now} version={version} />}
      <Corrections lake={lake.value} now={now} />
    </>
  );
}

function TableRow({ name, facts, now }: { name: string; facts: Facts | undefined; now: number }) {
  const [base, table] = [name.slice(0, name.indexOf(".") + 1), name.slice(name.indexOf(".") + 1)];
  const told = facts && !facts.problem ? facts : null;
  return (
    <a class="row" href={to(["table", name])}>
      <span class="name"><span class="muted">{base}</span><b>{table}</b>
        {told && told.branches.length > 0 && <Badge kind="branch">{plural(told.branches.length, "branch", "branches")}</Badge>}
        <small class="muted">{facts?.problem ?? (told ? (told.head ? `${told.head.kind} ${ago(told.head.millis, now)}${told.head.job ? ` by ${told.head.job}` : ""}` : "never written") : "…")}</small>
      </span>
      {told && <>
        <span class="cell"><b>{short(told.rows)}</b><small>rows</small></span>
        <span class="cell wide"><b>{bytes(told.bytes)}</b><small>{plural(told.files, "file")}</small></span>
        <Health score={told.score} />
      </>}
    </a>
  );
}

/** What the states of a running job mean for whoever looks. */
const TONES: Record<string, string> = { running: "good", idle: "good", starting: "fair", pausing: "fair", held: "fair", waiting: "fair", stuck: "replaced", failed: "replaced", lost: "replaced", gone: "replaced", silent: "replaced", fenced: "replaced" };
const LOOK_EVERY = 10_000, MOST_JOBS = 12;

/** Jobs that run now come first, then those that only left commits. */
function Jobs({ now, version }: { now: number; version: number }) {
  const [turn, next] = useState(0);
  useEffect(() => { if (report) return; const timer = setInterval(() => next(n => n + 1), LOOK_EVERY); return () => clearInterval(timer); }, []);
  const jobs = useCaughtUp<JobsFound>("jobs", version);
  const running = useAsk<RunningJob[]>(report ? null : "running", {}, version + turn).value ?? NONE;
  const [all, setAll] = useState(false);
  const rows = useMemo(() => {
    const found = (jobs.value?.jobs ?? []).map(job => ({ job: job as Job | null, name: job.name, seen: running.filter(one => one.job === job.name) }));
    for (const one of running) if (!found.some(row => row.name === one.job)) found.push({ job: null, name: one.job, seen: running.filter(other => other.job === one.job) });
    return found.sort((a, b) => Number(b.seen.length > 0) - Number(a.seen.length > 0));
  }, [jobs.value, running]);
  if ((!jobs.value || jobs.value.behind) && !rows.length) return jobs.failure ? null : <Card title="Jobs"><Waiting /></Card>;
  if (!rows.length) return null;
  const shown = all ? rows : rows.slice(0, MOST_JOBS);
  const active = running.filter(one => TONES[one.state] === "good" || TONES[one.state] === "fair").length;
  return (
    <Card title="Jobs" aside={<span class="muted"><small>{active ? `${number(active)} running` : "none is running"}</small>{report && !("lineage" in report.data) ? null : <> · <a href={to(["lineage"])}>lineage</a></>}</span>}>
      <ul class="plain">{shown.map(row => <li key={row.name}><JobRow name={row.name} job={row.job} seen={row.seen} now={now} /></li>)}</ul>
      {rows.length > shown.length && <button type="button" onClick={() => setAll(true)}>Show all {number(rows.length)}</button>}
    </Card>
  );
}

const NONE: RunningJob[] = [];

function JobRow({ name, job, seen, now }: { name: string; job: Job | null; seen: RunningJob[]; now: number }) {
  const [open, set] = useState(false);
  return (
    <details onToggle={event => set(event.currentTarget.open)}>
      <summary>
        <b>{name}</b>
        {seen.map(one => <Badge key={one.sink + one.pid} kind={TONES[one.state] ?? ""} title={one.message ?? undefined}>{one.state}</Badge>)}
        <span class="muted"> {job ? `${job.sources.join(", ") || "no known source"} → ${job.sinks.join(", ")}` : seen[0] && `→ ${seen[0].sink}`}</span>
        {seen.some(one => Object.keys(one.behind).length > 0) && <span class="lag">{lagOf(seen)}</span>}
        {job && <small class="right muted" title={time(job.last_millis)}>{ago(job.last_millis, now)}</small>}
      </summary>
      {job && <p class="muted">{plural(job.commits, "commit")} since {clock(job.first_millis)}{job.code && <>, code <code>{release(job.code)}</code></>}{job.engine && `, on ${job.engine}`}</p>}
      {seen.map(one => <Seen key={one.sink + one.pid} one={one} now={now} />)}
      {open && !report && !seen.length && job?.sinks.filter(sink => !sink.includes("$branch_")).map(sink => <Lags key={sink} sink={sink} job={name} />)}
    </details>
  );
}

/** The table that a job is furthest behind, in a few words. */
function lagOf(seen: RunningJob[]): string {
  const all = seen.flatMap(one => Object.entries(one.behind)), late = all.filter(([, lag]) => lag.snapshots > 0);
  if (!late.length) return "has read all";
  const [table, lag] = late.reduce((a, b) => (b[1].seconds > a[1].seconds ? b : a));
  return `${plural(lag.snapshots, "snapshot")}, ${span(lag.seconds * 1000)} behind ${table}`;
}

function Seen({ one, now }: { one: RunningJob; now: number }) {
  const pairs: [string, string | null][] = [
    ["process", `${one.pid} on ${one.host}, since ${clock(one.since_millis)}`],
    ["batch", one.batch === null ? null : `${number(one.batch)}${one.batch_millis === null ? "" : `, ended ${ago(one.batch_millis, now)}`}`],
    ["rows a second", one.rows_per_second === null ? null : number(Math.round(one.rows_per_second))],
    ["restarts", one.restarts ? number(one.restarts) : null], ["says", one.message], ["do", one.hint], ["last error", one.last_error],
    ...Object.entries(one.behind).map(([table, lag]): [string, string] => [`behind ${table}`, lag.snapshots ? `${plural(lag.snapshots, "snapshot")}, ${span(lag.seconds * 1000)}` : "nothing"]),
  ];
  return <dl class="pairs">{pairs.filter(([, value]) => value).map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>;
}

/** How far a job that does not run now is behind, which is read when somebody looks. */
function Lags({ sink, job }: { sink: string; job: string }) {
  const lags = useAsk<Lag[]>("lags", { table: sink });
  if (lags.failure) return <p class="muted">{lags.failure.message}</p>;
  if (!lags.value) return <Waiting />;
  const found = lags.value.find(lag => lag.job === job);
  return <p>{found ? found.sources.map(source => `${source.name}: ${source.behind === null ? "not counted in snapshots" : source.behind === 0 ? "has read all" : `${plural(source.behind, "snapshot")} behind`}`).join("; ") : `Nothing of it is in the newest snapshot of ${sink}.`}</p>;
}

function Corrections({ lake, now }: { lake: Lake; now: number }) {
  if (!lake.corrections.length) return null;
  return (
    <Card title="Last corrections">
      <ul class="plain">
        {lake.corrections.map(one => (
          <li key={one.number}>
            <Badge kind={one.outcome === "replaced" ? "good" : "fair"}>{one.undoes !== null ? `takes back ${one.undoes}` : one.outcome}</Badge>{" "}
            {one.tables.map(([table], i) => <>{i > 0 && ", "}<a href={to(["table", table], { tab: "branches" })}>{table}</a></>)}
            {one.reason && <span class="muted"> — {one.reason}</span>}
            <small class="right muted" title={time(one.made_millis)}>{one.made_by && `${one.made_by}, `}{ago(one.made_millis, now)}</small>
          </li>
        ))}
      </ul>
    </Card>
  );
}

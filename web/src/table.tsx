/** One table: its head, and the tabs behind which everything else lies. */
import { useEffect, useState } from "preact/hooks";
import { report, useAsk, useChanges } from "./api";
import { Trend } from "./chart";
import { DiffView } from "./diff";
import { Files } from "./files";
import { ago, bytes, capital, clock, number, plural, time } from "./format";
import { GraphView } from "./graph";
import { Badge, Card, Command, Damaged, Fact, Grid, Health, LiveMark, Problem, Shown, Waiting } from "./parts";
import { go, to } from "./route";
import { RowsView } from "./rows";
import { Timeline } from "./timeline";
import type { Damage, HealthFacts, SchemaVersion, Statistics, TableFacts } from "./types";

export const TABS = [["overview", "Overview"], ["history", "History"], ["branches", "Branches"], ["rows", "Rows"], ["columns", "Columns"], ["files", "Files"], ["compare", "Compare"]] as const;
export interface Place { table: string; branch: string | null; at: string | null; version: number; given: URLSearchParams; now: number; damaged: Damage[] }

export function TableView({ name, given, now }: { name: string; given: URLSearchParams; now: number }) {
  const branch = given.get("branch"), at = given.get("at"), tab = given.get("tab") ?? "overview";
  const { version, live } = useChanges([name]);
  const asked = useAsk<TableFacts>("table", { table: name, branch, at }, version);
  const [last, setLast] = useState<TableFacts | null>(null);
  useEffect(() => { if (asked.value) setLast(asked.value); }, [asked.value]);
  useEffect(() => setLast(null), [name]);
  const refs = asked.value ?? last;
  const href = (tab: string): string => to(["table", name], { tab, branch, at });
  return (
    <>
      <header class="head">
        <h1><a class="muted" href="#/">Tables</a> <span class="muted" aria-hidden="true">/</span> {name}</h1>
        <LiveMark live={live} />
        {refs && <Refs name={name} tab={tab} branch={branch} at={at} facts={refs} />}
      </header>
      <nav class="tabs" aria-label="Views of the table">
        {TABS.filter(([key]) => !report || tab === key || hasTab(key)).map(([key, title]) => <a key={key} href={href(key)} aria-current={tab === key ? "page" : undefined}>{title}</a>)}
        {!report && <><a href={to(["lineage"], { table: name })}>Lineage</a><a href={to(["correct"], { table: name })}>Correct</a></>}
      </nav>
      {asked.failure && <Problem failure={asked.failure} />}
      {asked.failure && (branch || at) && <p><a href={to(["table", name], { tab })}>Look at its newest state</a></p>}
      <Damaged found={asked.value?.damaged} />
      {!asked.failure && <Tab tab={tab} place={{ table: name, branch, at, version, given, now, damaged: asked.value?.damaged ?? [] }} facts={asked.value} />}
    </>
  );
}

/** Whether a report holds what a tab shows. */
const NEEDS: Record<string, string> = { history: "history", branches: "graph", rows: "rows", columns: "statistics", files: "partitions", compare: "diff", overview: "table" };
const hasTab = (tab: string): boolean => Object.keys(report?.data ?? {}).some(key => key.startsWith(`${NEEDS[tab]}\n`));

function Refs({ name, tab, branch, at, facts }: { name: string; tab: string; branch: string | null; at: string | null; facts: TableFacts }) {
  const [moment, setMoment] = useState(at ?? "");
  useEffect(() => setMoment(at ?? ""), [at, branch]);
  const move = (branch: string | null, at: string | null): void => go(to(["table", name], { tab, branch: branch === "main" ? null : branch, at }));
  if (report) return facts.moment ? <Badge kind="tag">{facts.moment}</Badge> : null;
  return (
    <form class="refs" onSubmit={event => { event.preventDefault(); move(branch, moment.trim() || null); }}>
      <label>Branch <select value={branch ?? "main"} onChange={event => move(event.currentTarget.value, null)}>
        {[...new Set([...facts.branches, ...(branch ? [branch] : [])])].map(one => <option key={one} value={one}>{one}</option>)}
      </select></label>
      <label>At <input list="moments" placeholder="newest" value={moment} onInput={event => setMoment(event.currentTarget.value)} onChange={event => move(branch, event.currentTarget.value.trim() || null)} /></label>
      <datalist id="moments">
        {facts.tags.map(tag => <option key={tag.name} value={tag.name}>{`snapshot ${tag.snapshot}, ${time(tag.millis)}`}</option>)}
        {facts.savepoints.map(one => <option key={one.id} value={`savepoint.${one.id}`}>{`snapshot ${one.snapshot}, ${time(one.millis)}`}</option>)}
      </datalist>
      {at && <button type="button" onClick={() => move(branch, null)}>Back to the newest</button>}
    </form>
  );
}

/** What needs no facts of the table does not wait for them. */
function Tab({ tab, place, facts }: { tab: string; place: Place; facts: TableFacts | null }) {
  switch (tab) {
    case "history": return <Timeline place={place} />;
    case "branches": return <GraphView place={place} />;
    case "rows": return <RowsView place={place} />;
    case "files": return <Files place={place} />;
  }
  if (!facts) return <Waiting />;
  switch (tab) {
    case "columns": return <Columns place={place} facts={facts} />;
    case "compare": return <DiffView place={place} facts={facts} />;
    default: return <Overview place={place} facts={facts} />;
  }
}

function Overview({ place, facts }: { place: Place; facts: TableFacts }) {
  const schemas = useAsk<SchemaVersion[]>("schemas", { table: place.table, branch: place.branch }, place.version);
  const rows = useAsk<[number, number, number][]>("trend", { table: place.table, branch: place.branch }, place.version);
  const sizes = useAsk<[number, number, number][]>("sizes", { table: place.table, branch: place.branch }, place.version);
  const looked = useAsk<HealthFacts>("health", { table: place.table, branch: place.branch, at: place.at }, place.version);
  const health = looked.value, isBroken = facts.snapshot === null && facts.damaged.length > 0;
  const options = Object.entries(facts.options);
  return (
    <>
      {facts.comment && <p class="lead">{facts.comment}</p>}
      {facts.moment && <p class="notice">As it was at {facts.moment}.</p>}
      <dl class="facts">
        <Fact name="rows">{number(isBroken ? null : facts.snapshot?.rows ?? 0)}</Fact>
        <Fact name="size">{bytes(facts.bytes)}</Fact>
        <Fact name="files">{number(facts.files)}{health && health.small > 0 && <small> {number(health.small)} small</small>}</Fact>
        <Fact name="snapshot">{facts.snapshot ? `#${facts.snapshot.id}` : isBroken ? "not readable" : "never written"}{facts.snapshot && <small> {ago(facts.snapshot.time_millis, place.now)}</small>}</Fact>
        {facts.snapshot?.watermark != null && <Fact name="complete up to"><span class="time">{time(facts.snapshot.watermark)}</span></Fact>}
        {health && <Fact name="health"><Health score={health.score} /></Fact>}
      </dl>
      {looked.failure && !facts.damaged.length && <Problem failure={looked.failure} />}
      {health && health.findings.length > 0 && (
        <Card title="What to do">
          <ul class="plain">{health.findings.map(finding => <li key={finding.why}><Badge kind="fair">−{finding.points}</Badge> {capital(finding.why)}{finding.command && <div><Command text={finding.command} /></div>}</li>)}</ul>
        </Card>
      )}
      <div class="two">
        <Card title="Rows over time"><Shown asked={rows}>{found => <Trend label="Rows over time" points={found} show={number} />}</Shown></Card>
        <Card title="Size over time"><Shown asked={sizes}>{found => <Trend label="Size over time" points={found} show={bytes} />}</Shown></Card>
      </div>
      <div class="two">
        <Card title="About the table">
          <dl class="pairs">
            <div><dt>partitioned by</dt><dd>{facts.partition_keys.join(", ") || "nothing"}</dd></div>
            {facts.watermark && <div><dt>watermark</dt><dd><code>{facts.watermark}</code></dd></div>}
            <div><dt>location</dt><dd class="break">{facts.location}</dd></div>
            <div><dt>identity</dt><dd class="break"><code>{facts.uuid}</code></dd></div>
          </dl>
          <h3>Options</h3>
          {facts.schema_id === null ? <p class="empty">Not known: the newest version of the schema cannot be read.</p> : options.length ? <dl class="pairs long">{options.map(([key, value]) => <div key={key}><dt><code>{key}</code></dt><dd>{value}</dd></div>)}</dl> : <p class="empty">All options have their defaults.</p>}
        </Card>
        <Card title="Schema history">
          <Shown asked={schemas}>{found => <ol class="plain">{found.map(one => <li key={one.id}><b>{one.id}</b> {one.damaged ? <><Badge kind="replaced">cannot be read</Badge> {one.damaged}</> : one.changes.join("; ") || "no change of columns or options"}{one.millis !== null && <small class="right muted" title={time(one.millis)}>{clock(one.millis)}</small>}</li>)}</ol>}</Shown>
        </Card>
      </div>
      {(facts.tags.length > 0 || facts.savepoints.length > 0) && (
        <Card title="Tags and savepoints">
          <ul class="plain">
            {facts.tags.map(tag => <li key={tag.name}><Badge kind="tag">{tag.name}</Badge> <a href={to(["table", place.table], { tab: "rows", branch: place.branch, at: tag.name })}>snapshot {tag.snapshot}</a>, {plural(tag.rows ?? 0, "row")}<small class="right muted">{time(tag.millis)}</small></li>)}
            {facts.savepoints.map(one => <li key={one.id}><Badge kind="savepoint">savepoint.{one.id}</Badge> <a href={to(["table", place.table], { tab: "rows", branch: place.branch, at: `savepoint.${one.id}` })}>snapshot {one.snapshot}</a>, {plural(one.rows, "row")}<small class="right muted">{time(one.millis)}</small></li>)}
          </ul>
        </Card>
      )}
    </>
  );
}

function Columns({ place, facts }: { place: Place; facts: TableFacts }) {
  const statistics = useAsk<Statistics>("statistics", { table: place.table, branch: place.branch, at: place.at }, place.version);
  const of = new Map(statistics.value?.columns.map(column => [column.name, column]));
  return (
    <Card title="Columns" aside={statistics.value && <small class="muted">statistics of {plural(statistics.value.looked_at, "file")}{statistics.value.looked_at < statistics.value.files && ` of ${number(statistics.value.files)}`}</small>}>
      <Grid label="Columns" head={<><th>column</th><th>type</th><th>nulls</th><th>least</th><th>greatest</th><th>comment</th></>}>
        {facts.columns.map(column => {
          const known = of.get(column.name);
          return (
            <tr key={column.id}>
              <th scope="row">{column.name}{column.partition && <Badge kind="tag">partition</Badge>}</th>
              <td><code>{column.type}</code>{!column.nullable && <small class="muted"> not null</small>}</td>
              <td class="num">{known ? number(known.nulls) : ""}</td>
              <td class="clip">{known && <Bound value={known.min} shortened={known.shortened.min} word="at least" />}</td><td class="clip">{known && <Bound value={known.max} shortened={known.shortened.max} word="at most" />}</td>
              <td>{column.comment}{column.default !== null && <small class="muted"> default {column.default}</small>}</td>
            </tr>
          );
        })}
      </Grid>
      {statistics.failure && <Problem failure={statistics.failure} />}
    </Card>
  );
}

/** A bound of a column: what files keep of long texts is their beginning, so it is no value of the column. */
function Bound({ value, shortened, word }: { value: string | null; shortened: boolean; word: string }) {
  if (value === null) return null;
  return shortened ? <span title="Files keep only the beginning of long texts: no row need have exactly this value."><small class="muted">{word} </small>{value}…</span> : <>{value}</>;
}

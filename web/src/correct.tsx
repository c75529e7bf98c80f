/** A correction, guided: what is wrong, what it reached, the plan, progress, and how it is taken back. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { act, ask, report, useAsk, type Failure } from "./api";
import { ago, command, number, plural, ranges, span, time } from "./format";
import { Badge, Card, Command, Problem, Shown } from "./parts";
import { go, to } from "./route";
import type { About, Correcting, Lake, Progress, Step, TableFacts } from "./types";

const LOOK_EVERY = 1000;

export function CorrectView({ given, about, now }: { given: URLSearchParams; about: About; now: number }) {
  const table = given.get("table"), tag = given.get("tag");
  const [progress, setProgress] = useState<Progress | null>(null);
  const [turn, next] = useState(0);
  const running = progress !== null && progress.exit === null;
  useEffect(() => {
    if (report) return;
    let stopped = false;
    const look = (): void => { ask<Progress | null>("progress").then(found => { if (!stopped) { setProgress(found); if (found?.exit === null) timer = setTimeout(look, LOOK_EVERY); else next(n => n + 1); } }, () => undefined); };
    let timer = setTimeout(look, 0);
    return () => { stopped = true; clearTimeout(timer); };
  }, [running]);
  const started = (found: Progress | null): void => setProgress(found);
  return (
    <>
      <header class="head"><h1>Correct a table</h1></header>
      <p class="lead">Branches of a wrong table, and of all that was made from it, begin where it was right; the corrected jobs write them anew; and one write puts them all in the place of main. Readers see all of it, or nothing.</p>
      <Choose table={table} tag={tag} />
      {progress && <Run progress={progress} now={now} started={started} />}
      {table && tag && <Plan table={table} tag={tag} about={about} version={turn} running={running} started={started} />}
    </>
  );
}

/** What is wrong, and up to which tag it is right. */
function Choose({ table, tag }: { table: string | null; tag: string | null }) {
  const lake = useAsk<Lake>("lake");
  const [text, set] = useState(table ?? "");
  useEffect(() => set(table ?? ""), [table]);
  const facts = useAsk<TableFacts>(table && !report ? "table" : null, { table });
  if (report) return <Card title="1. What is wrong"><p><b>{table}</b> is right up to the tag <Badge kind="tag">{tag}</Badge>.</p></Card>;
  return (
    <Card title="1. What is wrong">
      <form class="tools" onSubmit={event => { event.preventDefault(); go(to(["correct"], { table: text.trim() })); }}>
        <label>Table <input list="tables" id="search" value={text} onInput={event => set(event.currentTarget.value)} onChange={event => go(to(["correct"], { table: event.currentTarget.value.trim() }))} /></label>
        <datalist id="tables">{lake.value?.tables.map(name => <option key={name} value={name} />)}</datalist>
        {table && facts.value && <label>Right up to the tag <select value={tag ?? ""} onChange={event => go(to(["correct"], { table, tag: event.currentTarget.value }))}>
          <option value="">choose one</option>
          {facts.value.tags.map(one => <option key={one.name} value={one.name}>{`${one.name} (snapshot ${one.snapshot})`}</option>)}
        </select></label>}
        {!table && <button type="submit">Go on</button>}
      </form>
      {facts.failure && <Problem failure={facts.failure} />}
      {table && facts.value && !facts.value.tags.length && <p class="notice">It has no tag. Name the last right snapshot: <Command text={command("create-tag", table, "--name", "good", "--snapshot", "N")} /></p>}
      {table && tag && <p class="links"><a href={to(["table", table], { tab: "compare", left: `main@${tag}`, right: "main", rows: true })}>What came after {tag}</a><a href={to(["lineage"], { table })}>Its lineage</a></p>}
    </Card>
  );
}

interface PlanProps { table: string; tag: string; about: About; version: number; running: boolean; started: (found: Progress | null) => void }

function Plan({ table, tag, about, version, running, started }: PlanProps) {
  const asked = useAsk<Correcting>("correction", { table, tag }, version);
  return (
    <Shown asked={asked}>{found => <>
      <Card title="2. What it reached" aside={!found.plan.done && <small class="muted">{plural(found.plan.steps.length, "table")} to correct</small>}>
        {found.plan.warnings.map(text => <p key={text} class="notice">{text}</p>)}
        {found.plan.done ? <p class="empty">Nothing is left to correct: the table has nothing after tag {tag}, or its correction is main already.</p> : <>
          <p>Snapshots {found.plan.taken_out.map((one, i) => `${ranges([one])} of ${found.plan.taken_from[i]}`).join(", ")} are taken out.{found.plan.took_millis !== null && ` What is made again took ${span(found.plan.took_millis)} the first time.`}</p>
          <ol class="steps">{found.plan.steps.map(step => <Told key={step.table} step={step} />)}</ol>
        </>}
        {found.plan.beside.length > 0 && <p class="notice">Spoilt too, and left as they are: {found.plan.beside.join(", ")}</p>}
      </Card>
      {!found.plan.done && (
        <Card title="3. Correct and publish">
          {!about.actions ? <><p>This page only shows. In a terminal:</p><Command text={found.command} /><p class="muted">Or start the page with <code>--allow-actions --jobs FILE</code>.</p></> :
            !about.jobs.length ? <p class="notice">No file of corrected jobs was named with the server: start it with <code>anabranch ui --allow-actions --jobs FILE</code>.</p> :
            <Confirm what="run" title="Correct and publish" table={table} tag={tag} tables={found.tables} running={running} started={started}>
              With the jobs of {about.jobs.join(", ")}{about.checks.length > 0 && <>, checked by {about.checks.join(", ")}</>}, this puts a branch called <Badge kind="branch">{found.plan.name}</Badge> in the place of main of
            </Confirm>}
        </Card>
      )}
      {found.undo && about.actions && (
        <Card title="Take it back">
          <Confirm what="undo" title="Take it back" table={table} tag={tag} tables={found.undo.tables} running={running} started={started}>
            Correction {found.undo.number} is published. This makes the former mains main again, of
          </Confirm>
        </Card>
      )}
    </>}</Shown>
  );
}

function Told({ step }: { step: Step }) {
  return (
    <li>
      <b>{step.table}</b> <span class="muted">{step.bad.length ? `snapshots ${ranges(step.bad)} are spoilt; ` : ""}{step.is_empty ? "begins empty" : step.fork === null ? "cannot begin again" : `begins again after snapshot ${step.fork}`}; {plural(step.anew, "commit")}, {plural(step.rows, "row")} made again</span>
      {step.is_there && <Badge kind="good">begun</Badge>}
      {step.jobs.map(job => <div key={job.job}>job <b>{job.job}</b> <span class="muted">from {job.sources.map(source => `${source.name} ${source.begins}`).join(", ")}{job.state && `; state: ${job.state}`}</span>{job.notices.map(text => <p key={text} class="notice">{text}</p>)}</div>)}
      {step.problems.map(text => <p key={text} class="notice">By hand: {text}</p>)}
      {step.notes.map(text => <p key={text} class="muted">{text}</p>)}
    </li>
  );
}

interface ConfirmProps { what: string; title: string; table: string; tag: string; tables: string[]; running: boolean; started: (found: Progress | null) => void; children: ComponentChildren }

/** Asks for each table that changes by name before anything is done. */
function Confirm({ what, title, table, tag, tables, running, started, children }: ConfirmProps) {
  const [sure, set] = useState(false);
  const [failure, fail] = useState<Failure | null>(null);
  useEffect(() => { set(false); fail(null); }, [what, table, tag, tables.join()]);
  const start = (): void => { set(false); fail(null); act<Progress>("act", { what, table, tag, tables }).then(started, fail); };
  return (
    <>
      <p>{children} <b>{tables.join(", ")}</b>.</p>
      <label class="sure"><input type="checkbox" checked={sure} disabled={running} onChange={event => set(event.currentTarget.checked)} /> Yes, change main of {plural(tables.length, "table")}: {tables.join(", ")}</label>
      <p><button type="button" class="act" disabled={!sure || running} onClick={start}>{title}</button></p>
      {failure && <Problem failure={failure} />}
    </>
  );
}

function Run({ progress, now, started }: { progress: Progress; now: number; started: (found: Progress | null) => void }) {
  const running = progress.exit === null;
  const log = useRef<HTMLPreElement>(null);
  useEffect(() => { log.current?.scrollTo(0, log.current.scrollHeight); }, [progress.lines.length]);
  const [failure, fail] = useState<Failure | null>(null);
  const stop = (): void => { act<Progress>("act", { what: "stop" }).then(started, fail); };
  const title = progress.what === "undo" ? "Taking back" : "Correcting";
  const kind = running ? "fair" : progress.exit === 0 ? "good" : "replaced";
  const state = running ? (progress.stopped ? "stopping" : "running") : progress.exit === 0 ? "done" : progress.stopped ? "stopped" : `ended with ${progress.exit}`;
  return (
    <Card title={`${title} ${progress.table} from ${progress.tag}`} aside={<span role="status"><Badge kind={kind}>{state}</Badge></span>}>
      <p class="muted">Begun <span title={time(progress.millis)}>{ago(progress.millis, Math.max(now, progress.millis))}</span>, {number(progress.lines.length)} lines.</p>
      <pre ref={log} class="log" tabIndex={0} aria-label="What it says">{progress.lines.join("\n") || "…"}</pre>
      {running && <button type="button" onClick={stop}>{progress.stopped ? "Kill it" : "Stop"}</button>}
      {!running && progress.exit !== 0 && progress.what === "run" && <p>What was done stays. Start it again below: it goes on where it was.</p>}
      {failure && <Problem failure={failure} />}
    </Card>
  );
}

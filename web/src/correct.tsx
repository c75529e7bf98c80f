/** A correction, guided: what is wrong, what it reached, the plan, progress, and how it is taken back. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { act, ask, report, useAsk, type Failure } from "./api";
import { ago, capital, clock, command, number, plural, snapshots, span, time } from "./format";
import { Badge, Card, Command, Damaged, Problem, Waiting } from "./parts";
import { go, to } from "./route";
import type { About, Correcting, Lake, Progress, Step, TableFacts } from "./types";

const LOOK_EVERY = 1000, LOOK_AGAIN = 10_000;

export function CorrectView({ given, about, now }: { given: URLSearchParams; about: About; now: number }) {
  const table = given.get("table"), tag = given.get("tag");
  const [all, setAll] = useState<Progress[]>([]);
  const [turn, next] = useState(0);
  const running = all.some(isRunning);
  useEffect(() => {
    if (report) return;
    let stopped = false;
    let last: number | null = null;
    const again = (soon: boolean): void => { if (!stopped) timer = setTimeout(look, soon ? LOOK_EVERY : LOOK_AGAIN); };  // another process may begin one too
    const look = (): void => {
      ask<Progress[]>("progress").then(found => {
        if (stopped) return;
        setAll(found);
        const count = found.filter(isRunning).length;
        if (last === null ? count === 0 : count > 0 && count < last) next(n => n + 1);  // at the end of the last one this begins anew
        last = count;
        again(count > 0);
      }, () => again(running));
    };
    let timer = setTimeout(look, 0);
    return () => { stopped = true; clearTimeout(timer); };
  }, [running]);
  const started = (found: Progress | null): void => setAll(known => [...(found ? [{ ...found, elsewhere: null }] : []), ...known.filter(one => one.elsewhere)]);
  const plan = useAsk<Correcting>(table && tag ? "correction" : null, { table, tag }, turn);
  const [last, setLast] = useState<{ key: string; value: Correcting } | null>(null);
  useEffect(() => { if (plan.value) setLast({ key: `${table} ${tag}`, value: plan.value }); }, [plan.value]);
  const found = plan.value ?? (last?.key === `${table} ${tag}` ? last.value : null);
  const isMine = (one: Progress): boolean => one.table === table && one.tag === tag, mine = all.filter(isMine);
  const draw = (which: Progress[]) => which.map(one => <Run key={`${one.table} ${one.tag} ${one.elsewhere}`} progress={one} now={now} started={started} />);
  const published = found !== null && found.plan.done && found.undo !== null;
  return (
    <>
      <header class="head"><h1>Correct a table</h1></header>
      <p class="lead">Branches of the wrong table, and of every table made from it, begin where it was right. The corrected jobs write them again, and one write makes all of them main. Readers see all old rows or all new ones.</p>
      <Stepper now={!table || !tag ? 0 : published && !mine.some(isRunning) ? 3 : found || mine.length ? 2 : 1} />
      {draw(all.filter(one => !isMine(one)))}
      <Choose table={table} tag={tag} wrong={Number(given.get("wrong")) || null} about={about} />
      {table && tag && (plan.failure ? <Problem failure={plan.failure} /> : !found ? <Waiting /> : <Plan found={found} table={table} tag={tag} about={about} all={all} started={started} progress={draw(mine)} />)}
    </>
  );
}

/** Whether it goes on, here or in another process. */
function isRunning(progress: Progress): boolean {
  return progress.exit === null;
}

/** Whether nothing may change main of these tables now: this page does one thing at a time, and others do something with one of them. */
function isBusy(all: Progress[], tables: string[]): boolean {
  return all.some(one => isRunning(one) && (!one.elsewhere || one.tables.some(name => tables.includes(name))));
}

const STEPS = ["What is wrong", "What it reached", "Correct and publish", "Published"];

function Stepper({ now }: { now: number }) {
  return <ol class="stepper" aria-label="Steps of a correction">{STEPS.map((name, i) => <li key={name} class={i < now ? "past" : ""} aria-current={i === now ? "step" : undefined}><i aria-hidden="true">{i < now ? "✓" : i + 1}</i>{name}</li>)}</ol>;
}

/** What is wrong, and up to which tag it is right. */
function Choose({ table, tag, wrong, about }: { table: string | null; tag: string | null; wrong: number | null; about: About }) {
  const lake = useAsk<Lake>("lake");
  const [text, set] = useState(table ?? "");
  useEffect(() => set(table ?? ""), [table]);
  const facts = useAsk<TableFacts>(table && !report ? "table" : null, { table });
  if (report) return <Card title="1. What is wrong"><p><b>{table}</b> is right up to the tag <Badge kind="tag">{tag}</Badge>.</p></Card>;
  const tags = facts.value?.tags ?? [], before = wrong === null ? null : [...tags].filter(one => one.snapshot < wrong).sort((a, b) => b.snapshot - a.snapshot)[0];
  return (
    <Card title="1. What is wrong">
      <form class="tools" onSubmit={event => { event.preventDefault(); go(to(["correct"], { table: text.trim() })); }}>
        <label>Table <input list="tables" id="search" value={text} onInput={event => set(event.currentTarget.value)} onChange={event => go(to(["correct"], { table: event.currentTarget.value.trim() }))} /></label>
        <datalist id="tables">{lake.value?.tables.map(name => <option key={name} value={name} />)}</datalist>
        {table && facts.value && tags.length > 0 && <label>Right up to the tag <select value={tag ?? ""} onChange={event => go(to(["correct"], { table, tag: event.currentTarget.value }))}>
          <option value="">choose one</option>
          {tags.map(one => <option key={one.name} value={one.name}>{`${one.name} (snapshot ${one.snapshot}, ${clock(one.millis)})`}</option>)}
        </select></label>}
        {!table && <button type="submit">Go on</button>}
      </form>
      {facts.failure && <Problem failure={facts.failure} />}
      {table && !tag && facts.value && <Name table={table} wrong={wrong} about={about} known={tags.length} />}
      {table && !tag && before && <p class="links"><a href={to(["correct"], { table, tag: before.name })}>{before.snapshot === wrong! - 1 ? `Tag ${before.name} names snapshot ${before.snapshot} already: go on from there` : `Or go on from tag ${before.name}, which is earlier: snapshot ${before.snapshot}`}</a></p>}
      {table && tag && <p class="links"><a href={to(["table", table], { tab: "compare", left: `main@${tag}`, right: "main", rows: true })}>What came after {tag}</a><a href={to(["lineage"], { table })}>Its lineage</a></p>}
    </Card>
  );
}

/** Names the last right snapshot with a tag, from which the correction begins. */
function Name({ table, wrong, about, known }: { table: string; wrong: number | null; about: About; known: number }) {
  const [text, set] = useState(wrong === null ? "" : String(wrong));
  useEffect(() => set(wrong === null ? "" : String(wrong)), [wrong]);
  const [failure, fail] = useState<Failure | null>(null);
  const first = Number(text), valid = Number.isInteger(first) && first > 1, tag = `before-${first}`;
  const create = (event: Event): void => {
    event.preventDefault();
    fail(null);
    act<Tagged>("act", { what: "tag", table, tag, snapshot: first - 1 }).then(made => go(to(["correct"], { table, tag: made.name })), fail);
  };
  return (
    <>
      <p class="muted">{known ? "No tag fits?" : "It has no tag yet."} Find the first wrong snapshot in <a href={to(["table", table], { tab: "history" })}>its history</a>; the one before it gets a tag.</p>
      <form class="tools" onSubmit={create}>
        <label>First wrong snapshot <input inputMode="numeric" class="short" value={text} onInput={event => set(event.currentTarget.value)} /></label>
        {about.actions && <button type="submit" disabled={!valid}>{valid ? `Tag snapshot ${first - 1} as ${tag}` : "Tag the one before it"}</button>}
        {!about.actions && valid && <Command text={command("create-tag", table, "--name", tag, "--snapshot", String(first - 1))} />}
      </form>
      {failure && <Problem failure={failure} />}
    </>
  );
}

interface Tagged { name: string; snapshot: number }

interface PlanProps { found: Correcting; table: string; tag: string; about: About; all: Progress[]; started: (found: Progress | null) => void; progress: ComponentChildren }

function Plan({ found, table, tag, about, all, started, progress }: PlanProps) {
  const { plan, undo } = found;
  return (
    <>
      <Damaged found={found.damaged} />
      <Card title="2. What it reached" aside={!plan.done && <small class="muted">{plural(plan.steps.length, "table")} to correct</small>}>
        {plan.warnings.map(text => <p key={text} class="notice">{capital(text)}</p>)}
        {plan.done ? <p class="empty">Nothing is left to correct: the table has nothing after tag {tag}, or its correction is main already.</p> : <>
          <p>Taken out: {plan.taken_out.map((one, i) => `${snapshots([one])} of ${plan.taken_from[i]}`).join(", ")}.{plan.took_millis !== null && ` Making the rest again took ${span(plan.took_millis)} the first time.`}</p>
          <ol class="steps">{plan.steps.map(step => <Told key={step.table} step={step} />)}</ol>
        </>}
        {plan.beside.length > 0 && <p class="notice">Spoilt too, and left as they are: {plan.beside.join(", ")}</p>}
      </Card>
      {!plan.done && (
        <Card title="3. Correct and publish">
          {!about.actions ? <><p>This page was started to look only. In a terminal:</p><Command text={found.command} /><p class="muted">Or start the page with <code>--allow-actions --jobs FILE</code>.</p></> :
            !about.jobs.length ? <p class="notice">No file of corrected jobs was named with the server: start it with <code>anabranch ui --allow-actions --jobs FILE</code>.</p> :
            <Confirm what="run" title="Correct and publish" table={table} tag={tag} tables={found.tables} running={isBusy(all, found.tables)} started={started}>
              The jobs of {about.jobs.join(", ")} write to branches called <Badge kind="branch">{plan.name}</Badge>{about.checks.length > 0 && <>; the checks of {about.checks.join(", ")} must pass</>}. Then the branches become main of
            </Confirm>}
        </Card>
      )}
      {progress}
      {undo && plan.done && (
        <Card title="4. Published">
          <p>Correction {undo.number} is main of {undo.tables.map((name, i) => <>{i > 0 && ", "}<a href={to(["table", name], { tab: "branches" })}>{name}</a></>)}. <a href={to(["table", table], { tab: "compare", left: `main@${tag}`, right: "main", rows: true })}>What came after {tag} now</a></p>
          {about.actions ? <Confirm what="undo" title="Take it back" table={table} tag={tag} tables={undo.tables} running={isBusy(all, undo.tables)} started={started}>
            If it is not what you wanted, the former mains become main again, of
          </Confirm> : <Command text={command("correct", table, "--from-tag", tag, "--undo")} />}
        </Card>
      )}
    </>
  );
}

function Told({ step }: { step: Step }) {
  return (
    <li>
      <b>{step.table}</b> <span class="muted">{step.bad.length ? `${snapshots(step.bad)} spoilt; ` : ""}{step.is_empty ? "begins empty" : step.fork === null ? "cannot begin again" : `begins again after snapshot ${step.fork}`}; {plural(step.anew, "commit")}{step.rows > 0 && ` with ${plural(step.rows, "row")}`} to make again</span>
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

/** How far one table is, by what the command said of it. */
function stateOf(table: string, progress: Progress): [string, string] {
  if (progress.exit === 0) return ["good", progress.what === "undo" ? "as it was" : "published"];
  const own = progress.lines.filter(line => line.startsWith(`${table}: `)), last = own[own.length - 1]?.slice(table.length + 2);
  return last === undefined ? ["", "waits"] : ["fair", last];
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
    <Card title={`${title} ${progress.table}${progress.tag === null ? "" : ` from ${progress.tag}`}`} aside={<span role="status"><Badge kind={kind}>{state}</Badge></span>}>
      {progress.elsewhere && <p class="notice">It is carried out by {progress.elsewhere}, which this page did not start, perhaps a page that is gone. Wait for its end: what is not done then goes on here.</p>}
      <ul class="plain states">{progress.tables.map(name => { const [kind, said] = stateOf(name, progress); return <li key={name}><b>{name}</b> <Badge kind={kind}>{said}</Badge></li>; })}</ul>
      <p class="muted">Begun <span title={time(progress.millis)}>{ago(progress.millis, Math.max(now, progress.millis))}</span>{!progress.elsewhere && `, ${number(progress.lines.length)} lines`}.</p>
      <pre ref={log} class="log" tabIndex={0} aria-label="What it says">{progress.lines.join("\n") || "…"}</pre>
      {running && !progress.elsewhere && <button type="button" onClick={stop}>{progress.stopped ? "Kill it" : "Stop"}</button>}
      {!running && progress.exit !== 0 && progress.what === "run" && <p>What was done stays. Start it again: it goes on where it was.</p>}
      {failure && <Problem failure={failure} />}
    </Card>
  );
}

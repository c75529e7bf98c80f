/** Lineage of tables and jobs: the whole graph, one node's closure, and what one snapshot came from or went into. */
import dagre from "@dagrejs/dagre";
import { useEffect, useMemo, useState } from "preact/hooks";
import { report, useAsk, useCaughtUp, useHistory, type Asked } from "./api";
import { ago, capital, command, number, plural, snapshots, time } from "./format";
import { Badge, Card, Command, Problem, Shown, useWidth, Waiting } from "./parts";
import { go, to } from "./route";
import type { Dataset, Flow, Producer, Trace } from "./types";

const MOST_DRAWN = 140, MOST_OFFERED = 50, CHARACTER = 8, NODE_HEIGHT = 34, JOB_HEIGHT = 24, MOST_TEXT = 30;

interface Box { id: string; kind: "table" | "source" | "job" | "merge"; name: string; under: string; x: number; y: number; width: number; height: number }
interface Arrow { points: { x: number; y: number }[]; from: string; to: string }

export function LineageView({ given, now }: { given: URLSearchParams; now: number }) {
  const table = given.get("table"), branch = given.get("branch"), snapshot = given.get("snapshot");
  const whole = useCaughtUp<Trace & { behind: boolean }>("lineage");
  return (
    <>
      <h1 class="unseen">Lineage</h1>
      <Shown asked={whole}>{trace => (trace.flows.length || table ? <Explorer whole={trace} table={table} branch={branch} snapshot={snapshot} given={given} now={now} /> : trace.behind ? <Waiting /> :
        <Card title="Lineage"><p class="empty">No commit says yet what it was made of. Jobs that run with <code>anabranch run</code>, and blocks of <code>with lake.job("name")</code>, record it.</p></Card>)}</Shown>
    </>
  );
}

const idOf = (whole: Trace, name: string): string | null => whole.datasets.find(one => one.name === name)?.id ?? (whole.flows.some(flow => flow.job === name) ? `job:${name}` : null);
const full = (table: string | null, branch: string | null): string | null => (table === null ? null : branch && branch !== "main" ? `${table}$branch_${branch}` : table);

interface Props { whole: Trace; table: string | null; branch: string | null; snapshot: string | null; given: URLSearchParams; now: number }

function Explorer({ whole, table, branch, snapshot, given, now }: Props) {
  const name = full(table, branch) ?? given.get("node");
  const [search, setSearch] = useState(name ?? "");
  useEffect(() => setSearch(name ?? ""), [name]);
  const direction = given.get("way") === "up" ? "up" : given.get("way") === "both" ? "both" : given.get("way") === "down" ? "down" : snapshot ? "down" : "both";
  const names = useMemo(() => [...new Set([...whole.datasets.map(one => one.name), ...whole.flows.filter(flow => flow.kind === "job").map(flow => flow.job)])].sort(), [whole]);
  const offered = useMemo(() => { const wanted = search.trim().toLowerCase(); return (wanted ? names.filter(one => one.toLowerCase().includes(wanted)) : names).slice(0, MOST_OFFERED); }, [names, search]);
  const trace = useAsk<Trace>(table && snapshot ? "trace" : null, { table, branch, question: direction === "up" ? "upstream" : "impact", snapshots: snapshot });
  // A former main may have several names: the answer knows which node is meant.
  const node = name === null ? null : idOf(whole, name) ?? trace.value?.datasets.find(one => one.depth === 0)?.id ?? null;
  const drawn = useMemo(() => closure(whole, node, direction), [whole, node, direction]);
  const choose = (name: string): void => {
    const found = name.trim();
    const data = whole.datasets.find(one => one.name === found);
    if (!found) go(to(["lineage"]));
    else if (data?.kind === "table") { const [table, branch] = found.split("$branch_"); go(to(["lineage"], { table, branch })); }
    else go(to(["lineage"], { node: found }));
  };
  const set = (changes: Record<string, string | null>): void => go(to(["lineage"], { ...Object.fromEntries(given), ...changes }), true);
  const marked = useMemo(() => (trace.value ? new Map(trace.value.datasets.map(one => [one.id, one])) : null), [trace.value]);
  const tooMany = drawn.datasets.length > MOST_DRAWN;
  return (
    <>
      {!report && (
        <form class="tools" onSubmit={event => { event.preventDefault(); choose(search); }}>
          <input type="search" list="nodes" id="search" aria-label="Search tables and jobs" placeholder="Search tables and jobs (press /)" value={search} onInput={event => setSearch(event.currentTarget.value)} onChange={event => names.includes(event.currentTarget.value) && choose(event.currentTarget.value)} />
          <datalist id="nodes">{offered.map(one => <option key={one} value={one} />)}</datalist>
          <button type="submit">Show</button>
          {node && <label>Way <select value={direction} onChange={event => set({ way: event.currentTarget.value })}>
            <option value="up">where it comes from</option><option value="down">where it goes</option>{!snapshot && <option value="both">both</option>}
          </select></label>}
          {node && <a href={to(["lineage"])}>Whole lake</a>}
        </form>
      )}
      {name !== null && node === null && !(snapshot && trace.busy) && <p class="notice">Nothing in the lineage is called “{name}”.</p>}
      {table && node && <Slider table={table} branch={branch} snapshot={snapshot} set={set} now={now} />}
      {trace.failure && <Problem failure={trace.failure} />}
      <Card title={snapshot && trace.value ? capital(trace.value.question) : node ? `Lineage of ${name}` : "All tables and jobs"} aside={<small class="muted">{plural(drawn.datasets.length, "dataset")}, {plural(new Set(drawn.flows.map(flow => flow.job)).size, "job")}</small>}>
        <Legend kinds={new Set([...drawn.datasets.map(one => one.kind === "table" ? "table" : "source"), ...drawn.flows.map(flow => flow.kind === "merge" ? "merge" : "job")])} isMarked={marked !== null} />
        {tooMany ? <Largest whole={drawn} /> : <Drawing trace={drawn} chosen={node} marked={marked} choose={choose} />}
        {[...new Set([...whole.problems, ...(trace.value?.problems ?? [])])].filter(problem => !saidBelow(problem, trace.value)).map(problem => <p key={problem} class="notice">May be incomplete: {problem}</p>)}
      </Card>
      {trace.value && snapshot && table && <Impact trace={trace} table={table} branch={branch} snapshot={snapshot} direction={direction} />}
      {node && <About whole={whole} id={node} table={table} branch={branch} now={now} snapshot={snapshot} />}
    </>
  );
}

/** Whether the list of what a snapshot reached says the same. */
const saidBelow = (problem: string, trace: Trace | null): boolean => trace !== null && trace.unknown.some(one => problem.startsWith(`${one.table}, `) && problem.endsWith(one.reason));

/** The part of the graph that one node reaches. */
function closure(whole: Trace, node: string | null, way: string): Trace {
  if (node === null) return { ...whole, datasets: whole.datasets.filter(one => whole.flows.some(flow => flow.source === one.id || flow.sink === one.id)) };
  const flows = new Set<Flow>();
  const walk = (begin: string, down: boolean): void => {
    const seen = new Set<string>(), open: string[] = [];
    const take = (flow: Flow): void => { flows.add(flow); open.push(down ? flow.sink : flow.source); };
    if (begin.startsWith("job:")) whole.flows.filter(flow => `job:${flow.job}` === begin).forEach(take); else open.push(begin);
    for (let at = open.pop(); at !== undefined; at = open.pop()) {
      if (seen.has(at)) continue;
      seen.add(at);
      for (const flow of whole.flows) if ((down ? flow.source : flow.sink) === at) take(flow);
    }
  };
  if (way !== "up") walk(node, true);
  if (way !== "down") walk(node, false);
  const ids = new Set([node, ...[...flows].flatMap(flow => [flow.source, flow.sink])]);
  return { ...whole, datasets: whole.datasets.filter(one => ids.has(one.id)), flows: whole.flows.filter(flow => flows.has(flow)) };
}

const cut = (text: string): string => (text.length <= MOST_TEXT ? text : `${text.slice(0, MOST_TEXT - 9)}…${text.slice(-8)}`);

function layout(trace: Trace, marked: Map<string, Dataset> | null): { boxes: Box[]; arrows: Arrow[]; width: number; height: number } {
  const graph = new dagre.graphlib.Graph({ multigraph: false });
  graph.setGraph({ rankdir: "LR", nodesep: 14, ranksep: 36, marginx: 8, marginy: 8 });
  graph.setDefaultEdgeLabel(() => ({}));
  const boxes = new Map<string, Omit<Box, "x" | "y">>();
  const put = (id: string, kind: Box["kind"], name: string, under: string): void => {
    if (boxes.has(id)) return;
    const small = kind === "job" || kind === "merge";
    const box = { id, kind, name: cut(name), under: cut(under), width: Math.max(cut(name).length * (small ? 6.4 : CHARACTER), cut(under).length * 6.2, 30) + 22, height: small ? JOB_HEIGHT : under ? NODE_HEIGHT + 12 : NODE_HEIGHT };
    boxes.set(id, box);
    graph.setNode(id, { width: box.width, height: box.height });
  };
  for (const data of trace.datasets) {
    const hit = marked?.get(data.id);
    const [name = "", branch] = data.kind === "table" ? data.name.split("$branch_") : [data.name];
    const under = [branch && `on ${branch}`, hit?.snapshots.length && snapshots(hit.snapshots)].filter(Boolean).join(", ");
    put(data.id, data.kind === "table" ? "table" : "source", name, under);
  }
  for (const flow of trace.flows) {
    const id = `${flow.kind}:${flow.job}→${flow.sink}`;
    put(id, flow.kind === "merge" ? "merge" : "job", flow.kind === "merge" ? "merge" : flow.job, "");
    graph.setEdge(flow.source, id); graph.setEdge(id, flow.sink);
  }
  dagre.layout(graph);
  const placed = [...boxes.values()].map(box => { const at = graph.node(box.id) as { x: number; y: number }; return { ...box, x: at.x, y: at.y }; });
  const arrows = graph.edges().map(edge => ({ from: edge.v, to: edge.w, points: (graph.edge(edge) as { points: { x: number; y: number }[] }).points }));
  const size = graph.graph() as { width?: number; height?: number };
  return { boxes: placed, arrows, width: size.width ?? 10, height: size.height ?? 10 };
}

function Drawing({ trace, chosen, marked, choose }: { trace: Trace; chosen: string | null; marked: Map<string, Dataset> | null; choose: (name: string) => void }) {
  const { boxes, arrows, width, height } = useMemo(() => layout(trace, marked), [trace, marked]);
  const jobs = useMemo(() => new Set(marked ? trace.flows.filter(flow => marked.has(flow.source) && marked.has(flow.sink)).map(flow => `${flow.kind}:${flow.job}→${flow.sink}`) : []), [trace, marked]);
  const hit = (id: string): boolean => !marked || marked.has(id) || jobs.has(id);
  const state = (id: string): string => `${hit(id) ? "" : "dim"} ${marked && hit(id) ? "hit" : ""} ${id === chosen ? "chosen" : ""}`;
  const names = new Map(trace.datasets.map(one => [one.id, one.name]));
  const nameOf = (box: Box): string => names.get(box.id) ?? (box.kind === "merge" ? "" : box.id.slice(box.id.indexOf(":") + 1, box.id.lastIndexOf("→")));
  const [box, room] = useWidth();
  const scale = Math.max(0.7, Math.min(1, room / width));
  if (!boxes.length) return <p class="empty">Nothing leads here or goes on from here.</p>;
  return (
    <div ref={box} class="scroll drawing" tabIndex={0} role="region" aria-label="Graph of tables and jobs, from left to right">
      <svg width={width * scale} height={height * scale} viewBox={`0 0 ${width} ${height}`} role="group" aria-label={`${plural(trace.datasets.length, "dataset")} and the jobs between them`}>
        <defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" markerUnits="userSpaceOnUse" orient="auto"><path class="arrow-head" d="M0 0 8 4 0 8z" /></marker></defs>
        {arrows.map(arrow => <path key={`${arrow.from}→${arrow.to}`} class={`arrow ${hit(arrow.from) && hit(arrow.to) ? (marked ? "hit" : "") : "dim"}`} d={smooth(arrow.points)} marker-end="url(#head)" />)}
        {boxes.map(box => {
          const name = nameOf(box), open = (): void => { if (name) choose(name); };
          return (
            <g key={box.id} class={`node ${box.kind} ${state(box.id)}`} transform={`translate(${box.x - box.width / 2} ${box.y - box.height / 2})`} tabindex={name ? 0 : undefined} role={name ? "button" : "img"} aria-label={`${box.name} ${box.under}, ${box.kind}${name && name !== box.name ? ` ${name}` : ""}`} onClick={open} onKeyDown={event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); open(); } }}>
              <rect width={box.width} height={box.height} rx={box.kind === "job" || box.kind === "merge" ? box.height / 2 : 6} />
              <text x={box.width / 2} y={box.under ? 18 : box.height / 2 + 4} text-anchor="middle">{box.name}</text>{" "}
              {box.under && <text class="under" x={box.width / 2} y={35} text-anchor="middle">{box.under}</text>}
            </g>
          );
        })}
      </svg>
    </div>
  );
}

const MEANS: [string, string][] = [["table", "table"], ["source", "source outside the lake"], ["job", "job"], ["merge", "merge of a branch"]];

/** What the shapes stand for; only those that are drawn. */
function Legend({ kinds, isMarked }: { kinds: Set<string>; isMarked: boolean }) {
  return <p class="keys">{MEANS.filter(([kind]) => kinds.has(kind)).map(([kind, means]) => <span key={kind}><i class={`key ${kind}`} aria-hidden="true" />{means}</span>)}{isMarked && <span><i class="key hit" aria-hidden="true" />holds rows of the chosen snapshot</span>}</p>;
}

function smooth(points: { x: number; y: number }[]): string {
  const [first, ...rest] = points;
  if (!first) return "";
  const last = rest[rest.length - 1] ?? first;
  if (points.length <= 3) { const middle = (first.x + last.x) / 2; return `M${first.x} ${first.y}C${middle} ${first.y} ${middle} ${last.y} ${last.x} ${last.y}`; }
  let path = `M${first.x} ${first.y}`;
  for (let i = 0; i < rest.length - 1; i++) { const a = rest[i]!, b = rest[i + 1]!; path += `Q${a.x} ${a.y} ${(a.x + b.x) / 2} ${(a.y + b.y) / 2}`; }
  return `${path}L${last.x} ${last.y}`;
}

/** In place of a drawing nobody could read: the nodes with most neighbours, to begin with. */
function Largest({ whole }: { whole: Trace }) {
  const counts = new Map<string, number>();
  for (const flow of whole.flows) for (const id of [flow.source, flow.sink]) counts.set(id, (counts.get(id) ?? 0) + 1);
  const most = whole.datasets.filter(one => one.kind === "table").sort((a, b) => (counts.get(b.id) ?? 0) - (counts.get(a.id) ?? 0)).slice(0, 40);
  return <>
    <p>{number(whole.datasets.length)} are too many to draw at once. Search for one, or begin with those that most jobs read and write:</p>
    <ul class="columns">{most.map(one => { const [table, branch] = one.name.split("$branch_"); return <li key={one.id}><a href={to(["lineage"], { table, branch })}>{one.name}</a> <small class="muted">{plural(counts.get(one.id) ?? 0, "flow")}</small></li>; })}</ul>
  </>;
}

/** Goes through the snapshots of a table; the graph shows what each came from or went into. */
function Slider({ table, branch, snapshot, set, now }: { table: string; branch: string | null; snapshot: string | null; set: (changes: Record<string, string | null>) => void; now: number }) {
  const { lines, prefix } = useHistory(table, branch, 0);
  const found = useMemo(() => lines.filter(line => line.kind !== "compact" && line.kind !== "fence" && line.kind !== "seal").reverse(), [lines]);
  const id = snapshot === null ? null : Number(/(\d+)$/.exec(snapshot)?.[1] ?? NaN);
  const place = id === null ? -1 : found.findIndex(line => line.id === id);
  const [at, setAt] = useState(place);
  useEffect(() => setAt(place), [place]);
  useEffect(() => {
    if (at < 0 || at === place) return;
    const timer = setTimeout(() => set({ snapshot: `${prefix === "snapshot." ? "" : prefix}${found[at]!.id}` }), 180);
    return () => clearTimeout(timer);
  }, [at]);
  if (report || !found.length) return null;
  const line = found[at];
  return (
    <div class="slider">
      <label for="time">Snapshot</label>
      <input id="time" type="range" min={0} max={found.length - 1} value={at < 0 ? found.length - 1 : at} onInput={event => setAt(Number(event.currentTarget.value))} aria-valuetext={line ? `snapshot ${line.id}, ${time(line.millis)}` : "all snapshots"} />
      <output for="time">{line ? <><b>#{line.id}</b> {line.kind}{line.job && ` by ${line.job}`}, {time(line.millis)} <span class="muted">({ago(line.millis, now)})</span></> : `all ${plural(found.length, "snapshot")}`}</output>
      {snapshot && <button type="button" onClick={() => set({ snapshot: null })}>All snapshots</button>}
    </div>
  );
}

function Impact({ trace, table, branch, snapshot, direction }: { trace: Asked<Trace>; table: string; branch: string | null; snapshot: string; direction: string }) {
  const found = trace.value!, others = found.datasets.filter(one => one.depth > 0);
  const named = full(table, branch)!;
  return (
    <Card title={direction === "up" ? "What it came from" : "What it reached"}>
      {others.length === 0 ? <p class="empty">Nothing else.</p> : (
        <ol class="plain">{others.map(one => <li key={one.id}><Badge kind={one.kind === "table" ? "branch" : "tag"}>{one.kind}</Badge> {one.kind === "table" ? <a href={to(["lineage"], { table: one.name.split("$branch_")[0], branch: one.name.split("$branch_")[1] })}>{one.name}</a> : one.name}{one.snapshots.length > 0 && <span class="muted"> {snapshots(one.snapshots)}</span>}</li>)}</ol>
      )}
      {found.unknown.map(one => <p key={one.table + one.reason} class="notice">{one.table}, {snapshots(one.snapshots)}, may belong here: {one.reason}</p>)}
      {direction !== "up" && <Command text={command("lineage", "impact", `${named}@${snapshot}`)} />}
    </Card>
  );
}

function About({ whole, id, table, branch, snapshot, now }: { whole: Trace; id: string; table: string | null; branch: string | null; snapshot: string | null; now: number }) {
  const flows = whole.flows.filter(flow => `job:${flow.job}` === id || flow.source === id || flow.sink === id);
  const names = new Map(whole.datasets.map(one => [one.id, one.name]));
  return (
    <div class="two">
      <Card title="Flows">
        {flows.length === 0 ? <p class="empty">No job reads or writes it.</p> : (
          <ul class="plain">{flows.map(flow => <li key={`${flow.source}${flow.sink}${flow.job}`}>{names.get(flow.source)} → {flow.kind === "merge" ? <i>merge</i> : <b>{flow.job}</b>} → {names.get(flow.sink)}<small class="right muted" title={`${time(flow.first_millis)} to ${time(flow.last_millis)}`}>{plural(flow.commits, "commit")}, {ago(flow.last_millis, now)}</small></li>)}</ul>
        )}
        {table && !report && <p class="links"><a href={to(["table", table], { branch })}>The table</a></p>}
      </Card>
      {table && !report && <Made table={table} branch={branch} snapshot={snapshot} />}
    </div>
  );
}

/** Who made a snapshot, and what each column was computed from, where that is known. */
function Made({ table, branch, snapshot }: { table: string; branch: string | null; snapshot: string | null }) {
  const made = useAsk<Producer>("producer", { table, branch, snapshot });
  return (
    <Card title={snapshot ? "Who made it" : "Who made the newest snapshot"}>
      <Shown asked={made}>{found => <>
        {found.entry ? <dl class="pairs">
          <div><dt>snapshot</dt><dd>{found.snapshot}, {found.kind}, {time(found.time_millis)}</dd></div>
          <div><dt>job</dt><dd>{found.entry.job}</dd></div>
          {found.entry.code && <div><dt>code</dt><dd><code>{found.entry.code}</code></dd></div>}
          {found.entry.run && <div><dt>run</dt><dd class="break"><code>{found.entry.run}</code></dd></div>}
        </dl> : <p class="empty">The commit does not say who made it.</p>}
        {found.entry?.columns && <><h3>Columns</h3><dl class="pairs">{Object.entries(found.entry.columns).map(([column, sources]) => <div key={column}><dt>{column}</dt><dd>{sources.join(", ")}</dd></div>)}</dl></>}
        {found.problems.map(problem => <p key={problem} class="notice">{problem}</p>)}
      </>}</Shown>
    </Card>
  );
}

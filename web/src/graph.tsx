/** Branches, drawn as a git graph draws commits: forks, merges, replacements with their seals, and what was undone. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { useAsk } from "./api";
import { clock, plural, signed, time } from "./format";
import { Badge, Card, Damaged, Many, Shown } from "./parts";
import { to } from "./route";
import type { Place } from "./table";
import type { Graph, GraphNode, Operation } from "./types";

const HEIGHT = 52, STEP = 22, LEFT = 16, COLORS = 7;
const middle = (row: number): number => row * HEIGHT + HEIGHT / 2;

export function GraphView({ place }: { place: Place }) {
  const graph = useAsk<Graph>("graph", { table: place.table }, place.version);
  return <Shown asked={graph}>{found => <><Damaged found={found.damaged.filter(one => !place.damaged.some(told => told.message === one.message))} />{found.nodes.length ? <Drawing graph={found} place={place} /> : <p class="empty">Nothing was ever written to this table.</p>}</>}</Shown>;
}

function Drawing({ graph, place }: { graph: Graph; place: Place }) {
  const wide = LEFT * 2 + STEP * Math.max(0, ...graph.lanes.map(lane => lane.column));
  const open = graph.lanes.filter(lane => lane.role === "branch").length;
  return (
    <>
      <Card title="Branches" aside={<small class="muted">{open ? plural(open, "branch", "branches") : "no branches"} beside main</small>}>
        <Keys graph={graph} />
        <Many count={graph.nodes.length} height={HEIGHT} label="Snapshots of all branches, newest first" under={<Lines graph={graph} width={wide} />}>
          {i => <NodeRow graph={graph} node={graph.nodes[i]!} index={i} indent={wide} place={place} />}
        </Many>
        {graph.cut && <p class="muted">Older snapshots of main are in the history.</p>}
      </Card>
      <Log operations={graph.operations} />
    </>
  );
}

/** What the signs mean; only those that are drawn. */
function Keys({ graph }: { graph: Graph }) {
  const has = (...kinds: string[]): boolean => graph.nodes.some(node => node.from === node.to && kinds.some(kind => kind in node.kinds));
  const sign = (shape: JSX.Element, means: string) => <span key={means}><svg class="lines inline" width="18" height="16" aria-hidden="true">{shape}</svg>{means}</span>;
  return (
    <p class="keys">
      {sign(<circle class="dot lane-0" cx="9" cy="8" r="5.5" />, "snapshot")}
      {graph.nodes.some(node => node.from !== node.to) && sign(<rect class="dot fold lane-0" x="4" y="0" width="10" height="16" rx="5" />, "several, folded")}
      {has("compact", "fence") && sign(<circle class="dot hollow lane-0" cx="9" cy="8" r="5.5" />, "compaction")}
      {has("merge", "replace") && sign(<circle class="dot lane-0" cx="9" cy="8" r="7" />, "merge")}
      {has("seal") && sign(<path class="dot seal lane-3" d="M2 8L9 1L16 8L9 15Z" />, "seal: nothing can be written after it")}
      {graph.links.some(link => link.kind !== "merge") && sign(<path class="link replaced_main" d="M0 8H18" />, "put in the place of main")}
      {graph.links.some(link => link.undone) && sign(<path class="link replaced_main undone" d="M0 8H18" />, "taken back")}
    </p>
  );
}

const color = (graph: Graph, lane: number): string => `lane-${graph.lanes[lane]!.role === "main" ? 0 : 1 + (lane - 1) % (COLORS - 1)}`;
const x = (graph: Graph, lane: number): number => LEFT + STEP * graph.lanes[lane]!.column;

/** All lines between nodes, behind the list. */
function Lines({ graph, width }: { graph: Graph; width: number }) {
  const last = new Map<number, number>();
  const paths: { d: string; kind: string; title?: string }[] = [];
  graph.nodes.forEach((node, row) => {
    const above = last.get(node.lane), at = x(graph, node.lane);
    if (above !== undefined) paths.push({ d: `M${at} ${middle(above)}V${middle(row)}`, kind: color(graph, node.lane) });
    last.set(node.lane, row);
    if (node.root !== null) {
      const root = graph.nodes[node.root]!, end = x(graph, root.lane), down = middle(node.root);
      const turn = Math.max(middle(row), down - HEIGHT);
      paths.push({ d: `M${at} ${middle(row)}V${turn}C${at} ${turn + HEIGHT * 0.6} ${end} ${down - HEIGHT * 0.6} ${end} ${down}`, kind: color(graph, node.lane) });
    }
  });
  for (const link of graph.links) {
    const source = graph.nodes[link.from]!, sink = graph.nodes[link.to]!;
    const [a, b, y1, y2] = [x(graph, source.lane), x(graph, sink.lane), middle(link.from), middle(link.to)];
    const bend = Math.sign(y2 - y1 || -1) * HEIGHT * 0.7;
    const title = link.kind === "merge" ? `${link.branch} was merged` : link.kind === "undone" ? "taken back: the main before is main again" : `${link.branch} was put in the place of main${link.undone ? ", which was undone" : ""}`;
    paths.push({ d: `M${a} ${y1}C${a} ${y1 + bend} ${b} ${y2 - bend} ${b} ${y2}`, kind: `link ${link.kind} ${link.undone ? "undone" : ""}`, title });
  }
  return (
    <svg class="lines" width={width} height={graph.nodes.length * HEIGHT} aria-hidden="true">
      {paths.map((path, i) => <path key={i} d={path.d} class={path.kind}>{path.title && <title>{path.title}</title>}</path>)}
      {graph.nodes.map((node, row) => <Dot key={row} graph={graph} node={node} row={row} />)}
    </svg>
  );
}

function Dot({ graph, node, row }: { graph: Graph; node: GraphNode; row: number }) {
  const [at, y, kind] = [x(graph, node.lane), middle(row), color(graph, node.lane)];
  if (node.from !== node.to) return <rect class={`dot fold ${kind}`} x={at - 5} y={y - 8} width={10} height={16} rx={5} />;
  const only = Object.keys(node.kinds)[0] ?? "";
  if (only === "seal") return <path class={`dot seal ${kind}`} d={`M${at - 7} ${y}L${at} ${y - 7}L${at + 7} ${y}L${at} ${y + 7}Z`} />;
  return <circle class={`dot ${only === "compact" || only === "fence" ? "hollow" : ""} ${kind}`} cx={at} cy={y} r={only === "merge" || only === "replace" ? 7 : 5.5} />;
}

const SAID: Record<string, string> = { damaged: "cannot be read", seal: "sealed: the end of this main", fence: "fence of a merge", replace: "replaced by a branch's content", merge: "merge", rollback: "rollback" };

function NodeRow({ graph, node, index, indent, place }: { graph: Graph; node: GraphNode; index: number; indent: number; place: Place }) {
  const lane = graph.lanes[node.lane]!;
  const kinds = Object.entries(node.kinds).map(([kind, count]) => (node.from === node.to ? SAID[kind] ?? kind : plural(count, kind)));
  const name = node.from === node.to ? `#${node.to}` : `#${node.from}–${node.to}`;
  const merged = graph.links.filter(link => link.to === index && link.kind !== "merge");
  return (
    <a class="row" style={{ paddingLeft: `${indent + 8}px` }} href={to(["table", place.table], { tab: "history", branch: lane.role === "main" ? null : lane.name, snapshot: node.to })}>
      <span class="name">
        {node.labels.map(label => <Badge key={label.kind + label.name} kind={label.kind}>{label.name}</Badge>)}
        <b>{name}</b> {kinds.join(", ")}
        {merged.map(link => <Badge key={link.from} kind={link.undone ? "undone" : "replaced"}>{link.kind === "undone" ? "taken back: the main before is main again" : link.undone ? `${link.branch} replaced main, undone` : `${link.branch} replaced main`}</Badge>)}
        <small class="muted">{clock(node.millis)}{node.job && ` · ${node.job}`}{lane.role !== "main" && ` · ${lane.name}`}</small>
      </span>
      {node.added ? <span class="cell"><b>{signed(node.added)}</b><small>rows</small></span> : null}
    </a>
  );
}

const VERBS: Record<string, string> = { created: "created", audited: "audited", merged: "merged into main", merge_given_up: "merge given up", replaced_main: "put in the place of main", undone: "made main again", dropped: "dropped", deleted: "deleted" };

function Log({ operations }: { operations: Operation[] }) {
  const [all, set] = useState(false);
  if (!operations.length) return null;
  return (
    <Card title="What was done with branches">
      <ol class="plain">
        {(all ? operations : operations.slice(0, 30)).map((one, i) => (
          <li key={i} class={one.undone ? "struck" : ""}>
            <Badge kind={one.branch === "main" ? "main" : "branch"}>{one.branch}</Badge> {VERBS[one.what] ?? one.what}
            {one.what === "audited" && (one.details.passed ? ": passed" : ": failed")}
            {one.undone && " (undone)"}
            {typeof one.details.reason === "string" && <span class="muted"> — {one.details.reason}</span>}
            <small class="right muted">{one.by && `${one.by}, `}{time(one.millis)}</small>
          </li>
        ))}
      </ol>
      {operations.length > 30 && !all && <button type="button" onClick={() => set(true)}>Show all</button>}
    </Card>
  );
}

/** Snapshots on a line of time, from years to seconds, and everything about the one that is chosen. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { report, useAsk, useHistory } from "./api";
import { clock, command, likely, number, places, plural, release, short, signed, time } from "./format";
import { Badge, Card, Command, Many, Problem, Shown, useWidth, Waiting } from "./parts";
import { to } from "./route";
import type { Place } from "./table";
import type { Line } from "./types";

const LEFT = 92, RIGHT = 12, LANE = 24, TOP = 10, AXIS = 26, STRIP = 20, RISE = 34, MOST_MARKS = 300, MOST_PARTS = 400;
const LANES = ["append", "compact", "overwrite", "merge", "replace", "other"] as const;
export const laneOf = (kind: string): (typeof LANES)[number] =>
  kind === "append" || kind === "compact" || kind === "overwrite" || kind === "merge" ? kind : kind === "fence" ? "compact" : kind === "analyze" || kind === "damaged" ? "other" : "replace";

type Span = [number, number];
/** A snapshot with the time at which it is drawn: clocks may say anything. */
interface Placed extends Line { at: number }
const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR, YEAR = 365.25 * DAY;
const TICKS = [1, 5, 20, 100, 500, SECOND, 5 * SECOND, 15 * SECOND, MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR, DAY, 2 * DAY, 7 * DAY, 30 * DAY, 91 * DAY, YEAR, 5 * YEAR, 20 * YEAR];

export function Timeline({ place }: { place: Place }) {
  const { lines, whole, prefix, failure } = useHistory(place.table, place.branch, place.version);
  const chosenId = Number(place.given.get("snapshot")) || null;
  const [chosen, choose] = useState<number | null>(chosenId);
  useEffect(() => choose(chosenId), [chosenId]);
  if (failure) return <Problem failure={failure} />;
  if (!lines.length) return whole ? <p class="empty">Nothing was ever written to this table.</p> : <Waiting />;
  return <Chart lines={lines} whole={whole} prefix={prefix} place={place} chosen={chosen} choose={choose} />;
}

function Chart({ lines: given, whole, prefix, place, chosen, choose }: { lines: Line[]; whole: boolean; prefix: string; place: Place; chosen: number | null; choose: (id: number | null) => void }) {
  const [box, width] = useWidth();
  const lines = useMemo<Placed[]>(() => { const at = places(given.map(line => line.millis)); return given.map((line, i) => ({ ...line, at: at[i]! })); }, [given]);
  const all = useMemo<Span>(() => {
    const least = lines.reduce((a, line) => Math.min(a, line.at), Infinity), most = lines.reduce((a, line) => Math.max(a, line.at), 0), edge = Math.max(500, (most - least) * 0.02);
    return [least - edge, most + edge];
  }, [lines]);
  const [zoomed, setZoomed] = useState<Span | null>(null);
  const [from, upTo] = zoomed ?? all;
  const inside = useMemo(() => (zoomed ? lines.filter(line => line.at >= from && line.at <= upTo) : lines), [lines, zoomed]);
  const lanes = useMemo(() => LANES.filter(lane => lines.some(line => laneOf(line.kind) === lane)), [lines]);
  const hasCode = useMemo(() => lines.some(line => line.job ?? line.code), [lines]), hasWatermark = useMemo(() => lines.some(line => line.watermark !== null), [lines]);
  const belowLanes = TOP + lanes.length * LANE, belowCode = belowLanes + (hasCode ? STRIP + 8 : 0), bottom = belowCode + (hasWatermark ? RISE + 8 : 0), HEIGHT = bottom + AXIS;
  const across = width - LEFT - RIGHT;
  const x = (millis: number): number => LEFT + ((millis - from) / (upTo - from)) * across;
  const zoom = (factor: number, at = (from + upTo) / 2): void => {
    const reach = Math.max(20, (upTo - from) * factor);
    if (reach >= all[1] - all[0]) { setZoomed(null); return; }
    const share = (at - from) / (upTo - from);
    pan([at - share * reach, at + (1 - share) * reach]);
  };
  const pan = (span: Span): void => {
    const reach = span[1] - span[0];
    const begin = Math.min(Math.max(span[0], all[0]), Math.max(all[0], all[1] - reach));
    setZoomed([begin, begin + reach]);
  };
  const keys = (event: KeyboardEvent): void => {
    const step = (upTo - from) / 5;
    const done: Record<string, () => void> = { "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), ArrowLeft: () => pan([from - step, upTo - step]), ArrowRight: () => pan([from + step, upTo + step]), "0": () => setZoomed(null) };
    const run = done[event.key];
    if (run && (event.target as Element).tagName.toLowerCase() === "svg") { event.preventDefault(); run(); }
  };
  const svg = useRef<SVGSVGElement>(null);
  const drag = useRef<{ at: number; span: Span } | null>(null);
  useEffect(() => {
    const element = svg.current;
    if (!element) return;
    const wheel = (event: WheelEvent): void => {
      if (!event.ctrlKey && !event.metaKey && Math.abs(event.deltaX) <= Math.abs(event.deltaY) && !event.shiftKey) return;
      event.preventDefault();
      const at = from + ((event.offsetX - LEFT) / across) * (upTo - from);
      if (event.ctrlKey || event.metaKey) zoom(event.deltaY > 0 ? 1.25 : 0.8, at);
      else { const moved = ((event.deltaX || event.deltaY) / across) * (upTo - from); pan([from + moved, upTo + moved]); }
    };
    element.addEventListener("wheel", wheel, { passive: false });
    return () => element.removeEventListener("wheel", wheel);
  });
  const reach = upTo - from;
  const place_of = useMemo(() => new Map(inside.map((line, i) => [line.id, i])), [inside]);
  const line = chosen === null ? null : lines.find(one => one.id === chosen) ?? null;
  return (
    <>
      <Card title="Snapshots" aside={<small class="muted" role="status">{plural(inside.length, "snapshot")}{zoomed && ` of ${number(lines.length)}`}{!whole && ", reading more"}</small>}>
        <div class="tools zoom" role="group" aria-label="Zoom">
          <button type="button" onClick={() => zoom(0.5)} aria-label="Zoom in">+</button>
          <button type="button" onClick={() => zoom(2)} aria-label="Zoom out" disabled={!zoomed}>−</button>
          <button type="button" onClick={() => pan([from - reach / 3, upTo - reach / 3])} aria-label="Earlier" disabled={!zoomed}>‹</button>
          <button type="button" onClick={() => pan([from + reach / 3, upTo + reach / 3])} aria-label="Later" disabled={!zoomed}>›</button>
          <button type="button" onClick={() => setZoomed(null)} disabled={!zoomed}>All</button>
          {([["year", YEAR], ["day", DAY], ["hour", HOUR], ["minute", MINUTE]] as const).filter(([, size]) => size < all[1] - all[0]).map(([name, size]) => <button key={name} type="button" onClick={() => pan([all[1] - size, all[1]])}>Last {name}</button>)}
        </div>
        <div ref={box}>
          <svg ref={svg} class="timeline" width={width} height={HEIGHT} tabindex={0} role="group" aria-label={`Timeline of ${plural(inside.length, "snapshot")} from ${time(Math.round(from))} to ${time(Math.round(upTo))}; plus and minus zoom, arrows move`} onKeyDown={keys}
            onPointerDown={event => { drag.current = { at: event.clientX, span: [from, upTo] }; }}
            onPointerMove={event => { const held = drag.current; if (held && event.buttons && Math.abs(event.clientX - held.at) > 4) { const moved = ((held.at - event.clientX) / across) * (held.span[1] - held.span[0]); pan([held.span[0] + moved, held.span[1] + moved]); } }}
            onPointerUp={() => { drag.current = null; }} onPointerLeave={() => { drag.current = null; }}>
            <Ticks from={from} upTo={upTo} x={x} width={width} bottom={bottom} />
            {lanes.map((lane, i) => <text key={lane} class="lane" x={LEFT - 12} y={TOP + i * LANE + 14} text-anchor="end">{lane}</text>)}
            {hasCode && <><text class="lane" x={LEFT - 12} y={belowLanes + 14} text-anchor="end">job, code</text><Releases inside={inside} x={x} y={belowLanes} end={upTo} /></>}
            {hasWatermark && <><text class="lane" x={LEFT - 12} y={belowCode + RISE / 2 + 4} text-anchor="end">complete to</text><Watermark inside={inside} x={x} y={belowCode} /></>}
            <Marks inside={inside} lanes={lanes} x={x} chosen={chosen} choose={choose} onZoom={(a, b) => pan([a, b])} from={from} upTo={upTo} across={across} />
            {line && line.at >= from && line.at <= upTo && <line class="now" x1={x(line.at)} x2={x(line.at)} y1={4} y2={bottom} />}
          </svg>
        </div>
      </Card>
      <div class={line ? "split" : ""}>
        <Card title="In this span">
          <Many count={inside.length} height={48} label="Snapshots" tall={460} chosen={chosen === null ? null : place_of.get(chosen) ?? null}>
            {i => <SnapshotRow line={inside[i]!} chosen={inside[i]!.id === chosen} choose={choose} />}
          </Many>
        </Card>
        {line && <Detail key={line.stamp} line={line} prefix={prefix} place={place} close={() => choose(null)} />}
      </div>
    </>
  );
}

/** The job, or whoever committed; the random name that a program without a job gives itself tells nothing. */
const whoOf = (line: Line): string | null => line.job ?? (/^[0-9a-f]{8}-[0-9a-f-]{27}$/.test(line.user) ? null : line.user);

function SnapshotRow({ line, chosen, choose }: { line: Line; chosen: boolean; choose: (id: number | null) => void }) {
  return (
    <button type="button" class="row" aria-pressed={chosen} onClick={() => choose(chosen ? null : line.id)}>
      <span class="name"><b>#{line.id}</b> <Badge kind={line.kind === "damaged" ? "replaced" : `kind-${laneOf(line.kind)}`}>{line.kind === "damaged" ? "cannot be read" : line.kind}</Badge><small class="muted">{clock(line.millis)}{whoOf(line) && ` · ${whoOf(line)}`}{line.code && ` · code ${release(line.code)}`}{line.watermark !== null && ` · complete up to ${clock(line.watermark)}`}</small></span>
      <span class="cell"><b>{signed(line.added)}</b><small>{line.rows === null ? "rows not known" : `${short(line.rows)} rows`}</small></span>
    </button>
  );
}

/** Which job, in which version of its code, wrote when: where the colour changes, a new release began to write. */
function Releases({ inside, x, y, end }: { inside: Placed[]; x: (millis: number) => number; y: number; end: number }) {
  const parts = useMemo(() => {
    const found: { job: string | null; code: string | null; from: number; upTo: number; count: number }[] = [];
    for (let i = inside.length - 1; i >= 0; i--) {
      const line = inside[i]!, last = found[found.length - 1];
      if (line.job === null && line.code === null) continue;  // a compaction, or a person's append
      if (last && last.job === line.job && last.code === line.code) { last.upTo = line.at; last.count++; } else found.push({ job: line.job, code: line.code, from: line.at, upTo: line.at, count: 1 });
    }
    return found;
  }, [inside]);
  const names = [...new Set(parts.map(part => `${part.job} ${part.code}`))];
  if (parts.length > MOST_PARTS) return <text class="under" x={LEFT} y={y + 14}>{`${number(parts.length)} turns of ${plural(names.length, "release")}: zoom in`}</text>;
  return <g>{parts.map((part, i) => {
    const begin = x(part.from), stop = Math.max(begin + 3, x(parts[i + 1]?.from ?? Math.min(end, part.upTo)) - 1), label = part.code ? release(part.code) : part.job ?? "";
    const both = part.code && part.job ? `${part.job} · ${label}` : label, room = stop - begin;
    const text = room > both.length * 7 + 10 ? both : room > label.length * 7 + 10 ? label : "";
    return <g key={part.from} class={`release release-${names.indexOf(`${part.job} ${part.code}`) % 6}`}><rect x={begin} y={y} width={stop - begin} height={STRIP} rx={4}><title>{`${part.job ?? "no job"}${part.code ? `, code ${part.code}` : ""}: ${plural(part.count, "snapshot")} from ${time(part.from)}`}</title></rect>{text && <text x={begin + 6} y={y + 14}>{text}</text>}</g>;
  })}</g>;
}

/** How far event time was complete, as it rose. */
function Watermark({ inside, x, y }: { inside: Placed[]; x: (millis: number) => number; y: number }) {
  const known = useMemo(() => { const all = inside.filter(line => line.watermark !== null).reverse(); return all.filter((_, i) => i % Math.ceil(all.length / 400) === 0 || i === all.length - 1); }, [inside]);
  const first = known[0], last = known[known.length - 1];
  if (!first || !last) return null;
  const times = known.map(line => line.watermark!), least = Math.min(...times), reach = Math.max(1, Math.max(...times) - least);
  const at = (line: Line): number => y + RISE - 3 - ((line.watermark! - least) / reach) * (RISE - 6);
  return <g class="watermark"><path d={known.map((line, i) => (i ? `H${x(line.at).toFixed(1)}V${at(line).toFixed(1)}` : `M${x(line.at).toFixed(1)} ${at(line).toFixed(1)}`)).join("")} /><title>{`complete up to ${clock(first.watermark!)} at first, ${clock(last.watermark!)} at last`}</title></g>;
}

function Ticks({ from, upTo, x, width, bottom }: { from: number; upTo: number; x: (millis: number) => number; width: number; bottom: number }) {
  const room = Math.max(2, Math.floor((width - LEFT) / 110));
  const step = TICKS.find(size => (upTo - from) / size <= room) ?? 100 * YEAR;
  const found: number[] = [];
  for (let at = Math.ceil(from / step) * step; at <= upTo && found.length < 50; at += step) found.push(at);
  const label = (at: number): string => {
    if (!likely(at)) return "";
    const text = new Date(at).toISOString();
    return step < SECOND ? text.slice(14, 23) : step < MINUTE ? text.slice(11, 19) : step < DAY ? `${text.slice(5, 10)} ${text.slice(11, 16)}` : text.slice(0, 10);
  };
  return <g aria-hidden="true">{found.map(at => <g key={at}><line class="tick" x1={x(at)} x2={x(at)} y1={TOP} y2={bottom} /><text class="tick-text" x={Math.min(Math.max(x(at), LEFT + 24), width - 46)} y={bottom + 17} text-anchor="middle">{label(at)}</text></g>)}</g>;
}

interface MarksProps { inside: Placed[]; lanes: readonly string[]; x: (millis: number) => number; chosen: number | null; choose: (id: number | null) => void; onZoom: (from: number, upTo: number) => void; from: number; upTo: number; across: number }

/** Each snapshot as a dot; where there are too many, how many there are, as bars that zoom in. */
function Marks({ inside, lanes, x, chosen, choose, onZoom, from, upTo, across }: MarksProps) {
  const bins = useMemo(() => {
    if (inside.length <= MOST_MARKS) return null;
    const count = Math.max(20, Math.floor(across / 6)), step = (upTo - from) / count;
    const found = new Map<string, { lane: number; bin: number; count: number }>();
    for (const line of inside) {
      const lane = lanes.indexOf(laneOf(line.kind)), bin = Math.min(count - 1, Math.floor((line.at - from) / step)), key = `${lane}:${bin}`;
      const one = found.get(key);
      if (one) one.count++; else found.set(key, { lane, bin, count: 1 });
    }
    const all = [...found.values()], most = Math.max(...all.map(one => one.count));
    return { all, most, step };
  }, [inside, lanes, from, upTo, across]);
  if (bins) {
    return <g>{bins.all.map(one => {
      const begin = from + one.bin * bins.step, height = 4 + 14 * (Math.log(one.count + 1) / Math.log(bins.most + 1));
      return <rect key={`${one.lane}:${one.bin}`} class={`mark kind-${lanes[one.lane]}`} x={x(begin)} width={Math.max(3, x(begin + bins.step) - x(begin) - 1)} y={TOP + one.lane * LANE + 19 - height} height={height} rx={1.5} onClick={() => onZoom(begin - bins.step * 3, begin + bins.step * 4)}><title>{`${plural(one.count, lanes[one.lane]!)} from ${time(Math.round(begin))}`}</title></rect>;
    })}</g>;
  }
  return <g>{inside.map(line => <circle key={line.stamp} class={`mark kind-${laneOf(line.kind)} ${line.id === chosen ? "chosen" : ""}`} cx={x(line.at)} cy={TOP + lanes.indexOf(laneOf(line.kind)) * LANE + 10} r={line.id === chosen ? 7 : 5} onClick={() => choose(line.id === chosen ? null : line.id)}><title>{`#${line.id} ${line.kind}, ${time(line.millis)}, ${signed(line.added)} rows`}</title></circle>)}</g>;
}

function Detail({ line, prefix, place, close }: { line: Line; prefix: string; place: Place; close: () => void }) {
  const all = useAsk<Record<string, unknown>>(report ? null : "snapshot", { table: place.table, branch: place.branch, id: line.id });
  const at = `${prefix}${line.id}`, named_at = prefix === "snapshot." ? String(line.id) : at, side = place.branch ?? "main", named = place.branch ? `${place.table}$branch_${place.branch}` : place.table;
  const pairs: [string, string | null][] = [
    ["time", time(line.millis)], ["rows", `${number(line.rows)} (${signed(line.added)})`], ["complete up to", line.watermark === null ? null : time(line.watermark)],
    ["job", line.job], ["code", line.code], ["run", line.run], ["engine", line.engine && `${line.engine}${line.batch === null ? "" : `, batch ${line.batch}`}`], ["commit user", line.user], ["schema", String(line.schema)],
  ];
  if (line.kind === "damaged") return (
    <Card title={`Snapshot ${line.id}`} aside={<button type="button" onClick={close} aria-label="Close">×</button>}>
      <p>Its file cannot be read; the snapshots around it can.</p>
      {all.failure && <Problem failure={all.failure} />}
      <Command text={command("verify", place.table)} />
    </Card>
  );
  return (
    <Card title={`Snapshot ${line.id}`} aside={<button type="button" onClick={close} aria-label="Close">×</button>}>
      <p><Badge kind={`kind-${laneOf(line.kind)}`}>{line.kind}</Badge></p>
      <dl class="pairs">{pairs.filter(([, value]) => value).map(([name, value]) => <div key={name}><dt>{name}</dt><dd class="break">{value}</dd></div>)}</dl>
      {!report && <>
        <p class="links">
          <a href={to(["table", place.table], { tab: "rows", branch: place.branch, at })}>Rows at it</a>
          {line.id > 1 && <a href={to(["table", place.table], { tab: "compare", left: `${side}@${prefix}${line.id - 1}`, right: `${side}@${at}` })}>What it changed</a>}
          <a href={to(["lineage"], { table: place.table, branch: place.branch, snapshot: named_at })}>Where its rows went</a>
          {!place.branch && line.id > 1 && <a href={to(["correct"], { table: place.table, wrong: line.id })}>Wrong from here on? Correct it</a>}
        </p>
        <Command text={command("lineage", "impact", `${named}@${named_at}`)} />
        <details><summary>Everything it says</summary><Shown asked={all}>{found => <pre tabIndex={0}>{JSON.stringify(found, null, 2)}</pre>}</Shown></details>
      </>}
    </Card>
  );
}

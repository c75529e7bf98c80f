/** Partitions and their small files, as a map of heat, and the command that mends it. */
import { useMemo, useRef, useState } from "preact/hooks";
import { useAsk } from "./api";
import { bytes, capital, clock, number, plural } from "./format";
import { Card, Command, Grid, Shown } from "./parts";
import type { Place } from "./table";
import type { HealthFacts, Partitions } from "./types";

const MOST_CELLS = 1500, MOST_NAMED = 96, MOST_ROWS = 200;

export function Files({ place }: { place: Place }) {
  const asked = useAsk<Partitions>("partitions", { table: place.table, branch: place.branch, at: place.at }, place.version);
  const health = useAsk<HealthFacts>("health", { table: place.table, branch: place.branch, at: place.at }, place.version).value;
  const commands = health?.findings.filter(finding => finding.command) ?? [];
  return <Shown asked={asked}>{found => <Map found={found} commands={commands.map(finding => [finding.why, finding.command!] as const)} />}</Shown>;
}

function Map({ found, commands }: { found: Partitions; commands: (readonly [string, string])[] }) {
  const [chosen, choose] = useState<number | null>(null);
  const worst = useMemo(() => Math.max(1, ...found.rows.map(row => row[2])), [found]);
  const sorted = useMemo(() => [...found.rows].sort((a, b) => b[2] - a[2] || b[1] - a[1]).slice(0, MOST_ROWS), [found]);
  const most = Math.max(1, ...found.sizes.files);
  const cell = chosen === null ? null : found.rows[chosen];
  return (
    <>
      <Card title="Small files" aside={<small class="muted">a file is small below 70 % of {bytes(found.target)}</small>}>
        {commands.map(([why, command]) => <p key={command} class="mend">{capital(why)}: <Command text={command} /></p>)}
        {found.rows.length === 0 ? <p class="empty">No files.</p> : <>
          <Heat rows={found.rows.slice(0, MOST_CELLS)} worst={worst} chosen={chosen} choose={choose} />
          <p class="axis legend"><span>none small</span>{[0, 1, 2, 3, 4].map(n => <i key={n} class={`heat-${n}`} aria-hidden="true" />)}<span>{plural(worst, "small file")}</span></p>
          {cell && <p role="status"><b>{cell[0] || "the whole table"}</b>: {plural(cell[1], "file")}, {number(cell[2])} small, {plural(cell[3], "row")}, {bytes(cell[4])}, last file {clock(cell[5])}</p>}
          {found.count > found.rows.length && <p class="muted">{number(found.rows.length)} of {number(found.count)} partitions, those with the most small files.</p>}
        </>}
      </Card>
      <Card title="Sizes of files">
        <ol class="bars" aria-label="Number of files by size">
          {found.sizes.files.map((count, i) => {
            const [from, upTo] = [found.sizes.edges[i - 1], found.sizes.edges[i]];
            return <li key={i}><span>{from === undefined ? `below ${bytes(upTo)}` : upTo === undefined ? `from ${bytes(from)}` : `${bytes(from)} to ${bytes(upTo)}`}</span><i style={{ width: `${(60 * count) / most}%` }} aria-hidden="true" /><b>{number(count)}</b></li>;
          })}
        </ol>
      </Card>
      <Card title="Partitions">
        <Grid label="Partitions" head={<><th>partition</th><th class="num">files</th><th class="num">small</th><th class="num">rows</th><th class="num">size</th><th>last file</th></>}>
          {sorted.map(row => <tr key={row[0]}><th scope="row">{row[0] || "the whole table"}</th><td class="num">{number(row[1])}</td><td class="num">{number(row[2])}</td><td class="num">{number(row[3])}</td><td class="num">{bytes(row[4])}</td><td>{clock(row[5])}</td></tr>)}
        </Grid>
        {found.count > sorted.length && <p class="muted">{number(sorted.length)} of {number(found.count)}, those with the most small files first.</p>}
      </Card>
    </>
  );
}

/** A cell for each partition; the arrow keys lead through them. With few of them each has its name. */
function Heat({ rows, worst, chosen, choose }: { rows: Partitions["rows"]; worst: number; chosen: number | null; choose: (i: number | null) => void }) {
  const box = useRef<HTMLDivElement>(null);
  const [at, move] = useState(0);
  const named = rows.length <= MOST_NAMED;
  const keys = (event: KeyboardEvent): void => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across(box.current), ArrowUp: -across(box.current) }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = Math.max(0, Math.min(rows.length - 1, at + step));
    move(next);
    (box.current?.children[next] as HTMLElement | undefined)?.focus();
  };
  return (
    <div ref={box} class={named ? "heat named" : "heat"} role="group" aria-label="Partitions by their number of small files" onKeyDown={keys}>
      {rows.map((row, i) => {
        const said = `${row[0] || "the whole table"}: ${row[2]} of ${row[1]} files are small`;
        return (
          <button key={row[0]} type="button" tabIndex={i === at ? 0 : -1} class={named ? "" : `heat-${level(row[2], worst)}`} aria-pressed={chosen === i} onFocus={() => move(i)} onClick={() => choose(chosen === i ? null : i)} title={said} aria-label={named ? undefined : said}>
            {named && <><i class={`heat-${level(row[2], worst)}`} /><span>{row[0] || "the whole table"}</span><b>{number(row[2])}<span class="unseen"> small</span></b></>}
          </button>
        );
      })}
    </div>
  );
}

/** Cells in one line of the map. */
function across(box: HTMLElement | null): number {
  const cells = [...(box?.children ?? [])] as HTMLElement[], top = cells[0]?.offsetTop;
  const next = cells.findIndex(cell => cell.offsetTop !== top);
  return next < 0 ? cells.length : next;
}

const level = (small: number, worst: number): number => (small <= 1 ? 0 : Math.min(4, 1 + Math.floor((3.99 * Math.log(small)) / Math.log(Math.max(worst, 2)))));

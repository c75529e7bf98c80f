/** The difference of two refs: schema, partitions, files, and rows side by side. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { report, useAsk } from "./api";
import { bytes, number, plural, signed } from "./format";
import { Badge, Card, Fact, Grid, Shown } from "./parts";
import { go, to } from "./route";
import type { Place } from "./table";
import type { Diff, TableFacts } from "./types";

export function DiffView({ place, facts }: { place: Place; facts: TableFacts }) {
  const { given } = place;
  // A branch is compared with main; without one, main with what it was at the last tag.
  const branch = facts.branches.find(name => name !== "main"), last = [...facts.tags].sort((a, b) => b.snapshot - a.snapshot)[0];
  const usual = branch ? ["main", branch] as const : last ? [`main@${last.name}`, "main"] as const : ["main", "main"] as const;
  const sides = report?.sides ?? [given.get("left") ?? usual[0], given.get("right") ?? usual[1]] as const;
  const [left, right] = sides, rows = report ? holdsRows(place.table, left, right) : given.get("rows") === "1";
  const filter = given.get("filter");
  const [asked, ask] = useState({ left, right, filter: filter ?? "" });
  useEffect(() => ask({ left, right, filter: filter ?? "" }), [left, right, filter]);
  const diff = useAsk<Diff>("diff", { table: place.table, left, right, rows, filter: rows ? filter : null }, place.version);
  const refs = useMemo(() => [...facts.branches, ...facts.tags.map(tag => `main@${tag.name}`), ...facts.savepoints.map(one => `main@savepoint.${one.id}`)], [facts]);
  const show = (rows: boolean, sides = asked): void => go(to(["table", place.table], { tab: "compare", left: sides.left, right: sides.right, rows, filter: rows ? sides.filter : null }));
  return (
    <>
      {!report && (
        <form class="tools compare" onSubmit={event => { event.preventDefault(); show(rows); }}>
          <label>From <input list="refs" value={asked.left} onInput={event => ask({ ...asked, left: event.currentTarget.value })} /></label>
          <button type="button" aria-label="Swap the sides" onClick={() => show(rows, { ...asked, left: asked.right, right: asked.left })}>⇄</button>
          <label>To <input list="refs" value={asked.right} onInput={event => ask({ ...asked, right: event.currentTarget.value })} /></label>
          <button type="submit">Compare</button>
          <datalist id="refs">{refs.map(ref => <option key={ref} value={ref} />)}</datalist>
        </form>
      )}
      <Shown asked={diff}>{found => <Found diff={found} rows={rows} showRows={() => show(true)} filter={asked.filter} setFilter={filter => ask({ ...asked, filter })} />}</Shown>
    </>
  );
}

const holdsRows = (table: string, left: string, right: string): boolean => report !== null && ["diff", `left=${left}`, `right=${right}`, "rows=1", `table=${table}`].join("\n") in report.data;

function Found({ diff, rows, showRows, filter, setFilter }: { diff: Diff; rows: boolean; showRows: () => void; filter: string; setFilter: (text: string) => void }) {
  const same = !diff.files.added && !diff.files.removed && !diff.schema.length;
  return (
    <>
      <p class="lead"><Badge kind="branch">{diff.left.name}</Badge> snapshot {diff.left.snapshot ?? "none"} → <Badge kind="branch">{diff.right.name}</Badge> snapshot {diff.right.snapshot ?? "none"}{same && ": nothing differs."}</p>
      <dl class="facts">
        <Fact name="files added">{number(diff.files.added)}<small> {bytes(diff.files.bytes_added)}</small></Fact>
        <Fact name="files removed">{number(diff.files.removed)}<small> {bytes(diff.files.bytes_removed)}</small></Fact>
        <Fact name="files shared">{number(diff.files.shared)}</Fact>
        {diff.counts && <Fact name="rows added" tone="good">{number(diff.counts.inserted)}</Fact>}
        {diff.counts && <Fact name="rows removed" tone="bad">{number(diff.counts.deleted)}</Fact>}
      </dl>
      {diff.schema.length > 0 && <Card title="Schema"><ul>{diff.schema.map(phrase => <li key={phrase}>{phrase}</li>)}</ul></Card>}
      {diff.only_on_main.length > 0 && <Card title="Only main has"><ul>{diff.only_on_main.map(job => <li key={job}>{job}</li>)}</ul></Card>}
      {!same && (
        <Card title="Rows" aside={diff.rows?.key && <small class="muted">paired by {diff.rows.key}</small>}>
          {!report && (
            <form class="tools" onSubmit={event => { event.preventDefault(); showRows(); }}>
              <input type="search" aria-label="Filter rows" placeholder="filter, such as price > 10" value={filter} onInput={event => setFilter(event.currentTarget.value)} />
              <button type="submit">{rows ? "Compare rows again" : "Compare rows"}</button>
            </form>
          )}
          {diff.rows ? <Pairs rows={diff.rows} total={diff.counts ? diff.counts.inserted + diff.counts.deleted : null} /> : <p class="muted">Comparing rows reads the files that differ.</p>}
        </Card>
      )}
      {diff.partitions.length > 0 && (
        <Card title="Partitions" aside={<small class="muted">{plural(diff.partitions_changed, "partition")} differ</small>}>
          <Grid label="Partitions that differ" head={<><th>partition</th><th class="num">rows before</th><th class="num">rows after</th><th class="num">change</th><th class="num">files removed</th><th class="num">files added</th></>}>
            {diff.partitions.map(one => <tr key={one.partition}><th scope="row">{one.partition || "the whole table"}</th><td class="num">{number(one.rows_left as number)}</td><td class="num">{number(one.rows_right as number)}</td><td class="num">{signed((one.rows_right as number) - (one.rows_left as number))}</td><td class="num">{number(one.files_removed as number)}</td><td class="num">{number(one.files_added as number)}</td></tr>)}
          </Grid>
        </Card>
      )}
      {diff.files.list.length > 0 && (
        <Card title="Files" aside={<small class="muted">{plural(diff.files.added + diff.files.removed, "file")} differ</small>}>
          <Grid label="Files that differ" head={<><th><span class="unseen">change</span></th><th>file</th><th class="num">rows</th><th class="num">size</th></>}>
            {diff.files.list.map(([change, name, rows, size]) => <tr key={change + name} class={change}><td class="sign">{change === "added" ? "+" : "−"}<span class="unseen"> {change}</span></td><td>{name}</td><td class="num">{number(rows)}</td><td class="num">{bytes(size)}</td></tr>)}
          </Grid>
          {diff.files.added + diff.files.removed > diff.files.list.length && <p class="muted">The first {number(diff.files.list.length)}.</p>}
        </Card>
      )}
    </>
  );
}

/** Rows of both sides in one line each: what changed as old and new value, what is on one side only marked so. */
function Pairs({ rows, total }: { rows: NonNullable<Diff["rows"]>; total: number | null }) {
  if (!rows.pairs.length) return <p class="empty">The same rows are on both sides.</p>;
  const shown = rows.pairs.reduce((sum, [left, right]) => sum + (left ? 1 : 0) + (right ? 1 : 0), 0);
  return (
    <>
      <Grid label="Rows side by side" head={<><th><span class="unseen">change</span></th>{rows.columns.map(name => <th key={name}>{name}</th>)}</>}>
        {rows.pairs.map(([left, right], i) => (
          <tr key={i} class={!left ? "added" : !right ? "removed" : ""}>
            <td class="sign">{!left ? <span title="added">+</span> : !right ? <span title="removed">−</span> : <span title="changed">~</span>}</td>
            {rows.columns.map((_, j) => <td key={j} class="clip">{left && right && left[j] !== right[j] ? <><del>{text(left[j])}</del> <ins>{text(right[j])}</ins></> : text((right ?? left)![j])}</td>)}
          </tr>
        ))}
      </Grid>
      {total !== null && shown < total && <p class="muted">{number(shown)} of {plural(total, "row")}. A filter narrows it down.</p>}
    </>
  );
}

const text = (value: string | null | undefined) => (value === null || value === undefined ? <span class="null">null</span> : value);

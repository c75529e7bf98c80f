/** The first rows at any ref. */
import { useState } from "preact/hooks";
import { report, useAsk } from "./api";
import { plural } from "./format";
import { Card, Grid, Shown } from "./parts";
import { go, to } from "./route";
import type { Place } from "./table";
import type { Rows } from "./types";

export function RowsView({ place }: { place: Place }) {
  const filter = place.given.get("filter");
  const [text, setText] = useState(filter ?? "");
  const [limit, setLimit] = useState<number | null>(null);
  const rows = useAsk<Rows>("rows", { table: place.table, branch: place.branch, at: place.at, filter, limit }, place.version);
  const ask = (event: Event): void => {
    event.preventDefault();
    go(to(["table", place.table], { tab: "rows", branch: place.branch, at: place.at, filter: text.trim() }));
  };
  return (
    <Card title="First rows" aside={rows.value && <small class="muted">{rows.value.moment ?? "newest"}</small>}>
      {!report && (
        <form class="tools" onSubmit={ask}>
          <input type="search" aria-label="Filter rows" placeholder="price > 10 AND dt = '2026-01-01'" value={text} onInput={event => setText(event.currentTarget.value)} />
          <button type="submit">Filter</button>
        </form>
      )}
      <Shown asked={rows}>{found => <>
        <Grid label="First rows" head={found.columns.map((name, i) => <th key={name} class={isNumber(found.types[i]) ? "num" : ""}>{name}<small class="muted"> {found.types[i]}</small></th>)}>
          {found.rows.map((row, i) => <tr key={i}>{row.map((value, j) => <td key={j} class={isNumber(found.types[j]) ? "num" : "clip"} title={value !== null && value.length > 40 ? value : undefined}>{value === null ? <span class="null">null</span> : value}</td>)}</tr>)}
        </Grid>
        {found.rows.length === 0 && <p class="empty">No rows.</p>}
        <p class="muted">{plural(found.rows.length, "row")} shown{found.more && ", and there are more"}. {found.more && !report && limit !== 500 && <button type="button" onClick={() => setLimit(500)}>Show up to 500</button>}</p>
      </>}</Shown>
    </Card>
  );
}

const isNumber = (type = ""): boolean => /^(u?int|float|double|decimal|half)/.test(type);

/** What the server answers; see src/anabranch/ui. Times are milliseconds since the epoch. */

export interface About { url: string; warehouse: string; version: string; actions: boolean; jobs: string[]; checks: string[]; now: number }
export interface Correction {
  number: number; outcome: string; tables: [string, string, number][]; made_millis: number;
  made_by: string | null; reason: string | null; undoes: number | null;
}
/** A file that could not be read, while all else is shown. */
export interface Damage { what: string; message: string; hint: string | null; command: string | null }
export interface Lake { tables: string[]; corrections: Correction[]; damaged: Damage[] }
export interface Finding { why: string; command: string | null; points: number }
export interface Line {
  id: number; kind: string; millis: number; rows: number | null; added: number | null; watermark: number | null;
  schema: number; user: string; job: string | null; code: string | null; run: string | null; engine: string | null;
  batch: number | null; stamp: string;
}
export interface Facts {
  problem?: string; rows: number; bytes: number; files: number; small: number; partitions: number; snapshots: number;
  score: number; findings: Finding[]; head: Line | null; branches: string[];
}
export interface Job {
  name: string; engine: string; run: string | null; code: string | null; sources: string[]; sinks: string[];
  commits: number; first_millis: number; last_millis: number; problems: string[];
}
export interface JobsFound { jobs: Job[]; behind: boolean }
export interface RunningJob {
  job: string; sink: string; host: string; pid: number; since_millis: number; state: string; batch: number | null; batch_millis: number | null;
  rows_per_second: number | null; restarts: number; behind: Record<string, { snapshots: number; seconds: number }>;
  message: string | null; hint: string | null; last_error: string | null;
}
export interface Lag { job: string; commit: number; sources: { kind: string; name: string; behind: number | null }[]; problems: string[] }
export interface Column {
  id: number; name: string; type: string; nullable: boolean; partition: boolean; comment: string | null; default: string | null;
}
export interface Tag { name: string; snapshot: number; millis: number; rows: number | null }
export interface Savepoint { id: number; snapshot: number; millis: number; rows: number }
export interface TableFacts {
  name: string; uuid: string; location: string; schema_id: number | null; columns: Column[]; partition_keys: string[];
  options: Record<string, string>; comment: string | null; watermark: string | null;
  snapshot: { id: number; kind: string; time_millis: number; rows: number | null; watermark: number | null; user: string } | null;
  moment: string | null; files: number | null; bytes: number | null; damaged: Damage[];
  branches: string[]; tags: Tag[]; savepoints: Savepoint[];
  /** What goes before a snapshot's id to name it. */
  prefix: string;
}
export interface HealthFacts { score: number; small: number; snapshots: number; partitions: number; findings: Finding[] }
export interface SchemaVersion { id: number; millis: number | null; changes: string[]; damaged: string | null }
export interface History { columns: string[]; rows: unknown[][]; more: boolean; prefix: string }
export interface Rows { columns: string[]; types: string[]; rows: (string | null)[][]; more: boolean; moment: string | null }
export interface Partitions { target: number; count: number; columns: string[]; rows: [string, number, number, number, number, number][]; sizes: { edges: number[]; files: number[] } }
export interface Statistics { files: number; looked_at: number; rows: number; columns: { name: string; type: string; nulls: number | null; min: string | null; max: string | null; shortened: { min: boolean; max: boolean } }[] }
export interface Label { kind: string; name: string }
export interface GraphNode {
  lane: number; from: number; to: number; kinds: Record<string, number>; millis: number; begun: number; rows: number | null;
  added: number | null; job: string | null; labels: Label[]; root: number | null;
}
export interface Operation {
  millis: number; what: string; branch: string; snapshot: number | null; main_snapshot: number | null; by: string | null;
  details: Record<string, unknown>; undone: boolean;
}
export interface Graph {
  lanes: { name: string; role: string; column: number; own: number }[]; nodes: GraphNode[];
  links: { kind: string; from: number; to: number; undone: boolean; branch: string }[]; operations: Operation[]; cut: boolean; damaged: Damage[];
}
export interface Diff {
  table: string; left: { name: string; snapshot: number | null }; right: { name: string; snapshot: number | null };
  files: { added: number; removed: number; shared: number; bytes_added: number; bytes_removed: number; list: [string, string, number, number][] };
  schema: string[]; partitions: Record<string, number | string>[]; partitions_changed: number;
  counts: { inserted: number; deleted: number } | null;
  rows: { columns: string[]; key: string | null; pairs: [(string | null)[] | null, (string | null)[] | null][] } | null;
  only_on_main: string[];
}
export interface Dataset { id: string; kind: string; name: string; table: string | null; snapshots: [number, number][]; depth: number }
export interface Flow { source: string; sink: string; job: string; kind: string; commits: number; first_millis: number; last_millis: number }
export interface Trace { question: string; datasets: Dataset[]; flows: Flow[]; tables: string[]; jobs: string[]; problems: string[]; unknown: { table: string; snapshots: [number, number][]; reason: string }[] }
export interface Step {
  table: string; branch: string; is_there: boolean; fork: number | null; is_empty: boolean; bad: [number, number][]; anew: number; rows: number;
  jobs: { job: string; sources: { name: string; begins: string }[]; commits: number; is_batch: boolean; state: string | null; took_millis: number | null; notices: string[] }[];
  problems: string[]; notes: string[];
}
export interface Correcting {
  plan: { table: string; taken_out: [number, number][]; taken_from: string[]; steps: Step[]; beside: string[]; warnings: string[]; name: string; done: boolean; took_millis: number | null };
  tables: string[]; told: string[]; undo: { number: number; tables: string[] } | null; command: string; damaged: Damage[];
}
/** `elsewhere` is the process that carries it out, where this page's server did not start it. */
export interface Progress { what: string; table: string; tag: string | null; millis: number; tables: string[]; lines: string[]; exit: number | null; stopped: boolean; elsewhere: string | null }
export interface Producer {
  table: string; snapshot: number; time_millis: number; kind: string; problems: string[];
  entry: { job: string; run: string | null; code: string | null; columns?: Record<string, string[]>; inputs: Record<string, unknown>[] } | null;
}

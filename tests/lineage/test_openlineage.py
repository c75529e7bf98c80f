"""Lineage as events of OpenLineage: valid by the official schemas, at least once, held up by nobody."""

import json
import threading
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import jsonschema
import pytest
from referencing import Registry, Resource

import anabranch
from anabranch.catalog import FilesystemCatalog
from anabranch.errors import CorruptTableError, InvalidInputError, StorageError
from anabranch.lineage.commit import Commit, CommitRef, Line
from anabranch.lineage.memory import MemoryStore
from anabranch.lineage.model import (
    LINEAGE_PROPERTY,
    ColumnOrigin,
    Engine,
    LineageEntry,
    SourceInput,
    TableInput,
)
from anabranch.lineage.openlineage.events import Windows, commit_run
from anabranch.lineage.openlineage.export import Exporter, ExportOptions
from anabranch.lineage.openlineage.facets import Name, Naming, of_location
from anabranch.lineage.openlineage.transport import load_cursor, open_destination
from anabranch.storage.open import open_storage
from anabranch.streaming.offsets import BEGINNING, Position
from tests.support.chance import Chance

SCHEMAS = Path(__file__).parents[1] / "data" / "openlineage"
RUN = "11111111-2222-4333-8444-555555555555"
ORDERS, CLEAN = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"
LINES = (
    Line(ORDERS, ORDERS, "db.orders", None, None, True),
    Line(CLEAN, CLEAN, "db.clean", None, None, True),
)


def validator():
    """Of whole events, with every facet by the schema that it names."""
    documents = [json.loads(path.read_text()) for path in SCHEMAS.glob("*.json")]
    registry = Registry().with_resources(
        [(document["$id"], Resource.from_contents(document)) for document in documents]
    )

    def validate(event):
        check = jsonschema.FormatChecker()
        whole = {"$ref": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"}
        jsonschema.Draft202012Validator(whole, registry=registry, format_checker=check).validate(event)
        facets = 0
        places = [event["run"], event["job"], *event["inputs"], *event["outputs"]]
        for place in places:
            for kind in ("facets", "inputFacets", "outputFacets"):
                for facet in place.get(kind, {}).values():
                    schema = {"$ref": facet["_schemaURL"]}
                    jsonschema.Draft202012Validator(schema, registry=registry, format_checker=check).validate(
                        facet
                    )
                    facets += 1
        assert facets

    return validate


def entry(job="clean", *inputs, **more):
    how = {"run": RUN, "code": "a" * 40, "engine": Engine("spark", "4.1.0", "app", "query", 7), **more}
    return LineageEntry(job, inputs=inputs, **how)


def commit(snapshot, at=0, branch=CLEAN, said=None, **more):
    how = {"kind": "APPEND", "schema_id": 0, "added": 10, "base": None, **more}
    said = entry("clean", orders(snapshot - 1, snapshot)) if said is None else said
    return Commit(branch, branch, snapshot, f"stamp{snapshot}", time_millis=at, entry=said or None, **how)


def orders(after, through):
    return TableInput(
        "db.orders",
        ORDERS,
        ORDERS,
        Position(after, "s") if after else BEGINNING,
        Position(through, f"o{through}"),
    )


class Box:
    """A destination that keeps what arrives, as JSON."""

    def __init__(self, *answers):
        self.events, self.answers, self.settled = [], list(answers), 0

    def send(self, event):
        from openlineage.client.serde import Serde

        answer = self.answers.pop(0) if self.answers else None
        if answer is None:
            self.events.append(json.loads(Serde.to_json(event)))
        return answer

    def settle(self):
        self.settled = len(self.events)

    def close(self):
        pass

    @property
    def ids(self):
        return [event["run"]["runId"] for event in self.events]

    @property
    def told(self):
        """First and last snapshot of the only sink of each event."""
        sinks = [event["run"]["facets"]["anabranch_commits"]["sinks"] for event in self.events]
        return [(sink["first"], sink["last"]) for (sink,) in sinks]


def exporter(tmp_path, commits, box, *, cursor="cursor", chance=None, lines=LINES, **options):
    storage = open_storage(str(tmp_path / "lake"))
    return Exporter(
        FilesystemCatalog(storage),
        lambda: nullcontext(MemoryStore(lines, commits)),
        box,
        load_cursor(open_storage(str(tmp_path)), cursor),
        ExportOptions(**options),
        (chance or Chance(1)).runtime,
    )


# What an event says


def test_an_event_is_valid_and_says_what_the_commit_says(tmp_path):
    kafka = SourceInput(
        "kafka", "kafka://Broker:9092 orders", None, {"orders": {"0": 5}, "refunds": {"0": 1}}
    )
    files = SourceInput("files", "source 1", {"logOffset": 0}, {"logOffset": 3}, "s3://raw/2026")
    said = entry(
        "clean",
        orders(4, 9),
        kafka,
        files,
        SourceInput("unknown", "source 2", 1, 2),
        columns=(ColumnOrigin("price", ("db.orders.price", "db.orders.tax")), ColumnOrigin("one", ())),
        problems=("the third source has no name",),
    )
    box = Box()
    kafka_at = "kafka://broker:9092"
    exporter(tmp_path, [commit(3, 1_700_000_000_123, said=said)], box, kafka_namespace=kafka_at).run()
    (event,) = box.events
    validator()(event)
    for broken in ({**event, "eventTime": "today"}, {**event, "job": {"name": "clean"}}):
        with pytest.raises(jsonschema.ValidationError):
            validator()(broken)
    assert (event["eventType"], event["eventTime"]) == ("COMPLETE", "2023-11-14T22:13:20.123Z")
    assert (event["job"]["namespace"], event["job"]["name"]) == ("anabranch", "clean")
    location = event["job"]["facets"]["sourceCodeLocation"]
    assert (location["version"], location["url"]) == ("a" * 40, "swh:1:rev:" + "a" * 40)
    assert event["job"]["facets"]["jobType"]["processingType"] == "STREAMING"
    run = event["run"]["facets"]
    assert run["parent"]["run"]["runId"] == RUN != event["run"]["runId"]
    assert run["processing_engine"]["version"] == "4.1.0"
    assert run["extractionError"]["errors"] == [
        {"errorMessage": "the third source has no name", "task": "snapshot 3"}
    ]
    lake = str(tmp_path / "lake")
    table, orders_topic, refunds, raw, unknown = event["inputs"]
    assert (table["namespace"], table["name"]) == ("file", f"{lake}/db.db/orders")
    assert table["facets"]["version"]["datasetVersion"] == "9-o9"
    assert table["facets"]["symlinks"]["identifiers"] == [
        {"namespace": f"file:{lake}", "name": "db.orders", "type": "TABLE"}
    ]
    assert table["inputFacets"]["anabranch_ranges"]["ranges"] == [{"after": 4, "through": 9}]
    assert (orders_topic["namespace"], orders_topic["name"]) == ("kafka://broker:9092", "orders")
    assert orders_topic["inputFacets"]["anabranch_ranges"]["ranges"] == [{"through": {"0": 5}}]
    assert (refunds["name"], raw["namespace"], raw["name"]) == ("refunds", "s3://raw", "2026")
    assert (unknown["namespace"], unknown["name"]) == ("unknown", "source 2 of clean")
    (sink,) = event["outputs"]
    assert sink["name"] == f"{lake}/db.db/clean"
    assert sink["facets"]["version"]["datasetVersion"] == "3-stamp3"
    assert sink["outputFacets"]["outputStatistics"]["rowCount"] == 10
    assert sink["facets"]["columnLineage"]["fields"]["price"]["inputFields"] == [
        {"namespace": "file", "name": f"{lake}/db.db/orders", "field": name, "transformations": []}
        for name in ("price", "tax")
    ]


def test_what_the_tables_know_is_in_the_event(tmp_path):
    lake = anabranch.connect(str(tmp_path / "lake"))
    table = lake.create_table("db.clean", "id BIGINT NOT NULL, price DECIMAL(10, 2) COMMENT 'in euros'")
    with lake.job("clean"):
        first = table.append([{"id": 1, "price": None}, {"id": 2, "price": None}])
        table.overwrite([{"id": 3, "price": None}])
    uuid = table.context.table_uuid
    lines = (Line(uuid, uuid, "db.clean", None, None, True),)
    found = [
        Commit(
            *(
                uuid,
                uuid,
                s.id,
                s.stamp,
                str(s.commit_kind),
                s.time_millis,
                s.schema_id,
                s.delta_record_count,
            ),
            *(None, LineageEntry.from_json(s.properties[LINEAGE_PROPERTY], where="here")),
        )
        for s in sorted(table.snapshots(), key=lambda s: s.id)
    ]
    box = Box()
    exporter(tmp_path, [*found, replace(found[0], snapshot=9, stamp="gone")], box, lines=lines).run()
    for event in box.events:
        validator()(event)
    appended, overwritten, gone = (event["outputs"][0] for event in box.events)
    fields = appended["facets"]["schema"]["fields"]
    assert [(f["name"], f["type"], f["ordinal_position"]) for f in fields] == [
        ("id", "BIGINT NOT NULL", 1),
        ("price", "DECIMAL(10, 2)", 2),
    ]
    assert fields[1]["description"] == "in euros"
    assert appended["facets"]["version"]["datasetVersion"] == f"1-{first.stamp}"
    statistics = appended["outputFacets"]["outputStatistics"]
    files = table.at(1).system("files")
    assert (statistics["rowCount"], statistics["size"]) == (2, sum(files["file_size_in_bytes"].to_pylist()))
    assert statistics["fileCount"] == files.num_rows
    assert overwritten["outputFacets"]["outputStatistics"]["rowCount"] == 1
    assert overwritten["facets"]["lifecycleStateChange"]["lifecycleStateChange"] == "OVERWRITE"
    assert "size" not in gone["outputFacets"]["outputStatistics"]  # expired: rows alone are known


def test_an_index_that_warehouses_share(tmp_path):
    """Branches of others are named by where they are, and told by their own exporter."""
    commits = [commit(1), commit(1, branch=ORDERS)]

    class Shared(MemoryStore):
        def warehouses(self):
            return {ORDERS: "s3://other/lake", CLEAN: str(open_storage(str(tmp_path / "lake")).url)}

    box = Box()
    running = exporter(tmp_path, commits, box)
    running.commits = lambda: nullcontext(Shared(LINES, commits))
    running.run()
    (event,) = box.events
    assert event["outputs"][0]["name"] == f"{tmp_path}/lake/db.db/clean"
    (source,) = event["inputs"]
    assert (source["namespace"], source["name"]) == ("s3://other", "lake/db.db/orders")
    assert source["facets"]["symlinks"]["identifiers"][0]["namespace"] == "s3://other/lake"


def test_runs_are_named_by_their_commits():
    one = commit(3)
    assert commit_run(one) == commit_run(replace(one, schema_id=4))
    others = [replace(one, snapshot=4), replace(one, stamp="other"), replace(one, branch_uuid=ORDERS)]
    assert len({commit_run(c) for c in [one, *others]}) == 4


def test_a_merge_is_told_as_reading_the_branch(tmp_path):
    taken = TableInput("db.clean$branch_fix", CLEAN, "b", Position(1, "x"), Position(4, "y"))
    said = replace(entry("merge-branch fix", orders(0, 9)), taken=taken)
    lines = (*LINES, Line(CLEAN, "b", "db.clean", "fix", CommitRef(CLEAN, 1)))
    box = Box()
    exporter(tmp_path, [commit(5, said=said)], box, lines=lines).run()
    (source,) = box.events[0]["inputs"]
    assert source["name"] == f"{tmp_path}/lake/db.db/clean/branch/branch-fix"
    assert source["facets"]["symlinks"]["identifiers"][0]["name"] == "db.clean$branch_fix"


@pytest.mark.parametrize(
    ("url", "namespace", "name"),
    [
        ("/data/lake", "file", "/data/lake"),
        ("file:///data/a%20b", "file", "/data/a b"),
        ("file://host/data", "file://host", "/data"),
        ("s3://bucket/a/b/", "s3://bucket", "a/b"),
        ("s3a://bucket/a", "s3://bucket", "a"),
        ("gs://bucket", "gs://bucket", "/"),
        ("abfss://box@acc.dfs.core.windows.net/p", "abfss://box@acc.dfs.core.windows.net", "p"),
        ("hdfs://name:8020/p/q", "hdfs://name:8020", "p/q"),
        ("memory:x", "memory", "x"),
    ],
)
def test_places_have_the_names_of_the_specification(url, namespace, name):
    assert of_location(url) == Name(namespace, name)


def test_a_table_nobody_knows_is_named_by_what_the_commit_calls_it():
    naming = Naming("s3://bucket/lake", {})
    read = TableInput("other.t$branch_fix", "t", "b", BEGINNING, Position(1, None))
    assert naming.of_table(read) == Name(
        "s3://bucket", "lake/other.db/t/branch/branch-fix", Name("s3://bucket/lake", "other.t$branch_fix")
    )
    assert naming.of_title("no name at all") == Name("unknown", "no name at all")


# The throttle


def test_commits_of_an_interval_are_told_together(tmp_path):
    commits = [
        commit(number, at) for number, at in ((1, 1000), (2, 4000), (3, 9999), (4, 10_000), (5, 31_000))
    ]
    box = Box()
    done = exporter(tmp_path, commits, box, throttle_millis=10_000).run()
    assert box.told == [(1, 3), (4, 4), (5, 5)]
    assert (done.events, done.commits) == (3, 5)
    together = box.events[0]
    validator()(together)
    assert together["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 30
    assert together["outputs"][0]["facets"]["version"]["datasetVersion"] == "3-stamp3"
    assert together["inputs"][0]["inputFacets"]["anabranch_ranges"]["ranges"] == [{"after": 0, "through": 3}]
    assert together["run"]["runId"] == commit_run(commits[2])


def test_what_went_wrong_and_a_changed_schema_do_not_wait(tmp_path):
    bad = entry("clean", orders(1, 2), problems=("what it read is not known",))
    commits = [
        commit(1, 1000),
        commit(2, 1001, said=bad),
        commit(3, 1002),
        commit(4, 1003, schema_id=1),
        commit(5, 1004, schema_id=1),
        commit(6, 1005, schema_id=1),
    ]
    box = Box()
    exporter(tmp_path, commits, box, throttle_millis=10_000).run()
    assert box.told == [(1, 1), (2, 2), (3, 3), (4, 4), (5, 6)]


def test_jobs_do_not_wait_for_one_another():
    windows = Windows(1000)
    other = replace(commit(1, 100), branch_uuid=ORDERS, entry=entry("other"))
    assert windows.add(commit(1, 0)) == windows.add(other) == []
    assert [told.last.snapshot for told in windows.add(commit(2, 1000))] == [1]
    assert [told.last for told in windows.due(1999)] == [other]
    assert [told.last.snapshot for told in windows.rest()] == [2]
    assert windows.rest() == []


def test_an_event_of_two_sinks_names_both(tmp_path):
    box = Box()
    exporter(tmp_path, [commit(1, 1), commit(1, 2, branch=ORDERS)], box, throttle_millis=1000).run()
    (event,) = box.events
    validator()(event)
    assert [sink["name"].rpartition("/")[2] for sink in event["outputs"]] == ["clean", "orders"]


# At least once


def test_an_export_goes_on_where_the_last_one_ended(tmp_path):
    box = Box()
    history = [commit(number, number) for number in range(1, 6)]
    exporter(tmp_path, history[:3], box).run()
    exporter(tmp_path, history, box).run()
    exporter(tmp_path, history, box).run()
    assert box.told == [(n, n) for n in range(1, 6)]
    again = Box()
    exporter(tmp_path, history, again, cursor="another").run()
    assert again.events == box.events


def test_commits_that_say_nothing_are_passed_over(tmp_path):
    commits = [commit(1), commit(2, said=False), commit(3, said=False, kind="COMPACT"), commit(4)]
    box = Box()
    done = exporter(tmp_path, commits, box).run()
    assert (box.told, done.unsaid) == ([(1, 1), (4, 4)], 1)
    assert exporter(tmp_path, commits, Box()).run().unsaid == 0


def test_many_commits_are_read_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr("anabranch.lineage.openlineage.export._AT_ONCE", 3)
    history = [commit(n, n, branch) for n in range(1, 9) for branch in (ORDERS, CLEAN)]
    box = Box()
    exporter(tmp_path, history, box).run()
    assert box.ids == [commit_run(c) for c in history]


def test_since_tells_again_what_came_after(tmp_path):
    history = [commit(number, 1000 * number) for number in range(1, 6)]
    exporter(tmp_path, history, Box()).run()
    box = Box()
    exporter(tmp_path, history, box, since_millis=3000).run()
    exporter(tmp_path, history, box).run()
    assert box.told == [(3, 3), (4, 4), (5, 5)]


def test_a_rewritten_history_is_told_anew(tmp_path):
    history = [commit(number, number) for number in range(1, 4)]
    exporter(tmp_path, history, Box()).run()
    box = Box()
    rewritten = [*history[:2], replace(history[2], stamp="other")]
    exporter(tmp_path, rewritten, box).run()
    assert box.ids == [commit_run(c) for c in rewritten]


def test_a_crash_at_every_event_leaves_none_out(tmp_path):
    history = [commit(number, 700 * number) for number in range(1, 12)]
    for dies_at in range(6):
        box, cursor = Box(), f"cursor{dies_at}"

        def dying(event, box=box, at=dies_at, send=box.send):
            if len(box.events) == at:
                raise KeyboardInterrupt
            return send(event)

        box.send = dying
        first = exporter(tmp_path, history, box, cursor=cursor, throttle_millis=2000)
        try:
            first.run()
        except KeyboardInterrupt:
            box.send = lambda event, box=box: Box.send(box, event)
        exporter(tmp_path, history, box, cursor=cursor, throttle_millis=2000).run()
        told = [n for first, last in box.told for n in range(first, last + 1)]
        assert told == list(range(1, 12)), dies_at


def test_the_cursor_is_saved_after_the_events_are_safe(tmp_path):
    box = Box()
    running = exporter(tmp_path, [commit(1)], box)
    saved = running.cursor.save
    seen = []
    running.cursor.save = lambda: (seen.append(box.settled), saved())
    running.run()
    assert seen[-1] == 1
    (tmp_path / "cursor").write_text("{}")
    with pytest.raises(CorruptTableError, match="no cursor"):
        exporter(tmp_path, [], box)


# A server


@contextmanager
def server(*answers):
    """A real one that gives these answers first, and takes everything after that."""
    taken, waiting = [], list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = waiting.pop(0) if waiting else 201
            if status == 201:
                taken.append((self.path, self.headers.get("Authorization"), json.loads(body)))
            if status:
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()
            else:
                self.close_connection = True  # no answer at all

        def log_message(self, *_):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_address[1]}", taken
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


def test_a_server_that_fails_at_times_gets_every_event_once_it_is_back(tmp_path):
    history = [commit(number, number) for number in range(1, 6)]
    with server(503, 0, 201, 429, 500) as (url, taken):
        to = open_destination(url, {"OPENLINEAGE_API_KEY": "secret"})
        running = exporter(tmp_path, history, to)
        reported = []
        running.report = reported.append
        done = running.run()
    assert [body["run"]["runId"] for _, _, body in taken] == [commit_run(c) for c in history]
    assert {(path, key) for path, key, _ in taken} == {("/api/v1/lineage", "Bearer secret")}
    assert (done.events, done.failure, done.refused) == (5, None, [])
    assert len(reported) == 4
    assert "503" in reported[0]
    assert reported[0].endswith("trying again in 1 s")
    for _, _, body in taken:
        validator()(body)


def test_a_server_that_stays_away_leaves_the_rest_for_the_next_run(tmp_path):
    history = [commit(number, number) for number in range(1, 4)]
    with server() as (url, _):
        pass
    done = exporter(tmp_path, history, open_destination(url, {}), patience_seconds=5).run()
    assert done.events == 0
    assert "cannot be reached" in done.failure
    assert "refused" in done.failure
    with server() as (url, taken):
        assert exporter(tmp_path, history, open_destination(f"{url}/mine", {})).run().events == 3
    assert {path for path, _, _ in taken} == {"/mine"}


def test_an_event_that_is_refused_holds_nothing_up(tmp_path):
    history = [commit(number, number) for number in range(1, 4)]
    with server(201, 422) as (url, taken):
        done = exporter(tmp_path, history, open_destination(url, {})).run()
    assert len(taken) == 2
    assert done.refused == ["clean, snapshot 2: the server answered 422 Unprocessable Entity"]


def test_following_tells_what_is_committed_meanwhile(tmp_path):
    history, chance = [commit(1, 0)], Chance(1)
    box, rounds = Box(), []
    running = exporter(tmp_path, history, box, chance=chance, follow=True, throttle_millis=1)

    def found():
        rounds.append(len(rounds))
        if len(rounds) == 3:
            raise StorageError("the store is away", retryable=True)
        if len(rounds) > 1:
            history.append(commit(len(rounds), len(rounds)))
        return nullcontext(MemoryStore(LINES, history))

    running.commits, running.stop = found, lambda: len(rounds) >= 6
    running.run()
    assert [first for first, _ in box.told] == [1, 2, 4, 5, 6]


# Files


def test_a_file_has_one_event_a_line(tmp_path):
    out = tmp_path / "events.jsonl"
    history = [commit(number, number) for number in range(1, 4)]
    for known in (history[:2], history):
        exporter(tmp_path, known, open_destination(f"file:{out}")).run()
    events = [json.loads(line) for line in out.read_text().splitlines()]
    assert [event["run"]["runId"] for event in events] == [commit_run(c) for c in history]


@pytest.mark.parametrize("target", ["", "ftp://x", "file:", "http://", "events.jsonl"])
def test_destinations_that_are_none(target):
    with pytest.raises(InvalidInputError, match=r"cannot be exported|names no server"):
        open_destination(target)


def test_a_file_in_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(InvalidInputError, match="no such folder"):
        open_destination(f"file:{tmp_path}/none/x")

"""What of Spark's internals native reading rests on, each by itself: a version in which one changed fails here."""

import gc
from datetime import date
from decimal import Decimal
from types import SimpleNamespace

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import types as st

from anabranch.errors import UnsupportedFeatureError
from anabranch.format.types.data_types import Field, IntType, VarCharType
from anabranch.spark.jvm import handles
from anabranch.spark.jvm.answers import Answers
from anabranch.spark.jvm.callbacks import start_callbacks
from anabranch.spark.jvm.handles import Handles
from anabranch.spark.jvm.proxy import JavaProxy, Jvm
from anabranch.spark.native import internals
from anabranch.spark.native.catalyst import Filters
from anabranch.spark.native.expressions import predicate_of
from anabranch.spark.native.internals import FilesOf, files
from tests.spark.native_cases import eventually

pytestmark = [pytest.mark.spark, pytest.mark.versions]


@pytest.fixture(scope="module")
def jvm(spark):
    start_callbacks(spark)
    return Jvm(spark)


@pytest.fixture
def calls(jvm, monkeypatch):
    """What was asked of the JVM."""
    found = []
    client = type(jvm.gateway._gateway_client)
    send = client.send_command

    def noted(self, command, *arguments, **named):
        if not command.startswith(
            "m\n"
        ):  # these say that an object is no longer needed, whenever it is collected
            found.append(command)
        return send(self, command, *arguments, **named)

    monkeypatch.setattr(client, "send_command", noted)
    return found


def test_the_versions_that_are_known():
    def of(version, **more):
        return internals.unsupported(SimpleNamespace(version=version, **more))

    assert of("4.3.0", sparkContext=1) is None
    assert of("4.1.4", sparkContext=1) is None
    assert (
        of("4.4.0-SNAPSHOT", sparkContext=1)
        == "Spark is 4.4.0-SNAPSHOT, and native reading was tried with 4.1 to 4.3"
    )
    assert "Spark Connect" in of("4.3.0")


ODD = FilesOf(
    "file:/a b/%41é#?",
    ["%41é#?.parquet", "a b", "..x", "c\ud800", "a:b"],
    [2**40, 2, 3, 4, 5],
    1_700_000_000_000,
)


def test_statuses_of_files_are_made_in_one_call(jvm):
    groups = [ODD, FilesOf("file:/", [], [], 0), FilesOf("s3a://b", ["x", "y"], [0, 1], 0)]
    made = internals.file_statuses(jvm, groups)
    assert [len(group) for group in made] == [5, 0, 2]
    status = made[0][0]
    assert status.getPath().equals(internals.hadoop_path(jvm, "file:/a b/%41é#?/%41é#?.parquet"))
    assert (status.getLen(), status.getModificationTime()) == (2**40, 1_700_000_000_000)
    assert status.isFile()


@pytest.mark.parametrize("is_compiled", [True, False])
def test_many_files_are_the_same_as_few(jvm, is_compiled, monkeypatch):
    many = [
        FilesOf(f"{root}/p={n}", [f"data-{n}-{k}.parquet" for k in range(9)], range(9), n)
        for n in range(300)
        for root in ("file:/a b/%41é#?", "s3a://b")
    ]
    groups = [ODD, *many, FilesOf("file:/", [], [], 0)]
    if is_compiled:
        assert files.files_class(jvm, "ListedFiles") is not None
    else:
        monkeypatch.setattr(files, "files_class", lambda _jvm, _name: None)
    made = internals.file_statuses(jvm, groups)
    index = internals.filled_index(jvm, groups, st.StructType(), identity=f"file:/many-{is_compiled}")
    assert index.allFiles().length() == 5 + 600 * 9
    assert [len(group) for group in made] == [len(group.names) for group in groups]
    for group, found in zip((ODD, *many[:3], many[-1]), (*made[:4], made[600]), strict=True):
        for ours, theirs in zip(found, internals.file_statuses(jvm, [group])[0], strict=True):
            assert ours.toString() == theirs.toString()
            assert ours.getPath().toUri().toString() == theirs.getPath().toUri().toString()
            assert ours.getPath().equals(theirs.getPath())
            assert (ours.getLen(), ours.getBlockSize()) == (theirs.getLen(), theirs.getBlockSize())
            assert ours.getModificationTime() == theirs.getModificationTime()
            assert ours.isFile()


def test_rows_of_every_kind_are_made_without_a_job(jvm):
    schema = st.StructType().add("d", st.DateType()).add("s", st.StringType()).add("n", st.DecimalType(20, 2))
    columns = [
        pa.array([date(1, 1, 1), None]),
        pa.array(["é", None]),
        pa.array([None, Decimal(5)], pa.decimal128(20, 2)),
    ]
    rows = internals.internal_rows(jvm, pa.record_batch(columns, ["d", "s", "n"]), schema)
    assert rows.length() == 2
    first, second = rows.apply(0), rows.apply(1)
    assert first.getInt(0) == -719162
    assert first.getUTF8String(1).toString() == "é"
    assert first.isNullAt(2)
    assert second.getDecimal(2, 20, 2).toString() == "5.00"


FILES = [
    FilesOf("file:/nowhere/t/x=%41/b", ["1.parquet", "2.parquet"], [10, 10], 0),
    FilesOf("file:/nowhere/t/x=9/b", ["3.parquet"], [10], 0),
]


@pytest.fixture(scope="module")
def values(jvm):
    """Rows of one number, for two partitions."""
    schema = st.StructType().add("x", st.IntegerType())
    return internals.internal_rows(jvm, pa.record_batch([pa.array([7, None], pa.int32())], ["x"]), schema)


def test_folders_with_their_values_are_made_in_few_calls(jvm, values):
    made = internals.partition_directories(jvm, values, FILES)
    assert [made.apply(i).files().length() for i in range(made.length())] == [2, 1]
    assert made.apply(0).values().getInt(0) == 7
    assert made.apply(1).values().isNullAt(0)
    assert made.apply(1).files().apply(0).getPath().toString() == "file:/nowhere/t/x=9/b/3.parquet"


def test_an_index_holds_what_it_is_given_and_lists_nothing(jvm):
    def index(identity):
        schema = st.StructType().add("a", st.IntegerType())
        return internals.filled_index(jvm, FILES, schema, identity=identity)

    one = index("file:/nowhere/t/one")
    assert one.allFiles().length() == 3
    assert one.sizeInBytes() == 30
    assert one.equals(index("file:/nowhere/t/one"))
    assert not one.equals(index("file:/nowhere/t/other"))
    found = one.listFiles(jvm.seq([]), jvm.seq([]))
    assert (found.length(), found.apply(0).files().length()) == (1, 3)


def test_an_index_of_partitions_holds_their_values(jvm, values):
    columns = st.StructType().add("x", st.IntegerType())
    folders = internals.Partitions(columns, ["file:/nowhere/t/x=%41/b", "file:/nowhere/t/x=9/b"], values)
    index = internals.filled_index(jvm, FILES, st.StructType(), folders, identity="file:/nowhere/t/one")
    assert index.allFiles().length() == 3
    found = index.listFiles(jvm.seq([]), jvm.seq([]))
    assert [found.apply(i).files().length() for i in range(2)] == [2, 1]
    assert found.apply(0).values().getInt(0) == 7
    assert found.apply(1).values().isNullAt(0)


@pytest.mark.parametrize(
    "conf",
    [
        {},
        {"spark.sql.parquet.enableVectorizedReader": "false"},
        {"spark.sql.parquet.enableNestedColumnVectorizedReader": "false"},
        {"spark.sql.codegen.wholeStage": "false"},
    ],
    ids=["as it is", "no batches", "no batches of nested columns", "no generated code"],
)
def test_batches_are_promised_where_the_reader_gives_them(spark, conf):
    session = spark.newSession()
    for key, value in conf.items():
        session.conf.set(key, value)
    jvm = Jvm(session)
    flat = st.StructType().add("i", "integer").add("s", "string")
    nested = st.StructType().add("i", "integer").add("r", flat).add("l", st.ArrayType(st.LongType()))
    wide = st.StructType([st.StructField(f"c{n}", st.LongType()) for n in range(150)])
    said = {}
    for name, columns in (("flat", flat), ("nested", nested), ("wide", wide), ("none", st.StructType())):
        index = internals.filled_index(jvm, FILES[:1], columns, identity=f"file:/nowhere/{name}")
        scan = internals.parquet_scan(jvm, index, columns.json(), columns.json(), verify=True)
        said[name] = internals.is_columnar(jvm, scan.readSchema())
        assert said[name] == scan.createReaderFactory().supportColumnarReads(None), name
    assert said["flat"] == (not conf or "Nested" in next(iter(conf)))
    assert said["nested"] == (not conf)
    assert not said["wide"]


def test_files_that_hadoop_does_not_reach(jvm, tmp_path):
    file = tmp_path / "a b.parquet"
    file.write_bytes(b"1234")
    assert internals.reachable(jvm, f"file:{file}", 4) is None
    assert internals.reachable(jvm, f"file:{file}", 5) == f"Hadoop finds 4 bytes at file:{file}, which has 5"
    assert "FileNotFoundException" in internals.reachable(jvm, f"file:{file}.not", 5)
    assert "s3a" in internals.reachable(jvm, "s3a://bucket/file", 5)


def test_texts_in_an_array(jvm):
    assert list(handles.text_array(jvm, ["a", "é'\"", ""])) == ["a", "é'\"", ""]


def test_a_proxy_equals_what_says_the_same(jvm):
    class Named(JavaProxy):
        class Java:
            implements = ["java.lang.Runnable"]  # noqa: RUF012

        def __init__(self, name):
            self.name = name

        def toString(self):
            return self.name

        def run(self):
            pass

    listed = jvm.list([Named("a"), Named("b")])
    assert listed.contains(Named("b"))
    assert not listed.contains(Named("c"))
    assert jvm.of("java.util.HashSet")(listed).contains(Named("a"))


class Asked(JavaProxy):
    """Counts what it is asked."""

    class Java:
        implements = ["org.apache.spark.sql.connector.read.Scan"]  # noqa: RUF012

    def __init__(self, jvm, name):
        self.jvm = jvm
        self.title = name
        self.questions = []

    def toString(self):
        self.questions.append("toString")
        return self.title

    def description(self):
        self.questions.append("description")
        return "of Python"

    def toBatch(self):
        raise UnsupportedFeatureError("no batches here", feature="x")


def before(jvm, proxy, **known):
    answers = Answers(jvm)
    answers.learn(known)
    return answers, answers.before(proxy)


def test_what_is_known_is_answered_in_the_jvm(jvm):
    proxy = Asked(jvm, "a")
    answers, made = before(jvm, proxy, description="of the JVM", readSchema=None)
    proxy.questions.clear()
    assert (made.description(), made.toString()) == ("of the JVM", "a")
    assert made.hashCode() == made.hashCode()
    assert proxy.questions == []
    answers.forget("description")
    assert made.description() == "of Python"
    assert proxy.questions == ["description"]
    answers.learn({"description": "again"})
    assert made.description() == "again"
    with pytest.raises(PySparkException, match="no batches here"):
        made.toBatch()


def test_what_is_equal_is_known_in_the_jvm(jvm):
    proxies = [Asked(jvm, name) for name in ("a", "a", "b")]
    first, same, other = (before(jvm, proxy)[1] for proxy in proxies)
    for proxy in proxies:
        proxy.questions.clear()
    assert first.equals(same)
    assert not first.equals(other)
    assert not first.equals(None)
    assert not first.equals("b")
    assert first.hashCode() == same.hashCode()
    assert jvm.of("java.util.HashSet")(jvm.list([first, same, other])).size() == 2
    assert [proxy.questions for proxy in proxies] == [[], [], []]
    assert first.equals(Asked(jvm, "a"))


def test_where_the_jvm_does_not_answer_the_proxy_does(spark, jvm, monkeypatch, caplog):
    static = Handles.static

    def lacking(handles, owner, name, kind):
        if name == "newProxyInstance":
            raise Py4JError("no such method")
        return static(handles, owner, name, kind)

    monkeypatch.setattr(Handles, "static", lacking)
    there = Jvm(spark.newSession())
    proxy = Asked(there, "a")
    answers = Answers(there)
    with caplog.at_level("WARNING"):
        assert answers.before(proxy) is proxy
        assert answers.before(proxy) is proxy
    assert [record.message for record in caplog.records] == [
        "this JVM does not answer for objects of Python, so statements are planned more slowly (no such method)"
    ]


@pytest.mark.long
def test_a_proxy_with_answers_is_let_go(jvm):
    pool = jvm.gateway.gateway_property.pool
    for _ in range(20):
        before(jvm, Asked(jvm, "let go"), description="x")

    def held():
        gc.collect()
        jvm.root.java.lang.System.gc()
        return sum(isinstance(value, Asked) for value in list(pool.dict.values()))

    eventually(lambda: held() < 5)


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("i > 5 AND i + 1 > 7", "i > 5"),
        ("i > 5 OR i + 1 > 7", None),
        ("NOT (i > 5 AND i % 2 = 0)", None),
        ("s = 'it''s' OR s IN ('a', NULL)", "s IN ('a', 'it''s')"),
        ("CAST(i AS BIGINT) = 5000000000", "FALSE"),
        ("CAST(i AS STRING) = '5'", None),
        (" OR ".join(f"i = {n}" for n in range(300)), None),
    ],
)
def test_what_is_understood_of_conditions(spark, condition, said):
    """As Spark's optimiser leaves them; a text of very many parts is one set to it."""
    fields = [Field(0, "i", IntType()), Field(1, "s", VarCharType())]
    frame = spark.sql("SELECT * FROM VALUES (1, 'a') AS t(i, s)").cache()
    plan = frame.filter(condition)._jdf.queryExecution().optimizedPlan()
    jvm = Jvm(spark)
    found: object = "FALSE"
    if "Filter" in plan.nodeName():
        found = predicate_of(Filters(jvm, jvm.seq([plan.condition()])), fields)
    if len(condition) > 1000:
        assert "IN (" in str(found)
    else:
        assert (None if found is None else str(found)) == said


def test_filters_are_taken_apart(spark, jvm, calls):
    frame = spark.sql("SELECT * FROM VALUES (1, 'a', 2) AS t(i, s, n)").cache()
    conditions = [
        frame.filter(text)._jdf.queryExecution().optimizedPlan().condition()
        for text in ("i > 5 OR n < 3", "s LIKE 'a_b%'", "n IN (1, 2)")
    ]
    filters = Filters(jvm, jvm.seq(conditions))
    calls.clear()
    assert len(filters.parts) == 3
    assert len(calls) <= 40, "to make what takes them apart"
    again = Filters(jvm, jvm.seq(conditions))
    calls.clear()
    assert len(again.parts) == 3
    assert len(calls) == 1
    assert [part.kind for part in filters.parts] == ["Or", "Like", "In"]
    assert [part.columns for part in filters.parts] == [{"i", "n"}, {"s"}, {"n"}]
    assert [filters.at(part).toString() for part in filters.parts] == [c.toString() for c in conditions]
    assert filters.without([]) is filters.expressions
    left = filters.without({"n"})
    assert (left.length(), left.head().toString()) == (1, conditions[1].toString())
    assert Filters(jvm, jvm.seq([])).parts == ()


@pytest.mark.parametrize(
    ("values", "kind", "said"),
    [
        ([1, 2**31 - 1, None], st.IntegerType(), ["1", "2147483647", "null"]),
        (["it's, 'quoted'", "", "\x1f"], st.StringType(), ["it's, 'quoted'", "", "\x1f"]),
        ([True, False], st.BooleanType(), ["true", "false"]),
        ([Decimal("1.50")], st.DecimalType(5, 2), ["1.50"]),
        ([date(1970, 1, 2)], st.DateType(), ["1"]),
        (["\x1f", "\x1e", "\x00\x1f\x00"], st.StringType(), None),
    ],
)
def test_literals_of_a_predicate(spark, jvm, values, kind, said):
    rows = spark.createDataFrame([(v,) for v in values], st.StructType().add("v", kind))
    found = rows._jdf.queryExecution().executedPlan().executeCollect()
    data_type = jvm.struct(rows.schema).head().dataType()
    package = "org.apache.spark.sql.connector.expressions"
    children = [jvm.of(f"{package}.Expressions").column("v")] + [
        jvm.of(f"{package}.LiteralValue")(row.get(0, data_type), data_type) for row in found
    ]
    found = internals.literal_texts(jvm, jvm.array(f"{package}.Expression", children))
    assert found == (None if said is None else (data_type.json(), said))


def test_many_literals_take_no_more_calls(jvm, calls):
    package = "org.apache.spark.sql.connector.expressions"
    made = jvm.of(f"{package}.Expressions")

    def calls_for(count):
        children = [made.column("v"), *(made.literal(n) for n in range(count))]
        array = jvm.array(f"{package}.Expression", children)
        calls.clear()
        assert internals.literal_texts(jvm, array)[1] == [str(n) for n in range(count)]
        return len(calls)

    calls_for(1)  # classes and their methods are asked for once
    assert calls_for(2) == calls_for(200)


def test_literals_of_several_types(jvm):
    package = "org.apache.spark.sql.connector.expressions"
    made = jvm.of(f"{package}.Expressions")
    children = [made.column("v"), made.literal(1), made.literal("a")]
    assert internals.literal_texts(jvm, jvm.array(f"{package}.Expression", children)) is None


def test_what_is_made_of_many_files_takes_no_more_calls(jvm, calls):
    def calls_for(count):
        keys = st.StructType().add("x", st.IntegerType())
        rows = internals.internal_rows(
            jvm, pa.record_batch([pa.array(range(count), pa.int32())], ["x"]), keys
        )
        folders = [f"file:/nowhere/t/x={n}" for n in range(count)]
        found_in = [FilesOf(folder, ["data.parquet"], [10], 0) for folder in folders]
        calls.clear()
        partitions = internals.Partitions(keys, folders, rows)
        index = internals.filled_index(jvm, found_in, st.StructType(), partitions, identity=f"file:/{count}")
        made = internals.partition_directories(jvm, rows, found_in)
        found = len(calls)
        assert (index.allFiles().length(), made.length()) == (count, count)
        return found

    calls_for(1)  # classes and their methods are asked for once
    assert calls_for(2) == calls_for(500) < 80

"""Drawings of lineage: the same trace in every format, whatever names hold."""

import itertools
import json
import random
import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from anabranch.errors import InvalidInputError
from anabranch.lineage.drawing import FORMATS, drawn
from anabranch.lineage.drawing.labels import printable, ranges_text, shortened, width
from anabranch.lineage.drawing.layers import layout
from anabranch.lineage.drawing.tree import is_upstream
from anabranch.lineage.trace import Dataset, Flow, Trace

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = (
    "quo\"ted's",
    "<script>alert(1)</script>",
    "a & b &amp; &lt;",
    "line\nend\r\ttab",
    "\x1b[31mred\x07",
    "back\\slash\\N\\",
    "`code` **bold** _it_ [x](y) {z} |p| #35; $$math$$",
    "1. list",
    "- item",
    "日本語の表",
    "e\u0301 \u202eright to left",
    "]]> --> %% <!-- {{ }}",
    "long" * 200,
    "end",
)


def dataset(name, depth=0, snapshots=((1, 1),), **more):
    return Dataset(more.pop("id", name), more.pop("kind", "table"), name, "u", snapshots, depth, **more)


def flow(source, sink, job="job", commits=1, kind="job"):
    return Flow(source, sink, job, kind, commits, 0, 0)


ORDERS = Trace(
    "downstream of db.orders, snapshots 5..9",
    (
        dataset("db.orders", 0, ((5, 9),)),
        dataset("db.clean", 1, ((4, 4), (6, 7))),
        dataset("db.clean$branch_fix", 1, ((8, 8),)),
        dataset("db.daily", 2, ()),
    ),
    (
        flow("db.orders", "db.clean", "clean", 3),
        flow("db.clean$branch_fix", "db.clean", "merge-branch fix", kind="merge"),
        flow("db.orders", "db.clean$branch_fix", "clean"),
        flow("db.orders", "db.daily", "daily"),
        flow("db.clean", "db.daily", "daily", 2),
    ),
    ("snapshot 6 of db.orders does not say where its rows came from",),
)


def hostile():
    """Each name once as that of a table and once as that of a job."""
    tables = [dataset(name, depth) for depth, name in enumerate(HOSTILE)]
    flows = [flow(a, b, job=job) for (a, b), job in zip(itertools.pairwise(HOSTILE), HOSTILE, strict=False)]
    return Trace(HOSTILE[0] + HOSTILE[3] + HOSTILE[1], tuple(tables), tuple(flows), HOSTILE)


@pytest.mark.parametrize("format", FORMATS)
def test_a_drawing_is_the_same_every_time_and_ends_with_a_line_end(format):
    text = drawn(hostile(), format)
    assert text == drawn(hostile(), format)
    assert text.endswith("\n")
    assert drawn(Trace("upstream of db.t", (dataset("db.t"),), ()), format)
    assert drawn(Trace("jobs", (), ()), format)


@pytest.mark.parametrize("format", ["tree", "dot", "mermaid", "svg"])
def test_nothing_in_a_drawing_moves_the_cursor(format):
    assert all(c.isprintable() or c == "\n" for c in drawn(hostile(), format))


def test_json_has_names_as_they_are():
    assert json.loads(drawn(hostile(), "json")) == json.loads(json.dumps(hostile().to_dict()))


def test_a_format_that_is_none():
    with pytest.raises(InvalidInputError, match="did you mean 'mermaid'"):
        drawn(ORDERS, "mermaids")


# The tree


def test_the_tree_follows_the_flows_from_what_was_asked():
    assert (
        drawn(ORDERS, "tree")
        == """\
downstream of db.orders, snapshots 5..9
├── db.orders  snapshots 5..9
│   ├── ▸ clean (3 commits) ▸ db.clean  snapshots 4, 6..7
│   │   └── ▸ daily (2 commits) ▸ db.daily
│   ├── ▸ clean (1 commit) ▸ db.clean$branch_fix  snapshot 8
│   │   └── ▸ merge-branch fix (1 commit) ▸ db.clean  snapshots 4, 6..7  (see above)
│   └── ▸ daily (1 commit) ▸ db.daily
└── may be incomplete: snapshot 6 of db.orders does not say where its rows came from
"""
    )


def test_the_tree_of_what_rows_came_from_goes_the_other_way():
    trace = Trace(
        "upstream of db.clean",
        (
            dataset("topic", 2, (), kind="kafka"),
            dataset("db.orders", 1),
            dataset("db.rates", 1),
            dataset("db.clean"),
        ),
        (
            flow("topic", "db.orders", "ingest"),
            flow("db.orders", "db.clean", "clean"),
            flow("db.rates", "db.clean", "clean"),
        ),
    )
    assert is_upstream(trace)
    assert (
        drawn(trace, "tree")
        == """\
upstream of db.clean
└── db.clean  snapshot 1
    ├── ◂ clean (1 commit) ◂ db.orders  snapshot 1
    │   └── ◂ ingest (1 commit) ◂ topic  topic of Kafka
    └── ◂ clean (1 commit) ◂ db.rates  snapshot 1
"""
    )


def test_a_table_that_reaches_itself_is_drawn_once():
    trace = Trace(
        "downstream of a", (dataset("a"), dataset("b", 1)), (flow("a", "b"), flow("b", "a"), flow("a", "a"))
    )
    text = drawn(trace, "tree")
    assert text.count("(see above)") == 2
    for format in FORMATS:
        drawn(trace, format)


def test_a_long_chain_is_drawn_without_recursion():
    names = [f"t{n}" for n in range(800)]
    trace = Trace(
        "downstream of t0",
        tuple(dataset(name, n) for n, name in enumerate(names)),
        tuple(flow(a, b) for a, b in itertools.pairwise(names)),
    )
    for format in ("dot", "mermaid", "json", "svg"):
        assert "t799" in drawn(trace, format)


# Graphviz


def quoted(text):
    """The strings of a text in Graphviz' language, as it reads them; whatever is left must be its own words."""
    strings, rest = [], []
    for token in re.finditer(r'"((?:[^"\\]|\\.)*)"|([^"]+)', text, re.DOTALL):
        (strings if token[1] is not None else rest).append(token[1] if token[1] is not None else token[2])
    assert "".join(rest).isascii()
    return [re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), s).replace("&amp;", "&") for s in strings]


def test_graphviz_reads_names_as_they_are():
    text = drawn(hostile(), "dot")
    strings = quoted(text)
    labels = [f"{printable(name)}\nsnapshot 1" for name in HOSTILE]
    assert [s for s in strings if s.endswith("\nsnapshot 1")] == labels
    jobs = [f"{printable(name)} (1 commit)" for name in HOSTILE[:-1]]
    assert strings[-len(jobs) :] == jobs
    assert text.count("{") - "".join(strings).count("{") == 1


def test_graphviz_draws_merges_dashed():
    (line,) = [line for line in drawn(ORDERS, "dot").splitlines() if "merge-branch" in line]
    assert line == '  n2 -> n1 [label="merge-branch fix (1 commit)", style=dashed];'


# Mermaid


def test_mermaid_reads_names_as_they_are():
    head, title, _, kind, *lines = drawn(hostile(), "mermaid").splitlines()
    assert (head, kind) == ("---", "flowchart LR")
    assert json.loads(title.removeprefix("title: ")) == printable(hostile().question)
    labels = [re.search(r'"(.*)"', line)[1] for line in lines if re.match(r"  n\d+\W", line)]
    for label in labels:
        assert not re.search(r'["<>`\[\]{}|\\*]|&(?!#)', label.replace("<br/>", ""))
    read = [re.sub(r"#(\d+);", lambda m: chr(int(m[1])), label.replace("<br/>", "\n")) for label in labels]
    assert read[: len(HOSTILE)] == [f"{printable(name)}\nsnapshot 1" for name in HOSTILE]
    assert read[len(HOSTILE) :] == [f"{printable(name)} (1 commit)" for name in HOSTILE[:-1]]
    assert all(re.fullmatch(r"  (n\d+.*|style n\d+ stroke-width:3px|%% [^{}<>]*)", line) for line in lines)


# SVG


def parts(text):
    root = ET.fromstring(text)
    boxes = [
        {key: float(value) for key, value in group.find(f"{SVG}rect").attrib.items() if key != "class"}
        | {"class": group.attrib["class"], "title": group.find(f"{SVG}title").text}
        for group in root.iter(f"{SVG}g")
        if "class" in group.attrib
    ]
    paths = [path.attrib for path in root.iter(f"{SVG}path") if "arrow" in path.attrib["class"]]
    return root, boxes, paths


def test_an_svg_holds_nothing_but_its_own_elements():
    root, boxes, _ = parts(drawn(hostile(), "svg"))
    known = {"svg", "title", "style", "defs", "marker", "path", "rect", "g", "text"}
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= known
    assert not [a for element in root.iter() for a in element.attrib if a.startswith("on") or "href" in a]
    titles = [box["title"] for box in boxes]
    assert titles[: len(HOSTILE)] == [f"{printable(name)}\nsnapshot 1" for name in HOSTILE]
    assert titles[len(HOSTILE) :] == [printable(name) for name in HOSTILE[:-1]]


def test_an_svg_shows_what_was_asked_the_jobs_and_the_merges():
    root, boxes, paths = parts(drawn(ORDERS, "svg"))
    by_name = {box["title"].partition("\n")[0]: box for box in boxes}
    assert by_name["db.orders"]["class"] == "dataset asked"
    assert by_name["merge-branch fix"]["class"] == "job merge"
    assert [path["class"] for path in paths].count("arrow dashed") == 2
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert {"snapshots 4, 6..7", "3 commits", "daily"} <= set(texts)
    assert any(text.startswith("may be incomplete: snapshot 6") for text in texts)
    across = [by_name[name]["x"] for name in ("db.orders", "db.clean$branch_fix", "db.clean", "db.daily")]
    assert across == sorted(across)
    assert "prefers-color-scheme: dark" in drawn(ORDERS, "svg")


def random_trace(seed):
    """A graph of up to 14 datasets, in which some flows go back."""
    rng = random.Random(seed)
    names = [
        rng.choice(["t", "table_of_", "a.very.long.name.of.a.table."]) + str(n)
        for n in range(rng.randint(1, 14))
    ]
    flows = [
        flow(a, b, job=f"j{rng.randrange(6)}", kind=rng.choice(["job", "job", "merge"]))
        for a, b in itertools.product(names, names)
        if rng.random() < (0.2 if names.index(a) < names.index(b) else 0.02)
    ]
    unique = {(f.source, f.sink, f.job, f.kind): f for f in flows}
    return Trace("random", tuple(dataset(n, min(i, 1)) for i, n in enumerate(names)), tuple(unique.values()))


@pytest.mark.parametrize("seed", range(25))
def test_boxes_are_apart_and_arrows_keep_clear_of_them(seed):
    root, boxes, paths = parts(drawn(random_trace(seed), "svg"))
    for one, other in itertools.combinations(boxes, 2):
        apart_x = one["x"] + one["width"] <= other["x"] or other["x"] + other["width"] <= one["x"]
        apart_y = one["y"] + one["height"] <= other["y"] or other["y"] + other["height"] <= one["y"]
        assert apart_x or apart_y, (one["title"], other["title"])
    _, _, across, down = map(float, root.attrib["viewBox"].split())
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= across for box in boxes)
    assert all(box["y"] >= -0.1 and box["y"] + box["height"] <= down for box in boxes)
    for path in paths:
        points = [*map(float, re.findall(r"-?\d+\.\d", path["d"]))]
        ends = [(points[0], points[1]), (points[-2], points[-1])]
        straight = _straight_parts(path["d"])
        for box in boxes:
            if any(_is_on(box, end) for end in ends):
                continue
            assert not any(_meet(box, part) for part in straight), (box["title"], path["d"])


def _straight_parts(d):
    """From where to where, and at which height, a path goes straight through columns."""
    parts, at = [], None
    for command, numbers in re.findall(r"([MLC])([^MLC]*)", d):
        values = [*map(float, numbers.split())]
        if command == "L":
            parts.append((*sorted((at[0], values[0])), at[1]))
        at = values[-2:]
    return parts


def _is_on(box, point):
    x, y = point
    return box["x"] - 0.2 <= x <= box["x"] + box["width"] + 0.2 and box["y"] <= y <= box["y"] + box["height"]


def _meet(box, part):
    left, right, y = part
    beside = right <= box["x"] + 0.2 or left >= box["x"] + box["width"] - 0.2
    return not beside and box["y"] + 0.2 < y < box["y"] + box["height"] - 0.2


def test_a_layout_untangles_what_can_be_untangled():
    sizes = dict.fromkeys("abcxyz", (10.0, 10.0))
    placed = layout(sizes, [("a", "z"), ("b", "y"), ("c", "x")], column_gap=10, row_gap=5)
    tops = {name: placed.places[name].y for name in sizes}
    assert [tops["z"], tops["y"], tops["x"]] == [tops["a"], tops["b"], tops["c"]]


def test_an_arrow_to_its_own_node_is_left_out_and_a_circle_is_drawn():
    sizes = dict.fromkeys("ab", (10.0, 10.0))
    placed = layout(sizes, [("a", "a"), ("a", "b"), ("b", "a")], column_gap=10, row_gap=5)
    assert set(placed.ways) == {("a", "b"), ("b", "a")}
    assert placed.ways["b", "a"] == placed.ways["a", "b"][::-1]


# Words


def test_ranges_are_short_but_whole_where_it_is_asked():
    many = tuple((n, n + n % 2) for n in range(1, 40, 4))
    assert ranges_text(((1, 3), (5, 5))) == "1..3, 5"
    assert ranges_text(many) == "1..2, 5..6, 9..10, ..., 37..38 (10 ranges)"
    assert ranges_text(many, most=None).count(",") == 9


def test_widths_are_those_of_terminals():
    assert width("abc") == 3
    assert width("日本") == 4
    assert width("e\u0301") == 1
    assert shortened("short", 9) == "short"
    assert shortened("abcdefghijkl", 7) == "abc…jkl"
    assert width(shortened("日本語の表" * 9, 20)) <= 20


def test_a_dataset_without_snapshots_is_a_whole_table():
    trace = replace(ORDERS, datasets=tuple(replace(d, snapshots=()) for d in ORDERS.datasets))
    whole = replace(trace, question="all", problems=())
    assert "snapshot" not in drawn(whole, "tree")
    assert "asked" not in {box["class"] for box in parts(drawn(whole, "svg"))[1]}
    assert "penwidth" not in drawn(whole, "dot")
    assert "stroke-width" not in drawn(whole, "mermaid")

"""Statements with hints, and what Spark is to see: for our parser in Spark and for `lake.sql`, which rewrite by themselves."""

SAME = None
"""Nothing is rewritten."""

HINT = "/*+ OPTIONS('k' = 'v') */"
WITH = "WITH ('k' = 'v')"

CASES = [
    (f"SELECT * FROM t {HINT}", f"SELECT * FROM t {WITH}"),
    (f"SELECT * FROM t{HINT}AS x, `u` {HINT}", f"SELECT * FROM t {WITH}AS x, `u` {WITH}"),
    ("SELECT * FROM t /*+options\n('k'='v')*/ x", "SELECT * FROM t WITH ('k'='v') x"),
    ("SELECT * FROM t /*+ OPTIONS('k' = 'a)') */", "SELECT * FROM t WITH ('k' = 'a)')"),
    ("SELECT * FROM t /*+ OPTIONS('k' = '*/') */", "SELECT * FROM t WITH ('k' = '*/')"),
    (
        "SELECT * FROM t /*+ OPTIONS('k' = 'a' /* in /* it */ */) */",
        "SELECT * FROM t WITH ('k' = 'a' /* in /* it */ */)",
    ),
    ("SELECT /*+ BROADCAST(t) */ * FROM t", SAME),
    (f"SELECT /*+ COALESCE(1) */ * FROM t {HINT}", f"SELECT /*+ COALESCE(1) */ * FROM t {WITH}"),
    # texts, names and comments that hold what looks like a hint
    (f"SELECT '{HINT.replace(chr(39), chr(39) * 2)}'", SAME),
    (f"SELECT 'it\\'s {HINT.replace(chr(39), '')}'", SAME),
    (f'SELECT "{HINT}"', SAME),
    (f"SELECT `{HINT}` FROM t", SAME),
    (f"SELECT 1 -- {HINT}", SAME),
    (f"SELECT 1 -- goes on \\\n {HINT}\n FROM t {HINT}", f"SELECT 1 -- goes on \\\n {HINT}\n FROM t {WITH}"),
    # to Spark a hint inside of a comment opens no other comment: its end is that of the comment
    (f"SELECT 1 /* {HINT} FROM t {HINT}", f"SELECT 1 /* {HINT} FROM t {WITH}"),
    (f"SELECT 1 /* a /* b */ {HINT} FROM t {HINT}", f"SELECT 1 /* a /* b */ {HINT} FROM t {WITH}"),
    (f"SELECT 1 /* a /* b */ c */ FROM t {HINT}", f"SELECT 1 /* a /* b */ c */ FROM t {WITH}"),
    (f"SELECT 1 /**/ FROM t {HINT}", f"SELECT 1 /**/ FROM t {WITH}"),
    # a raw text ends at the next quote, whatever is before it
    (f"SELECT r'\\' FROM t {HINT} WHERE v = ''", f"SELECT r'\\' FROM t {WITH} WHERE v = ''"),
    (f'SELECT R"\\" FROM t {HINT}', f'SELECT R"\\" FROM t {WITH}'),
    (f"SELECT r'a''{HINT.replace(chr(39), '')}' FROM t", SAME),
    (f"SELECT true or'\\'{HINT.replace(chr(39), '')}' FROM t", SAME),
]
"""Statement, and the same as Spark is to see it."""

REFUSED = [
    f"SELECT {HINT} * FROM t",
    f"select\n{HINT.lower()} * FROM t",
    f"SELECT -- really\n /* it */ {HINT} * FROM t",
    f"SELECT /*+ BROADCAST(t) */ {HINT} * FROM t",
]
"""Statements whose hint would not be heeded, because it stands after SELECT."""

OPEN = [
    f"SELECT 'open {HINT}",
    f"SELECT * FROM t {HINT} /* open",
    "SELECT * FROM t /*+ OPTIONS('k' = 'v')",
    f"SELECT `open {HINT}",
]
"""Statements in which something is never closed."""

-- The past, branches, system tables, procedures.

CREATE DATABASE lake.m;
CREATE TABLE lake.m.t (id INT, dt STRING) PARTITIONED BY (dt);
INSERT INTO lake.m.t VALUES (1, 'a'), (2, 'b');
CALL lake.sys.create_tag(table => 'm.t', tag => 'good');
--> ('good', 1, 2)
CALL lake.sys.create_tag('m.t', 'good');
--! tag 'good' exists already
ALTER TABLE lake.m.t ADD COLUMN w INT;
INSERT INTO lake.m.t VALUES (3, 'a', 7);
SELECT savepoint_id, saved_snapshot_id, record_count FROM lake.m.`t$savepoints`;
--@ classic
SELECT * FROM (SELECT 1) LATERAL VIEW explode(array(1, 2)) x AS y;
--*
CALL lake.sys.create_savepoint(table => 'm.t');
--*
SELECT * FROM lake.m.t VERSION AS OF 1;
--? (1, 'a')
--? (2, 'b')
SELECT * FROM lake.m.t FOR VERSION AS OF 'snapshot.1' WHERE id = 1;
--> (1, 'a')
SELECT * FROM lake.m.t FOR SYSTEM_VERSION AS OF 'good' AS x WHERE x.dt = 'b';
--> (2, 'b')
SELECT t.id FROM lake.m.t VERSION AS OF 'savepoint.1' WHERE t.w = 7;
--> (3,)
SELECT count(*) FROM lake.m.t TIMESTAMP AS OF current_timestamp() + INTERVAL '1' DAY;
--> (3,)
SELECT count(*) FROM lake.m.t FOR SYSTEM_TIME AS OF '2100-01-01';
--> (3,)
SELECT count(*) FROM lake.m.t TIMESTAMP AS OF '2001-01-01';
--! hint: ask for
SELECT * FROM lake.m.t VERSION AS OF 99;
--! snapshot 99 does not exist
SELECT * FROM lake.m.t VERSION AS OF 'nope';
--! nope
SELECT * FROM lake.m.t WITH ('scan.snapshot-id' = '1');
--? (1, 'a')
--? (2, 'b')
SELECT count(*) FROM lake.m.t WITH ('scan.tag-name' = 'good') AS x;
--> (2,)
SELECT count(*) FROM lake.m.t WITH ('scan.savepoint-id' = '1');
--> (3,)
SELECT count(*) FROM lake.m.t WITH ('scan.timestamp' = '2100-01-01 00:00:00');
--> (3,)
SELECT * FROM lake.m.t WITH ('scan.snapshot-id' = '1', 'scan.tag-name' = 'good');
--! scan.
SELECT * FROM lake.m.t WITH ('anabranch.jobb' = '1');
--! anabranch.jobb
SELECT * FROM lake.m.t WITH ('scan.filter' = 'id = 2');
--> (2, 'b', None)
SELECT a.id, b.w FROM lake.m.t VERSION AS OF 1 a JOIN lake.m.t b ON a.dt = b.dt AND b.w IS NOT NULL;
--> (1, 7)
SELECT id FROM lake.m.t EXCEPT SELECT id FROM lake.m.t VERSION AS OF 'good';
--> (3,)
SELECT id FROM lake.m.t WHERE id IN (SELECT max(id) FROM lake.m.t VERSION AS OF 1);
--> (2,)
WITH t AS (SELECT 42 AS id) SELECT * FROM t;
--> (42,)
WITH x AS (SELECT id FROM lake.m.t), y AS (SELECT id FROM x WHERE id > 1) SELECT count(*) FROM x, y;
--> (6,)
SELECT lake.m.t.id FROM lake.m.t WHERE t.id = 1;
--*
SELECT t.* FROM lake.m.t JOIN (VALUES (1), (3)) v(k) ON t.id = v.k ORDER BY id;
--> (1, 'a', None)
--> (3, 'a', 7)
SELECT dt, count(*), sum(w) FROM lake.m.t GROUP BY dt HAVING count(*) > 0 ORDER BY dt;
--> ('a', 2, 7)
--> ('b', 1, None)
SELECT id, row_number() OVER (PARTITION BY dt ORDER BY id DESC) AS n FROM lake.m.t ORDER BY id;
--> (1, 2)
--> (2, 1)
--> (3, 1)
SELECT * FROM (SELECT dt, id FROM lake.m.t) PIVOT (sum(id) FOR dt IN ('a', 'b'));
--> (4, 2)
SELECT extract(DAY FROM DATE'2024-01-05') + id FROM lake.m.t WHERE id IS NOT DISTINCT FROM 1;
--> (6,)
SELECT trim(BOTH 'a' FROM dt), substring(dt FROM 1 FOR 1) FROM lake.m.t t WHERE t.id = 1;
--> ('', 'a')
SELECT count(*) FROM lake.m.t TABLESAMPLE (100 PERCENT);
--> (3,)
SELECT id FROM lake.m.t WHERE dt = 'lake.m.t' OR dt = "FROM lake.m.t" /* FROM lake.m.nope */ OR id = 2 -- FROM lake.m.nope
;
--> (2,)
SELECT (SELECT max(id) FROM lake.m.t), EXISTS (SELECT 1 FROM lake.m.t WHERE id = 9);
--> (3, False)
SELECT u.id FROM lake.m.t u LEFT ANTI JOIN lake.m.t VERSION AS OF 1 o USING (id);
--> (3,)
FROM lake.m.t SELECT id WHERE id = 3;
--> (3,)
TABLE lake.m.t;
--? (1, 'a', None)
--? (2, 'b', None)
--? (3, 'a', 7)
SELECT `{id}` FROM (SELECT id AS `{id}` FROM lake.m.t) WHERE `{id}` = 1 AND '{}' = '{}';
--> (1,)
FROM lake.m.t |> WHERE id = 1 |> SELECT id;
--> (1,)
SELECT id FROM LAKE.M.T WHERE ID = 1;
--! LAKE
SELECT * FROM lake.m.nope;
--! cannot be found | does not exist
SELECT nope FROM lake.m.t;
--! nope
SELECT snapshot_id, commit_kind FROM lake.m.`t$snapshots` ORDER BY snapshot_id;
--> (1, 'APPEND')
--> (2, 'APPEND')
SELECT schema_id FROM lake.m.`t$schemas` ORDER BY schema_id;
--> (0,)
--> (1,)
SELECT sum(record_count) FROM lake.m.`t$files`;
--> (3,)
SELECT sum(record_count) FROM lake.m.`t$files` VERSION AS OF 'good';
--> (2,)
SELECT tag_name, snapshot_id FROM lake.m.`t$tags`;
--> ('good', 1)
SELECT savepoint_id, saved_snapshot_id FROM lake.m.`t$savepoints`;
--> (1, 2)
SELECT partition, record_count FROM lake.m.`t$partitions` ORDER BY 1;
--*
SELECT `key` FROM lake.m.`t$options` WHERE `key` = 'bucket';
SELECT count(*) FROM lake.m.`t$manifests`;
--*
SELECT * FROM lake.m.`t$branches`;
SELECT * FROM lake.m.`t$nope`;
--! nope
SELECT table_name FROM lake.sys.tables WHERE database_name = 'm';
--> ('t',)
SELECT * FROM lake.m.`t$branch_nope`;
--! branch 'nope' does not exist
SELECT count(*) FROM lake.m.`t$branch_main` VERSION AS OF 1;
--> (2,)
INSERT INTO lake.m.`t$branch_main` VALUES (4, 'c', 8);
SELECT count(*) FROM lake.m.`t$branch_main$snapshots`;
--> (3,)
CALL lake.sys.replace_tag('m.t', 'good', '2');
--> ('good', 2, 3)
CALL lake.sys.rename_tag(table => 'lake.m.t', tag => 'good', new_name => 'better');
--> ('better', 2, 3)
CALL lake.sys.rename_tag(table => 'm.t', new_name => 'worse', tag => 'better');
--> ('worse', 2, 3)
CALL lake.sys.delete_tag('m.t', NULL);
--! needs the argument 'tag'
CALL lake.sys.delete_tag('m.t', 'worse');
--> ('worse', 2, 3)
CALL lake.sys.delete_tag('m.t', 'worse');
--! does not exist
CALL lake.sys.delete_tag('m.t', tagg => 'worse');
--! tagg
CALL lake.sys.compact('m.t', full => true, partitions => "dt = 'a'");
--*
CALL lake.sys.sort_compact(table => 'm.t', order_by => 'id');
--*
CALL lake.sys.sort_compact(table => 'm.t', order_by => 'nope');
--! nope
SELECT count(*), max(id) FROM lake.m.t;
--> (4, 4)
CALL lake.sys.rollback(table => 'm.t', to => 'snapshot.1');
--*
SELECT id FROM lake.m.t;
--? (1,)
--? (2,)
CALL lake.sys.expire_snapshots(table => 'm.t', retain_max => 10, retain_min => 1, dry_run => true);
--*
CALL lake.sys.remove_orphan_files(table => 'm.t', dry_run => true);
--*
CALL lake.sys.maintain('m.t', true);
--*
CALL lake.sys.health('m.t');
--*
CALL lake.sys.delete_savepoint('m.t', 1);
--*
CALL lake.sys.reset_consumer('m.t', 'me');
--! consumer 'me' does not exist
CALL lake.sys.delete_consumer('m.t', 'me');
--! consumer 'me' does not exist
CALL lake.sys.create_tagg('m.t', 'x');
--! did you mean 'create_tag'?
CALL lake.m.create_tag('m.t', 'x');
--! procedures are in lake.sys
CALL lake.sys.compact('m.nope');
--! does not exist
--@ classic
SHOW PROCEDURES IN lake.sys;
--*
CREATE TEMPORARY VIEW late AS SELECT * FROM lake.m.t WHERE id > 1;
SELECT id FROM late;
--> (2,)
DROP VIEW late;
EXPLAIN SELECT * FROM lake.m.t;
--*
--@ classic
CACHE TABLE kept AS SELECT * FROM lake.m.t;
--@ classic
UNCACHE TABLE kept;
--@ classic
ANALYZE TABLE lake.m.t COMPUTE STATISTICS;
--!

-- A few of every kind; through Spark Connect they are run in the short form of the tests, too.

CREATE DATABASE lake.short;
CREATE TABLE lake.short.t (id BIGINT NOT NULL, dt STRING) PARTITIONED BY (dt) TBLPROPERTIES ('mine' = 'x');
INSERT INTO lake.short.t VALUES (1, 'a'), (2, 'b');
CALL lake.sys.create_tag(table => 'short.t', tag => concat('go', 'od'));
--> ('good', 1, 2)
ALTER TABLE lake.short.t ADD COLUMN w INT AFTER id;
INSERT OVERWRITE lake.short.t PARTITION (dt = 'a') BY NAME SELECT 7 AS w, 3L AS id;
SELECT t.id, o.id, t.w FROM lake.short.t LEFT JOIN lake.short.t VERSION AS OF 'good' o ON t.dt = o.dt ORDER BY 1;
--> (2, 2, None)
--> (3, 1, 7)
SELECT count(*) FROM lake.short.`t$snapshots` WHERE '{}' = '{}';
--> (2,)
DESCRIBE lake.short.t;
--> ('id', 'bigint', None)
--> ('w', 'int', None)
--> ('dt', 'string', None)
--> ('# Partition Information', '', '')
--> ('# col_name', 'data_type', 'comment')
--> ('dt', 'string', None)
SHOW PARTITIONS lake.short.t;
--> ('dt=a',)
--> ('dt=b',)
DELETE FROM lake.short.t WHERE id = 1;
--! tables are append-only
INSERT INTO lake.short.t SELECT id, id, 'c' FROM lake.short.t WHERE id = 9;
INSERT INTO lake.short.t VALUES ('one', 1, 'a');
--! safely cast
SELECT * FROM lake.short.nope;
--! cannot be found | does not exist
CREATE TABLE lake.short.failed AS SELECT raise_error('boom') AS id FROM lake.short.t;
--! boom | type
CREATE TABLE lake.short.failed AS SELECT if(id > 1, raise_error('boom'), id) AS id FROM lake.short.t;
--! boom
SHOW TABLES IN lake.short;
--> ('short', 't', False)
DROP TABLE lake.short.t;
DROP DATABASE lake.short;

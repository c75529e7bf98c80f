-- Writing rows.

CREATE DATABASE lake.w;
CREATE TABLE lake.w.t (id BIGINT NOT NULL, v STRING, dt STRING) PARTITIONED BY (dt);
INSERT INTO lake.w.t VALUES (1, 'a', 'x'), (2, 'b', 'y');
INSERT INTO TABLE lake.w.t PARTITION (dt = 'x') VALUES (3, 'c');
INSERT INTO lake.w.t (dt, id) VALUES ('z', 4);
INSERT INTO lake.w.t BY NAME SELECT 'z' AS dt, 5 AS id;
WITH new AS (SELECT 6 AS id, 'f' AS v, 'z' AS dt) INSERT INTO lake.w.t SELECT * FROM new;
--@ classic
FROM lake.w.t INSERT INTO lake.w.t SELECT id, v, dt WHERE id = 99 INSERT INTO lake.w.t SELECT id + 90, v, dt WHERE id = 98;
SELECT * FROM lake.w.t;
--? (1, 'a', 'x')
--? (2, 'b', 'y')
--? (3, 'c', 'x')
--? (4, None, 'z')
--? (5, None, 'z')
--? (6, 'f', 'z')
INSERT INTO lake.w.t VALUES (1, 'a');
--! column
INSERT INTO lake.w.t VALUES (NULL, 'a', 'x');
--! NULL
INSERT INTO lake.w.t VALUES ('one', 'a', 'x');
--! safely cast
INSERT INTO lake.w.t BY NAME SELECT 1 AS id, 2 AS nope;
--! nope
INSERT INTO lake.w.t VERSION AS OF 1 VALUES (1, 'a', 'x');
--!
INSERT INTO lake.w.nope VALUES (1);
--! cannot be found | does not exist
INSERT INTO lake.w.`t$snapshots` VALUES (1);
--!
INSERT OVERWRITE lake.w.t PARTITION (dt = 'x') SELECT id + 100, v FROM lake.w.t WHERE dt = 'x';
SELECT id FROM lake.w.t WHERE dt = 'x';
--? (101,)
--? (103,)
INSERT OVERWRITE lake.w.t PARTITION (dt = 'x') IF NOT EXISTS SELECT 0, 'z';
--! IF NOT EXISTS
INSERT OVERWRITE TABLE lake.w.t PARTITION (dt) SELECT 7, 'g', 'only';
SELECT * FROM lake.w.t;
--> (7, 'g', 'only')
INSERT INTO lake.w.t VALUES (1, 'a', 'x'), (2, 'b', 'y'), (3, 'c', 'z');
INSERT INTO lake.w.t REPLACE WHERE dt IN ('x', 'y') VALUES (8, 'h', 'x');
SELECT * FROM lake.w.t;
--? (7, 'g', 'only')
--? (8, 'h', 'x')
--? (3, 'c', 'z')
INSERT INTO lake.w.t REPLACE WHERE dt = 'x' VALUES (9, 'i', 'y');
--! lie outside of the partitions
INSERT INTO lake.w.t REPLACE WHERE id = 8 VALUES (9, 'i', 'x');
--! is no partition column
SET spark.sql.sources.partitionOverwriteMode = dynamic;
--*
INSERT OVERWRITE lake.w.t VALUES (10, 'j', 'x'), (11, 'k', 'new');
RESET spark.sql.sources.partitionOverwriteMode;
SELECT id FROM lake.w.t;
--? (7,)
--? (10,)
--? (3,)
--? (11,)
SHOW PARTITIONS lake.w.t;
--? ('dt=new',)
--? ('dt=only',)
--? ('dt=x',)
--? ('dt=z',)
SHOW PARTITIONS lake.w.t PARTITION (dt = 'x');
--> ('dt=x',)
ALTER TABLE lake.w.t DROP PARTITION (dt = 'x');
ALTER TABLE lake.w.t DROP PARTITION (dt = 'nope');
--! cannot be found | has no partition
ALTER TABLE lake.w.t DROP IF EXISTS PARTITION (dt = 'nope');
ALTER TABLE lake.w.t ADD PARTITION (dt = 'nope');
--! it comes with its first rows
ALTER TABLE lake.w.t PARTITION (dt = 'z') RENAME TO PARTITION (dt = 'w');
--! cannot be renamed
TRUNCATE TABLE lake.w.t PARTITION (dt = 'only');
DELETE FROM lake.w.t WHERE id = 3;
--! tables are append-only
DELETE FROM lake.w.t WHERE dt = 'z';
--! tables are append-only
UPDATE lake.w.t SET v = 'z';
--! tables are append-only
MERGE INTO lake.w.t t USING (SELECT 1L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id);
--! tables are append-only
MERGE INTO lake.w.t t USING (SELECT 3L AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = 'm';
--! tables are append-only
SELECT count(*) FROM lake.w.t WHERE dt = 'z';
--> (1,)
TRUNCATE TABLE lake.w.t;
SELECT * FROM lake.w.t;

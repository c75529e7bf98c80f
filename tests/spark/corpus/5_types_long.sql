-- Values of all types, and partitions by several columns.

CREATE DATABASE lake.w5;
CREATE TABLE lake.w5.types (b BOOLEAN, y TINYINT, s SMALLINT, i INT, f FLOAT, d DOUBLE, n DECIMAL(5, 1), t STRING,
  c CHAR(3), vc VARCHAR(5), bin BINARY, da DATE, ts TIMESTAMP_LTZ, nz TIMESTAMP_NTZ, m MAP<STRING, INT>,
  r STRUCT<a: INT, l: ARRAY<STRUCT<z: INT>>>);
INSERT INTO lake.w5.types VALUES (true, 1Y, 2S, 3, 1.5, 2.5, 9.9, 'é''s', 'ab', 'abcde', X'01ff', DATE'2024-02-29',
  TIMESTAMP'2024-03-10 12:00:00 UTC', TIMESTAMP_NTZ'2024-03-10 02:30:00', map('k', 1), named_struct('a', 1, 'l', array(named_struct('z', 2))));
INSERT INTO lake.w5.types (b) VALUES (NULL);
SELECT b, y, s, i, f, d, n, t, c, vc, hex(bin), da, unix_seconds(ts), nz, m['k'], r.l[0].z FROM lake.w5.types WHERE b;
--> (True, 1, 2, 3, 1.5, 2.5, '9.9', "é's", 'ab', 'abcde', '01FF', '2024-02-29', 1710072000, '2024-03-10 02:30:00', 1, 2)
SELECT count(*) FROM lake.w5.types WHERE r IS NULL AND m IS NULL AND c IS NULL;
--> (1,)
INSERT INTO lake.w5.types (vc) VALUES ('abcdef');
--! the longest has 6 characters
CREATE TABLE lake.w5.p2 (id INT, d DATE, h INT) PARTITIONED BY (d, h);
INSERT INTO lake.w5.p2 VALUES (1, DATE'2024-01-01', 1), (2, DATE'2024-01-01', 2), (3, DATE'2024-01-02', 1), (4, NULL, 1);
SHOW PARTITIONS lake.w5.p2;
--? ('d=2024-01-01/h=1',)
--? ('d=2024-01-01/h=2',)
--? ('d=2024-01-02/h=1',)
--? ('d=null/h=1',)
INSERT OVERWRITE lake.w5.p2 PARTITION (d = DATE'2024-01-01', h) VALUES (9, 7);
SELECT * FROM lake.w5.p2;
--? (9, '2024-01-01', 7)
--? (3, '2024-01-02', 1)
--? (4, None, 1)
SELECT id FROM lake.w5.p2 WHERE d >= DATE'2024-01-02' OR d IS NULL;
--? (3,)
--? (4,)
ALTER TABLE lake.w5.p2 DROP PARTITION (d = DATE'2024-01-02', h = 1), PARTITION (d = DATE'2024-01-02', h = 2);
--! cannot be found | has no partition | does not exist
ALTER TABLE lake.w5.p2 DROP IF EXISTS PARTITION (d = DATE'2024-01-02', h = 1), PARTITION (d = DATE'2024-01-02', h = 2);
TRUNCATE TABLE lake.w5.p2 PARTITION (d = DATE'2024-01-01');
SELECT id FROM lake.w5.p2;
--> (4,)

-- Tables that are made, or replaced, together with their rows.

CREATE DATABASE lake.w6;
CREATE TABLE lake.w6.c PARTITIONED BY (p) COMMENT 'made of rows' TBLPROPERTIES ('write-only' = 'true')
AS SELECT id, id % 2 AS p FROM range(4);
SELECT * FROM lake.w6.c;
--? (0, 0)
--? (1, 1)
--? (2, 0)
--? (3, 1)
CREATE TABLE lake.w6.c AS SELECT 1 AS id;
--! already exists | exists already
CREATE TABLE IF NOT EXISTS lake.w6.c AS SELECT raise_error('nobody asks') AS id;
CREATE TABLE lake.w6.failed AS SELECT if(id = 2, raise_error('boom'), id) AS id FROM range(3);
--! boom
CREATE TABLE lake.w6.failed AS SELECT INTERVAL '1' DAY AS i;
--! no column of a table can hold
SHOW TABLES IN lake.w6 LIKE 'failed';
REPLACE TABLE lake.w6.nope AS SELECT 1 AS id;
--! cannot be found | does not exist
REPLACE TABLE lake.w6.c AS SELECT 1 AS id;
--! partition columns would become ()
REPLACE TABLE lake.w6.c PARTITIONED BY (p) AS SELECT if(id = 2, raise_error('boom'), id) AS id, p FROM lake.w6.c;
--! boom
SELECT sum(id) FROM lake.w6.c;
--> (6,)
REPLACE TABLE lake.w6.c PARTITIONED BY (p) AS SELECT 'new' AS v, p FROM lake.w6.c WHERE id > 1;
SELECT * FROM lake.w6.c;
--? ('new', 0)
--? ('new', 1)
SELECT count(*) FROM lake.w6.c VERSION AS OF 1;
--> (4,)
CREATE OR REPLACE TABLE lake.w6.c PARTITIONED BY (p) AS SELECT 1 AS k, 2L AS p;
SELECT * FROM lake.w6.c;
--> (1, 2)
CREATE OR REPLACE TABLE lake.w6.fresh AS SELECT 1 AS k;
CREATE OR REPLACE TABLE lake.w6.fresh (k INT, l STRING);
SELECT * FROM lake.w6.fresh;
DESCRIBE lake.w6.fresh;
--> ('k', 'int', None)
--> ('l', 'string', None)

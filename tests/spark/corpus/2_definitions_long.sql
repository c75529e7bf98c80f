-- Making tables, looking at them, changing and removing them.

CREATE DATABASE lake.def;
CREATE TABLE lake.def.a (id BIGINT NOT NULL COMMENT 'the id', price DECIMAL(10, 2), tags ARRAY<STRING>, dt STRING)
PARTITIONED BY (dt) COMMENT 'orders' TBLPROPERTIES ('snapshot.num-retained.min' = '3', 'mine' = 'it''s');
CREATE TABLE lake.def.a (id INT);
--! already exists | exists already
CREATE TABLE IF NOT EXISTS lake.def.a (id INT);
CREATE TABLE lake.def.q (id BIGINT, k INT) TBLPROPERTIES ('bucket' = '2', 'bucket-key' = 'id');
CREATE TABLE lake.def.another (id INT);
CREATE TABLE lake.def.bad (id INT) TBLPROPERTIES ('file.format' = 'avro');
--! writes parquet
CREATE TABLE lake.def.bad (a INT, a INT);
--! already exists | more than once
CREATE TABLE lake.def.bad (id INT) TBLPROPERTIES ('bucket' = '2');
--! bucket-key
CREATE TABLE lake.def.bad (id INT) TBLPROPERTIES ('bucket' = 'many');
--! many
CREATE TABLE lake.def.bad (id INT) TBLPROPERTIES ('target-file-siz' = '1 mb', 'anabranch.job-nam' = 'x');
--! anabranch.job-nam
CREATE TABLE lake.def.bad (id INT, PRIMARY KEY (id));
--! constraint | defines a key
CREATE TABLE lake.def.bad (dt STRING) PARTITIONED BY (nope);
--! nope
CREATE TABLE lake.def.bad (id INT DEFAULT 3);
--! DEFAULT
CREATE TABLE lake.def.`bad$x` (id INT);
--! is not the name of a table
CREATE TABLE lake.nope.t (id INT);
--! cannot be found | does not exist
SHOW TABLES IN lake.def;
--> ('def', 'a', False)
--> ('def', 'another', False)
--> ('def', 'q', False)
SHOW TABLES FROM lake.def LIKE 'a*';
--> ('def', 'a', False)
--> ('def', 'another', False)
SHOW COLUMNS IN lake.def.a;
--> ('id',)
--> ('price',)
--> ('tags',)
--> ('dt',)
SHOW TBLPROPERTIES lake.def.a;
--> ('mine', "it's")
--> ('snapshot.num-retained.min', '3')
SHOW TBLPROPERTIES lake.def.a ('mine');
--> ('mine', "it's")
DESCRIBE lake.def.a;
--> ('id', 'bigint', 'the id')
--> ('price', 'decimal(10,2)', None)
--> ('tags', 'array<string>', None)
--> ('dt', 'string', None)
--> ('# Partition Information', '', '')
--> ('# col_name', 'data_type', 'comment')
--> ('dt', 'string', None)
DESC TABLE EXTENDED lake.def.a;
--*
--@ classic
DESCRIBE lake.def.a id;
--> ('col_name', 'id')
--> ('data_type', 'bigint')
--> ('comment', 'the id')
DESCRIBE lake.def.nope;
--! cannot be found | does not exist
--@ classic
SHOW CREATE TABLE lake.def.q;
--*
SHOW PARTITIONS lake.def.a;
SHOW PARTITIONS lake.def.q;
--! partition
--@ classic
CREATE TABLE lake.def.like_a LIKE lake.def.a;
--@ classic
SELECT count(*) FROM lake.def.like_a;
--> (0,)
--@ classic
SHOW TBLPROPERTIES lake.def.like_a;
--> ('mine', "it's")
--> ('snapshot.num-retained.min', '3')
--@ classic
DROP TABLE lake.def.like_a;
--@ classic
CREATE TABLE lake.def.like_q LIKE lake.def.q TBLPROPERTIES ('bucket' = '3', 'more' = 'x');
--@ classic
SHOW TBLPROPERTIES lake.def.like_q ('bucket-key');
--> ('bucket-key', 'id')
--@ classic
SHOW TBLPROPERTIES lake.def.like_q ('bucket');
--> ('bucket', '3')
--@ classic
DROP TABLE lake.def.like_q;
--@ classic
CREATE TABLE lake.def.bad (id INT) DEFAULT COLLATION UTF8_LCASE;
--! DEFAULT COLLATION
CREATE TABLE lake.def.v (id INT, c CHAR(5), v VARCHAR(3));
INSERT INTO lake.def.v SELECT 1, 'a', 'b';
INSERT INTO lake.def.v SELECT 1, 'a', 'long';
--! longer | EXCEED_LIMIT_LENGTH
INSERT INTO lake.def.v SELECT 1, 'longer', 'b';
--! longer | EXCEED_LIMIT_LENGTH
ALTER TABLE lake.def.v ALTER COLUMN v TYPE VARCHAR(4);
ALTER TABLE lake.def.v ALTER COLUMN v TYPE VARCHAR(2);
--! v
ALTER TABLE lake.def.v ALTER COLUMN c TYPE STRING;
--! c
INSERT INTO lake.def.v SELECT id + 1, c, 'long' FROM lake.def.v;
INSERT INTO lake.def.v SELECT * FROM lake.def.v WHERE id = 2;
SELECT id, concat(c, '|'), v FROM lake.def.v WHERE c = 'a';
--? (1, 'a|', 'b')
--? (2, 'a|', 'long')
--? (2, 'a|', 'long')
DROP TABLE lake.def.v;
ALTER TABLE lake.def.a ADD COLUMNS (w INT COMMENT 'a w' AFTER id, s STRUCT<a: INT, b: STRING>);
ALTER TABLE lake.def.a ADD COLUMN s.c DOUBLE FIRST;
ALTER TABLE lake.def.a ADD COLUMN w STRING;
--! already exists | exists already
ALTER TABLE lake.def.a ADD COLUMN d INT DEFAULT 7;
--! a column's DEFAULT
ALTER TABLE lake.def.a ALTER COLUMN w TYPE BIGINT;
ALTER TABLE lake.def.a ALTER COLUMN w TYPE STRING;
--! w
ALTER TABLE lake.def.a ALTER COLUMN w COMMENT 'a wide one';
ALTER TABLE lake.def.a ALTER COLUMN w FIRST;
ALTER TABLE lake.def.a ALTER COLUMN id DROP NOT NULL;
ALTER TABLE lake.def.a ALTER COLUMN w SET NOT NULL;
--! w
ALTER TABLE lake.def.a CHANGE COLUMN price price DECIMAL(12, 2);
--*
ALTER TABLE lake.def.a RENAME COLUMN price TO cost;
ALTER TABLE lake.def.a RENAME COLUMN s.a TO z;
ALTER TABLE lake.def.a RENAME COLUMN nope TO z;
--! nope
ALTER TABLE lake.def.a DROP COLUMN tags;
ALTER TABLE lake.def.a DROP COLUMNS (s.b);
ALTER TABLE lake.def.a DROP COLUMN IF EXISTS nope;
ALTER TABLE lake.def.a DROP COLUMN dt;
--! is a partition key and cannot be dropped
DESCRIBE lake.def.a;
--> ('w', 'bigint', 'a wide one')
--> ('id', 'bigint', 'the id')
--> ('cost', 'decimal(12,2)', None)
--> ('dt', 'string', None)
--> ('s', 'struct<c:double,z:int>', None)
--> ('# Partition Information', '', '')
--> ('# col_name', 'data_type', 'comment')
--> ('dt', 'string', None)
ALTER TABLE lake.def.a SET TBLPROPERTIES ('mine' = 'yours', 'write-only' = 'true');
ALTER TABLE lake.def.a SET TBLPROPERTIES ('bucket' = 'x');
--! bucket
ALTER TABLE lake.def.a SET TBLPROPERTIES ('option.mine' = 'x');
--! option.mine
ALTER TABLE lake.def.a SET TBLPROPERTIES ('comment' = 'x');
ALTER TABLE lake.def.a UNSET TBLPROPERTIES ('comment');
ALTER TABLE lake.def.a UNSET TBLPROPERTIES ('snapshot.num-retained.min');
ALTER TABLE lake.def.a UNSET TBLPROPERTIES IF EXISTS ('snapshot.num-retained.max');
SHOW TBLPROPERTIES lake.def.a;
--> ('mine', 'yours')
--> ('write-only', 'true')
COMMENT ON TABLE lake.def.a IS 'all orders';
ALTER TABLE lake.def.a RENAME TO lake.def.orders;
SELECT * FROM lake.def.a;
--! cannot be found | does not exist
ALTER TABLE lake.def.q RENAME TO def.orders;
--! already exists | exists already
ALTER TABLE lake.def.orders SET LOCATION '/tmp/x';
--! location
ALTER TABLE lake.def.nope ADD COLUMN a INT;
--! cannot be found | does not exist
DROP TABLE lake.def.nope;
--! cannot be found | does not exist
DROP TABLE IF EXISTS lake.def.nope;
DROP TABLE lake.def.another;
DROP TABLE IF EXISTS lake.def.q PURGE;
DROP TABLE lake.def.`orders$branch_main`;
--! is not the name of a table
SHOW TABLES IN lake.def;
--> ('def', 'orders', False)
CREATE TABLE lake.def.e (user BIGINT, at TIMESTAMP_NTZ) TBLPROPERTIES ('watermark' = "at - INTERVAL '5' SECOND");
ALTER TABLE lake.def.e RENAME COLUMN at TO order_time;
SHOW TBLPROPERTIES lake.def.e ('schema.watermark.0.rowtime');
--> ('schema.watermark.0.rowtime', 'order_time')
ALTER TABLE lake.def.e DROP COLUMN order_time;
--! watermark
ALTER TABLE lake.def.e UNSET TBLPROPERTIES ('watermark');
ALTER TABLE lake.def.e DROP COLUMN order_time;

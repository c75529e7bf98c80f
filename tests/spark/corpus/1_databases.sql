-- Databases, and what is in the warehouse.

CREATE DATABASE lake.shop;
CREATE DATABASE lake.shop;
--! already exists | exists already
CREATE DATABASE IF NOT EXISTS lake.shop;
CREATE SCHEMA lake.`old shop`;
SHOW DATABASES IN spark_catalog LIKE 'defaul*';
--> ('default',)
SHOW TABLES IN spark_catalog.default LIKE 'no_such_table*';
SHOW DATABASES IN lake;
--> ('`old shop`',)
--> ('shop',)
SHOW NAMESPACES IN lake LIKE 's*';
--> ('shop',)
CREATE DATABASE lake.shop2 COMMENT 'no place for it';
--! cannot have comment
CREATE DATABASE lake.sys;
--! is reserved
CREATE DATABASE lake.a.b;
--! databases have one level
CREATE TABLE lake.`old shop`.`a table` (`a column` INT);
INSERT INTO lake.`old shop`.`a table` VALUES (1);
SELECT `a column` + 1 AS b FROM lake.`old shop`.`a table`;
--> (2,)
SHOW TABLES IN lake.`old shop`;
--> ('`old shop`', 'a table', False)
DROP DATABASE lake.`old shop`;
--! has 1 tables
DROP DATABASE lake.`old shop` CASCADE;
DROP DATABASE lake.`old shop`;
--! cannot be found | does not exist
DROP DATABASE IF EXISTS lake.`old shop`;
SHOW TABLES IN lake.`old shop`;
--! cannot be found | does not exist

-- The role of api, worker, scheduler and the operator's tool. It reads and writes rows; it owns
-- nothing and cannot change the schema. The role triprize owns the database, runs the migrations and
-- creates API keys: triggers reject that from this role.
--
-- Run it once, as a superuser, in the database, before the first migration: it grants privileges on
-- tables that triprize will create. The variable POSTGRES_APP_PASSWORD has the password, or
-- POSTGRES_APP_PASSWORD_FILE names a file with it.
\set ON_ERROR_STOP on
\getenv password POSTGRES_APP_PASSWORD
\getenv file POSTGRES_APP_PASSWORD_FILE
\if :{?file}
  \set password `cat "$POSTGRES_APP_PASSWORD_FILE"`
\endif
SELECT :'password' AS password WHERE :'password' <> '' \gset
CREATE ROLE triprize_app LOGIN PASSWORD :'password';
ALTER DEFAULT PRIVILEGES FOR ROLE triprize GRANT USAGE ON SCHEMAS TO triprize_app;
ALTER DEFAULT PRIVILEGES FOR ROLE triprize GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO triprize_app;
ALTER DEFAULT PRIVILEGES FOR ROLE triprize GRANT USAGE ON SEQUENCES TO triprize_app;

-- The role of api, worker, scheduler and the operator's tool. It reads and changes rows; it owns
-- nothing, and cannot change the schema. The role triprize owns the database, runs the migrations and
-- makes API keys: triggers refuse that to this role.
--
-- Run it once, as a superuser, in the database, before the first migration: it gives rights in
-- tables that triprize will create. The password is in the variable POSTGRES_APP_PASSWORD.
\set ON_ERROR_STOP on
\getenv password POSTGRES_APP_PASSWORD
CREATE ROLE triprize_app LOGIN PASSWORD :'password';
ALTER DEFAULT PRIVILEGES FOR ROLE triprize GRANT USAGE ON SCHEMAS TO triprize_app;
ALTER DEFAULT PRIVILEGES FOR ROLE triprize GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO triprize_app;
ALTER DEFAULT PRIVILEGES FOR ROLE triprize GRANT USAGE ON SEQUENCES TO triprize_app;

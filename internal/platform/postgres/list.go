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

// ListWindow is the maximum number of rows that one page of a [List] reads.
const ListWindow = 10_000

// List reads rows newest first, one page at a time, by ids that sort by creation time: a purchase and its
// job by that of the acceptance. The cursor of a page is the last id before it, so new rows do not shift pages.
//
// A list follows an index on the columns of [List.Along] and then id: a page reads only its own rows. Other
// conditions are checked row by row. With [List.Also], for rows that the reader may know of, a page reads at
// most [ListWindow] rows, so it may be short or even empty without being the last. [List.Only] hides rows:
// the page does not reveal how many.
type List[T any] struct {
	From     string // a table, or a subquery in brackets
	FromArgs []any  // for each ? in From
	Alias    string // its name in columns and conditions
	Columns  string
	Scan     pgx.RowToFunc[T]
	ID       func(T) uuid.UUID
	Window   int // rows that a page reads; 0: ListWindow

	columns         []string // of the index, before id
	values          []any
	hidden, checked []condition
}

type condition struct {
	sql  string // ? stands for an argument
	args []any
}

// ListPage selects a page of a list.
type ListPage struct {
	Before uuid.UUID // the cursor that Page returned; zero: the first page
	Limit  int       // maximum number of rows
}

// Along adds a column of the index with its value.
func (l *List[T]) Along(column string, value any) {
	l.columns, l.values = append(l.columns, l.Alias+"."+column), append(l.values, value)
}

// Only adds a condition on the rows that the reader may see; ? stands for an argument.
func (l *List[T]) Only(sql string, args ...any) { l.hidden = append(l.hidden, condition{sql, args}) }

// OnlyOf hides the rows that a grant does not select, by the columns of client and user.
func (l *List[T]) OnlyOf(who access.Grant, client, user string) {
	if only := who.Client(); only != nil {
		l.Only(client+` = ?`, *only)
	}
	if only := who.User(); only != nil {
		l.Only(user+` = ?`, *only)
	}
}

// Also adds a condition that is checked row by row.
func (l *List[T]) Also(sql string, args ...any) { l.checked = append(l.checked, condition{sql, args}) }

// Page returns a page of the list and the cursor of the next one, zero after the last.
func (l *List[T]) Page(ctx context.Context, db DB, p ListPage) (page []T, next uuid.UUID, err error) {
	// Each statement is planned anew: the best index depends on the values.
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
	if n := len(page); n > 0 && next != uuid.Nil { // new rows have moved the window
		if last := l.ID(page[n-1]); bytes.Compare(last[:], next[:]) < 0 {
			next = last
		}
	}
	return page, next, err
}

// end returns the last id of the window, or zero if no row follows.
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

// inOrder returns SQL for the visible rows from the page on, and adds its arguments to args.
//
// Equality of the columns is written as two bounds. With "user_id = $1 ORDER BY id" the planner may use the
// primary key for the order and skip all newer rows of other users, if it expects many rows of this user.
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

// bind joins conditions with AND and numbers their arguments.
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

package export

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"

	"triprize/internal/domain/money"
)

// decimal is an amount of money as a decimal of its currency, next to its minor units: the field Amount is that of
// AmountMinor. Empty: there is none, as its minor units or its currency are missing.
type decimal string

// MarshalJSON implements json.Marshaler.
func (d decimal) MarshalJSON() ([]byte, error) {
	if d == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(d))
}

// labels are texts that a cell separates by a semicolon; other lists are separated by a space.
type labels []string

// column is a member of a row.
type column struct {
	name            string
	at              []int
	minor, currency []int // of a decimal
}

// columnsOf returns the JSON members of a row in their order.
func columnsOf(row reflect.Type) (list []column) {
	for _, field := range reflect.VisibleFields(row) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous || name == "-" {
			continue
		}
		c := column{name: name, at: field.Index}
		if field.Type == reflect.TypeFor[decimal]() {
			minor, _ := row.FieldByName(field.Name + "Minor")
			currency, _ := row.FieldByName(cmp.Or(field.Tag.Get("in"), "Currency"))
			c.minor, c.currency = minor.Index, currency.Index
		}
		list = append(list, c)
	}
	return list
}

// encoder returns what writes a row, and what ends it. head says whether CSV begins with its header.
func (e *Export) encoder(w *bufio.Writer, head bool) (encode func(row any) error, end func() error) {
	columns := columnsOf(e.of.row)
	if e.Lines {
		lines := json.NewEncoder(w)
		lines.SetEscapeHTML(false)
		return func(row any) error {
			e.complete(columns, reflect.ValueOf(row).Elem())
			return lines.Encode(row)
		}, func() error { return nil }
	}
	lines := csv.NewWriter(w)
	lines.UseCRLF, lines.Comma = true, e.comma
	cells := make([]string, len(columns))
	for i, c := range columns {
		cells[i] = c.name
	}
	if head {
		_ = lines.Write(cells) // into the buffer of w, which keeps an error
	}
	return func(row any) error {
			v := reflect.ValueOf(row).Elem()
			e.complete(columns, v)
			for i, c := range columns {
				cells[i] = cell(v.FieldByIndex(c.at))
			}
			return lines.Write(cells)
		}, func() error {
			lines.Flush()
			return lines.Error()
		}
}

// complete sets the decimals of a row, and the zone of its times.
func (e *Export) complete(columns []column, row reflect.Value) {
	for _, c := range columns {
		field := row.FieldByIndex(c.at)
		switch value := field.Interface().(type) {
		case time.Time:
			field.Set(reflect.ValueOf(value.In(e.printed)))
		case *time.Time:
			if value != nil {
				*value = value.In(e.printed)
			}
		case decimal:
			if minor, currency := reflect.Indirect(row.FieldByIndex(c.minor)), reflect.Indirect(row.FieldByIndex(c.currency)); minor.IsValid() && currency.IsValid() {
				field.SetString(money.Currency(currency.String()).Decimal(money.Amount(minor.Int())))
			}
		}
	}
	if row, ok := row.Addr().Interface().(interface{ finish(zone *time.Location) }); ok {
		row.finish(e.printed)
	}
}

// cell writes a member: empty for none, a list with its elements separated, and what has members itself as JSON.
func cell(v reflect.Value) string {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return ""
		}
		v = v.Elem()
	}
	switch value := v.Interface().(type) {
	case time.Time:
		return value.Format(time.RFC3339Nano)
	case uuid.UUID:
		return value.String()
	case decimal:
		return string(value)
	case labels:
		return text(strings.Join(value, "; "))
	case []string:
		return text(strings.Join(value, " "))
	case []int:
		return strings.Trim(fmt.Sprint(value), "[]")
	}
	switch v.Kind() {
	case reflect.String:
		return text(v.String())
	case reflect.Int, reflect.Int64:
		return strconv.FormatInt(v.Int(), 10)
	case reflect.Bool:
		return strconv.FormatBool(v.Bool())
	}
	if v.Len() == 0 { // a map or a list
		return ""
	}
	var document bytes.Buffer
	encoder := json.NewEncoder(&document)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(v.Interface()) // strings, numbers and times are always JSON
	return escapeFormulas(strings.TrimSuffix(document.String(), "\n"), func(r rune) string { return fmt.Sprintf(`\u%04x`, r) })
}

// text writes a text of somebody else. What begins like a formula gets an apostrophe in front.
func text(text string) string {
	return escapeFormulas(text, func(r rune) string { return "'" + string(r) })
}

// unseen are signs that may stand in front of the first that is seen: spaces, controls, marks.
var unseen = []*unicode.RangeTable{unicode.Z, unicode.C, unicode.M, unicode.Other_Default_Ignorable_Code_Point}

// escapeFormulas escapes what a spreadsheet would take for the beginning of a formula, and carry
// out: at the beginning of a text, and after each mark where it may split the text into cells.
func escapeFormulas(text string, escape func(r rune) string) string {
	var out strings.Builder
	begins := true // a cell begins here
	for _, r := range text {
		if begins && strings.ContainsRune("=+-@\t\r\n|%'＝＋－＠﹦﹢﹣﹫", r) {
			out.WriteString(escape(r))
		} else {
			out.WriteRune(r)
		}
		begins = strings.ContainsRune(",;|\t\r\n", r) || begins && (r == '"' || unicode.In(r, unseen...))
	}
	return out.String()
}

package stripesim

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"
)

// journal is the file of all changes, one a line. The server's lock guards it.
type journal struct {
	dir   string // empty: nothing is written
	lock  *flock.Flock
	file  *os.File
	err   error // the disk failed: nothing is written any more
	size  int64
	start int64 // size after the last rewriting
}

const (
	journalFile = "journal.jsonl"
	leastLong   = 16 << 20 // bytes; a shorter journal is not rewritten
)

// openJournal reads a folder's journal into a state. Without a folder there is none.
func openJournal(dir string, s *state) (*journal, error) {
	if dir == "" {
		return &journal{}, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	j := &journal{dir: dir, lock: flock.New(filepath.Join(dir, "lock"), flock.SetPermissions(0o600))}
	if free, err := j.lock.TryLock(); err != nil || !free {
		return nil, errors.Join(fmt.Errorf("sandbox: %s is in use by another sandbox", dir), err)
	}
	if err := read(filepath.Join(dir, journalFile), s); err != nil {
		return nil, errors.Join(fmt.Errorf("sandbox: %w", err), j.lock.Unlock())
	}
	return j, nil
}

// read applies every line. The last one may be torn: its change was never answered.
func read(name string, s *state) error {
	file, err := os.Open(name) //nolint:gosec // the folder is the operator's choice
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	reader := bufio.NewReader(file)
	for n := 1; ; n++ {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // what follows the last newline is torn
		}
		var records []record
		if err == nil {
			err = json.Unmarshal(line, &records)
		}
		for _, r := range records {
			err = errors.Join(err, s.apply(r))
		}
		if err != nil {
			return fmt.Errorf("%s, line %d: %w", name, n, err)
		}
	}
}

// append writes a change. A journal most of which is out of date is rewritten.
func (j *journal) append(s *state, records []record) error {
	if j.dir == "" || len(records) == 0 || j.err != nil {
		return j.err
	}
	if j.size > leastLong && j.size > 4*j.start {
		return j.rewrite(s)
	}
	var n int
	n, j.err = j.file.Write(append(encode(records), '\n'))
	j.size += int64(n)
	return j.err
}

// rewrite replaces the journal by one that has only what the state has.
func (j *journal) rewrite(s *state) error {
	if j.dir == "" {
		return nil
	}
	j.err = j.replace(s)
	j.start = j.size
	return j.err
}

func (j *journal) replace(s *state) error {
	name := filepath.Join(j.dir, journalFile)
	file, err := os.OpenFile(name+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600) //nolint:gosec // the folder is the operator's choice
	if err != nil {
		return err
	}
	writer := bufio.NewWriter(file)
	j.size = 0
	for _, r := range s.records() {
		n, _ := writer.Write(append(encode([]record{r}), '\n')) // Flush says what failed
		j.size += int64(n)
	}
	if err := errors.Join(writer.Flush(), file.Sync()); err != nil {
		return errors.Join(err, file.Close())
	}
	if err := os.Rename(file.Name(), name); err != nil {
		return errors.Join(err, file.Close())
	}
	_ = j.file.Close() // it is deleted, if there was one
	j.file = file
	return nil
}

// close lets another sandbox have the folder.
func (j *journal) close() error {
	if j.dir == "" {
		return nil
	}
	return errors.Join(j.err, j.file.Close(), j.lock.Unlock())
}

// record is an object in the journal, or what has changed of it.
type record struct {
	Kind  string          `json:"k"`
	ID    string          `json:"i,omitempty"`
	Value json.RawMessage `json:"v"`
}

// encode cannot fail: our own structs have nothing that JSON has not.
func encode(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}

// apply puts a record of the journal into the state. An object that is there is changed in its place,
// so that a long journal is read in time that grows with its length only.
func (s *state) apply(r record) error {
	switch r.Kind {
	case "key":
		s.keys[r.ID] = new(answer)
		return json.Unmarshal(r.Value, s.keys[r.ID])
	case "clock":
		return json.Unmarshal(r.Value, &s.ahead)
	}
	v := s.by[r.ID]
	if v == nil {
		if v = blank(r.Kind); v == nil {
			return fmt.Errorf("a record of kind %q: another version of the sandbox wrote this folder; delete it", r.Kind)
		}
		defer s.put(v)
	}
	return json.Unmarshal(r.Value, v)
}

// resume sets the alarms of what was read.
func (s *state) resume() {
	held := make(map[string]bool)
	for i := range each[*intent](s) {
		for _, id := range i.Held {
			held[id] = true
		}
	}
	for _, v := range s.by {
		for _, at := range v.alarms() {
			s.set(alarm{at: at, id: v.id()})
		}
	}
	for e := range each[*event](s) {
		if !held[e.ID] {
			for range e.Sendings {
				s.set(alarm{at: e.Next, events: []string{e.ID}})
			}
		}
	}
}

// records returns everything, for a new journal.
func (s *state) records() []record {
	all := []record{{"clock", "", encode(s.ahead)}}
	for _, list := range s.lists {
		for _, v := range list {
			all = append(all, record{v.kind(), v.id(), encode(v)})
		}
	}
	for key, v := range s.keys {
		all = append(all, record{"key", key, encode(v)})
	}
	return all
}

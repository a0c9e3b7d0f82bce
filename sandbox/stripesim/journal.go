package stripesim

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/gofrs/flock"
)

// journal is the file of all changes, one a line. Changes that come while it is
// written to disk are written together.
type journal struct {
	dir  string
	lock *flock.Flock

	disk sync.Mutex // held while the file is written; taken before mu
	file *os.File

	mu      sync.Mutex
	flushed *sync.Cond
	waiting []byte
	last    int64 // number of the newest change
	durable int64 // number of the newest change that is on disk
	err     error // the disk failed: nothing is durable any more
	size    int64
	start   int64 // size after the last rewriting
	closed  bool
	done    chan struct{}
}

const (
	journalFile = "journal.jsonl"
	leastLong   = 16 << 20 // bytes; a shorter journal is not rewritten
)

// openJournal reads a folder's journal into a state. Without a folder nothing is kept.
func openJournal(dir string, s *state) (*journal, error) {
	j := &journal{dir: dir, done: make(chan struct{})}
	j.flushed = sync.NewCond(&j.mu)
	if dir == "" {
		close(j.done)
		return j, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	j.lock = flock.New(filepath.Join(dir, "lock"), flock.SetPermissions(0o600))
	if free, err := j.lock.TryLock(); err != nil || !free {
		return nil, errors.Join(fmt.Errorf("sandbox: %s is in use by another sandbox", dir), err)
	}
	if err := read(filepath.Join(dir, journalFile), s); err != nil {
		return nil, errors.Join(err, j.lock.Unlock())
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
		return fmt.Errorf("sandbox: %w", err)
	}
	defer func() { _ = file.Close() }()
	reader := bufio.NewReader(file)
	for n := 1; ; n++ {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // what follows the last newline is torn
		}
		if err != nil {
			return fmt.Errorf("sandbox: read %s: %w", name, err)
		}
		var records []record
		if err := json.Unmarshal(line, &records); err != nil {
			return fmt.Errorf("sandbox: %s, line %d: %w", name, n, err)
		}
		for _, r := range records {
			if err := s.apply(r); err != nil {
				return fmt.Errorf("sandbox: %s, line %d: %w", name, n, err)
			}
		}
	}
}

// begin writes a short journal of what was read, and starts to take changes.
func (j *journal) begin(records []record) error {
	if j.dir == "" {
		return nil
	}
	j.rewrite(records)
	if j.err != nil {
		return errors.Join(j.err, j.lock.Unlock())
	}
	go j.flush()
	return nil
}

// append takes a change and returns its number.
func (j *journal) append(records []record) int64 {
	if j.dir == "" || len(records) == 0 {
		j.mu.Lock()
		defer j.mu.Unlock()
		return j.last
	}
	line, err := json.Marshal(records)
	if err != nil {
		panic(err) // they were encoded before
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.waiting = append(append(j.waiting, line...), '\n')
	j.last++
	j.flushed.Broadcast()
	return j.last
}

// wait returns when a change is on disk.
func (j *journal) wait(seq int64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for j.durable < seq && j.err == nil {
		j.flushed.Wait()
	}
	return j.err
}

// flush writes what is waiting until the journal is closed.
func (j *journal) flush() {
	defer close(j.done)
	for {
		j.mu.Lock()
		for len(j.waiting) == 0 && !j.closed {
			j.flushed.Wait()
		}
		over := len(j.waiting) == 0
		j.mu.Unlock()
		if over {
			return
		}
		j.write()
	}
}

func (j *journal) write() {
	j.disk.Lock()
	defer j.disk.Unlock()
	j.mu.Lock()
	lines, seq := j.waiting, j.last
	j.waiting = nil
	j.mu.Unlock()
	_, err := j.file.Write(lines)
	if err == nil {
		err = j.file.Sync()
	}
	j.finished(seq, err, j.size+int64(len(lines)))
}

func (j *journal) finished(seq int64, err error, size int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err != nil && j.err == nil {
		j.err = fmt.Errorf("sandbox: the journal cannot be written: %w", err)
	}
	if err == nil && j.err == nil {
		j.durable = seq
	}
	j.size = size
	j.flushed.Broadcast()
}

// long tells whether most of the journal is out of date.
func (j *journal) long() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.dir != "" && j.size > leastLong && j.size > 4*j.start
}

// rewrite replaces the journal by one with only these records, which include all
// changes so far. The caller sees to it that none is made meanwhile.
func (j *journal) rewrite(records []record) {
	j.disk.Lock()
	defer j.disk.Unlock()
	j.mu.Lock()
	seq := j.last
	j.waiting = nil
	j.mu.Unlock()
	size, err := j.replace(records)
	j.start = size
	j.finished(seq, err, size)
}

func (j *journal) replace(records []record) (size int64, err error) {
	name := filepath.Join(j.dir, journalFile)
	file, err := os.OpenFile(name+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600) //nolint:gosec // the folder is the operator's choice
	if err != nil {
		return 0, err
	}
	writer := bufio.NewWriter(file)
	for _, r := range records {
		line, err := json.Marshal([]record{r})
		if err != nil {
			panic(err)
		}
		size += int64(len(line)) + 1
		if _, err := writer.Write(append(bytes.TrimSpace(line), '\n')); err != nil {
			return 0, errors.Join(err, file.Close())
		}
	}
	if err := errors.Join(writer.Flush(), file.Sync()); err != nil {
		return 0, errors.Join(err, file.Close())
	}
	if err := os.Rename(file.Name(), name); err != nil {
		return 0, errors.Join(err, file.Close())
	}
	if j.file != nil {
		_ = j.file.Close() // it is deleted
	}
	j.file = file
	return size, syncDir(j.dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir) //nolint:gosec // the folder is the operator's choice
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// close writes what is waiting and gives the folder back.
func (j *journal) close() error {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return nil
	}
	j.closed = true
	j.flushed.Broadcast()
	j.mu.Unlock()
	<-j.done
	if j.dir == "" {
		return nil
	}
	return errors.Join(j.err, j.file.Close(), j.lock.Unlock())
}

// record is an object in the journal.
type record struct {
	Kind  string          `json:"k"`
	ID    string          `json:"i,omitempty"`
	Value json.RawMessage `json:"v"`
}

// apply puts a record of the journal into the state.
func (s *state) apply(r record) error {
	var err error
	switch r.Kind {
	case "intent":
		err = load(s, &s.intents, r)
	case "charge":
		err = load(s, &s.charges, r)
	case "refund":
		err = load(s, &s.refunds, r)
	case "dispute":
		err = load(s, &s.disputes, r)
	case "event":
		err = load(s, &s.events, r)
	case "movement":
		err = load(s, &s.movements, r)
	case "delivery":
		var d sending
		if err = json.Unmarshal(r.Value, &d); err == nil {
			if e := s.events.by[r.ID]; e != nil {
				e.Sendings, e.delivery = d.Sendings, d.delivery
			}
			return nil // its event has been counted
		}
	case "key":
		v := new(answer)
		if err = json.Unmarshal(r.Value, v); err == nil {
			s.keys[r.ID] = v
		}
	case "clock":
		err = json.Unmarshal(r.Value, &s.ahead)
	default:
		err = fmt.Errorf("a record of kind %q", r.Kind)
	}
	if err != nil {
		return err
	}
	s.measure(r.Kind+r.ID, len(r.Value))
	return nil
}

// load puts an object of the journal into its collection. The pointer in the list stays the same,
// so that a long journal is read in time that grows with its length only.
func load[T interface {
	entry
	*E
}, E any](s *state, c *collection[T], r record) error {
	v := T(new(E))
	if err := json.Unmarshal(r.Value, v); err != nil {
		return err
	}
	if old, known := c.by[v.id()]; known {
		*old = *v
	} else {
		c.put(v)
	}
	s.wake(v.id(), v.alarms()...)
	return nil
}

// measure keeps account of the memory that objects take.
func (s *state) measure(id string, size int) {
	s.bytes += int64(size - s.sizes[id])
	s.sizes[id] = size
}

func (s *state) forget(kind string, ids ...string) {
	for _, id := range ids {
		s.bytes -= int64(s.sizes[kind+id])
		delete(s.sizes, kind+id)
	}
}

// records returns everything, for a new journal.
func (s *state) records() []record {
	all := slices.Concat([]record{encode("clock", "", s.ahead)}, s.intents.records(), s.charges.records(), s.refunds.records(),
		s.disputes.records(), s.movements.records(), s.events.records())
	for key, v := range s.keys {
		all = append(all, encode("key", key, v))
	}
	return all
}

func (c *collection[T]) records() []record {
	all := make([]record, len(c.list))
	for i, v := range c.list {
		all[i] = encode(v.kind(), v.id(), v)
	}
	return all
}

// encode cannot fail: our own structs have nothing that JSON has not.
func encode(kind, id string, v any) record {
	value, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return record{Kind: kind, ID: id, Value: value}
}

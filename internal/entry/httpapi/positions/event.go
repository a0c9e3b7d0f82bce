package positions

const (
	eventsLeast    = 64 << 10 // bytes of the events that are kept of a board, or as many as the board has; others are encoded again
	eventPositions = 2_000    // the most that an event brings, about 120 kB
)

// eventBytes bounds the events that a board keeps.
func (b *Board) eventBytes() int { return max(eventsLeast, len(b.body)) }

// eventKey is what an event of a board depends on.
type eventKey struct {
	progress string // the version of the rest of the event
	since    int64
}

type event struct {
	data    []byte
	isWhole bool
}

// Event returns the data of an event with what has changed since a version, as encode
// makes it from the board's document. If that is too much, encode gets nil, and isWhole is
// false.
func (b *Board) Event(progress string, since int64, encode func(document []byte) []byte) (data []byte, isWhole bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := eventKey{progress, since}
	made, ok := b.events[key]
	if !ok {
		changed, err := b.View(since, "", nil)
		if err != nil {
			return nil, false, err
		}
		var document []byte
		if made.isWhole = changed.Positions <= eventPositions; made.isWhole {
			document = changed.Document()
		}
		made.data = encode(document)
		if b.kept+len(made.data) <= b.eventBytes() {
			b.events[key] = made
			b.kept += len(made.data)
		}
	}
	return made.data, made.isWhole, nil
}

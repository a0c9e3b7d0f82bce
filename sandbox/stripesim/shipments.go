package stripesim

// shipment is events that are sent one after the other, at a moment.
type shipment struct {
	at     int64 // Unix milliseconds of the sandbox's clock
	order  int64 // of those of one moment, the first is sent first
	seq    int64 // of the journal: nothing is sent before it is on disk
	events []string
}

// shipments is a heap by time.
type shipments []shipment

func (s shipments) Len() int      { return len(s) }
func (s shipments) Swap(i, j int) { s[i], s[j] = s[j], s[i] }
func (s shipments) Less(i, j int) bool {
	return s[i].at < s[j].at || (s[i].at == s[j].at && s[i].order < s[j].order)
}

// Push implements heap.Interface.
func (s *shipments) Push(v any) {
	if one, ok := v.(shipment); ok {
		*s = append(*s, one)
	}
}

// Pop implements heap.Interface.
func (s *shipments) Pop() any {
	last := (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return last
}

package fleet

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"triprize/internal/testkit/servers"
)

// Tap stands between a process and Postgres. It counts the statements that the
// process runs, by their text, and remembers its transactions. It changes nothing, and can cut the network.
type Tap struct {
	URL    string // of Postgres, through the tap
	server string
	own    net.Listener
	cut    sync.RWMutex // locked while nothing passes

	mu           sync.Mutex
	runs         map[string]int // by statement
	transactions [][]string     // statements of those that were committed
	cutAt        string         // see [Tap.CutAt]
}

// NewTap returns a tap to the system's Postgres. It ends with the test.
func NewTap(t *testing.T, postgres string) *Tap {
	t.Helper()
	u, err := url.Parse(postgres)
	servers.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	servers.NoError(t, err)
	p := &Tap{server: u.Host, own: listener, runs: make(map[string]int)}
	u.Host = listener.Addr().String()
	p.URL = u.String()
	t.Cleanup(func() { _ = listener.Close() }) // connections end with the processes, which end later
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serve(client)
		}
	}()
	return p
}

// Cut lets nothing pass until heal is called: connections are half open. heal is idempotent.
func (p *Tap) Cut(t *testing.T) (heal func()) {
	p.cut.Lock()
	heal = sync.OnceFunc(p.cut.Unlock)
	t.Cleanup(heal)
	return heal
}

// CutAt is Cut as soon as a process runs a statement with a text in it.
func (p *Tap) CutAt(t *testing.T, text string) (heal func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutAt = text
	heal = sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.cutAt == "" {
			p.cut.Unlock()
		}
		p.cutAt = ""
	})
	t.Cleanup(heal)
	return heal
}

// Vanish cuts the network until the test ends, and nobody connects any more.
func (p *Tap) Vanish(t *testing.T) {
	p.Cut(t)
	_ = p.own.Close()
}

// uncut is a connection that writes once the network is not cut.
type uncut struct {
	io.Writer
	cut *sync.RWMutex
}

// Write implements io.Writer.
func (u uncut) Write(b []byte) (int, error) {
	u.cut.RLock()
	defer u.cut.RUnlock()
	return u.Writer.Write(b)
}

func (p *Tap) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(uncut{client, &p.cut}, server)
		_ = client.Close()
	})
	p.listen(client, uncut{server, &p.cut})
	_ = server.Close()
	back.Wait()
}

// listen passes on the messages of a client and counts: a Bind, which is one run
// of a statement that a Parse has named, and a Query, which has its text in it.
func (p *Tap) listen(client io.Reader, server io.Writer) {
	named := make(map[string]string)
	var open []string // statements of the transaction that is open
	for first := true; ; first = false {
		message := make([]byte, 5) // a kind, which the first message has not, and the length of the rest
		head := message
		if first {
			head = message[1:]
		}
		if _, err := io.ReadFull(client, head); err != nil {
			return
		}
		length := binary.BigEndian.Uint32(message[1:])
		if length < 4 || length > 64<<20 {
			return
		}
		body := make([]byte, length-4)
		if _, err := io.ReadFull(client, body); err != nil {
			return
		}
		name, rest, _ := bytes.Cut(body, []byte{0})
		text, _, _ := bytes.Cut(rest, []byte{0})
		switch message[0] {
		case 'P': // Parse: name, text
			named[string(name)] = string(text)
		case 'B': // Bind: portal, name of the statement
			open = p.ran(named[string(text)], open)
		case 'Q': // Query: text
			open = p.ran(string(name), open)
		}
		if _, err := server.Write(append(head, body...)); err != nil {
			return
		}
	}
}

// ran notes a statement and returns the open transaction with it.
func (p *Tap) ran(statement string, open []string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runs[statement]++
	if p.cutAt != "" && strings.Contains(statement, p.cutAt) {
		p.cutAt = ""
		p.cut.Lock()
	}
	switch verb, _, _ := strings.Cut(strings.ToLower(statement), " "); strings.TrimSuffix(verb, ";") {
	case "begin", "rollback":
		return nil
	case "commit":
		p.transactions = append(p.transactions, open)
		return nil
	}
	return append(open, statement)
}

// Transactions returns the transactions that were committed so far, each as its
// statements in order.
func (p *Tap) Transactions() [][]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.transactions)
}

// Count returns how many statements with a text in them were run.
func (p *Tap) Count(text string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for statement, runs := range p.runs {
		if strings.Contains(statement, text) {
			n += runs
		}
	}
	return n
}

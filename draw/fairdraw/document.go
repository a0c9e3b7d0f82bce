package fairdraw

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"

	"github.com/google/uuid"
)

// maxMember bounds what one member of a document, except its list of sold positions, may
// take in memory, in bytes: a document comes from anywhere.
const maxMember = 16 << 20

// proofMembers are the members of a proof document in canonical order.
var proofMembers = []string{
	"beacon", "campaign_id", "commitment", "count", "freeze_hash", "frozen_at", "root", "round", "rules", "secret",
	"sold", "trust", "version", "winners",
}

// ReadProof reads a proof document and hands over its list of sold positions line by line.
// It takes exactly what WriteProof writes: a *FormError says where a document is spelled in
// another way, or has not exactly its members. Errors of r and of each come back wrapped.
// That the parts fit together is for the other checks.
func ReadProof(r io.Reader, each func(SoldLine) error) (Proof, error) {
	s := newScanner(r)
	var head proofHead
	var tail proofTail
	values := map[string]any{
		"beacon": &head.Beacon, "campaign_id": &head.CampaignID, "commitment": &head.Commitment, "count": &head.Count,
		"freeze_hash": &head.FreezeHash, "frozen_at": &head.FrozenAt, "root": &head.Root, "round": &head.Round,
		"secret": &head.Secret, "trust": &tail.Trust, "version": &tail.Version, "winners": &tail.Winners,
	}
	for i, name := range proofMembers {
		if err := s.name(proofMembers, i); err != nil {
			return Proof{}, fmt.Errorf("fairdraw.ReadProof: %w", err)
		}
		var err error
		switch name {
		case "rules":
			head.Rules, err = s.rules()
		case "sold":
			err = s.sold(each)
		default:
			err = s.member(name, values[name])
		}
		if err != nil {
			return Proof{}, fmt.Errorf("fairdraw.ReadProof: %w", err)
		}
	}
	p := Proof{
		Version: tail.Version, CampaignID: head.CampaignID, Rules: head.Rules, Commitment: head.Commitment, Secret: head.Secret,
		Root: head.Root, Count: head.Count, FrozenAt: head.FrozenAt, Round: head.Round, FreezeHash: head.FreezeHash,
		Beacon: head.Beacon, Winners: tail.Winners, Trust: tail.Trust,
	}
	if err := s.end(); err != nil {
		return Proof{}, fmt.Errorf("fairdraw.ReadProof: %w", err)
	}
	if err := p.checkValues(); err != nil {
		return Proof{}, fmt.Errorf("fairdraw.ReadProof: %w", err)
	}
	return p, nil
}

// checkValues returns nil if every value is one that a document can have.
func (p Proof) checkValues() error {
	switch {
	case p.Version != Version:
		return malformed("version", "is %q; this procedure is %q", excerpt([]byte(p.Version)), Version)
	case p.Count < 0 || p.Count > MaxInteger:
		return malformed("count", "is %d, which is no integer from 0 to 2^53 − 1", p.Count)
	case p.Round != nil && *p.Round > MaxInteger:
		return malformed("round", "is %d, which is no integer from 0 to 2^53 − 1", *p.Round)
	case p.Winners == nil:
		return malformed("winners", "is no list")
	}
	if b := p.Beacon; b != nil {
		if err := b.checkValues(); err != nil {
			return err
		}
	}
	for i, w := range p.Winners {
		if err := w.checkValues(); err != nil {
			return malformed("winners", "at %d: %s", i, err)
		}
	}
	return nil
}

// publicKeySize is the length of a chain's public key in bytes: a compressed point of G2.
const publicKeySize = 96

// checkValues refuses other lengths than those of the scheme: the hash of a chain is over its parts
// in a row, so a byte that moves from one to the next would not show.
func (b ProofBeacon) checkValues() error {
	switch {
	case b.GenesisTime < 0 || b.GenesisTime > MaxInteger || b.PeriodS < 0 || b.PeriodS > MaxInteger || b.Round > MaxInteger:
		return malformed("beacon", "has a number that is no integer from 0 to 2^53 − 1")
	case len(b.PublicKey) != publicKeySize:
		return malformed("beacon", "has a public key of %d bytes, not %d", len(b.PublicKey), publicKeySize)
	case len(b.GenesisSeed) != sha256.Size:
		return malformed("beacon", "has a genesis seed of %d bytes, not %d", len(b.GenesisSeed), sha256.Size)
	}
	return nil
}

func (w ProofWinner) checkValues() error {
	won := w.Column != nil && w.PurchaseID != nil && w.Awarded == nil
	not := w.Column == nil && w.PurchaseID == nil && w.Awarded != nil && !*w.Awarded
	if !won && !not {
		return fmt.Errorf("prize %d has neither a column and a purchase nor \"awarded\": false", w.Prize)
	}
	for _, n := range []int{w.Prize, w.Layer, value(w.Column)} {
		if n < 0 || n > MaxInteger {
			return fmt.Errorf("%d is no integer from 0 to 2^53 − 1", n)
		}
	}
	return nil
}

func value(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

// rules reads the rules document as it stands.
func (s *scanner) rules() (json.RawMessage, error) {
	raw, err := s.value("rules")
	if err != nil {
		return nil, err
	}
	if err := isCanonicalObject(raw); err != nil {
		return nil, malformed("rules", "%s", err)
	}
	return raw, nil
}

// sold reads the list of sold positions.
func (s *scanner) sold(each func(SoldLine) error) error {
	if err := s.expect("sold", '['); err != nil {
		return err
	}
	if next, err := s.peek(); err != nil || next == ']' {
		return errors.Join(err, s.skip())
	}
	for i := 0; ; i++ {
		line, err := s.line(i)
		if err != nil {
			return err
		}
		if err := each(line); err != nil {
			return err
		}
		if next, err := s.peek(); err != nil || next == ']' {
			return errors.Join(err, s.skip())
		}
		if err := s.expect("sold", ','); err != nil {
			return err
		}
	}
}

// scanner reads a document from its front, member by member. It knows of JSON only where a
// value ends; the caller decides whether the value is well-formed.
type scanner struct {
	r    *bufio.Reader
	seen []string // names of members
}

func newScanner(r io.Reader) *scanner {
	return &scanner{r: bufio.NewReaderSize(&bounded{r, MaxDocument}, 64<<10)}
}

// MaxDocument bounds the length of a document, in bytes.
const MaxDocument = 256 << 20

// bounded refuses what is longer than a document may be.
type bounded struct {
	r    io.Reader
	left int // bytes
}

// Read reads on.
func (b *bounded) Read(into []byte) (int, error) {
	n, err := b.r.Read(into)
	if b.left -= n; b.left < 0 {
		return 0, malformed("", "is longer than %d bytes", MaxDocument)
	}
	return n, err //nolint:wrapcheck // it is the reader's
}

// name reads what stands before the value of member i: its brace or comma, name and colon.
func (s *scanner) name(members []string, i int) error {
	want := members[i]
	open := byte('{')
	if i > 0 {
		open = ','
		if next, err := s.peek(); err == nil && next == '}' {
			return malformed("", "lacks the member %q", want)
		}
	}
	if err := s.expect("", open); err != nil {
		return err
	}
	raw, err := s.value("")
	if err != nil {
		return err
	}
	name, isString := bytes.CutPrefix(bytes.TrimSuffix(raw, []byte{'"'}), []byte{'"'})
	switch {
	case !isString:
		return malformed("", "has %q where the name of a member must stand", excerpt(raw))
	case slices.Contains(s.seen, string(name)):
		return malformed("", "has the member %q twice", name)
	case !slices.Contains(members, string(name)):
		return malformed("", "has a member %q, which is unknown", excerpt(name))
	case string(name) != want:
		return malformed("", "lacks the member %q, or has it behind %q", want, name)
	}
	s.seen = append(s.seen, want)
	return s.expect("", ':')
}

// member reads the value of a member.
func (s *scanner) member(name string, into any) error {
	raw, err := s.value(name)
	if err != nil {
		return err
	}
	if err := decodeCanonical(raw, into); err != nil {
		return malformed(name, "%s", err)
	}
	return nil
}

// value reads the text of one JSON value, at most maxMember bytes.
func (s *scanner) value(member string) (text []byte, err error) {
	depth, quoted, escaped := 0, false, false
	for {
		c, err := s.r.ReadByte()
		if err != nil {
			return nil, ended(err)
		}
		if len(text) == maxMember {
			return nil, malformed(member, "is longer than %d bytes", maxMember)
		}
		switch {
		case escaped:
			escaped = false
		case quoted:
			escaped, quoted = c == '\\', c != '"'
		case c == '"':
			quoted = true
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		}
		if depth < 0 || (depth == 0 && (c == ',' || c == ':') && !quoted) {
			return text, s.r.UnreadByte() // a number or literal ended before
		}
		text = append(text, c)
		if depth == 0 && !quoted && (c == '"' || c == '}' || c == ']') {
			return text, nil
		}
	}
}

// end returns nil if the document ends with its brace.
func (s *scanner) end() error {
	if next, err := s.peek(); err == nil && next == ',' {
		if err := s.skip(); err != nil {
			return err
		}
		raw, err := s.value("")
		if err != nil {
			return err
		}
		if name := string(bytes.Trim(raw, `"`)); slices.Contains(s.seen, name) {
			return malformed("", "has the member %q twice", name)
		}
		return malformed("", "has a member %s, which is unknown", excerpt(raw))
	}
	if err := s.expect("", '}'); err != nil {
		return err
	}
	if _, err := s.r.ReadByte(); !errors.Is(err, io.EOF) {
		if err == nil {
			return malformed("", "does not end with its last brace")
		}
		return err
	}
	return nil
}

func (s *scanner) expect(member string, want byte) error {
	got, err := s.r.ReadByte()
	if err != nil {
		return ended(err)
	}
	if got != want {
		return malformed(member, "has %q where %q must stand", got, want)
	}
	return nil
}

func (s *scanner) peek() (byte, error) {
	next, err := s.r.Peek(1)
	if err != nil {
		return 0, ended(err)
	}
	return next[0], nil
}

func (s *scanner) skip() error {
	_, err := s.r.ReadByte()
	return err //nolint:wrapcheck // the caller has peeked
}

// ended turns the end of the input into what is wrong with the document.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return malformed("", "ends before its end")
	}
	return fmt.Errorf("reading: %w", err)
}

// The members of a proof document in canonical order: those before its list of sold
// positions, and those after.
type (
	proofHead struct {
		Beacon     *ProofBeacon    `json:"beacon"`
		CampaignID uuid.UUID       `json:"campaign_id"`
		Commitment Hash            `json:"commitment"`
		Count      int             `json:"count"`
		FreezeHash Hash            `json:"freeze_hash"`
		FrozenAt   Instant         `json:"frozen_at"`
		Root       Hash            `json:"root"`
		Round      *uint64         `json:"round"`
		Rules      json.RawMessage `json:"rules"`
		Secret     Hash            `json:"secret"`
	}
	proofTail struct {
		Trust   string        `json:"trust"`
		Version string        `json:"version"`
		Winners []ProofWinner `json:"winners"`
	}
)

// WriteProof writes the proof document with its list of sold positions, in canonical form.
// It holds one line at a time. An error in the list ends the document where it is: it must
// not be taken for a whole one. That the parts fit together is not its business.
func WriteProof(w io.Writer, p Proof, sold iter.Seq2[SoldLine, error]) error {
	head, tail, err := p.parts()
	if err != nil {
		return fmt.Errorf("fairdraw.WriteProof(%s): %w", p.CampaignID, err)
	}
	if err := writeAround(w, head, sold, append([]byte{','}, tail[1:]...)); err != nil {
		return fmt.Errorf("fairdraw.WriteProof(%s): %w", p.CampaignID, err)
	}
	return nil
}

// writeAround writes the object head with the list of sold positions as one more member, and
// behind it tail, which ends the object.
func writeAround(w io.Writer, head []byte, sold iter.Seq2[SoldLine, error], tail []byte) error {
	out := bufio.NewWriterSize(w, 64<<10)
	text := append(head[:len(head)-1:len(head)-1], `,"sold":[`...)
	for l, err := range sold {
		if err == nil {
			err = l.checkValues()
		}
		if err != nil {
			return fmt.Errorf("the sold list: %w", err)
		}
		if _, err := out.Write(l.appendTo(text)); err != nil {
			return err
		}
		text = append(text[:0], ',') // before the next line
	}
	if len(text) == 1 {
		text = text[:0] // there is none
	}
	if _, err := out.Write(append(append(text, ']'), tail...)); err != nil {
		return err
	}
	return out.Flush()
}

// parts returns the objects before and after the list of sold positions.
func (p Proof) parts() (head, tail []byte, err error) {
	if err := isCanonicalObject(p.Rules); err != nil {
		return nil, nil, malformed("rules", "%s", err)
	}
	if p.Winners == nil {
		p.Winners = []ProofWinner{}
	}
	if err := p.checkValues(); err != nil {
		return nil, nil, err
	}
	head, err = canonical(proofHead{
		Beacon: p.Beacon, CampaignID: p.CampaignID, Commitment: p.Commitment, Count: p.Count, FreezeHash: p.FreezeHash,
		FrozenAt: p.FrozenAt, Root: p.Root, Round: p.Round, Rules: p.Rules, Secret: p.Secret,
	})
	if err != nil {
		return nil, nil, err
	}
	if tail, err = canonical(proofTail{Trust: p.Trust, Version: p.Version, Winners: p.Winners}); err != nil {
		return nil, nil, err
	}
	return head, tail, nil
}

func (l SoldLine) checkValues() error {
	if min(l.Layer, l.Column) < 0 || max(l.Layer, l.Column) > MaxInteger {
		return malformed("sold", "cannot have %v: a number is no integer from 0 to 2^53 − 1", l.Position())
	}
	return nil
}

// appendTo appends the line as it stands in a proof document.
func (l SoldLine) appendTo(text []byte) []byte {
	text = append(text, `{"column":`...)
	text = strconv.AppendInt(text, int64(l.Column), 10)
	text = append(text, `,"holder":"`...)
	text = hex.AppendEncode(text, l.Holder[:])
	text = append(text, `","layer":`...)
	text = strconv.AppendInt(text, int64(l.Layer), 10)
	text = append(text, `,"purchase_id":"`...)
	text = appendUUID(text, l.PurchaseID)
	return append(text, `"}`...)
}

// appendUUID appends what id.String returns, without making a string.
func appendUUID(text []byte, id uuid.UUID) []byte {
	for i, part := range [][]byte{id[:4], id[4:6], id[6:8], id[8:10], id[10:]} {
		if i > 0 {
			text = append(text, '-')
		}
		text = hex.AppendEncode(text, part)
	}
	return text
}

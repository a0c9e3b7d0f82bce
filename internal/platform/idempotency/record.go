package idempotency

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"

	"github.com/google/uuid"
)

// State is the state of a request or a job.
type State string

// The states, as they stand in Redis.
const (
	InProgress State = "IN_PROGRESS"
	Success    State = "SUCCESS"
	Failed     State = "FAILED"
)

// Request names an idempotency key in its scope.
type Request struct {
	Client string
	Key    string
}

// Record is what Redis remembers of a request.
type Record struct {
	State  State
	Hash   [sha256.Size]byte // fingerprint of the request that used the key
	Job    uuid.UUID
	Answer []byte // the final job as it was answered; only with Success and Failed
}

// requestKey is a digest of client and key: clients choose both, so they may be
// long or contain anything.
func requestKey(namespace string, r Request) string {
	digest := sha256.New()
	digest.Write([]byte(r.Client))
	digest.Write([]byte{0})
	digest.Write([]byte(r.Key))
	return namespace + ":request:" + base64.RawURLEncoding.EncodeToString(digest.Sum(nil))
}

func jobKey(namespace string, job uuid.UUID) string { return namespace + ":job:" + job.String() }

// encode writes "<state> <hash> <job>" and, after another blank, the answer.
func (r Record) encode() []byte {
	out := fmt.Appendf(nil, "%s %s %s", r.State, base64.RawURLEncoding.EncodeToString(r.Hash[:]), r.Job)
	if len(r.Answer) > 0 {
		out = append(append(out, ' '), r.Answer...)
	}
	return out
}

// decode reads what encode wrote; it returns false for anything else.
func decode(value []byte) (Record, bool) {
	parts := bytes.SplitN(value, []byte{' '}, 4)
	if len(parts) < 3 {
		return Record{}, false
	}
	record := Record{State: State(parts[0])}
	if record.State != InProgress && record.State != Success && record.State != Failed {
		return Record{}, false
	}
	hash, err := base64.RawURLEncoding.DecodeString(string(parts[1]))
	if err != nil || len(hash) != sha256.Size {
		return Record{}, false
	}
	record.Hash = [sha256.Size]byte(hash)
	if record.Job, err = uuid.ParseBytes(parts[2]); err != nil {
		return Record{}, false
	}
	if len(parts) == 4 {
		record.Answer = parts[3]
	}
	final := record.State != InProgress
	return record, final == (len(record.Answer) > 0)
}

package idempotency

import (
	"bytes"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"

	"github.com/google/uuid"
)

// State is the state of a job.
type State string

// The states, as they stand in Redis.
const (
	Success State = "SUCCESS"
	Failed  State = "FAILED"
)

// Request names an idempotency key in its scope.
type Request struct {
	Client string
	Key    string
}

// Record is what Redis remembers of a request whose job is final.
type Record struct {
	State  State             // Success or Failed
	Hash   [sha256.Size]byte // fingerprint of the request that used the key
	Job    uuid.UUID
	Answer []byte // the job as it was answered
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

// encode writes "<state> <hash> <job> <answer>".
func (r Record) encode() []byte {
	out := fmt.Appendf(make([]byte, 0, 128+len(r.Answer)), "%s %s %s ", r.State, base64.RawURLEncoding.EncodeToString(r.Hash[:]), r.Job)
	return append(out, r.Answer...)
}

// decode reads what encode wrote; it returns false for anything else.
func decode(value []byte) (Record, bool) {
	parts := bytes.SplitN(value, []byte{' '}, 4)
	if len(parts) < 4 || len(parts[3]) == 0 {
		return Record{}, false
	}
	record := Record{State: State(parts[0]), Answer: parts[3]}
	if record.State != Success && record.State != Failed {
		return Record{}, false
	}
	hash, err := base64.RawURLEncoding.DecodeString(string(parts[1]))
	if err != nil || len(hash) != sha256.Size {
		return Record{}, false
	}
	record.Hash = [sha256.Size]byte(hash)
	record.Job, err = uuid.ParseBytes(parts[2])
	return record, err == nil
}

// sealer marks records, so that nobody who can write to Redis alone can make one.
type sealer struct{ key []byte }

func newSealer(secret string) sealer {
	key, err := hkdf.Key(sha256.New, []byte(secret), nil, "triprize: records of requests in Redis", sha256.Size)
	if err != nil { // not with this length
		panic(err)
	}
	return sealer{key}
}

// mac is the mark of a value under a key of Redis.
func (s sealer) mac(key string, value []byte) []byte {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(key)) // always of the same length
	mac.Write(value)
	return mac.Sum(nil)
}

func (s sealer) seal(key string, r Record) []byte {
	value := r.encode()
	return append(s.mac(key, value), value...)
}

// open reads what seal returned; it returns false for anything else.
func (s sealer) open(key string, sealed []byte) (Record, bool) {
	if len(sealed) < sha256.Size || !hmac.Equal(sealed[:sha256.Size], s.mac(key, sealed[sha256.Size:])) {
		return Record{}, false
	}
	return decode(sealed[sha256.Size:])
}

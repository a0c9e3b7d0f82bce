package drand

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"triprize.example/draw/beacon"
)

// answer is what a relay says of a round. It proves nothing.
type answer struct {
	round      uint64
	signature  []byte
	randomness []byte // nil: not said
}

// parse reads the JSON of a relay. Members that are not used here may be there.
func parse(body []byte) (answer, error) {
	var told struct {
		Round      *uint64 `json:"round"`
		Signature  *string `json:"signature"`
		Randomness *string `json:"randomness"`
	}
	if err := json.Unmarshal(body, &told); err != nil {
		return answer{}, errors.New("the answer is no JSON of a round") // the library would repeat what was sent
	}
	if told.Round == nil || told.Signature == nil {
		return answer{}, errors.New("the answer lacks a round or a signature")
	}
	a := answer{round: *told.Round}
	var err error
	if a.signature, err = hex.DecodeString(*told.Signature); err != nil || len(a.signature) != beacon.SignatureSize {
		return answer{}, fmt.Errorf("the signature is not %d bytes in hex", beacon.SignatureSize)
	}
	if told.Randomness != nil {
		if a.randomness, err = hex.DecodeString(*told.Randomness); err != nil {
			return answer{}, errors.New("the randomness is not hex")
		}
	}
	return a, nil
}

// verify returns the round if it is one of the chain, and the one of number; 0: any.
func (a answer) verify(chain beacon.Chain, number uint64) (beacon.Round, error) {
	if number != 0 && a.round != number {
		return beacon.Round{}, fmt.Errorf("the answer is round %d instead of %d", a.round, number)
	}
	if a.round == 0 {
		return beacon.Round{}, errors.New("the answer is round 0, which no chain has")
	}
	round, err := chain.Verify(a.round, a.signature)
	if err != nil {
		return beacon.Round{}, err
	}
	if a.randomness != nil && !bytes.Equal(a.randomness, round.Randomness[:]) {
		return beacon.Round{}, errors.New("the randomness is not the hash of the signature")
	}
	return round, nil
}

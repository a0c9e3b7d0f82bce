package forge_test

import (
	"bytes"
	"sync"
	"testing"

	"triprize/internal/testkit/forge"
)

// Tests that run at once share certificates: a token whose root was made again in between leads to no authority.
func TestACertificateThatManyAskForAtOnceIsMadeOnce(t *testing.T) {
	t.Parallel()
	for range 100 {
		c := &forge.Certificate{Name: "root"}
		got := make([][]byte, 8)
		begin := make(chan struct{})
		var all sync.WaitGroup
		for i := range got {
			all.Go(func() { <-begin; got[i] = c.DER() })
		}
		close(begin)
		all.Wait()
		for _, der := range got {
			if !bytes.Equal(der, c.DER()) {
				t.Fatal("it was made twice")
			}
		}
	}
}

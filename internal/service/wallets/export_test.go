package wallets

import "time"

// SetRowWait sets how long a batch of commands that wait for locked wallets waits. It
// must be called before the first command.
func (b *Batcher) SetRowWait(limit time.Duration) { b.rowWait = limit }

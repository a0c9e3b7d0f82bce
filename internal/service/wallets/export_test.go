package wallets

import "time"

// SetRowWait sets how long a batch waits for a wallet.
func (e *Executor) SetRowWait(limit time.Duration) { e.rowWait = limit }

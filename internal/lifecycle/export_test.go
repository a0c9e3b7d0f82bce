package lifecycle

import "time"

func init() { lockerTimeout = time.Hour } // no machine is too slow

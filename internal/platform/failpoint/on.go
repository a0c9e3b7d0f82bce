//go:build failpoint

package failpoint

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Enabled reports whether this binary has failpoints.
const Enabled = true

var (
	mu    sync.Mutex
	hooks = fromEnvironment(os.Getenv("TRIPRIZE_TEST_FAILPOINTS"))
)

type hook struct {
	about string // empty: any
	do    func()
}

// Hit marks the failpoint name; about returns what it concerns, such as users.
func Hit(name string, about func() []string) {
	mu.Lock()
	mine := slices.Clone(hooks[name])
	mu.Unlock()
	for _, h := range mine {
		if h.about == "" || about != nil && slices.Contains(about(), h.about) {
			h.do()
		}
	}
}

// Set calls do at every Hit of name that concerns about (empty: any), until the
// returned function is called. For tests in the same process.
func Set(name, about string, do func()) (remove func()) {
	mu.Lock()
	defer mu.Unlock()
	h := &hook{about: about, do: do}
	hooks[name] = append(hooks[name], h)
	return func() {
		mu.Lock()
		defer mu.Unlock()
		hooks[name] = slices.DeleteFunc(hooks[name], func(other *hook) bool { return other == h })
	}
}

func fromEnvironment(text string) map[string][]*hook {
	parsed := make(map[string][]*hook)
	for entry := range strings.SplitSeq(text, ";") {
		if entry == "" {
			continue
		}
		where, action, ok := strings.Cut(entry, "=")
		name, about, _ := strings.Cut(where, "@")
		do := map[string]func(){"kill": func() { signal(syscall.SIGKILL) }, "stop": sync.OnceFunc(func() { signal(syscall.SIGSTOP) })}[action]
		if !ok || do == nil {
			fmt.Fprintf(os.Stderr, "failpoint: %q is not name[@about]=kill|stop\n", entry)
			os.Exit(2)
		}
		parsed[name] = append(parsed[name], &hook{about: about, do: do})
	}
	return parsed
}

// stopping is longer than it takes to stop all threads.
const stopping = 200 * time.Millisecond

func signal(s syscall.Signal) {
	_ = syscall.Kill(os.Getpid(), s)
	if s == syscall.SIGKILL {
		select {} // until the signal arrives
	}
	time.Sleep(stopping) // this thread may keep running for a moment and must not leave the failpoint
}

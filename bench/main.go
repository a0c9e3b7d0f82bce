// Command bench measures Triprize and simpler ways to do the same. README.md explains each
// row of its table.
//
// It starts private servers with default durability and stops them at the end. Speed never
// makes it fail: the exit status is 1 when an answer or a database was wrong, or when a
// scenario could not run, and 2 for wrong arguments.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"triprize/devkit/devstack"
)

// options are what the command line chooses.
type options struct {
	rounds  int
	seconds time.Duration // measured time of one scenario in one round
	only    []string      // empty: every scenario
	json    bool
}

func main() {
	opts, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	for _, pair := range os.Environ() { // the defaults are measured
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "TRIPRIZE_") {
			_ = os.Unsetenv(name) // fails only for names that no environment has
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err = run(ctx, opts, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	rounds := flags.Int("rounds", 3, "how often each scenario is measured; the table shows medians")
	seconds := flags.Int("seconds", 5, "measured seconds of one scenario in one round")
	only := flags.String("only", "", "names of scenarios, separated by commas; the ratios that need others are left out")
	asJSON := flags.Bool("json", false, "print JSON instead of the table")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	opts := options{rounds: *rounds, seconds: time.Duration(*seconds) * time.Second, json: *asJSON}
	if *rounds < 1 || *rounds > 100 || *seconds < 1 || *seconds > 60 || flags.NArg() > 0 {
		return options{}, errors.New("--rounds is 1 to 100, --seconds is 1 to 60, and there are no other arguments")
	}
	if *only != "" {
		opts.only = strings.Split(*only, ",")
	}
	var names []string
	for _, s := range scenarios {
		names = append(names, s.name)
	}
	for _, name := range opts.only {
		if !slices.Contains(names, name) {
			return options{}, fmt.Errorf("there is no scenario %q; there are: %s", name, strings.Join(names, ", "))
		}
	}
	return opts, nil
}

// run measures every scenario in every round, so that changes in the speed of the
// machine affect all of them.
func run(ctx context.Context, opts options, out, progress io.Writer) (err error) {
	fmt.Fprintln(progress, "starting private servers and building the binaries …")
	s, err := openSetup(ctx, devstack.Options{}, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	r := newReport(opts)
	for round := range opts.rounds {
		for _, sc := range scenarios {
			if len(opts.only) > 0 && !slices.Contains(opts.only, sc.name) {
				continue
			}
			result, err := sc.run(ctx, s, opts.seconds)
			if err != nil {
				return fmt.Errorf("%s: %w", sc.name, err)
			}
			fmt.Fprintf(progress, "round %d/%d  %-22s %10.1f/s  p95 %8.1f ms\n", round+1, opts.rounds, sc.name, result.figures[rate], result.figures[p95])
			for _, w := range result.wrong {
				fmt.Fprintln(progress, "  WRONG:", w)
			}
			r.add(sc.name, result)
		}
	}
	if err := r.print(out); err != nil {
		return err
	}
	if len(r.Wrong) > 0 {
		return errors.New("something was WRONG, see above")
	}
	return nil
}

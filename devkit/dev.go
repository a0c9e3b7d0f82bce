package devkit

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"triprize/devkit/devstack"
	"triprize/internal/platform/config"
)

func devCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "dev",
		Short: "Run the whole system on this machine until Ctrl-C",
		Long: `Run the whole system on this machine: a private Postgres and Redis in their own folder, a
sandbox that simulates Stripe, and api, worker and scheduler as child processes. A process
that dies is restarted after a second. DIR/dev.json has all addresses.

--beacon starts relays of a chain of test rounds, one per second, and campaigns may have
policies.beacon. Without it they may not, and draws that wait for a round of an earlier run
continue to wait.

--redis and --postgres start several servers: sentinel is a primary, two replicas and three
Sentinels; cluster is three primaries with a replica each; three are independent, for
locks.redis_urls; standby is a primary and a synchronous standby. A primary that is killed (kill -9)
comes back as a replica of its successor. dev is the operator of Postgres: it promotes the standby,
then rebuilds the old primary from it. In dev.json, pids.redis_primary and pids.postgres_primary are
the primaries (in a Cluster, the one with the queue of purchases), absent while they are down;
pids.servers are all; pids.redis and pids.postgres are the servers that were started first. Each kind
of Redis has folders of its own.

The settings are in DIR/triprize.yaml, written at each start: the defaults, overridden by
values for one machine, overridden by --config. TRIPRIZE_… variables are not used. Pages of this
machine may call the api (api.cors_origins), with tokens from triprize-dev token.`,
		Args: cobra.NoArgs,
	}
	listen := c.Flags().String("listen", "127.0.0.1:8080", "address of the api; loopback only")
	var servers devstack.Options
	c.Flags().StringVar(&servers.Dir, "data", ".triprize", "folder for data, logs and dev.json; not deleted at the end")
	workers := c.Flags().Int("workers", 2, "number of worker processes")
	c.Flags().StringVar(&servers.Redis, "redis", devstack.RedisSingle, "single, three (for locks), sentinel or cluster")
	c.Flags().StringVar(&servers.Postgres, "postgres", devstack.PostgresSingle, "single or standby")
	beacon := c.Flags().Bool("beacon", false, "simulate drand, so that campaigns may have policies.beacon")
	file := c.Flags().String("config", "", "your settings file, which overrides the settings of dev")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkLoopback(*listen); err != nil {
			return err
		}
		if err := servers.Check(); err != nil {
			return err
		}
		own, err := ownSettings(*file, *beacon, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		if *workers < 1 || *workers > 64 {
			return errors.New("--workers must be 1 to 64")
		}
		say(cmd.ErrOrStderr(), "starting private servers and the fleet …")
		e, err := startEnvironment(cmd.Context(), servers, *listen, *workers, *beacon, own, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		e.introduce(cmd.OutOrStdout())
		<-cmd.Context().Done()
		say(cmd.ErrOrStderr(), "\nstopping …")
		return e.stop()
	}
	return c
}

// ownSettings reads the file of dev's user, if there is one. Variables are named, because they are not
// used: those of a shell are often those of another installation.
func ownSettings(file string, beacon bool, news io.Writer) (config.Overrides, error) {
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "TRIPRIZE_") && !strings.HasPrefix(name, "TRIPRIZE_TEST_") {
			say(news, "%s is not used; triprize-dev dev takes settings from --config FILE only", name)
		}
	}
	if file == "" {
		return config.Overrides{}, nil
	}
	own, err := config.ReadOverrides(file, reserved(beacon)...)
	if err != nil {
		return own, fmt.Errorf("--config: %w", err)
	}
	return own, nil
}

// introduce prints addresses, keys and files.
func (e *environment) introduce(w io.Writer) {
	absolute, _ := filepath.Abs(e.dir)
	say(w, `
Triprize is running. Ctrl-C stops it.

  api           %[1]s        (readiness: %[1]s/readyz)
  metrics       %[7]s   (the others are in dev.json)
  console       %[1]s/console   (the operator key and any name; it opens %[1]s/asynqmon, too)
  operator key  %[2]s
  app key       %[3]s
  sandbox       %[8]s   (simulates Stripe, key %[9]s; see docs/test-cards.md)%[10]s
  everything    %[4]s
  settings      %[5]s   (for: triprize … --config, scheduler --once)
  logs          %[6]s
  tokens        triprize-dev token --config %[5]s --user alice
                (for browsers: pages of http://localhost may call the api with them)

To follow docs/walk-through.md and docs/api.md:

  export API=%[1]s OPERATOR=%[2]s APP=%[3]s SANDBOX=%[8]s SANDBOX_KEY=%[9]s

A webhook endpoint may be on this machine: http://127.0.0.1:3000/ (docs/webhooks.md)
`, e.url(), e.keys.Operator, e.keys.App, filepath.Join(absolute, aboutFile), filepath.Join(absolute, "triprize.yaml"), filepath.Join(absolute, "log"), e.fleet.MetricsURLs[0], e.sandbox.URL, e.sandbox.key, strings.TrimSuffix(e.introduceBeacon(), "\n"))
}

// checkLoopback refuses addresses that other machines can reach.
func checkLoopback(listen string) error {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return fmt.Errorf("--listen must be host:port: %w", err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("--listen %s: a development system listens on loopback only, such as 127.0.0.1:8080", listen)
	}
	return nil
}

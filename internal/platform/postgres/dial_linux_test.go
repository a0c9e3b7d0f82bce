package postgres_test

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/servers"
)

func TestTheClientsEndGivesUpAPeerThatVanished(t *testing.T) {
	t.Parallel()
	conn, _ := acquire(t, servers.DB(t))
	tcp, ok := postgres.Socket(conn.Conn().PgConn().Conn()).(*net.TCPConn)
	if !ok {
		t.Fatalf("the test needs a plain TCP connection, not a %T", conn.Conn().PgConn().Conn())
	}
	raw, err := tcp.SyscallConn()
	servers.NoError(t, err)
	for name, option := range map[string]struct{ level, option, want int }{
		"TCP_USER_TIMEOUT": {unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 10_000},
		"TCP_KEEPIDLE":     {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 5},
		"TCP_KEEPINTVL":    {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 2},
		"SO_KEEPALIVE":     {unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
	} {
		err := raw.Control(func(fd uintptr) {
			if got, err := unix.GetsockoptInt(int(fd), option.level, option.option); err != nil || got != option.want {
				t.Errorf("%s is %d, want %d, %v", name, got, option.want, err)
			}
		})
		servers.NoError(t, err)
	}
}

func TestASocketOfThisMachineHasNoUserTimeout(t *testing.T) {
	t.Parallel()
	if err := postgres.SetUserTimeout(time.Second)("unix", "/run/postgresql/.s.PGSQL.5432", nil); err != nil {
		t.Error(err)
	}
}

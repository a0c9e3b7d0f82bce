package main

import (
	"context"
	"os"
	"time"

	"github.com/prometheus/procfs"
)

// meter reads how much CPU time groups of processes have used. It reads /proc of Linux;
// on other systems it shows nothing.
type meter struct{ groups []group }

// group is processes that count as one, with their children.
type group struct {
	name string
	pids []int
}

// tick is the unit of the times of a process in /proc, the same on every Linux that Go runs on.
const tick = 10 * time.Millisecond

func (m *meter) read() map[string]time.Duration {
	if m == nil {
		return nil
	}
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return nil
	}
	whole, err := proc.Stat()
	if err != nil {
		return nil
	}
	all, _ := proc.AllProcs() // a process that is gone has used nothing more
	used := make(map[string]time.Duration)
	for _, one := range all {
		if stat, err := one.Stat(); err == nil {
			if name, ours := m.groupOf(stat.PID, stat.PPID); ours {
				used[name] += processorTime(stat)
			}
		}
	}
	busy := whole.CPUTotal
	used[machine] = seconds(busy.User + busy.Nice + busy.System + busy.IRQ + busy.SoftIRQ)
	used[stolen] = seconds(busy.Steal)
	return used
}

// groupOf returns the group of a process or of its parent: the sessions of Postgres are
// children of its first process. The children of this program are groups of their own.
func (m *meter) groupOf(pid, parent int) (name string, ours bool) {
	for _, g := range m.groups {
		for _, member := range g.pids {
			if member == pid || member == parent && parent != os.Getpid() {
				return g.name, true
			}
		}
	}
	return "", false
}

// processorTime returns the user and system time of a process and its ended children; of
// this program without children, which are groups of their own.
func processorTime(stat procfs.ProcStat) time.Duration {
	ticks := int(stat.UTime + stat.STime)
	if stat.PID != os.Getpid() {
		ticks += stat.CUTime + stat.CSTime
	}
	return time.Duration(ticks) * tick
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// since returns how many cores each group has used on average since before.
func (m *meter) since(before map[string]time.Duration, elapsed time.Duration) []figure {
	after := m.read()
	if after[machine] == 0 || elapsed <= 0 {
		return nil
	}
	cores := func(name string) float64 { return (after[name] - before[name]).Seconds() / elapsed.Seconds() }
	var figures []figure
	others := cores(machine)
	for _, g := range m.groups {
		figures = append(figures, figure{cpuOf + g.name, cores(g.name)})
		others -= cores(g.name)
	}
	return append(figures, figure{cpuOthers, max(0, others)}, figure{cpuStolen, cores(stolen)})
}

// most returns the most memory that a process of each of our groups has had, in MiB.
func (m *meter) most() (figures []figure) {
	if m == nil {
		return nil
	}
	for _, g := range m.groups {
		if g.name != "api" && g.name != "worker" {
			continue
		}
		var most float64
		for _, pid := range g.pids {
			if process, err := procfs.NewProc(pid); err == nil {
				if status, err := process.NewStatus(); err == nil {
					most = max(most, float64(status.VmHWM)/(1<<20))
				}
			}
		}
		figures = append(figures, figure{"MiB " + g.name, most})
	}
	return figures
}

// Names of figures.
const (
	cpuOf     = "cpu "
	cpuOthers = cpuOf + "others"
	cpuStolen = cpuOf + stolen
)

// machine is everything that ran on this machine, other people's work included. stolen
// is CPU time that a hypervisor gave to other machines while this one had work.
const (
	machine = "machine"
	stolen  = "stolen"
)

// memory watches how much memory a process has, on Linux.
type memory struct {
	first, peak float64 // MiB
	stop        context.CancelFunc
	stopped     chan struct{}
}

// memoryEvery is how often it is read.
const memoryEvery = 50 * time.Millisecond

// watchMemory watches a process until end is called or ctx ends.
func watchMemory(ctx context.Context, pid int) *memory {
	m := &memory{first: residentMiB(pid), stopped: make(chan struct{})}
	ctx, m.stop = context.WithCancel(ctx)
	go func() {
		defer close(m.stopped)
		for ctx.Err() == nil {
			m.peak = max(m.peak, residentMiB(pid))
			wait(ctx, memoryEvery, nil)
		}
	}()
	return m
}

// end returns what the process had first, and the most that it had.
func (m *memory) end() (first, peak float64) {
	m.stop()
	<-m.stopped
	return m.first, m.peak
}

// residentMiB returns 0 for a process that is gone.
func residentMiB(pid int) float64 {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0
	}
	status, err := process.NewStatus()
	if err != nil {
		return 0
	}
	return float64(status.VmRSS) / (1 << 20)
}

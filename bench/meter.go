package main

import (
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

// others is what the rest of the machine did, other people's work included. stolen is CPU time
// that a hypervisor gave to other machines while this one had work.
const (
	others = "others"
	stolen = "stolen"
)

// read returns what each group has used, and the whole machine as others.
func (m *meter) read() map[string]time.Duration {
	used := make(map[string]time.Duration)
	proc, err := procfs.NewDefaultFS()
	if m == nil || err != nil {
		return used
	}
	whole, err := proc.Stat()
	if err != nil {
		return used
	}
	all, _ := proc.AllProcs() // a process that is gone has used nothing more
	for _, one := range all {
		if stat, err := one.Stat(); err == nil {
			if name, ours := m.groupOf(stat.PID, stat.PPID); ours {
				used[name] += processorTime(stat)
			}
		}
	}
	busy := whole.CPUTotal
	used[others] = time.Duration((busy.User + busy.Nice + busy.System + busy.IRQ + busy.SoftIRQ) * float64(time.Second))
	used[stolen] = time.Duration(busy.Steal * float64(time.Second))
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

// since returns how many cores each group has used on average since before.
func (m *meter) since(before map[string]time.Duration, elapsed time.Duration) map[string]float64 {
	cores := make(map[string]float64)
	for name, used := range m.read() {
		cores[name] = (used - before[name]).Seconds() / elapsed.Seconds()
	}
	for name, used := range cores {
		if name != others && name != stolen {
			cores[others] = max(0, cores[others]-used)
		}
	}
	return cores
}

// memory returns the most that a process of a group has had, in MiB.
func (m *meter) memory(name string) (most float64) {
	for _, g := range m.groups {
		for _, pid := range g.pids {
			process, err := procfs.NewProc(pid)
			if err != nil || g.name != name {
				continue
			}
			if status, err := process.NewStatus(); err == nil {
				most = max(most, float64(status.VmHWM)/(1<<20))
			}
		}
	}
	return most
}

// files returns the most files and connections that a process of each group has open.
func (m *meter) files() map[string]float64 {
	most := make(map[string]float64)
	if m == nil {
		return most
	}
	for _, g := range m.groups {
		for _, pid := range g.pids {
			if process, err := procfs.NewProc(pid); err == nil {
				open, _ := process.FileDescriptorsLen() // 0: the process is gone
				most[g.name] = max(most[g.name], float64(open))
			}
		}
	}
	return most
}

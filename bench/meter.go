package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// meter reads how much CPU time groups of processes have used. It reads /proc of Linux;
// on other systems it shows nothing.
type meter struct{ groups []group }

// group is processes that count as one, with their children.
type group struct {
	name string
	pids []int
}

// tick is the unit of times in /proc, the same on every Linux that Go runs on.
const tick = 10 * time.Millisecond

func (m *meter) read() map[string]time.Duration {
	if m == nil {
		return nil
	}
	used := make(map[string]time.Duration)
	children := m.children()
	for _, g := range m.groups {
		for _, pid := range g.pids {
			one, _ := processorTime(pid) // a process that is gone has used nothing more
			used[g.name] += one
			for _, child := range children[pid] {
				one, _ := processorTime(child)
				used[g.name] += one
			}
		}
	}
	used[machine], used[stolen] = wholeMachine()
	return used
}

// since returns how many cores each group has used on average since before.
func (m *meter) since(before map[string]time.Duration, elapsed time.Duration) []figure {
	if m == nil || elapsed <= 0 {
		return nil
	}
	after := m.read()
	cores := func(name string) float64 { return (after[name] - before[name]).Seconds() / elapsed.Seconds() }
	if after[machine] == 0 {
		return nil
	}
	var figures []figure
	others := cores(machine)
	for _, g := range m.groups {
		figures = append(figures, figure{cpuOf + g.name, cores(g.name)})
		others -= cores(g.name)
	}
	return append(figures, figure{cpuOthers, max(0, others)}, figure{cpuStolen, cores(stolen)})
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

// wholeMachine returns the busy time of all cores, and what was stolen.
func wholeMachine() (busy, stolen time.Duration) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	line, _, _ := strings.Cut(string(data), "\n")
	fields := strings.Fields(line) // cpu user nice system idle iowait irq softirq steal …
	if len(fields) < 9 {
		return 0, 0
	}
	var ticks [9]time.Duration
	for i, field := range fields[1:9] {
		n, _ := strconv.Atoi(field) // the kernel writes nothing but numbers
		ticks[i+1] = time.Duration(n) * tick
	}
	return ticks[1] + ticks[2] + ticks[3] + ticks[6] + ticks[7], ticks[8]
}

// children returns the children of every process of the groups except this program,
// whose children are groups of their own. The sessions of Postgres are children of its
// first process.
func (m *meter) children() map[int][]int {
	of := make(map[int][]int)
	for _, g := range m.groups {
		for _, pid := range g.pids {
			of[pid] = nil
		}
	}
	delete(of, os.Getpid())
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		fields := stat(file)
		if fields == nil {
			continue
		}
		parent, _ := strconv.Atoi(fields[1])
		if _, wanted := of[parent]; wanted {
			child, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			of[parent] = append(of[parent], child)
		}
	}
	return of
}

// processorTime returns the user and system time of a process and its ended children.
func processorTime(pid int) (time.Duration, error) {
	fields := stat(fmt.Sprintf("/proc/%d/stat", pid))
	if fields == nil {
		return 0, os.ErrProcessDone
	}
	first, last := 11, 15 // utime and stime, then those of ended children
	if pid == os.Getpid() {
		last = 13 // the children of this program are groups of their own
	}
	var total time.Duration
	for _, field := range fields[first:last] {
		n, err := strconv.Atoi(field)
		if err != nil {
			return 0, err
		}
		total += time.Duration(n) * tick
	}
	return total, nil
}

// stat returns the fields of a stat file after the second, or nil. The second field is a
// name in parentheses, which can contain spaces.
func stat(file string) []string {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	_, rest, ok := strings.Cut(string(data), ") ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 15 {
		return nil
	}
	return fields
}

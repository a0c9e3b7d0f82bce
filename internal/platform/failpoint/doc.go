// Package failpoint names the points at which tests stop a process ([Hit]), without sleeps.
//
// In ordinary builds Hit is empty. Only binaries with the tag failpoint read TRIPRIZE_TEST_FAILPOINTS and
// have Set.
//
//	TRIPRIZE_TEST_FAILPOINTS="sale.commit@user-7=kill;draw.record=stop"
//
// This kills the process with SIGKILL before it commits a sale of user-7, and stops it
// with SIGSTOP, once, before it records a draw.
package failpoint

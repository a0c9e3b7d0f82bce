// Package failpoint names the moments at which a crash is worst ([Hit]), so that
// tests can stop a process exactly there, without sleeps. In ordinary builds Hit is
// empty and inlined away; only binaries built with the tag failpoint read
// TRIPRIZE_TEST_FAILPOINTS and have Set. A test can also take a guard away ([Off]), to
// show what holds without it.
//
//	TRIPRIZE_TEST_FAILPOINTS="sale.commit@user-7=kill;draw.record=stop"
//
// means: kill this process with SIGKILL when it is about to commit a sale that
// concerns user-7; stop it with SIGSTOP, once, when it is about to record a draw.
package failpoint

// Package failpoint names the moments at which a crash is worst, so that tests
// can stop a process exactly there instead of sleeping and hoping. In ordinary
// builds Hit is empty and inlined away; only binaries built with the tag
// failpoint listen to TRIPRIZE_TEST_FAILPOINTS and to Set.
//
//	TRIPRIZE_TEST_FAILPOINTS="sale.commit@user-7=kill;draw.record=stop"
//
// reads: kill this process with SIGKILL when it is about to commit a sale that
// concerns user-7; stop it with SIGSTOP, once, when it is about to record a draw.
package failpoint

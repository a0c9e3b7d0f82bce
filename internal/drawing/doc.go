// Package drawrecord owns the records with which anybody can check a draw.
//
//	publication   draw_secrets   the secret of the campaign, encrypted
//	              beacon_chains  the chain of public randomness that the rules name
//	freeze        freezes        the freeze record; freeze_subtrees: its list, with nodes of its tree
//	the round     beacon_rounds  verified rounds
//	draw          draws          the result: one row per campaign, by its primary key
//
// Triggers refuse every UPDATE, DELETE and TRUNCATE, except that draw_secrets may be
// encrypted anew. A trigger also refuses a draw that is weaker than its rules (without the
// randomness of the round in its freeze record).
//
// draw_waits says what a draw waits for. It is for people and decides nothing. The
// commitment itself is in package campaign.
package drawing

// Package drawrecord keeps what lets anyone check a draw.
//
//	publication   draw_secrets   the secret of the campaign, encrypted
//	              beacon_chains  the chain of public randomness that the rules name
//	freeze        freezes        the freeze record; freeze_subtrees: nodes of its tree
//	              witness_tokens RFC 3161 tokens over the record
//	the round     beacon_rounds  verified rounds
//	draw          draws          the result: one row per campaign, which is a primary key
//
// Triggers refuse every UPDATE, DELETE and TRUNCATE of all tables but draw_secrets, whose
// rows may be encrypted anew. A draw that is weaker than its rules (without the randomness
// of the round in its freeze record) is refused by a trigger, too.
//
// draw_waits says what a draw under way waits for. It is for people: nothing decides by it.
// The commitment itself is in package campaign.
package drawrecord
